"""The recommended recipe for each task: the chapter's advice where it gives a value, measured where it does not.

The reasons, with numbers, are in `docs/design.md`. Any part can be exchanged by name:

    gradwise.defaults.classification(model=Mlp(widths=(500,)), optimiser=Sgd(learning_rate=0.03))
"""

import dataclasses
from typing import Any

from .criteria.losses import AbstractLoss, GaussianLoss, SigmoidLoss, SoftmaxLoss
from .criteria.supervised import Supervised
from .data.batches import Reshuffled
from .data.scaling import Automatic
from .data.splits import HoldOut
from .models.activations import Sigmoid as SigmoidUnits
from .models.mlp import Mlp
from .optimisers.adaptive.adam import Adam
from .optimisers.averaging.parameter_average import MovingAverage
from .pretraining.layer_recipes import LEARNERS, SCALER
from .specs.dataset import Task
from .specs.paths import knobs, replace
from .specs.priors import AbstractPrior, Choice, LogInteger, LogUniform, Uniform, ZeroOr
from .specs.recipe import Recipe
from .specs.search_space import Space, dimension, read_space
from .training.stopping import Patience


def _recipe(loss: AbstractLoss, parts: dict[str, Any]) -> Recipe:
    chosen = {
        "split": HoldOut(),
        "scaler": Automatic(),
        "batches": Reshuffled(),
        "model": Mlp(),
        "criterion": Supervised(loss),
        "optimiser": MovingAverage(Adam()),
        "stopping": Patience(),
    }
    return Recipe(**{**chosen, **parts})


def classification(**parts: Any) -> Recipe:
    """One class for each example."""
    return _recipe(SoftmaxLoss(), parts)


def multilabel(**parts: Any) -> Recipe:
    """Any number of labels for each example."""
    return _recipe(SigmoidLoss(), parts)


def regression(**parts: Any) -> Recipe:
    """One or several numbers for each example."""
    return _recipe(GaussianLoss(), parts)


# Enough for the strokes of digits, and a code wider than most tables: the criterion, not the width, holds it back.
FEATURES = ("denoising", 256)


def features(learner: str = FEATURES[0], units: int = FEATURES[1], *, unit_range: bool = True, **parts: Any) -> Recipe:
    """Features of the inputs, no target looked at: an auto-encoder that repairs what noise has spoilt.

    `learner` is one of `LEARNERS` in `gradwise.pretraining`. The scaler brings inputs into [0, 1]; with another one
    that does not, `unit_range` is False, and the error is squared rather than a cross-entropy.
    """
    recipe = LEARNERS[learner](units, unit_range)
    # Longer than one layer of a stack: on the digits it still improves after 50 epochs, and early stopping ends it.
    return dataclasses.replace(recipe, **{"split": HoldOut(), "stopping": Patience(epochs=200.0), **parts})


def fine_tuning(task: str, widths: tuple[int, ...], **parts: Any) -> Recipe:
    """The recipe for the whole network on top of pre-trained layers of these widths, by the kind of the task.

    Sigmoid units, as the layers have, and no dropout: it would undo what they have learned to rely on.
    """
    recommended = {"classes": classification, "labels": multilabel, "numbers": regression}[task]
    network = Mlp(widths=widths, activation=SigmoidUnits(), dropout=0.0)
    return recommended(**{"model": network, "scaler": SCALER, **parts})


def for_task(task: Task, **parts: Any) -> Recipe:
    """The recommended recipe for a data set's task."""
    if task.kind == "inputs":
        return features(**parts)
    return {"classes": classification, "labels": multilabel, "numbers": regression}[task.kind](**parts)


# Less patient than one network alone: another trial takes its place.
SEARCH_STOPPING = Patience(initial_examples=40_000.0, least_examples=4000)


def for_search(task: Task, **parts: Any) -> Recipe:
    """The recipe that a search varies."""
    return for_task(task, **{"stopping": SEARCH_STOPPING, **parts})


def following(recipe: Recipe, metric: str) -> Recipe:
    """The recipe with early stopping looking at this metric, where it is a mean over examples.

    AUC is not: it is followed through the log-loss.
    """
    score = {"log_loss": "loss", "auc": "loss", "mae": "absolute", "rmse": "squared", "r2": "squared"}.get(metric)
    paths = {"criterion.loss.score_by", "criterion.supervised.loss.score_by"} & {name for name, _, _ in knobs(recipe)}
    return replace(recipe, paths.pop(), score) if score is not None and paths else recipe


def search_space(recipe: Recipe) -> Space:
    """What a search varies by itself: the rate, the network's size, and what holds its capacity back.

    The mini-batch size is not among them: it is chosen last, apart (row C5).
    """
    known = {path for path, _, _ in knobs(recipe)}
    rates = [path for path in known if path.rpartition(".")[2] == "learning_rate"]
    wanted: list[tuple[str, AbstractPrior | None]] = [
        ("model.widths.count", Choice((1, 2, 3))),
        ("model.widths.each", LogInteger(32, 256)),
        *((path, None if len(rates) > 1 else _rate(recipe, path)) for path in sorted(rates)),
        ("model.dropout", ZeroOr(Uniform(0.05, 0.6), zero=0.3)),
        ("criterion.penalties.0.coefficient", ZeroOr(LogUniform(1e-3, 10.0), zero=0.5)),
    ]
    found = [
        dimension(recipe, path, prior)
        for path, prior in wanted
        if path in known or (path.startswith("model.widths.") and "model.widths" in known)
    ]
    if not found:  # a recipe of the user's own parts: everything that has a prior
        found = list(read_space(recipe))
    return Space(recipe, tuple(found))


def level_space(recipe: Recipe) -> Space:
    """What Algorithm 1 varies of a layer (row E8): its rate, and what holds its code back."""
    known = {path for path, _, _ in knobs(recipe)}
    wanted: list[tuple[str, AbstractPrior]] = [
        ("optimiser.learning_rate", _around(recipe, "optimiser.learning_rate", 5.0)),
        ("criterion.corruption.level", Uniform(0.1, 0.5)),
        ("criterion.corruption.deviation", LogUniform(0.1, 0.6)),
        ("criterion.on_codes.0.coefficient", _around(recipe, "criterion.on_codes.0.coefficient", 5.0)),
    ]
    return Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in wanted if path in known))


def fine_tuning_space(recipe: Recipe) -> Space:
    """What Algorithm 1 varies of the fine-tuning: the rate, and dropout."""
    known = [path for path, _, _ in knobs(recipe)]
    rate = next(path for path in known if path.rpartition(".")[2] == "learning_rate")
    wanted = [(rate, LogUniform(1e-4, 3e-3)), ("model.dropout", ZeroOr(Uniform(0.1, 0.5), zero=0.5))]
    return Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in wanted if path in known))


def _around(recipe: Recipe, path: str, factor: float) -> AbstractPrior:
    """A range around the present value, where there is one."""
    present = {name: value for name, _, value in knobs(recipe)}.get(path)
    return LogUniform(float(present) / factor, float(present) * factor) if present else LogUniform(1e-4, 1.0)


def _rate(recipe: Recipe, path: str) -> AbstractPrior | None:
    """A decade and a half around the recommended rate; its whole prior where nothing is recommended."""
    declared = {name: (declaration, value) for name, declaration, value in knobs(recipe)}
    declaration, value = declared[path]
    if isinstance(declaration.prior, LogUniform) and float(value) == declaration.default:
        return LogUniform(float(value) / 10, float(value) * 10)
    return declaration.prior
