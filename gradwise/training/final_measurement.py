"""Evaluates a trained network on each set: every metric, and the data for the figures.

    record.metrics["test"]                      {"error_rate": 0.021, "log_loss": 0.08, ...}
    record.evidence.features.units              UnitActivity(count=256, dead=3, always_on=0, ...)

Without a target, the criterion's own measures replace the metrics, and the evidence describes the features: filters
of the first layer, inputs and their reconstructions, the activity of each unit, and the effective dimension of the
codes. It is small and plain; numbers used only for pictures take one byte each.
"""

import base64
import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..evaluation.metrics import interval_of_mean, measure, metric_interval
from ..evaluation.prediction_figure_data import gather_evidence
from ..records.evidence.fit_evidence import (
    FeatureEvidence,
    Filters,
    FitEvidence,
    Reconstructions,
    Spectrum,
    UnitActivity,
)
from ..records.finding import Finding
from ..specs.contracts import AbstractCriterion
from ..specs.dataset import Column, Dataset
from ..specs.knobs import is_off
from ..specs.networks import as_network
from ..specs.paths import knobs, parts
from ..specs.sparse.rows import Rows, SparseRows, is_csr
from .predictor import Predictor, in_chunks, outputs_of, outputs_of_each, scaled_for

# The metrics of each set, the evidence, the interval on the test set, and each set's predictions (of classes, places).
Measured = tuple[dict[str, dict[str, float]], FitEvidence, tuple[float, float], dict[str, np.ndarray]]

_SHOWN_ROWS = 512
_SHOWN_FILTERS = 100
_SHOWN_INPUTS = 12
_SHOWN_NAMES = 200
_MOST_BYTES = 200_000  # of one picture: larger filters are fewer
_SMALLEST_IMAGE = 8  # pixels along an edge, of an image that was laid flat
_QUIET = (
    0.05  # of a unit's full answer: one that never gives more is dead, one that never gives less than 0.95 always on
)
_MANY = 0.2
_MISSED = 2.0  # a mean activation this many times too large or too small is not the one asked for


def measure_parts(
    predictor: Predictor, scaled: dict[str, Any], parts: dict[str, Dataset | None], metric: str
) -> Measured:
    """Every metric on every set; for the test set also the data for figures and the confidence interval.

    `scaled` holds the inputs of sets that were already scaled; each is taken out, so that its memory is free once the
    outputs are known. Examples without a target are skipped.
    """
    metrics: dict[str, dict[str, float]] = {}
    made: dict[str, np.ndarray] = {}
    evidence = FitEvidence()
    ends = (math.nan, math.nan)
    for name, part in parts.items():
        if part is None:
            metrics[name] = dict.fromkeys(metrics["train"], math.nan)
            continue
        if name in scaled:
            outputs = outputs_of(predictor.network, scaled.pop(name))
        else:
            outputs = outputs_of_each([predictor], part.inputs)[0]
        predictions = predictor.from_outputs(outputs)
        made[name] = predictions.argmax(1) if part.task.kind == "classes" else predictions
        known = part.labelled
        weights = None if part.weights is None else part.weights[known]
        metrics[name] = measure(part.task, predictions[known], part.targets[known], weights)
        if name == "test":
            raw = dataclasses.replace(predictor, temperature=1.0).from_outputs(outputs)
            evidence = gather_evidence(
                part.task, raw, predictions, part.targets, part.rows, predictor.temperature, part.weights
            )
            ends = metric_interval(metric, part.task, predictions, part.targets, part.weights)
    return metrics, evidence, ends, made


@eqx.filter_jit
def _measures(criterion: AbstractCriterion, network: PyTree, rows: Rows) -> dict[str, Array]:
    return criterion.measures(network, rows)


@eqx.filter_jit
def _reconstruct(criterion: AbstractCriterion, network: Any, rows: Float[Array, "n ..."]) -> Array | None:
    found: Array | None = jax.vmap(lambda row: criterion.decode(network, network(row)))(rows)
    return found


def measures_of(criterion: AbstractCriterion, network: PyTree, inputs: Any) -> dict[str, np.ndarray]:
    """What the criterion tells of each example, by name, for scaled inputs; in chunks of one shape."""
    found: dict[str, np.ndarray] = in_chunks(lambda rows: _measures(criterion, network, rows), inputs)
    return found


def image_shape(shape: tuple[int, ...], columns: tuple[Column, ...]) -> tuple[int, ...]:
    """Height, width and, in colour, channels of the image that an example is; nothing where it is none.

    A row of numbers without names, or of pixels, whose count is a square is a square image laid flat.
    """
    if len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3)):
        return shape if shape[-1] != 1 or len(shape) == 2 else shape[:2]
    edge = math.isqrt(math.prod(shape))
    flat = len(shape) == 1 and edge >= _SMALLEST_IMAGE and edge * edge == shape[0]
    return (edge, edge) if flat and all(column.kind == "pixel" for column in columns) else ()


