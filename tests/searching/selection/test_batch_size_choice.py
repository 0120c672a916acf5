"""The mini-batch size at the end of a search: compared by time, tuned with the rate, resumed, and refused where it
cannot be chosen."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwise.data.batches import Reshuffled
from gradwise.defaults import following
from gradwise.optimisers.adaptive.vsgd import Vsgd
from gradwise.records.study_analysis import BatchSizes
from gradwise.records.trial import Trial, best_of
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.runtime.progress import silent
from gradwise.searching.running.device_runner import Varied
from gradwise.searching.running.driver import Driver
from gradwise.searching.running.executors import LocalExecutor
from gradwise.searching.running.population_size import Given
from gradwise.searching.running.study_clock import SearchPlan, StudyClock
from gradwise.searching.search import StudyOptions, run_study
from gradwise.searching.selection.batch_size_choice import (
    Design,
    check_batch_size,
    choose_batch_size,
    fitting_design,
)
from gradwise.searching.storage.budget import Budget
from gradwise.searching.storage.network_store import Contenders, TrainedTrial
from gradwise.searching.storage.study_identity import StudyIdentity
from gradwise.searching.storage.study_store import Store
from gradwise.searching.strategies.recommended import Recommended
from gradwise.specs.dataset import Classes, Column, Dataset
from gradwise.specs.priors import Choice, LogUniform
from gradwise.specs.search_space import Space, dimension
from gradwise.training.stopping import Patience
from tests.searching import small_study

RATE = "optimiser.learning_rate"
PATIENT = Patience(initial_examples=2000, initial_epochs=0, spacing=1.0, least_examples=1, epochs=30)


def blobs(count: int = 500) -> Dataset:
    draw = np.random.default_rng(0)
    targets = draw.integers(0, 3, count)
    inputs = np.random.default_rng(1).normal(size=(3, 4))[targets] * 1.5 + draw.normal(size=(count, 4))
    return Dataset(inputs, targets, Classes(np.array(["a", "b", "c"])), tuple(Column(f"c{n}") for n in range(4)))


BLOBS = blobs()


def space_of(size: int = 2, **parts: Any) -> Space:
    """Early stopping follows the loss, a smoother curve than the error rate of a few rows."""
    recipe = following(small_study.recipe_at(0.05, dataset=BLOBS), "log_loss")
    recipe = dataclasses.replace(recipe, batches=Reshuffled(size), **{"stopping": PATIENT, **parts})
    return Space(recipe, (dimension(recipe, RATE, LogUniform(0.03, 0.08)),))


class Killed(Exception):
    """Stands for a signal that nobody can catch."""


def kill_while_tuning(line: dict[str, Any]) -> None:
    if line["phase"] == "batch" and line["done"] >= 3:
        raise Killed


@dataclasses.dataclass
class Ran:
    """A study after its mini-batch size was chosen."""

    trials: list[Trial]
    found: BatchSizes
    kept: list[TrainedTrial]


def drive(folder: Path, watch: Any = silent, *, create: bool = True) -> Ran:
    """Two trials of two folds near the recipe, from a mini-batch that is far too small; every update takes a second."""
    space = space_of()
    data = small_study.data_of(BLOBS, metric="log_loss", folds=2)
    about = StudyIdentity(space, 0, Recommended(), "blobs", "classes", "log_loss", {})
    plan, budget = SearchPlan(batch_size="auto"), Budget(trials=2)
    with (
        Store.open(folder / "study.journal", None, create=create, about=about) as store,
        LocalExecutor(data, slots=Given(4), varying=Varied((RATE,))) as executor,
    ):
        kept = Contenders(folder)
        driver = Driver(space, data, executor, key=keys.from_seed(1), store=store, contenders=kept, watch=watch)
        driver.explore(Recommended(), trials=2)
        found = choose_batch_size(driver, StudyClock(budget, driver, plan), folder, timed=lambda recipe: 1.0)
        assert found is not None
        return Ran([driver.trials[number] for number in sorted(driver.trials)], found, kept.all())


@pytest.mark.slow
def test_a_size_that_is_too_small_is_moved_and_tuned_with_the_rate_and_a_killed_study_goes_on(tmp_path: Path) -> None:
    """The score is the same; what differs is how many updates it takes."""
    (tmp_path / "whole").mkdir()
    whole = drive(tmp_path / "whole")
    found = whole.found
    assert [line.size for line in found.table] == [1, 2, 4, 8]
    size = found.recommended
    assert size in {4, 8}
    assert "times as fast as the current 2." in found.sentence
    assert [trial.phase for trial in whole.trials] == ["search"] * 2 + ["size"] * 4 * 3 * 2 + ["batch"] * 9
    tuned = [trial for trial in whole.trials if trial.phase == "batch"]
    assert {trial.recipe.batches.size for trial in tuned} == {size // 2, size, 2 * size}
    assert len({(trial.recipe.batches.size, float(trial.recipe.optimiser.learning_rate)) for trial in tuned}) == 9
    assert (tuned[0].recipe.batches.size, float(tuned[0].recipe.optimiser.learning_rate)) == (size, found.rate)
    # The runs that were compared have no folds, and nothing is chosen from them; the tuned ones are trials like others.
    assert {one.number for one in whole.kept} == {t.number for t in whole.trials if t.phase != "size"}
    assert all(len(one.networks) == 2 for one in whole.kept)
    best = min(tuned, key=lambda trial: (trial.score, trial.loss, trial.number))
    assert best_of(trial for trial in whole.trials if trial.phase in {"size", "batch"}) == best
    assert f"a size of {best.recipe.batches.size} and a learning rate of" in found.sentence
    (tmp_path / "killed").mkdir()
    with pytest.raises(Killed):
        drive(tmp_path / "killed", kill_while_tuning)
    resumed = drive(tmp_path / "killed", create=False)
    assert resumed.found == found
    assert [(t.number, t.phase, t.values) for t in resumed.trials] == [
        (t.number, t.phase, t.values) for t in whole.trials
    ]
    np.testing.assert_allclose([t.score for t in resumed.trials], [t.score for t in whole.trials], atol=1e-3)


def test_a_budget_too_short_for_a_comparison_is_told(tmp_path: Path) -> None:
    options = StudyOptions(folder=tmp_path, on="here", slots=Given(2))
    plan = SearchPlan(folds=2, batch_size="auto")
    study = run_study(
        space_of(), BLOBS, budget=Budget(seconds=0.001), key=keys.from_seed(1), plan=plan, options=options
    )
    assert study.analysis.batch_size.sentence == (
        "the batch size stays 2: the budget was too short to compare other sizes."
    )
    assert study.best is not None


def test_a_comparison_is_as_large_as_the_time_allows() -> None:
    whole = Design()
    assert whole.trainings == (4 + 2 + 1 + 1 + 1) * 3 * 2
    assert fitting_design(1.0, 100.0, 2) == whole
    assert fitting_design(1.0, 20.0, 2) == Design(seeds=1)
    assert fitting_design(1.0, 8.0, 2) == Design((0.5, 1.0, 2.0), seeds=1)
    assert fitting_design(1.0, 3.0, 2) == Design((0.5, 1.0, 2.0), (1.0,), 1)
    assert fitting_design(1.0, 1.0, 2) is None
    assert fitting_design(1.0, float("inf"), 1) == whole


def test_what_cannot_be_chosen_is_refused_in_a_line() -> None:
    check_batch_size(space_of())
    recipe = space_of().recipe
    both = Space(recipe, (dimension(recipe, RATE), dimension(recipe, "batches.size", Choice((8, 16)))))
    with pytest.raises(
        RequestError, match=r"both searched \(`batches.size`\) and chosen at the end \(auto\). Leave one out"
    ):
        check_batch_size(both)
    ratefree = dataclasses.replace(recipe, optimiser=Vsgd())
    with pytest.raises(RequestError, match="the optimiser has no `learning_rate` to adapt"):
        check_batch_size(Space(ratefree, (dimension(ratefree, "model.dropout"),)))
    with pytest.raises(RequestError, match=r"`batch_size` must be None or 'auto'; got 64.*`batches.size`"):
        SearchPlan(batch_size=64)  # type: ignore[arg-type]
