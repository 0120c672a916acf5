"""`AutoClassifier` and `AutoRegressor`: data as it comes, spaces in words, committees, budgets, and honest refusals."""

import dataclasses
import math
import os
import pickle
import signal
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import recall_score
from sklearn.model_selection import cross_val_score

import gradwise
from gradwise.data.scaling import MaxAbs
from gradwise.estimators import AutoClassifier, AutoRegressor
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.portfolio import portfolio_of
from gradwise.records.data_read import SetSizes
from gradwise.reporting.report import verdict
from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.budget import Budget
from gradwise.searching.strategies.random_search import Random, Sobol
from gradwise.specs.dataset import Column, Dataset
from gradwise.specs.knobs import switch
from gradwise.specs.paths import get
from gradwise.specs.priors import Choice, LogUniform
from gradwise.specs.search_space import dimension
from gradwise.training.stopping import Off
from tests.marks import parametrize_one_quick

RATE = "optimiser.optimiser.learning_rate"
TINY: dict[str, Any] = {
    "model": Mlp(widths=(16,), dropout=0.0),
    "stopping": Off(epochs=20),
    "optimiser.learning_rate": Choice((0.01, 0.03)),
}


def quick(**changes: Any) -> dict[str, Any]:
    """Parameters of a search that ends in a moment; `space` is added to the tiny one."""
    space = {**TINY, **changes.pop("space", {})}
    finals = {"committee": "seeds", "finalists": 1, "seeds": 2}
    return {"budget": "2 trials", "space": space, "strategy": Random(), **finals, "random_state": 0, **changes}


# What is learned.


@pytest.mark.slow
def test_a_search_ends_with_a_study_a_recipe_and_a_committee(iris):
    X, y = iris
    found = AutoClassifier(**quick(budget="3 trials", finalists=2, seeds=10)).fit(X[:100], y[:100])
    assert found.score(X[100:], y[100:]) > 0.85
    study = found.study_
    assert isinstance(study, gradwise.Study)
    assert [trial.phase for trial in study.trials] == ["search"] * 3 + ["finalist"] * 4
    assert study.data.folds == 5  # too few rows for one validation part
    assert len(found.predictor_.members) == 2 * 5
    assert found.best_recipe_ == study.trials[study.winner.number].recipe
    assert get(found.best_recipe_, "model.widths") == (16,)
    assert get(found.best_recipe_, RATE) in (0.01, 0.03)
    assert "too few" in study.analysis.advice.sentence
    np.testing.assert_array_equal(found.predict_proba(X), found.predictor_.predict(X))


@pytest.mark.slow
def test_the_mini_batch_size_is_chosen_at_the_end_where_asked(iris):
    X, y = iris
    said = quick(committee="ensemble", strategy=None, batch_size="auto", space={"batches.size": 16})
    study = AutoClassifier(**said).fit(X, y).study_
    found = study.analysis.batch_size
    assert [line.size for line in found.table] == [4, 8, 16, 32, 64]
    phases = [trial.phase for trial in study.trials]
    assert phases.count("size") == 5 * 3 * 2
    assert phases.count("batch") == (0 if found.recommended == 16 else 9)
    assert study.committee.trials == 2 + phases.count("batch")


def test_no_row_is_set_aside_for_a_test(iris):
    X, y = iris
    study = AutoClassifier(**quick()).fit(X, y).study_
    rows = study.data.rows
    assert rows.test == 0
    assert rows.train + rows.valid == 150
    assert study.estimates.test is None


