"""The chapter's remedies in its order, each as a command to run next (row F3). Pure.

    of_optimisation(numbers, errors)      bugs first, then the optimiser's knobs, then capacity
    of_overfitting(numbers)               data, regularisation, several tasks, pre-training, an unsupervised term, ...

`numbers` is a `records.evidence.verdict.RunNumbers`; new values are derived from the current ones, in its `present`.
"""

import math
from collections.abc import Sequence

from ...records.evidence.verdict import Present, RunNumbers
from ...records.finding import Finding
from ...records.score_scale import ScoreScale, short_percent

_EARLY = 0.05  # of the run


def _set(present: Present, *assignments: str) -> str:
    return f"`{present.with_knobs(*assignments)}`"


def _number(value: float) -> str:
    return f"{value:.2g}"


def _rate_remedy(numbers: RunNumbers) -> list[str]:
    present = numbers.present
    if not math.isfinite(present.rate) or not present.rate_path:
        return []
    factors: tuple[float, ...]
    if math.isfinite(numbers.rate_factor):
        why = f"a {'larger' if numbers.rate_factor > 1 else 'smaller'} learning rate"
        factors = (numbers.rate_factor,)
    elif numbers.diverged or numbers.train_noisy:
        why, factors = "a smaller learning rate", (1 / 3,)
    elif numbers.train_falling or numbers.still_improving:
        why, factors = "a larger learning rate, since the training loss was still falling", (3.0,)
    else:
        why, factors = "a larger and a smaller learning rate", (3.0, 1 / 3)
    tries = " and ".join(_set(present, f"{present.rate_path}={_number(present.rate * factor)}") for factor in factors)
    return [f"{why}: {tries}"]


def of_optimisation(numbers: RunNumbers, errors: Sequence[Finding]) -> list[str]:
    """Bugs first, then the optimiser's knobs, then capacity: the chapter's order."""
    present = numbers.present
    told = [f"{one.code or 'error'}{f' at {one.where}' if one.where else ''}: {one.next or one.what}" for one in errors]
    look = "" if not present.command else f"look for bugs in the training code first: `{present.check}`"
    first = told or ([] if present.checked or not present.command else [look])
    tried = [*first, *_rate_remedy(numbers)]
    if numbers.still_improving and present.command:
        tried.append(f"train longer: {_set(present, 'stopping.epochs=3000')}")
    if not present.command:
        tried.append("a learning rate three times as large and one a third as large, then more hidden units")
    elif present.widths and not numbers.diverged:
        wider = ",".join(str(2 * width) for width in present.widths)
        tried.append(f"more capacity: {_set(present, f'model.widths={wider}')}")
    return tried


def _more_data(numbers: RunNumbers) -> str:
    if not math.isfinite(numbers.gain_at_twice):
        return "more training data"
    gain = numbers.gain_at_twice
    if gain <= 0:
        return "more training data, though the learning curve predicts no gain from twice as many examples"
    size = ScoreScale.of_metric(numbers.metric).gap(gain)
    examples = f" ({2 * numbers.train_count:,} examples)" if numbers.train_count else ""
    return f"more training data: the learning curve predicts -{size} with twice as many{examples}"


_AS_CODE = (
    "weight decay: `optax.adamw(learning_rate, weight_decay=0.01)`",
    "dropout: `equinox.nn.Dropout(0.3)` after each hidden layer",
    "multi-task learning on shared layers, if there are other targets",
    "unsupervised pre-training of the layers: `gradwise.StackedClassifier().fit(X, y)` shows its effect",
    "an unsupervised term: add the reconstruction error of the inputs from the last hidden layer to the loss",
    "another architecture, starting with half as many hidden units",
    "early stopping: keep the parameters with the lowest validation error",
)


def of_overfitting(numbers: RunNumbers) -> list[str]:
    """Data, regularisation, several tasks, pre-training, an unsupervised term, another family: the chapter's order."""
    present = numbers.present
    tried = [_more_data(numbers)]
    if not present.command:
        return [*tried, *_AS_CODE]
    if present.decay_path:
        decay = _number(3 * present.decay if present.decay > 0 else 1.0)
        tried.append(f"weight decay: {_set(present, f'{present.decay_path}={decay}')}")
    if math.isfinite(present.dropout):
        dropout = _number(min(0.8, present.dropout + 0.3 if present.dropout < 0.3 else (1 + present.dropout) / 2))
        tried.append(f"dropout: {_set(present, f'model.dropout={dropout}')}")
    if present.task != "several":
        tried.append("multi-task learning on shared layers, if there are other targets: a second `--target COLUMN`")
    if present.widths and not present.pretrained and present.task != "inputs":
        layers = f"denoising:{present.widths[0]}x{len(present.widths)}"
        tried.append(f"unsupervised pre-training: `{present.with_options(f'--pretrain {layers}', without='model')}`")
    if not present.unlabelled_term and not present.pretrained and present.task in {"classes", "numbers"}:
        joint = ["criterion=SemiSupervised", "model=Joint", "criterion.unsupervised.loss=SquaredError"]
        joint += ["criterion.supervised.loss=GaussianLoss"] if present.task == "numbers" else []
        tried.append(f"an unsupervised term: {_set(present, *joint)}")
    if present.widths:
        fewer = ",".join(str(max(1, width // 2)) for width in present.widths)
        tried.append(f"another architecture, starting with a smaller one: {_set(present, f'model.widths={fewer}')}")
    if not present.early_stopping:
        tried.append(f"early stopping: {_set(present, 'stopping=Patience')}")
    elif numbers.best_share < _EARLY and present.rate_path:
        slower = f"{present.rate_path}={_number(present.rate / 3)}"
        finer = (slower, "stopping.spacing=1", "stopping.least_examples=100")
        why = f"since the best model came at {short_percent(numbers.best_share)} of the run"
        tried.append(f"smaller steps and more frequent validation, {why}: {_set(present, *finer)}")
    return tried
