"""Saved networks as predictors: alone, or together in a committee (row D9).

    make_committee(finalists, data)                            one setting, other seeds
    make_committee(contenders, data, kind="contenders")        the best of different settings
    make_ensemble(contenders, data, "error_rate", best=7)      all of them, each by its weight (`ensemble.py`)

Each predictor is what `fit` would return for its network: scaler, network, temperature. With folds a trial has one
network per fold, and an example is scored by the network that was not trained on it.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...curvature.objective import Examples
from ...evaluation.metrics import BALANCED, measure
from ...evaluation.trials.cost import cheapest_within
from ...evaluation.trials.selection_bias import contenders as likely_best
from ...evaluation.trials.selection_bias import mean_and_variance
from ...records.finding import Finding
from ...records.trial import Trial
from ...runtime.errors import RequestError, nearest
from ...specs.adapters import as_criterion
from ...specs.contracts import AbstractCriterion
from ...specs.dataset import Dataset
from ...specs.fitted_scaler import FittedScaler
from ...specs.recipe import Recipe
from ...specs.serialisation import to_plain
from ...training.committee import Committee, committee_of, mean_prediction
from ...training.predictor import Predictor, fit_temperature, outputs_of, scaled_for
from ...training.prepare import place_examples, weights_of_classes
from ..running.evaluation_data import WHOLE, EvaluationData, Variant
from ..storage.network_store import TrainedTrial
from .ensemble import gain_of, held_out, select_weights, weighted_mean

ANSWERS = ("ensemble", "best", "cheapest", "none")  # made of the trials as they are
KINDS = (*ANSWERS, "seeds", "bagging", "inputs", "contenders")
_CHUNK = 4096  # test examples scored at once
_MOST_CONTENDERS = 5  # members of a committee of different settings


def check_kind(kind: str) -> str:
    """The name, if there is such a committee."""
    if kind not in KINDS:
        raise RequestError(f"unknown committee {kind!r}; choose from {', '.join(KINDS)}.{nearest(kind, KINDS)}")
    return kind


def setting_of(recipe: Recipe) -> str:
    """What two runs of one setting have in common: every choice, whether the space varies it or not."""
    try:
        return json.dumps(to_plain(recipe, {}), sort_keys=True)
    except RequestError:  # a part of the user's own that has no written form
        return eqx.tree_pformat(recipe, width=10**6)


class Scalers:
    """Fitted scalers and scaled test sets, each made once."""

    def __init__(self, data: EvaluationData):
        self.data = data
        self._fitted: dict[tuple[str, Variant], FittedScaler] = {}
        self._tests: dict[tuple[str, Variant, int], Examples] = {}

    def _mark(self, recipe: Recipe, variant: Variant) -> tuple[str, Variant]:
        same = variant if variant[0] in {"bag", "inputs", "fold"} else WHOLE
        return eqx.tree_pformat(recipe.scaler, width=10**6, short_arrays=False), same

    def fitted(self, recipe: Recipe, variant: Variant) -> FittedScaler:
        mark = self._mark(recipe, variant)
        if mark not in self._fitted:
            self._fitted[mark] = self.data.scaler(recipe.scaler, variant)
        return self._fitted[mark]

    def test(self, recipe: Recipe, variant: Variant) -> Examples:
        """The test set as validation sets are: scaled, in the network's units, weighted."""
        mark, data = (*self._mark(recipe, variant), self.data.slots(recipe)), self.data
        assert data.test is not None
        if mark not in self._tests:
            balanced = data.metric in BALANCED
            weights = weights_of_classes("balanced", data.test) if balanced else None
            weights = weights if balanced else weights_of_classes(data.class_weight, data.train)
            scaler, slots = self.fitted(recipe, variant), data.slots(recipe)
            self._tests[mark] = place_examples(data.test, scaler, data.units, weights, slots)
        return self._tests[mark]