@pytest.mark.slow
def test_a_budget_of_trials_makes_fit_a_function_of_its_seed(iris):
    X, y = iris
    first, again = (AutoClassifier(**quick()).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    free = AutoClassifier(**quick(random_state=None)).fit(X, y)
    assert not np.array_equal(free.predict_proba(X), first.predict_proba(X))
    repeated = AutoClassifier(**quick(random_state=free.study_.seed)).fit(X, y)
    np.testing.assert_array_equal(repeated.predict_proba(X), free.predict_proba(X))


@pytest.mark.slow
def test_a_search_is_an_estimator_like_any_other(iris):
    X, y = iris
    estimator = AutoClassifier(**quick()).set_params(seeds=1)
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    assert cross_val_score(estimator, X, y, cv=2).mean() > 0.8
    fitted = estimator.fit(X, y)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    assert copy.study_.winner == fitted.study_.winner


# How rows are judged.


@parametrize_one_quick(("rows", "train", "valid", "folds"), [(19, 19, 19, 1), (40, 32, 8, 1), (100, 80, 20, 5)])
def test_the_number_of_rows_says_how_trials_are_judged(iris, rows, train, valid, folds):
    X, _ = iris
    data = AutoRegressor(**quick(seeds=1)).fit(X[:rows, :3], X[:rows, 3]).study_.data
    assert data.rows == SetSizes(train, valid, 0)
    assert data.folds == folds


def test_validation_data_is_what_settings_are_chosen_by(iris):
    X, y = iris
    found = AutoClassifier(**quick(seeds=1)).fit(X[:100], y[:100], validation_data=(X[100:], y[100:]))
    data = found.study_.data
    assert data.rows == SetSizes(100, 50, 0)
    assert data.folds == 1
    wrong = np.mean(found.predict(X[100:]) != y[100:])
    assert found.study_.estimates.metrics["valid"]["error_rate"] == pytest.approx(wrong)


# Data as it comes.


@pytest.mark.slow
def test_words_and_holes_in_a_table_and_words_as_classes():
    draw = np.random.default_rng(3)
    frame = pd.DataFrame({"size": draw.normal(size=150), "colour": draw.choice(["red", "green", "blue"], 150)})
    y = np.where((frame["colour"] == "red") | (frame["size"] > 1), "sell", "keep")
    frame.loc[::7, "size"] = np.nan
    frame.loc[3::50, "colour"] = None
    found = AutoClassifier(**quick(seeds=1)).fit(frame, y)
    assert found.score(frame, y) > 0.85
    assert found.classes_.tolist() == ["keep", "sell"]
    assert found.feature_names_in_.tolist() == ["size", "colour"]
    assert set(found.predict(frame.iloc[:5])) <= {"keep", "sell"}
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        found.predict(frame[frame.columns[::-1]])


def test_sparse_rows_give_what_dense_rows_give(iris):
    X, y = iris
    X = np.where(X > 2, X, 0.0)
    settings = quick(seeds=1, space={"scaler": MaxAbs()})
    dense = AutoClassifier(**settings).fit(X, y).predict_proba(X)
    thin = AutoClassifier(**settings).fit(sparse.csr_array(X), y).predict_proba(sparse.csr_array(X))
    np.testing.assert_array_equal(thin, dense)


@pytest.mark.slow
def test_several_labels_and_several_numbers_at_once(iris):
    X, y = iris
    labels = np.stack([y == 0, y == 2], axis=1).astype(int)
    found = AutoClassifier(**quick(seeds=1)).fit(X, labels)
    assert found.study_.task == "labels"
    assert np.mean(found.predict(X) == labels) > 0.9
    numbers = AutoRegressor(**quick(seeds=1)).fit(X[:, :2], X[:, 2:])
    assert numbers.predict(X[:, :2]).shape == (150, 2)
    assert numbers.score(X[:, :2], X[:, 2:]) > 0.7


@pytest.mark.slow
def test_weights_of_rows_and_classes_count():
    draw = np.random.default_rng(1)
    y = (np.arange(300) < 15).astype(int)
    X = draw.normal(size=(300, 2)) + 1.2 * y[:, None]
    settings = quick(seeds=1)
    plain = AutoClassifier(**settings).fit(X, y)
    balanced = AutoClassifier(**settings, class_weight="balanced").fit(X, y)
    weighted = AutoClassifier(**settings).fit(X, y, sample_weight=np.where(y == 1, 19.0, 1.0))
    assert recall_score(y, balanced.predict(X)) > recall_score(y, plain.predict(X)) + 0.3
    assert recall_score(y, weighted.predict(X)) > recall_score(y, plain.predict(X)) + 0.3


# Where to search.


def a_table(task: Any) -> Dataset:
    targets = np.zeros(40, int) if task.kind == "classes" else np.zeros((40, 1))
    return Dataset(np.zeros((40, 2)), targets, task, (Column("a"), Column("b")))


def test_a_space_in_words_and_values():
    task = a_table(gradwise.Classes(np.array([0, 1])))
    split = gradwise.defaults.classification().split
    said = {
        "optimiser": Sgd(),
        "model__dropout": 0.25,
        "optimiser.learning_rate": "log(1e-3, 1e-1)",
        "model.widths.each": "integers(8, 16)",
        "batches.size": Choice((16, 32)),
    }
    space = AutoClassifier(space=said)._space(task, split)
    assert space.paths == ("model.widths.each", "optimiser.learning_rate", "batches.size")
    assert AutoClassifier(space=dict(reversed(said.items())))._space(task, split) == space
    assert space["optimiser.learning_rate"].prior == LogUniform(1e-3, 1e-1)
    assert get(space.recipe, "model.dropout") == 0.25
    assert isinstance(space.recipe.optimiser, Sgd)
    wrapped = AutoClassifier(space={"optimiser.learning_rate": "log(1e-3, 1e-1)"})._space(task, split)
    assert wrapped.paths == (RATE,)  # through the wrapper that the recommended optimiser is


def test_values_alone_leave_the_rest_of_the_recommended_space():
    task = a_table(gradwise.Numbers(("y",)))
    recommended = gradwise.defaults.search_space(gradwise.defaults.for_search(task))
    space = AutoRegressor(space={"model.dropout": 0.25})._space(task, recommended.recipe.split)
    assert space.paths == tuple(path for path in recommended.paths if path != "model.dropout")
    assert get(space.recipe, "model.dropout") == 0.25
    as_it_comes = AutoRegressor()._space(task, recommended.recipe.split)
    assert dataclasses.replace(as_it_comes, portfolio=()) == recommended
    assert as_it_comes.portfolio == portfolio_of(recommended.recipe) != ()
    assert all(get(one, "model.dropout") == 0.25 for one in space.portfolio)


@pytest.mark.slow
def test_a_space_of_ones_own_brings_its_recipe(iris):
    X, y = iris
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(8,), dropout=0.0), optimiser=Sgd(), stopping=Off(epochs=10)
    )
    space = gradwise.Space(recipe, (dimension(recipe, "optimiser.learning_rate", LogUniform(0.03, 0.3)),))
    found = AutoClassifier(**{**quick(seeds=1, strategy=Sobol()), "space": space}).fit(X, y)
    assert found.study_.strategy == "Sobol"
    assert found.study_.data.rows.test == 0  # not the split of that recipe
    rates = {trial.values["optimiser.learning_rate"] for trial in found.study_.searched}
    assert len(rates) == 2
    assert all(0.03 <= rate <= 0.3 for rate in rates)
    assert found.best_recipe_.model == recipe.model


