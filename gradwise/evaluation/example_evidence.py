"""From the accounts of a training to a record of every example, and the labels that are probably wrong (row F6).

    record = gather_examples(task, accounts, Part(rows, targets, predictions), Part(...))
    find_in_examples(record)                   GW215, where there are enough of them
    hardest(record, "training")                places in the columns, the largest mean loss first

A label of the training set is suspect if the network contradicted it for longer than hard examples: its mean confidence
until the network that was kept, as log-odds, lies far below that of the others, by 3.5 times the distance from their
median to their lower quartile, and below 0.2. How low that is depends on how soon a run memorises what it contradicts,
so the limit is relative; the quartile hardly moves while few labels are wrong. A validation example, which no update
learned from, is suspect if its mean loss is above 4: its label has a probability of 2 %. The limits were chosen on
development sets with planted errors.
"""

import dataclasses
from typing import Any

import numpy as np

from ..records.evidence.example_record import ExampleRecord
from ..records.finding import Finding
from ..specs.dataset import Classes, Several, Task, is_labelled
from ..specs.recipe import Recipe
from ..tracing.example_accounts import Account, Accounts

MOST = 1_000_000  # examples of which accounts are kept
CONTRADICTED = (3.5, 0.2)  # so far below the median, in distances to the lower quartile, and so low a confidence
UNLIKELY = 4.0  # mean loss above which that of a validation example is
_LEAST_COUNT, _LEAST_SHARE = 10, 0.02  # suspect training examples from which on a run reports them
_LISTED, _KEPT = 10, 200  # rows named in the finding, and those in its evidence


@dataclasses.dataclass(frozen=True)
class PredictedPart:
    """Examples of one set: their rows in the data, their targets, and the predictions of the kept network.

    Predictions of classes are their places among the labels, or probabilities.
    """

    rows: np.ndarray
    targets: np.ndarray
    predictions: np.ndarray


def why_not_kept(recipe: Recipe, task: Task, training: int, validation: int) -> str:
    """Why no account of each example is kept; empty where one is."""
    if task.kind == "inputs":
        return "without a target no example can be right or wrong"
    if recipe.batches.limit_examples(training) is not None:
        return "they come as a stream, each of them once"
    if max(training, validation) > MOST:
        return f"there are more than {MOST:,}"
    return ""


def _named_pieces(task: Several, values: np.ndarray, name: str) -> dict[str, np.ndarray]:
    """Those of each task; a class that is missing is an empty word."""
    found: dict[str, np.ndarray] = {}
    for piece in task.pieces:
        own = piece.of(values) if name == "target" else values[:, piece.outputs]
        columns = _named(piece.task, np.maximum(own, 0) if isinstance(piece.task, Classes) else own, name)
        if isinstance(piece.task, Classes) and name == "target":
            columns = {name: np.where(own < 0, "", columns[name].astype(str))}
        found |= {one if one != name else f"{name}_{piece.name}": column for one, column in columns.items()}
    return found


def _named(task: Task, values: np.ndarray, name: str) -> dict[str, np.ndarray]:
    """Targets or predictions as columns, in the user's terms."""
    if isinstance(task, Several):
        return _named_pieces(task, values, name)
    if isinstance(task, Classes):
        labels = np.asarray(task.labels)
        labels = labels.astype(str) if labels.dtype == object else labels
        return {name: labels[values if values.ndim == 1 else values.argmax(1)]}
    values = (values > 0.5).astype(np.int32) if task.kind == "labels" else np.asarray(values, np.float64)
    if len(task.names) == 1:
        return {name: values[:, 0]}
    return {f"{name}_{one}": values[:, place] for place, one in enumerate(task.names)}


def _columns(task: Task, part: PredictedPart, account: Account, suspect: np.ndarray, name: str) -> dict[str, Any]:
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation = np.sqrt(account.squares / account.visits)
        tells_right = np.isfinite(account.margin) & (account.visits > 0)
    return {
        "set": np.full(len(part.rows), name, "<U10"),
        "row": np.asarray(part.rows, np.int64),
        **_named(task, part.targets, "target"),
        **_named(task, part.predictions, "predicted"),
        "seen": account.visits.astype(np.int32),
        **{name: getattr(account, name) + 0.0 for name in ("first_loss", "mean_loss", "last_loss")},  # no -0
        "deviation": deviation,
        "learned_at": np.where(tells_right & (account.learned > 0), account.learned, np.nan).astype(np.float32),
        "forgotten": np.where(tells_right, account.forgotten, np.nan).astype(np.float32),
        "margin": np.where(tells_right, account.margin, np.nan).astype(np.float32),
        "confidence": np.where(tells_right, account.confidence, np.nan).astype(np.float32),
        "suspect": suspect,
    }


