"""The whole procedure judged by double cross-validation."""

import numpy as np
import pytest

from gradwise import defaults
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime import keys
from gradwise.runtime.errors import WorkError
from gradwise.searching.search import SearchPlan
from gradwise.searching.selection import nested_cv
from gradwise.searching.selection.nested_cv import Interrupted, is_worth_it, nested_search, share
from gradwise.searching.storage.budget import Budget
from gradwise.specs.dataset import Classes, Column, Dataset, Numbers
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space, dimension
from gradwise.training.stopping import Off

KEY = keys.from_seed(0)


def dataset(rows: int = 60, test: Dataset | None = None, times: np.ndarray | None = None) -> Dataset:
    random = np.random.default_rng(0)
    kind = np.arange(rows) % 2
    inputs = random.normal(size=(rows, 2)) + 4.0 * kind[:, None]
    return Dataset(inputs, kind, Classes(np.array(["a", "b"])), (Column("x"), Column("y")), test=test, times=times)


def space(rate: tuple[float, float] = (0.05, 0.2)) -> Space:
    recipe = defaults.classification(model=Mlp(widths=(4,), dropout=0.0), optimiser=Sgd(), stopping=Off(epochs=5))
    return Space(recipe, (dimension(recipe, "optimiser.learning_rate", LogUniform(*rate)),))


def test_a_budget_is_shared_out():
    own, each = share(Budget(seconds=600))
    assert own.seconds == pytest.approx(390)
    assert own.seconds + 5 * each.seconds == pytest.approx(600)
    assert share(Budget(trials=40)) == (Budget(trials=40), Budget(trials=10))
    assert share(Budget(trials=6))[1] == Budget(trials=4)


def test_it_is_done_unasked_for_small_sets_alone():
    enough = Budget(trials=8)
    assert is_worth_it(dataset(), enough)
    assert not is_worth_it(dataset(2000), enough)  # 400 rows to test by are enough
    assert not is_worth_it(dataset(test=dataset(20)), enough)
    assert not is_worth_it(dataset(times=np.arange(60.0)), enough)
    assert not is_worth_it(dataset(20), enough)  # folds of 4 rows
    assert is_worth_it(dataset(), Budget(seconds=600))
    assert not is_worth_it(dataset(), Budget(seconds=20))


@pytest.mark.slow
def test_each_outer_fold_is_searched_anew_on_the_others_alone(monkeypatch):
    seen = []
    search = nested_cv.run_study

    def watched(space, train, **options):
        seen.append((train, space.recipe.split.test, options["budget"], options["key"]))
        return search(space, train, **options)

    monkeypatch.setattr(nested_cv, "run_study", watched)
    told: dict[int, float] = {}
    data = dataset()
    found = nested_search(
        space(),
        data,
        budget=Budget(trials=2),
        key=KEY,
        plan=SearchPlan(folds=1, finalists=0),
        on="here",
        folds=3,
        known={1: 0.25},
        watch=told.__setitem__,
    )
    assert [(len(train), test, budget) for train, test, budget, _ in seen] == [(40, 0.0, Budget(trials=2))] * 2
    assert len({keys.seed_of(key) for _, _, _, key in seen}) == 2
    rows = [{tuple(row) for row in train.inputs} for train, _, _, _ in seen]
    assert rows[0] != rows[1]
    assert told == dict(enumerate(found.values))
    assert told[1] == 0.25  # measured before, and believed
    assert told[0] < 0.3  # the classes lie four deviations apart
    assert found.mean == pytest.approx(np.mean(list(told.values())))


def test_no_search_within_sees_a_row_of_the_fold_that_judges_it(monkeypatch):
    """The target of each row is its number: so the rows that are searched and those that judge can be told."""
    searched, judged = [], []
    search, true = nested_cv.run_study, nested_cv.measure

    def watched_search(space, train, **options):
        assert train.test is None
        searched.append(set(train.targets.ravel()))
        return search(space, train, **options)

    def watched_measure(task, predictions, targets, weights, metrics):
        judged.append(set(targets.ravel()))
        return true(task, predictions, targets, weights, metrics)

    monkeypatch.setattr(nested_cv, "run_study", watched_search)
    monkeypatch.setattr(nested_cv, "measure", watched_measure)
    rows = np.arange(60.0)
    data = Dataset(dataset().inputs, rows[:, None], Numbers(), (Column("x"), Column("y")))
    parts = {"model": Mlp(widths=(4,), dropout=0.0), "optimiser": Sgd(), "stopping": Off(epochs=2)}
    recipe = defaults.regression(**parts)
    inner = Space(recipe, (dimension(recipe, "optimiser.learning_rate", LogUniform(0.01, 0.02)),))
    plan = SearchPlan(folds=1, finalists=0)
    found = nested_search(inner, data, budget=Budget(trials=1), key=KEY, plan=plan, on="here", folds=3)
    assert len(searched) == len(judged) == len(found.values) == 3
    for seen, own in zip(searched, judged, strict=True):
        assert seen.isdisjoint(own)
        assert seen | own == set(rows)
    assert sorted(row for own in judged for row in own) == rows.tolist()  # each row judges once


def test_a_fold_that_was_stopped_or_left_no_model_ends_it(monkeypatch):
    plan = SearchPlan(folds=1, finalists=0)
    with pytest.raises(WorkError, match="no trial of outer fold 1 produced a model"):
        nested_search(space((1e30, 1e31)), dataset(), budget=Budget(trials=1), key=KEY, plan=plan, on="here", folds=2)

    class Stopped:
        outcome, predictor = "interrupted", None

    monkeypatch.setattr(nested_cv, "run_study", lambda *words, **more: Stopped())
    with pytest.raises(Interrupted):
        nested_search(space(), dataset(), budget=Budget(trials=1), key=KEY, plan=plan, on="here", folds=2)


def test_time_is_shared_out_evenly_among_the_folds_that_are_left(monkeypatch):
    given, now = [], [0.0]
    monkeypatch.setattr(nested_cv.time, "monotonic", lambda: now[0])

    class Done:
        outcome = "finished"
        predictor = type("Always", (), {"predict": staticmethod(lambda rows: np.tile([1.0, 0.0], (len(rows), 1)))})()

        def __init__(self, seconds):
            self.seconds = seconds

    def search(space, train, *, budget, **options):
        given.append(budget.seconds)
        now[0] += budget.seconds + 2.0  # two seconds to start workers, which no budget counts
        return Done(budget.seconds)

    monkeypatch.setattr(nested_cv, "run_study", search)
    nested_search(space(), dataset(), budget=Budget(seconds=10), key=KEY, folds=3)
    assert given == pytest.approx([10.0, 7.0, 7.0])
    assert now[0] == pytest.approx(30.0)
