"""Choosing between feature learners (row E20): by the learner's own score, or by a linear probe of a target.

    gw.search(X, unsupervised=True)                                 denoising error, pseudo-likelihood, ...
    gw.search(X, y, unsupervised=True, metric="probe_error_rate")   how well a linear probe tells the classes

The reconstruction error is never used to choose: it falls with every added unit. Features of several networks cannot
be averaged, so the network of the best trial is used.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...criteria.corruption import Clean
from ...criteria.linear_probe import Probed, Ridge, probe_scores
from ...evaluation.metrics import check_metric, interval_of_mean, wilson
from ...records.finding import Finding
from ...records.score_scale import ScoreScale
from ...records.study_conclusions import CommitteeSummary, Estimates
from ...records.trial import Trial
from ...runtime.errors import RequestError, nearest
from ...specs.adapters import as_criterion
from ...specs.dataset import Dataset, Inputs
from ...specs.paths import knobs, parts
from ...specs.search_space import Space
from ...training.final_measurement import find_features, measure_features
from ...training.predictor import Predictor, outputs_of
from ...training.prepare import place_examples, refuse_unlabelled
from ..running.evaluation_data import PROBE_METRICS, PROBE_ROWS, EvaluationData
from ..running.study_clock import SearchPlan
from ..storage.network_store import TrainedTrial
from .committee_members import on_device
from .finalists import Conclusion, chosen_from, comparable_contenders, corrected_winner, findings_of_choice

# What a score is measured in: two values of these give two scales.
_SCALES = ("scaler", "criterion.judged_by", "criterion.loss", "model.visible")
_RECONSTRUCTION = "reconstruction_error"


def learns_features(space: Space) -> bool:
    """Whether the space is one of learners that look at no target."""
    return as_criterion(space.recipe.criterion).learns_from == "inputs"


def _feature_metric(criterion: Any, model: Any, dataset: Dataset, asked: str | None) -> str:
    """The score that chooses: the learner's own, or a linear probe's where it is asked for and there are targets."""
    if isinstance(criterion, Probed):
        raise RequestError(
            "a search adds its own probe: use the criterion inside `Probed`, with metric `probe_error_rate`."
        )
    own = criterion.measured(model)
    if own[0] == _RECONSTRUCTION:
        raise RequestError(
            f"`{type(criterion).__name__}` would choose by its reconstruction error, which falls with every added "
            "unit. Choose by a linear probe: metric `probe_error_rate`."
        )
    if asked is None or asked == own[0]:
        return str(own[0])
    if asked in PROBE_METRICS:
        kind = dataset.task.kind
        suits = {"classes": "probe_error_rate", "numbers": "probe_rmse"}.get(kind)
        if suits is None:
            there = "none" if kind == "inputs" else kind
            raise RequestError(
                f"`{asked}` needs a target of classes or numbers, but the data have {there}. Name one with --target, "
                f"or leave out --metric to choose by `{own[0]}`."
            )
        if asked != suits:
            raise RequestError(f"metric `{asked}` does not apply to {kind}: use `{suits}`.")
        return asked
    if asked in own:
        why = "it falls with every added unit" if asked == _RECONSTRUCTION else "it does not measure their quality"
        raise RequestError(
            f"`{asked}` cannot choose between feature learners: {why}. Leave out --metric to choose by `{own[0]}`; all "
            "metrics are reported."
        )
    raise RequestError(f"unknown metric `{asked}` for features.{nearest(asked, (own[0], *PROBE_METRICS))}")


def _refuse_other_scales(space: Space, metric: str) -> None:
    """Refuses a space in which the learners' own scores could not be compared."""
    if metric in PROBE_METRICS:
        return
    for path in space.paths:
        if path == "criterion" or any(path == one or path.startswith(f"{one}.") for one in _SCALES):
            raise RequestError(
                f"`{path}` changes the scale of `{metric}`, so trials could not be compared. Remove it from the space, "
                "or choose by a linear probe of a target: metric `probe_error_rate`."
            )
    judged_by = dict(parts(space.recipe)).get("criterion.judged_by")
    amounts = [float(value) for path, _, value in knobs(space.recipe) if path.startswith("criterion.judged_by.")]
    if isinstance(judged_by, Clean) or (amounts and not any(amounts)):
        raise RequestError(
            "with a `criterion.judged_by` that adds no noise, the score is the plain reconstruction error, which falls "
            "with every added unit. Keep the default, Masking(0.25)."
        )


def choose_metric(space: Space, dataset: Dataset, asked: str | None) -> str:
    """The metric that trials are reported in, and of features also chosen by; what cannot choose is refused."""
    criterion = as_criterion(space.recipe.criterion)
    if not learns_features(space):
        refuse_unlabelled(criterion, dataset)
        usual = {"numbers": "rmse"}.get(dataset.task.kind, "error_rate")
        return check_metric(asked or usual, dataset.task.kind)
    metric = _feature_metric(criterion, space.recipe.model, dataset, asked)
    _refuse_other_scales(space, metric)
    return metric