def on_device(tree: PyTree) -> PyTree:
    """Numbers as the device holds them, so that knobs that differ share one program; what is off stays off."""
    leaves, structure = jax.tree.flatten(tree)
    numbers = {n: leaf for n, leaf in enumerate(leaves) if isinstance(leaf, np.floating | np.ndarray)}
    held = [np.asarray(leaf, np.float32) if isinstance(leaf, np.floating) else leaf for leaf in numbers.values()]
    there = dict(zip(numbers, jax.device_put(held), strict=True))  # all in one transfer
    return jax.tree.unflatten(structure, [there.get(n, leaf) for n, leaf in enumerate(leaves)])


@dataclasses.dataclass(frozen=True)
class _Trained:
    """A contender as predictors, and its predictions of the examples that it was judged by."""

    predictors: tuple[Predictor, ...]
    judged: np.ndarray
    part: Dataset


def _trained(kept: TrainedTrial, data: EvaluationData, scalers: Scalers) -> _Trained:
    """With folds each example is predicted by the network that did not see it. One temperature for all its networks,
    since the examples of one fold alone would be too few to fit one."""
    task = data.train.task
    criterion = as_criterion(kept.recipe.criterion)
    fitted = [scalers.fitted(kept.recipe, variant) for variant in kept.variants]
    networks = [on_device(network) for network in kept.networks]
    part = data.pool if kept.variants[0][0] == "fold" else data.valid
    if kept.outputs is not None:
        outputs = np.asarray(kept.outputs, float)[: len(part)]
    elif kept.variants[0][0] == "fold":
        outputs = np.zeros((len(part), task.outputs))
        for network, scaler, variant in zip(networks, fitted, kept.variants, strict=True):
            rows = data.judged_rows(variant)
            outputs[rows] = outputs_of(network, scaled_for(network, scaler, part.inputs[rows]))
    else:
        outputs = outputs_of(networks[0], scaled_for(networks[0], fitted[0], part.inputs))
    temperature = fit_temperature(criterion, outputs, np.asarray(part.targets)) if task.kind == "classes" else 1.0
    about = (
        criterion,
        temperature,
        *data.units,
        task,
        data.train.columns,
        data.train.shape,
    )
    predictors = tuple(Predictor(s, n, *about) for s, n in zip(fitted, networks, strict=True))
    return _Trained(predictors, predictors[0].from_outputs(outputs), part)


def together(
    kept: Sequence[TrainedTrial], data: EvaluationData, scalers: Scalers
) -> tuple[Committee, np.ndarray, Dataset]:
    """The committee, and its predictions of validation examples."""
    several = [_trained(one, data, scalers) for one in kept]
    part = several[0].part
    mean = mean_prediction([one.judged for one in several])
    members = tuple(predictor for one in several for predictor in one.predictors)
    committee = committee_of(members, mean, np.asarray(part.targets))
    return committee, committee.tempered(mean), part


def choose_cheapest(trials: Sequence[Trial], kept: Sequence[TrainedTrial]) -> tuple[Trial, list[Finding]]:
    """Of the trials whose networks were kept, the cheapest within a standard error of the best one's score (E15).

    The trials come best first. Beside it, what was given up for what.
    """
    by_number = {one.number: one for one in kept}
    able = [trial for trial in trials if trial.number in by_number]
    scores = by_number[able[0].number].scores
    error = math.sqrt(float(mean_and_variance(scores[None])[1][0])) if len(scores) > 1 else 0.0
    found = cheapest_within(able, error)
    assert found is not None
    if found is able[0]:
        return found, []
    best = able[0]
    costs = ((found.parameters, best.parameters, "parameters"), (found.age_examples, best.age_examples, "examples"))
    saved = " and ".join(f"{mine:,} {what} instead of {its:,}" for mine, its, what in costs if mine != its)
    what = f"trial {found.number} was chosen over trial {best.number}, the best: its score is within one standard "
    what += f"error of the best, and it needs {saved}."
    return found, [Finding("note", what, "E15")]