@pytest.mark.slow
def test_a_metric_is_followed_and_told(iris):
    X, y = iris
    found = AutoClassifier(**quick(seeds=1, metric="log_loss")).fit(X, y)
    assert found.study_.metric == "log_loss"
    assert get(found.best_recipe_, "criterion.loss.score_by") == "loss"


# Committees.


def test_bagged_networks_answer_together_and_better_than_they_do_alone(iris):
    X, _ = iris
    inputs, target = X[:, :3], X[:, 3]
    found = AutoRegressor(**quick(committee="bagging", seeds=4)).fit(inputs[:100], target[:100])
    assert found.study_.committee.kind == "bagging"
    members = found.predictor_.members
    assert len(members) == 4
    each = np.stack([member.predict(inputs[100:]).ravel() for member in members])
    np.testing.assert_allclose(found.predict(inputs[100:]), each.mean(0), rtol=1e-12)
    # Each saw a bootstrap sample of its own: its scaler has the means of that sample, not of the training rows.
    means = {tuple(np.round(member.scaler.apply(np.zeros((1, 3)))[0], 6)) for member in members}
    assert len(means) == 4
    together = np.mean((found.predict(inputs[100:]) - target[100:]) ** 2)
    alone = np.mean((each - target[100:]) ** 2, axis=1)
    assert together < alone.mean()
    disagreement = np.mean((each - each.mean(0)) ** 2)
    assert alone.mean() - together == pytest.approx(disagreement, rel=1e-6)