def packed(values: Any, low: float, high: float) -> str:
    """Numbers as bytes, 0 at `low` and 255 at `high`, in base 64: all that a picture shows of them."""
    spread = high - low if high > low else 1.0
    scaled = np.clip(np.round(255.0 * (np.asarray(values, np.float64) - low) / spread), 0, 255)
    return base64.b64encode(scaled.astype(np.uint8).tobytes()).decode()


def _filters(network: Any, width: int) -> Filters | None:
    """The filters with the largest norms, largest first, each on its own scale from -1 to 1."""
    found, window = as_network(network).filters, as_network(network).filter_shape
    image = image_shape(window, ()) if window else ()
    width = math.prod(window) if image else width
    weights = None if found is None else np.asarray(found, np.float64)
    if weights is None or weights.ndim != 2 or weights.shape[1] != width or not np.isfinite(weights).all():
        return None
    norms = np.linalg.norm(weights, axis=1)
    count = max(1, min(_SHOWN_FILTERS, _MOST_BYTES // width, len(weights)))
    chosen = np.argsort(-norms, kind="stable")[:count]
    peak = np.abs(weights[chosen]).max(axis=1, keepdims=True)
    return Filters(
        units=tuple(chosen.tolist()),
        norms=tuple(round(float(norm), 5) for norm in norms[chosen]),
        of=len(weights),
        bytes=packed(weights[chosen] / np.where(peak > 0, peak, 1.0), -1.0, 1.0),
        image=image,
    )


def _reconstructions(criterion: Any, network: Any, inputs: np.ndarray) -> Reconstructions | None:
    """Some inputs beside what the code keeps of them, and of each input the share of its variance that it keeps."""
    found = _reconstruct(criterion, network, jnp.asarray(inputs))
    if found is None:
        return None
    made = np.asarray(found, np.float64)
    given = inputs.reshape(len(inputs), -1).astype(np.float64)
    if made.shape != given.shape or not np.isfinite(made).all():
        return None
    count = max(1, min(_SHOWN_INPUTS, _MOST_BYTES // given.shape[1], len(given)))
    # Evenly spread: files are often sorted, and the first dozen are then all of one kind.
    rows = np.linspace(0, len(given) - 1, count).astype(int)
    low, high = float(given.min()), float(given.max())
    spread = given.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(spread > 1e-12, 1.0 - ((made - given) ** 2).mean(axis=0) / spread, np.nan)
    return Reconstructions(
        count=count,
        low=low,
        high=high,
        given=packed(given[rows], low, high),
        made=packed(made[rows], low, high),
        kept=tuple(round(float(share), 4) for share in kept[:_SHOWN_NAMES]),
        kept_of_all=float(1.0 - ((made - given) ** 2).sum() / max(float(spread.sum()) * len(given), 1e-12)),
    )


def _full_answer(network: Any, codes: np.ndarray) -> float:
    """What a unit gives at most: 1 where it saturates there, else what nearly all units stay below."""
    layers = as_network(network).hidden_layers
    if layers and bool(jnp.all(layers[-1].activation(jnp.asarray(1e4)) == 1.0)):
        return 1.0
    return float(np.quantile(np.abs(codes).max(axis=0), 0.95))


def _units(network: Any, codes: np.ndarray) -> UnitActivity:
    """The activity of the units: a histogram of their means, and those never or always active."""
    size = np.abs(codes)
    full = _full_answer(network, codes)
    means = codes.mean(axis=0)
    # Units that saturate share one scale, so that nearly equal means look it.
    ends = (0.0 if codes.min() >= 0 else -1.0, 1.0) if full == 1.0 and size.max() <= 1.0 else None
    counts, edges = np.histogram(means, bins=min(20, 2 + len(means) // 2), range=ends)
    return UnitActivity(
        count=int(codes.shape[1]),
        dead=int((size.max(axis=0) <= _QUIET * full).sum()),
        always_on=int((size.min(axis=0) >= (1.0 - _QUIET) * full).sum()) if full > 0 else 0,
        mean=float(means.mean()),
        histogram=tuple(counts.tolist()),
        edges=tuple(round(float(edge), 5) for edge in edges),
    )


def _spectrum(codes: np.ndarray) -> Spectrum:
    """How the variance of the codes is spread over directions; (sum v)^2 / sum v^2 of them count (participation)."""
    centred = codes - codes.mean(axis=0)
    variances = np.linalg.svd(centred, compute_uv=False) ** 2
    total = float(variances.sum())
    if total <= 0:
        return Spectrum()
    shares = variances / total
    return Spectrum(tuple(round(float(share), 6) for share in shares[:100]), float(1 / (shares**2).sum()))


def _input_names(columns: tuple[Column, ...], width: int) -> tuple[str, ...]:
    """What the scaled inputs are called, where each column became one."""
    return tuple(column.name for column in columns[:_SHOWN_NAMES]) if len(columns) == width else ()


def gather_features(predictor: Predictor, criterion: Any, inputs: Any) -> FeatureEvidence | None:
    """What the pictures of features need, from scaled inputs that training did not see."""
    count = inputs.shape[0]  # a CSR matrix has no length
    rows = inputs[np.linspace(0, count - 1, min(_SHOWN_ROWS, count)).astype(int)]
    sparse = isinstance(rows, SparseRows) or is_csr(rows)
    rows = rows if sparse else np.asarray(rows)
    codes = outputs_of(predictor.network, rows)
    if not np.isfinite(codes).all():
        return None  # a run that diverged before its first validation has nothing to show
    width = math.prod(rows.shape[1:])
    return FeatureEvidence(
        width=width,
        units=_units(predictor.network, codes),
        spectrum=_spectrum(codes),
        image=image_shape(tuple(rows.shape[1:]), predictor.columns),
        names=_input_names(predictor.columns, width),
        filters=_filters(predictor.network, width),
        reconstructions=None if sparse else _reconstructions(criterion, predictor.network, rows),
    )


def _asked_sparsity(criterion: Any) -> tuple[tuple[str, float], ...]:
    """The penalties on codes that aim at a mean activation, by name, and that mean."""
    named = {path: type(part).__name__ for path, part in parts(criterion)}
    values = {path: value for path, _, value in knobs(criterion)}
    return tuple(
        (named[owner], float(value))
        for path, value in values.items()
        for owner, _, knob in (path.rpartition("."),)
        if knob == "target" and owner.startswith("on_codes.") and not is_off(values[f"{owner}.coefficient"])
    )


def find_features(features: FeatureEvidence | None, criterion: Any = None) -> tuple[Finding, ...]:
    """Findings about the features, and about what the criterion that they were learned by asked of them."""
    if features is None:
        return ()
    units, found = features.units, []
    if units.dead > _MANY * units.count:
        found.append(
            Finding(
                "warning",
                f"{units.dead} of {units.count} features are dead: no example activates them.",
                row="A4",
                next="reduce the regularisation (a sparsity or weight penalty), lower the learning rate, or use "
                "fewer units.",
            )
        )
    if units.always_on > _MANY * units.count:
        found.append(
            Finding(
                "warning",
                f"{units.always_on} of {units.count} features are always on: they do not distinguish examples.",
                row="E20",
                next="add a sparsity penalty, lower the learning rate, or use fewer units.",
            )
        )
    if features.reconstructions is not None and features.reconstructions.kept_of_all <= 0.0:
        found.append(
            Finding(
                "warning",
                "the reconstructions are no better than the mean of each input "
                f"({features.reconstructions.kept_of_all:.0%} of the variance kept).",
                row="A3",
                next="train for longer, change the learning rate, or reduce the noise or the penalty on the codes.",
            )
        )
    for name, target in () if criterion is None else _asked_sparsity(criterion):
        if units.mean > target * _MISSED or units.mean < target / _MISSED:
            step = "increase its coefficient" if units.mean > target else "reduce its coefficient"
            what = f"{name} asks for a mean activation of {target:.3g}, but it is {units.mean:.3g}."
            found.append(Finding("warning", what, row="A4", next=f"{step}, or train for longer."))
    return tuple(found)


def measure_features(predictor: Predictor, scaled: dict[str, Any], parts: dict[str, Any], metric: str) -> Measured:
    """Every measure on every set, the data for figures, and the confidence interval on the test set."""
    criterion: Any = predictor.criterion
    scaled = dict(scaled)
    metrics: dict[str, dict[str, float]] = {}
    ends = (np.nan, np.nan)
    for name, part in parts.items():
        if part is None:
            metrics[name] = dict.fromkeys(criterion.measured(predictor.network), np.nan)
            continue
        if name not in scaled:
            scaled[name] = scaled_for(predictor.network, predictor.scaler, part.inputs)
        values = measures_of(criterion, predictor.network, scaled[name])
        metrics[name] = {key: float(np.mean(each)) for key, each in values.items()}
        if name == "test":
            ends = interval_of_mean(values[metric])
    features = gather_features(predictor, criterion, scaled.get("test", scaled["valid"]))
    return metrics, FitEvidence(features=features), ends, {}