def contradicted(confidence: np.ndarray) -> np.ndarray:
    """Which training labels are suspect, by the mean confidence of all of them."""
    known = confidence[np.isfinite(confidence)]
    if not len(known):
        return np.zeros(len(confidence), bool)
    odds = np.arctanh(np.clip(confidence.astype(np.float64), -0.999, 0.999))
    quartile, median = np.quantile(odds[np.isfinite(odds)], [0.25, 0.5])
    distances, limit = CONTRADICTED
    found: np.ndarray = (odds < median - distances * (median - quartile)) & (confidence < limit)
    return found


def gather_examples(
    task: Task, accounts: Accounts, training: PredictedPart, validation: PredictedPart | None
) -> ExampleRecord:
    """The record of every example with a target; without `validation`, of the training examples alone."""
    learned, judged = accounts.on_host()
    kept = np.asarray(accounts.confidence)  # until the best network
    held_out = np.asarray(accounts.held_out_loss)
    classes = isinstance(task, Classes)
    known = is_labelled(training.targets, task)
    suspect = np.zeros(len(known), bool)
    suspect[known] = contradicted(kept[known])
    parts = [("training", training, learned._replace(confidence=accounts.confidence), suspect)]
    if validation is not None:
        parts.append(("validation", validation, judged, held_out > UNLIKELY))
    found = []
    for name, part, account, suspect in parts:
        known = np.flatnonzero(is_labelled(part.targets, task))
        part = PredictedPart(*(values[known] for values in (part.rows, part.targets, part.predictions)))
        account = Account(
            *(np.asarray(values)[known] for values in account)
        )  # empty slots of the validation set lie behind
        found.append(_columns(task, part, account, suspect[known] & classes, name))
    return ExampleRecord({name: np.concatenate([one[name] for one in found]) for name in found[0]})


def of_set(record: ExampleRecord, name: str) -> np.ndarray:
    """The places of a set's examples in the columns."""
    return np.flatnonzero(record.columns["set"] == name)


def ranked(record: ExampleRecord, name: str, values: np.ndarray, most: int) -> np.ndarray:
    """The places of the examples of a set with the largest values, the largest first, those of NaN left out."""
    places = of_set(record, name)
    places = places[np.isfinite(values[places])]
    return places[np.argsort(-values[places], kind="stable")[:most]]


@dataclasses.dataclass(frozen=True, eq=False)
class LossGroups:
    """How the mean losses of the examples are spread: for each group, how many lie between two edges."""

    edges: np.ndarray
    counts: dict[str, np.ndarray]


def group_losses(record: ExampleRecord, bins: int = 30) -> LossGroups:
    """The training examples by whether they were forgotten; both sets where nothing is known of right and wrong."""
    columns = record.columns
    loss, training = columns["mean_loss"], columns["set"] == "training"
    groups = {"training": training, "validation": ~training}
    if np.isfinite(columns["forgotten"]).any():
        learned = np.isfinite(columns["learned_at"])
        kept = columns["forgotten"] == 0
        groups = {"learned": learned & kept, "forgotten": training & (columns["forgotten"] > 0)}
        groups["never learned"] = training & ~learned
    usable = np.isfinite(loss) & (loss > 0)
    if not usable.any():
        return LossGroups(np.zeros(0), {})
    low, high = np.log10(np.quantile(loss[usable], [0.001, 1.0]).clip(1e-9))
    edges = np.logspace(low, max(high, low + 0.1) + 1e-6, bins + 1)
    counts = {name: np.histogram(loss[usable & chosen].clip(edges[0]), edges)[0] for name, chosen in groups.items()}
    return LossGroups(edges, {name: count for name, count in counts.items() if count.any()})


def suspects(record: ExampleRecord) -> np.ndarray:
    """The places of the suspect examples: of training by confidence, then of validation by loss, the worst first."""
    columns = record.columns
    order = [
        places[columns["suspect"][places]]
        for places in (
            ranked(record, "training", -columns["confidence"], len(record)),
            ranked(record, "validation", columns["mean_loss"], len(record)),
        )
    ]
    return np.concatenate(order)


def find_in_examples(record: ExampleRecord | None) -> tuple[Finding, ...]:
    """GW215, if at least one training label in fifty is suspect: fewer may be rare but right."""
    if record is None:
        return ()
    sizes = [len(of_set(record, name)) for name in ("training", "validation")]
    counts = [int(record.columns["suspect"][of_set(record, name)].sum()) for name in ("training", "validation")]
    if counts[0] < max(_LEAST_COUNT, _LEAST_SHARE * sizes[0]):
        return ()
    rows = record.columns["row"][suspects(record)].tolist()
    more = ", ..." if len(rows) > _LISTED else "."
    what = f"training contradicts {counts[0]} of {sizes[0]} labels it learned, and {counts[1]} of {sizes[1]} it was "
    what += f"validated on: suspected label errors in rows {', '.join(map(str, rows[:_LISTED]))}{more}"
    step = "inspect these rows, counted from 0 (the report's examples, `model.examples`), correct them, train again."
    evidence = {"training": counts[0], "validation": counts[1], "rows": rows[:_KEPT]}
    return (Finding("note", what, "F6", step, "GW215", "labels", evidence),)