def indistinct(kept: Sequence[TrainedTrial]) -> list[TrainedTrial]:
    """Of different settings those that validation cannot tell from the best, five at the most."""
    different: dict[str, TrainedTrial] = {}
    for one in sorted(kept, key=lambda k: (k.score, k.loss, k.number)):
        different.setdefault(setting_of(one.recipe), one)
    several = list(different.values())
    if len(several[0].scores) < 2:
        return several[:1]
    chosen = set(likely_best(*mean_and_variance(np.stack([one.scores for one in several]))).tolist())
    return [one for place, one in enumerate(several) if place in chosen or place == 0][:_MOST_CONTENDERS]


def make_committee(kept: Sequence[TrainedTrial], data: EvaluationData, kind: str = "seeds") -> Committee:
    """Model averaging over all networks of these trials; of "contenders", over the best of different settings."""
    check_kind(kind)
    if not kept:
        raise RequestError("no committee: no trial saved a network.")
    return together(indistinct(kept) if kind == "contenders" else kept, data, Scalers(data))[0]


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """A committee of weighted trials, and what validation examples say of it, as values of the metric.

    `honest` is with weights that were chosen by other examples than those that judge, `best` that of the best trial.
    `last_gain` is what the second half of the trials took off the honest loss, and its standard error.
    """

    committee: Committee
    judged: np.ndarray
    part: Dataset
    weights: dict[int, float]
    honest: float
    best: float
    last_gain: tuple[float, float]


def make_ensemble(kept: Sequence[TrainedTrial], data: EvaluationData, metric: str, best: int) -> Ensemble:
    """The networks of all trials that help, by weight; those of one trial share its weight.

    `best` is the number of the trial that it is compared with.
    """
    scalers = Scalers(data)
    several = [_trained(one, data, scalers) for one in kept]
    part, kind = several[0].part, data.train.task.kind
    predictions = np.stack([one.judged for one in several])
    counted = part.weights
    options: dict[str, Any] = {"kind": kind, "seed": data.words[-1], "counted": counted}
    weights = select_weights(predictions, np.asarray(part.targets), **options)
    by_number = np.argsort([one.number for one in kept])
    first = np.sort(by_number[: -(-len(kept) // 2)])
    honest, half = (held_out(some, np.asarray(part.targets), **options) for some in (predictions, predictions[first]))
    members = tuple(p for one, weight in zip(several, weights, strict=True) if weight for p in one.predictors)
    shares = [w / len(one.predictors) for one, w in zip(several, weights, strict=True) if w for _ in one.predictors]
    mean = weighted_mean(predictions, weights)
    committee = committee_of(members, mean, np.asarray(part.targets), tuple(float(share) for share in shares))
    single = predictions[[one.number for one in kept].index(best)]
    values = [
        measure(part.task, one, part.targets, counted, (metric,))[metric]
        for one in (committee.tempered(honest), single)
    ]
    gain = gain_of(honest, half, np.asarray(part.targets), kind=kind)
    shares_of = {one.number: float(weight) for one, weight in zip(kept, weights, strict=True) if weight}
    return Ensemble(committee, committee.tempered(mean), part, shares_of, values[0], values[1], gain)


@eqx.filter_jit
def _score(criterion: AbstractCriterion, network: PyTree, inputs: Array, targets: Array) -> Float[Array, " n"]:
    return criterion.examples(network, inputs, targets)[0]


def member_scores(criterion: AbstractCriterion, network: PyTree, part: Examples) -> np.ndarray:
    """The score of each example, counted by its weight; the last chunk overlaps the one before."""
    count = len(part)
    size = min(count, _CHUNK)
    found = np.zeros(count)
    for begin in range(0, count, size):
        start = min(begin, count - size)
        rows = slice(start, start + size)
        found[rows] = np.asarray(_score(criterion, network, part.inputs[rows], part.targets[rows]))
    if part.weights is not None:
        found *= np.asarray(part.weights) / np.mean(part.weights)
    return found
