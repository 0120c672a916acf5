"""Learners of features are chosen by their own score or by a linear probe, never by the reconstruction error."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier

from gradwise import defaults
from gradwise.criteria.corruption import Clean, Masking
from gradwise.criteria.linear_probe import Probed
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.data.splits import HoldOut
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.runtime.errors import RequestError
from gradwise.searching.search import Budget, SearchPlan, StudyOptions, run_study
from gradwise.searching.selection.feature_choice import choose_metric
from gradwise.searching.strategies.grid import Grid
from gradwise.specs.dataset import Labels
from gradwise.specs.priors import Choice
from gradwise.specs.search_space import Space, dimension
from gradwise.training.final_measurement import measures_of
from gradwise.training.stopping import Off
from gradwise.training.train import train
from tests.searching.small_study import diabetes, digits


def features(learner="denoising", units=16, epochs=12.0, **parts):
    given = {"split": HoldOut(0.3, 0.3), "stopping": Off(epochs=epochs, spacing=1.0), **parts}
    return defaults.features(learner, units, **given)


def space_of(recipe, **choices):
    named = {name.replace("__", "."): values for name, values in choices.items()}
    return Space(recipe, tuple(dimension(recipe, path, Choice(values)) for path, values in named.items()))


def searched(space, dataset, trials, **given):
    given = {"strategy": Grid(), "plan": SearchPlan(borders=False, refine=False, committee="none"), **given}
    options = StudyOptions(on="here")
    return run_study(space, dataset, budget=Budget(trials=trials), key=jax.random.key(0), options=options, **given)


@pytest.fixture(scope="module")
def noisy():
    """A study of how much noise to learn from: little copies best, much repairs best."""
    recipe = features(units=128, epochs=40.0, optimiser=Adam(0.01))
    return searched(space_of(recipe, criterion__corruption__level=(0.02, 0.4)), digits(), 2)


def test_what_repairs_best_wins_and_not_what_copies_best(noisy):
    by_level = {trial.values["criterion.corruption.level"]: trial for trial in noisy.trials}
    assert by_level[0.02].loss < by_level[0.4].loss  # the reconstruction error would choose the other
    assert by_level[0.4].score < by_level[0.02].score
    assert noisy.winner.number == by_level[0.4].number
    assert (noisy.task, noisy.metric) == ("inputs", "denoising_error")


def test_the_numbers_are_those_of_the_network_that_answers(noisy):
    predictor = noisy.predictor
    _, _, test = HoldOut(0.3, 0.3)(digits().without_targets(), key=_split_key())
    own = measures_of(predictor.criterion, predictor.network, predictor.scaler.apply(test.inputs))
    assert noisy.estimates.test == pytest.approx(own["denoising_error"].mean(), rel=1e-5)
    low, high = noisy.estimates.test_interval
    assert low < noisy.estimates.test < high
    metrics = noisy.estimates.metrics
    assert metrics["valid"]["denoising_error"] == pytest.approx(noisy.winner.score, rel=1e-4)
    assert predictor.predict(test.inputs[:4]).shape == (4, 128)
    assert noisy.estimates.evidence.features.units.count == 128


def _split_key():
    from gradwise.runtime import keys

    return keys.named(jax.random.key(0), "split")


def test_the_first_trial_is_the_recommended_recipe_and_sizes_are_compared():
    recipe = features(epochs=2.0)
    space = defaults.search_space(recipe)
    assert space.paths == ("optimiser.learning_rate", "criterion.corruption.level", "model.widths.each")
    study = run_study(space, digits(), budget=Budget(trials=3), key=jax.random.key(0), options=StudyOptions(on="here"))
    alone = train(recipe, digits(), key=jax.random.key(0))
    first = study.trials[0]
    assert first.values == {
        "optimiser.learning_rate": 0.001,
        "criterion.corruption.level": 0.25,
        "model.widths.each": 16,
    }
    # Not the same key as a fit's, but the same learner: its error lies near.
    assert first.score == pytest.approx(alone.metrics["valid"]["denoising_error"], rel=0.05)
    assert [finding.what for finding in study.findings if finding.row == "D9"] == [
        "features of several networks cannot be averaged: the network of the best trial is used instead of `ensemble`."
    ]
    assert study.committee.members == 1


def test_a_linear_probe_chooses_where_there_are_labels():
    recipe = features("rbm", epochs=3.0)
    study = searched(space_of(recipe, model__units=(2, 24)), digits(), 2, metric="probe_error_rate")
    assert study.winner.values == {"model.units": 24}
    assert study.metric == "probe_error_rate"
    train, _, test = HoldOut(0.3, 0.3)(digits(), key=_split_key())
    codes = [study.predictor.predict(part.inputs) for part in (train, test)]
    alpha = 1e-3 * len(train) * float(codes[0].var(axis=0).mean())
    wrong = 1.0 - RidgeClassifier(alpha=alpha).fit(codes[0], train.targets).score(codes[1], test.targets)
    assert study.estimates.test == pytest.approx(wrong, abs=1e-6)
    assert study.scale.shown(study.winner.score) < 0.35 < study.chance  # ten classes, guessed
    assert set(study.estimates.metrics["test"]) == {"probe_error_rate", "pseudo_likelihood", "reconstruction_error"}


@pytest.mark.slow
def test_a_probe_of_numbers_is_in_their_unit_and_folds_are_judged_together():
    study = searched(
        space_of(features(epochs=2.0), model__widths__each=(8, 12)),
        diabetes(),
        2,
        metric="probe_rmse",
        plan=SearchPlan(folds=2, borders=False, refine=False, committee="none"),
    )
    deviation = float(diabetes().targets.std())
    assert 0.5 * deviation < study.estimates.test < 1.3 * deviation
    assert 0.5 * deviation < study.scale.shown(study.winner.score) < 1.3 * deviation
    assert study.predictor.predict(diabetes().inputs[:2]).shape == (2, study.winner.values["model.widths.each"])


RECIPE = features()
SPACE = space_of(RECIPE, model__widths__each=(4, 8))


@pytest.mark.parametrize(
    ("space", "metric", "said"),
    [
        (SPACE, "reconstruction_error", "cannot choose between feature learners: it falls with every added unit"),
        (SPACE, "error_rate", "unknown metric `error_rate` for features"),
        (SPACE, "probe_rmse", "does not apply to classes: use `probe_error_rate`"),
        (space_of(features("psd"), model__units=(4, 8)), "energy", "cannot choose between feature learners"),
        (space_of(RECIPE, criterion__judged_by__level=(0.1, 0.3)), None, "could not be compared"),
        (
            space_of(features(criterion=Reconstruction(judged_by=Clean())), model__widths__each=(4, 8)),
            None,
            "adds no noi",
        ),
        (
            space_of(features(criterion=Reconstruction(judged_by=Masking(0.0))), model__widths__each=(4, 8)),
            None,
            "adds no noise",
        ),
        (space_of(features(criterion=Probed(Reconstruction())), model__widths__each=(4, 8)), None, "its own probe"),
    ],
)
def test_what_cannot_choose_is_refused_in_one_line(space, metric, said):
    with pytest.raises(RequestError, match=said) as refused:
        choose_metric(space, digits(), metric)
    assert "\n" not in str(refused.value)


def test_a_probe_needs_a_target():
    for dataset in (digits().without_targets(), _labels()):
        with pytest.raises(RequestError, match="needs a target of classes or numbers"):
            choose_metric(SPACE, dataset, "probe_error_rate")
    several = space_of(RECIPE, criterion__judged_by__level=(0.1, 0.3))
    assert choose_metric(several, digits(), "probe_error_rate") == "probe_error_rate"  # a probe has one scale for all


def _labels():
    import dataclasses

    some = digits(40)
    return dataclasses.replace(some, targets=np.eye(10)[some.targets], task=Labels(tuple("abcdefghij")))