def without_committee(plan: SearchPlan) -> tuple[SearchPlan, list[Finding]]:
    """The plan with one network that answers, and a line where a committee was asked for."""
    asked = plan.committee
    plan = dataclasses.replace(plan, folds=plan.folds or 1, committee="none", batch_size=None)
    if asked in ("none", "best"):
        return plan, []
    what = "features of several networks cannot be averaged"
    return plan, [Finding("note", f"{what}: the network of the best trial is used instead of `{asked}`.", "D9")]


def _probe(predictor: Predictor, data: EvaluationData, parts: dict[str, Dataset | None]) -> dict[str, np.ndarray]:
    """The probe's score of each example that has a target, by part; it is fitted on training codes."""
    classes = data.train.task.outputs if data.train.task.kind == "classes" else 0

    def coded(part: Dataset) -> tuple[Any, Any]:
        part = part.take(np.flatnonzero(part.labelled))
        examples = place_examples(part, predictor.scaler, data.units, None)
        return jnp.asarray(outputs_of(predictor.network, np.asarray(examples.inputs)), jnp.float32), examples.targets

    assert parts["train"] is not None
    learned = tuple(array[:PROBE_ROWS] for array in coded(parts["train"]))
    found = {}
    for name, part in parts.items():
        if part is not None:
            codes, targets = coded(part)
            scores, _ = probe_scores(Ridge(), (learned[0], codes), (learned[1], targets), classes)
            found[name] = np.asarray(scores, np.float64)
    return found


def _in_units(scores: np.ndarray, data: EvaluationData) -> tuple[float, tuple[float, float]]:
    """A probe's score in the metric's unit, with its interval."""
    if data.metric == "probe_error_rate":
        return float(scores.mean()), wilson(float(scores.sum()), len(scores))
    deviations = np.ravel(data.units[1])
    unit = float(deviations[0]) if len(deviations) == 1 else 1.0
    shown = ScoreScale("squared", unit).shown
    low, high = (shown(max(0.0, end)) if math.isfinite(end) else math.nan for end in interval_of_mean(scores))
    return shown(float(scores.mean())), (low, high)


def _network(kept: TrainedTrial, data: EvaluationData) -> Predictor:
    """The trial's network, that of its first fold where it has several, as what gives features."""
    scaler = data.scaler(kept.recipe.scaler, kept.variants[0])
    criterion = as_criterion(kept.recipe.criterion)
    about = (criterion, 1.0, np.zeros(1), np.ones(1), Inputs(), data.train.columns, data.train.shape)
    return Predictor(scaler, on_device(kept.networks[0]), *about)


def _measured(predictor: Predictor, kept: TrainedTrial, data: EvaluationData) -> tuple[Estimates, tuple[Finding, ...]]:
    """Evaluates the network on each set, the test set for the first and only time."""
    train, valid = data.parts(kept.variants[0])
    parts: dict[str, Dataset | None] = {"train": train, "valid": valid, "test": data.test}
    probed = data.metric in PROBE_METRICS
    own = predictor.criterion.measured(predictor.network)[0]  # type: ignore[attr-defined]
    metrics, evidence, ends, _ = measure_features(predictor, {}, parts, own)
    if probed:
        told = {name: _in_units(scores, data) for name, scores in _probe(predictor, data, parts).items()}
        metrics = {name: {data.metric: told[name][0], **metrics[name]} for name in told}
        ends = told["test"][1] if "test" in told else ends
    estimates = Estimates({name: metrics[name] for name, part in parts.items() if part is not None})
    if data.test is not None:
        test = metrics["test"][data.metric]
        ends = float(ends[0]), float(ends[1])
        estimates = dataclasses.replace(estimates, test=test, test_interval=ends, evidence=evidence)
    return estimates, find_features(evidence.features)


def conclude_features(data: EvaluationData, trials: Iterable[Trial], kept: Sequence[TrainedTrial]) -> Conclusion:
    """The best trial with its corrected score, its network, and what that is worth on the test set."""
    by_number = {trial.number: trial for trial in trials}
    able, rows = chosen_from(by_number.values()), comparable_contenders(by_number, kept)
    if not able or not rows:
        missing = "left a model: there is no winner" if not able else "kept a network: there is nothing to predict with"
        return Conclusion(None, (Finding("warning", f"no trial {missing}.", "E2"),))
    best = next(trial for trial in able if trial.number in {one.number for one in rows})
    own = next(one for one in rows if one.number == best.number)
    winner = corrected_winner(best, rows)
    findings = findings_of_choice(winner, best, len(able), data)
    predictor = _network(own, data)
    estimates, told = _measured(predictor, own, data)
    if data.test is None:
        what = "there is no test set: the corrected validation score is the best available estimate."
        findings.append(Finding("note", what, "E2", "hold out a test set."))
    about = CommitteeSummary("none", best.number, (own.number,), 1, len(rows))
    return Conclusion(winner, (*findings, *told), about, estimates, predictor)