@pytest.mark.parametrize(("committee", "members"), [("inputs", 2), ("contenders", 5)])
def test_other_committees_by_name(iris, committee, members):
    X, y = iris
    found = AutoClassifier(**quick(committee=committee)).fit(X, y)
    assert found.study_.committee.kind == committee
    assert len(found.predictor_.members) >= members
    assert found.score(X, y) > 0.8


def test_without_finalists_the_best_trials_answer(iris):
    X, y = iris
    found = AutoClassifier(**quick(finalists=0, committee="contenders")).fit(X, y)
    assert [trial.phase for trial in found.study_.trials] == ["search", "search"]
    assert found.study_.committee.kind == "contenders"
    assert found.score(X, y) > 0.8


def test_as_it_comes_the_recommended_recipe_is_first_and_an_ensemble_answers(iris):
    X, y = iris
    found = AutoClassifier("3 trials", random_state=0).fit(X, y)
    study, first = found.study_, found.study_.trials[0]
    assert study.strategy == "Recommended"
    assert first.recipe.model == gradwise.defaults.table("classes", len(X)).model
    assert [trial.phase for trial in study.trials] == ["search"] * 3
    assert study.committee.kind == "ensemble"
    assert sum(study.committee.weights.values()) == pytest.approx(1.0)
    assert len(found.predictor_.members) == 8 * len(study.committee.weights)  # eight folds of each
    assert found.score(X, y) > 0.95
    assert study.committee.honest < 0.1


# Budgets and options.


def test_time_is_a_budget_too_and_one_trial_runs_however_little_there_is(iris, capsys):
    X, y = iris
    found = AutoClassifier(**quick(budget=Budget(seconds=1e-6), verbose=True)).fit(X, y)
    assert found.study_.settings["budget"] == "1e-06s"
    assert [trial.phase for trial in found.study_.trials] == ["search"]
    assert found.score(X, y) > 0.8
    assert "search 1: best validation score 0." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parameters", "fitting", "message"),
    [
        ({"budget": 32}, {}, r"invalid budget '?32'?. Did you mean trials or seconds\?"),
        ({"budget": "soon"}, {}, "invalid budget 'soon'. Give a time .60s, 10min"),
        ({"budget": "0 trials"}, {}, "at least 1 trial"),
        ({"budget": None}, {}, "invalid budget None"),
        ({"budget": "+5 trials"}, {}, "write '5 trials'"),
        ({"strategy": "random"}, {}, "`strategy` must be None or a strategy"),
        ({"committee": "seed"}, {}, "unknown committee 'seed'"),
        ({"finalists": -1}, {}, "`finalists` must be a whole number from 0 on; got -1"),
        ({"seeds": 0}, {}, "`seeds` must be a whole number from 1 on; got 0"),
        ({"seeds": 2.5}, {}, "`seeds` must be a whole number"),
        ({"batch_size": 64}, {}, "`batch_size` must be None or 'auto'; got 64"),
        ({"on": "mars"}, {}, "unknown device `mars`"),
        ({"metric": "rmse"}, {}, "unknown metric `rmse` for classes"),
        ({"validation_fraction": 0}, {}, "must be above 0"),
        ({"validation_fraction": 1.0}, {}, r"must lie in \[0, 1\)"),
        ({"class_weight": {7: 1.0}}, {}, "which is not a class of the target"),
        ({"space": 3}, {}, "`space` must be None, a mapping"),
        (
            {"space": {"optimizer.learning_rate": "log(1e-3, 1)"}},
            {},
            "unknown knob `optimizer.learning_rate`.*'optimiser.learning_rate'",
        ),
        ({"space": {"optimiser.learning_rat": "log(1e-3, 1)"}}, {}, "Did you mean 'optimiser.learning_rate'"),
        (
            {"space": {"optimiser.learning_rate": "often"}},
            {},
            "`space` optimiser.learning_rate: invalid range 'often'",
        ),
        ({"space": {"optimiser.learning_rate": "log(-1, 1)"}}, {}, "positive low end"),
        ({"space": {"model.dropout": "uniform(0, 2)"}}, {}, r"`model.dropout` must lie in \[0, 1\]"),
        ({"space": {"model.dropout": 2.0}}, {}, "`Mlp.dropout` must lie in"),
        ({}, {"validation_data": 3}, "`validation_data` must be"),
        ({}, {"y": np.zeros(150)}, "one class"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_a_line(iris, parameters, fitting, message):
    X, y = iris
    with pytest.raises(RequestError, match=message) as refused:
        AutoClassifier(**{**quick(), **parameters}).fit(**{"X": X, "y": y, **fitting})
    assert "\n" not in str(refused.value)


class Interrupting(Random):
    """A strategy that presses Ctrl-C once so many trials have ended."""

    after: int = switch(0, row="E1", about="trials before it")

    def ask(self, space: Any, history: Any, count: int, *, key: Any) -> Any:
        if len(history.trials) >= self.after:
            os.kill(os.getpid(), signal.SIGINT)
        return super().ask(space, history, 1, key=key) if not history.running else []


def test_an_interrupted_search_keeps_what_it_has(iris):
    X, y = iris
    settings = quick(budget="50 trials")
    with pytest.warns(UserWarning, match="the search was interrupted"):
        found = AutoClassifier(**{**settings, "strategy": Interrupting(after=1)}).fit(X, y)
    assert found.study_.outcome == "interrupted"
    assert len(found.study_.trials) < 5
    assert found.predict(X).shape == (150,)
    with pytest.raises(KeyboardInterrupt):  # there is nothing to keep
        AutoClassifier(**{**settings, "strategy": Interrupting(after=0)}).fit(X, y)


@pytest.mark.slow
def test_processes_beside_this_one_find_the_same(iris):
    X, y = iris
    here = AutoClassifier(**quick()).fit(X, y)
    there = AutoClassifier(**quick(on="workers:2")).fit(X, y)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)


# Where nothing comes of it.


def test_where_every_trial_diverged_fit_warns_and_predict_says_why(iris):
    X, _ = iris
    space = {"optimiser": Sgd(), "optimiser.learning_rate": "log(1e8, 1e9)"}
    regressor = AutoRegressor(**quick(space=space, seeds=1))
    with pytest.warns(ConvergenceWarning, match="learning_rate"):
        regressor.fit(X[:, :3], X[:, 3])
    assert {trial.outcome for trial in regressor.study_.trials} == {"diverged"}
    assert regressor.predictor_ is None
    assert regressor.best_recipe_ is None
    with pytest.raises(RequestError, match=r"there is nothing to predict with: .*diverged"):
        regressor.predict(X[:, :3])


def test_where_no_trial_could_start_fit_says_why(iris):
    X, y = iris
    narrow = eqx.nn.Linear(2, 3, key=jax.random.key(0))
    space = {"model": narrow, "stopping": Off(epochs=2), "optimiser.learning_rate": "log(1e-3, 1e-1)"}
    with pytest.raises(RequestError, match=r"no trial could be trained: the model failed on an example"):
        AutoClassifier(**{**quick(), "space": space}).fit(X, y)


# A network and a loss of the user's own.


class Waves(eqx.Module):
    """A network of the user's own: sines of the inputs, added up."""

    pitch: jax.Array
    volume: jax.Array

    def __init__(self, inputs: int, waves: int, *, key: Any):
        first, second = jax.random.split(key)
        self.pitch = jax.random.normal(first, (waves, inputs))
        self.volume = jax.random.normal(second, (waves,)) / math.sqrt(waves)

    def __call__(self, x: jax.Array) -> jax.Array:
        return (self.volume @ jnp.sin(self.pitch @ x))[None]


def absolute_error(model: Any, batch: Any, key: Any) -> Any:
    return jnp.mean(batch.weights * jnp.abs(jax.vmap(model)(batch.inputs) - batch.targets).sum(1))


@pytest.mark.slow
def test_a_network_and_a_loss_of_ones_own_are_searched_as_they_are():
    draw = np.random.default_rng(0)
    X = draw.uniform(-3, 3, (120, 1))
    y = np.sin(X)
    network = Waves(1, 20, key=jax.random.key(3))
    before = np.asarray(network.pitch)
    recipe = gradwise.defaults.regression(
        model=network, criterion=absolute_error, optimiser=Sgd(), stopping=Off(epochs=100)
    )
    space = gradwise.Space(recipe, (dimension(recipe, "optimiser.learning_rate", LogUniform(1e-3, 0.3)),))
    study = gradwise.search(
        gradwise.Dataset(X, y, gradwise.Numbers(("wave",))),
        space=space,
        trials=4,
        plan=gradwise.SearchPlan(finalists=1, seeds=2, refine=False, borders=False),
        on="here",
    ).record
    assert {trial.outcome for trial in study.trials} == {"finished"}
    assert len({trial.values["optimiser.learning_rate"] for trial in study.searched}) == 4
    assert all(isinstance(trial.recipe.model, Waves) for trial in study.trials)
    assert np.array_equal(network.pitch, before)
    assert isinstance(study.predictor.members[0].network, Waves)
    assert np.mean((study.predictor.predict(X) - y) ** 2) < 0.2 * y.var()
    assert study.estimates.metrics["test"]["r2"] > 0.5

    said = {"model": network, "criterion": absolute_error, "optimiser": Sgd(), "stopping": Off(epochs=100)}
    ranges = {"optimiser.learning_rate": Choice((0.03, 0.1))}
    found = AutoRegressor(**{**quick(seeds=1), "space": {**said, **ranges}}).fit(X, y.ravel())
    assert found.score(X, y.ravel()) > 0.5


# Few rows.


def _noise(rows, seed):
    draw = np.random.default_rng(seed)
    return draw.normal(size=(rows, 5)), np.arange(rows) % 2


def test_a_search_of_twelve_rows_of_noise_promises_nothing():
    """It can learn them by heart, and with 200 weights it does."""
    X, y = _noise(12, 3)
    study = AutoClassifier("2 trials", random_state=0).fit(X, y).study_
    assert study.winner.score == 0.0
    said = verdict(study)
    assert said.headline == "No estimate of the error"
    assert "too few" in said.interval
    assert study.winner.corrected is None
    assert study.committee.honest is None
    told = " ".join(finding.what for finding in study.findings)
    assert "expect about" not in told
    assert "no validation error" not in told
    assert [one.level for one in study.findings if one.code == "GW214"] == ["warning"]
    assert not study.analysis.advice.go_on


@parametrize_one_quick("seed", [0, 1, 2, 3])
def test_neither_does_one_that_holds_out_two_of_them(seed):
    dataset = gradwise.Dataset(*_noise(12, seed), gradwise.Classes(np.array(["p", "q"])))
    recipe = gradwise.defaults.table("classes", 12, stopping=Off(epochs=20))
    space = gradwise.Space(recipe, (dimension(recipe, RATE, LogUniform(1e-3, 0.1)),))
    study = gradwise.search(dataset, space=space, trials=2, seed=seed, on="here").record
    assert study.winner.corrected is None
    assert study.committee.honest is None
    said = verdict(study)
    assert said.headline == "No estimate of the error"
    assert "on 2 test examples" in said.interval
