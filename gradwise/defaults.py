"""The recommended recipe for each task: the chapter's advice where it gives a value, measured where it does not.

    gradwise.defaults.for_data(dataset)                      what `fit` takes: that of tables for a table
    gradwise.defaults.table("numbers", rows=5000)            the recipe for tables (`docs/tables.md` has its reasons)
    gradwise.defaults.pictures("classes", rows=60_000)       the recipe for pictures of 16 x 16 pixels or more
    gradwise.defaults.classification()                       the recipe for small images, sparse rows, your own networks

Any part can be exchanged by name (reasons and numbers: `docs/design.md`):

    gradwise.defaults.classification(model=Mlp(widths=(500,)), optimiser=Sgd(learning_rate=0.03))
"""

import dataclasses
import math
from typing import Any

from . import recipes
from .criteria.losses import AbstractLoss, GaussianLoss, SigmoidLoss, SoftmaxLoss
from .criteria.several_losses import SeveralLosses
from .criteria.supervised import Supervised
from .data.batches import Reshuffled
from .data.category_scaling import Categories
from .data.scaling import Automatic, Robust
from .data.splits import HoldOut
from .models.activations import Mish, Parametric, Selu
from .models.activations import Sigmoid as SigmoidUnits
from .models.convolution.convolutional import Convolutional
from .models.input_stage import Embedded
from .models.mlp import Mlp
from .optimisers.adaptive.adam import Adam, AdamW
from .optimisers.averaging.parameter_average import MovingAverage
from .optimisers.first_order.schedules import FlatCosine, InverseTime, OneCycle, RepeatedCosine
from .optimisers.wrappers.rates_by_kind import RatesByKind
from .pretraining.layer_recipes import FILTERS, LEARNERS, SCALER
from .specs.adapters import as_criterion
from .specs.contracts import AbstractModel
from .specs.dataset import Dataset, Task
from .specs.paths import knobs, matching, named_leaves, replace, trainable
from .specs.paths import parts as parts_of
from .specs.priors import AbstractPrior, Choice, LogInteger, LogUniform, Uniform, ZeroOr
from .specs.recipe import Recipe
from .specs.schedules import AbstractSchedule, Constant
from .specs.search_space import Dimension, Space, dimension, read_space
from .training.stopping import Off, Patience


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


def multitask(**parts: Any) -> Recipe:
    """Several targets of different kinds for each example (row G7)."""
    return _recipe(SeveralLosses(), parts)


def regression(**parts: Any) -> Recipe:
    """One or several numbers for each example."""
    return _recipe(GaussianLoss(), parts)


# On a small table half the width and, for classes, half the epochs make the same error; of numbers without noise the
# second half of the epochs takes off a third (`docs/tables.md`).
SMALL_TABLE_ROWS = 1000


def table(kind: str, rows: int | None = None, **parts: Any) -> Recipe:
    """A table of numbers and categories, by the kind of its task and its size.

    After RealMLP (Holzmueller, Grinsztajn, Steinwart 2024): embedded inputs, weights parametrised so that one rate
    suits every width, and a rate that rises and falls four times in a run of fixed length. The latest network that is
    not significantly worse than the best is kept.
    """
    numbers, small = kind == "numbers", rows is not None and rows < SMALL_TABLE_ROWS
    network = Mlp(
        widths=(128 if small else 256,) * 3,
        activation=Parametric(Mish() if numbers else Selu()),
        inputs=Embedded(),
        dropout=0.15,
        dropout_schedule=FlatCosine(),
        parametrisation="ntk",
    )
    adam = AdamW(
        recipes.TABLE_RATES[kind],
        decay=0.02,
        second_moment=0.95,
        schedule=RepeatedCosine(),
        decay_schedule=FlatCosine(),
    )
    epochs = 64.0 if small and not numbers else 128.0
    chosen = {
        "scaler": Automatic(numbers=Robust(), categories=Categories()),
        "batches": Reshuffled(size=128),
        "model": network,
        "optimiser": RatesByKind(adam),
        "stopping": Off(epochs=epochs, keep="best", significance=0.07, spacing=1.0, least_examples=1, every_epochs=1.0),
    }
    return _recipe(recipes.TABLE_LOSSES[kind], {**chosen, **parts})


def pictures(kind: str, rows: int, sides: tuple[int, ...] = (), **parts: Any) -> Recipe:
    """Pictures of these sides: a convolutional network, by the kind of its task and the number of pictures."""
    return of_kind(kind, **{**recipes.parts_for_pictures(rows, sides), **parts})


def sequences(kind: str, **parts: Any) -> Recipe:
    """Sequences of any length, by the kind of their task: gated units that read from both ends."""
    return of_kind(kind, **{**recipes.parts_for_sequences(), **parts})


def trees(kind: str, **parts: Any) -> Recipe:
    """Trees of any shape, by the kind of their task: one cell of long short-term memory at every node."""
    return of_kind(kind, **{**recipes.parts_for_trees(), **parts})


def texts(kind: str, rows: int, **parts: Any) -> Recipe:
    """A table with columns of text: the mean of learned vectors of words, by the kind of its task and its rows."""
    return of_kind(kind, **{**recipes.parts_for_texts(rows), **parts})


def of_kind(kind: str, **parts: Any) -> Recipe:
    """The general recipe by the kind of the task."""
    makers = {"classes": classification, "labels": multilabel, "numbers": regression, "several": multitask}
    return makers[kind](**parts)


def of_form(kind: str, form: recipes.InputForm, **parts: Any) -> Recipe:
    """The recipe by the kind of the task and the form of the inputs."""
    if form.kind == "table":
        return table(kind, form.rows, **parts)
    return of_kind(kind, **{**recipes.parts_for(form), **parts})


def for_data(dataset: Dataset, **parts: Any) -> Recipe:
    """The recommended recipe for a data set; parts of the user's own that are made for tables keep the rest of that."""
    kind, form = dataset.task.kind, recipes.input_form(dataset)
    if kind == "inputs":
        return for_task(dataset.task, **parts)
    meant = parts.get("model") is not None or parts.get("optimiser") is not None
    if meant and form.kind not in ("sequences", "trees") and recipes.is_for_tables(**parts):
        return table(kind, len(dataset), **parts)
    return of_form(kind, recipes.kept_form(form, **parts), **parts)


# Enough for strokes of digits, and wider than most tables: the criterion, not the width, holds it back.
FEATURES = ("denoising", 256)


def features(learner: str = FEATURES[0], units: int = FEATURES[1], *, unit_range: bool = True, **parts: Any) -> Recipe:
    """Features of the inputs, no target looked at: an auto-encoder that repairs what noise has spoilt.

    The scaler brings inputs into [0, 1]; with one that does not, `unit_range` is False, and the error is squared.
    """
    recipe = LEARNERS[learner](units, unit_range)
    # Longer than one layer of a stack: on the digits it still improves after 50 epochs, and early stopping ends it.
    stopping = recipe.stopping if learner == FILTERS else Patience(epochs=200.0)
    return dataclasses.replace(recipe, **{"split": HoldOut(), "stopping": stopping, **parts})


def fine_tuning(task: str, widths: tuple[int, ...], **parts: Any) -> Recipe:
    """The recipe for the whole network on top of pre-trained layers of these widths, by the kind of the task.

    Sigmoid units, as the layers have, and no dropout: it would undo what they have learned to rely on.
    """
    network = Mlp(widths=widths, activation=SigmoidUnits(), dropout=0.0)
    return of_kind(task, **{"model": network, "scaler": SCALER, **parts})


def for_task(task: Task, **parts: Any) -> Recipe:
    """The recipe for a task on inputs of any kind."""
    if task.kind == "inputs":
        return features(**parts)
    return of_kind(task.kind, **parts)


def search_stopping(rows: int) -> Patience:
    """Less patient than one network alone: another trial takes its place.

    On many rows a run also ends after about three million examples. On MNIST four of 63 trials went on for two to four
    times as long, to scores that others had reached, and took a quarter of a GPU's time.
    """
    return Patience(initial_examples=40_000.0, least_examples=4000, epochs=min(1000.0, max(64.0, 3e6 / max(1, rows))))


# On a GPU small mini-batches leave it waiting for memory: on MNIST 64 trials trained in 80 s with 64 examples in each
# and in 32 s with 256, and the ensembles of both made 1.3 % and 1.2 % errors (on two cores 1.4 % and 1.3 % in 120 s).
_MANY_ROWS = 30_000
_LARGE_BATCH = 256


def search_parts(rows: int) -> dict[str, Any]:
    """What a search trains differently from one network alone, on images, sparse rows and networks of your own."""
    batches = {"batches": Reshuffled(size=_LARGE_BATCH)} if rows >= _MANY_ROWS else {}
    return {"stopping": search_stopping(rows), **batches}


def for_search(dataset: Dataset, **parts: Any) -> Recipe:
    """The recipe that a search begins with and varies: for a table that of `fit`.

    Of pictures it trains perceptrons unless told otherwise: on two cores a network of filters takes a minute for each.
    """
    recipe = for_data(dataset, **parts)
    if isinstance(recipe.model, Convolutional) and parts.get("model") is None:
        recipe = for_task(dataset.task, **parts)
    if as_criterion(recipe.criterion).learns_from == "inputs":
        return recipe  # its score falls for long, and a run that is cut short chooses large rates
    if not isinstance(recipe.stopping, Patience):
        return recipe
    own = {name: part for name, part in search_parts(len(dataset)).items() if parts.get(name) is None}
    return dataclasses.replace(recipe, **own)


_SCORES = {
    **dict.fromkeys(("log_loss", "auc", "average_precision", "f1_macro", "precision_macro"), "loss"),
    "mae": "absolute",
    "rmse": "squared",
    "r2": "squared",
}


def following(recipe: Recipe, metric: str) -> Recipe:
    """The recipe with early stopping looking at this metric, where it is a mean over examples.

    AUC, average precision, F1 and precision are not: they are followed through the log-loss, which sees every
    probability. Accuracy and recall are followed through the error, for recall with all classes counting the same.
    """
    score = _SCORES.get(metric)
    paths = {"criterion.loss.score_by", "criterion.supervised.loss.score_by"} & {name for name, _, _ in knobs(recipe)}
    return replace(recipe, paths.pop(), score) if score is not None and paths else recipe


# Beyond this a layer costs more than it gives, overcomplete or not: rows of words have tens of thousands of inputs.
_WIDEST = 2048


def _widest(dataset: Dataset | None) -> int:
    """Units of the widest layers that a search tries: twice the inputs, so that the first can be overcomplete (D1)."""
    if dataset is None:
        return 256
    coded = [max(1, len(column.categories)) for column in dataset.columns if column.kind != "text"]
    inputs = sum(coded) if len(dataset.shape) == 1 and coded else math.prod(dataset.shape)
    return max(256, min(2 * inputs, _WIDEST))


def search_space(recipe: Recipe, dataset: Dataset | None = None) -> Space:
    """What a search varies by itself: the rate, the network's size, and what holds its capacity back.

    With the data set known, layers reach twice its inputs. All layers have one size; `model.widths.0` and so on search
    that of each. The mini-batch size is not among them: it is chosen last, apart (row C5).
    """
    known = {path for path, _, _ in knobs(recipe)}
    if as_criterion(recipe.criterion).learns_from == "inputs" and "optimiser.learning_rate" in known:
        return _features_space(recipe)
    if _is_table(recipe):
        near = (dimension(recipe, path, prior) for path, prior in _near_table(recipe) if path in known)
        return Space(recipe, tuple(near))
    rates = [path for path in known if path.rpartition(".")[2] == "learning_rate"]
    perceptron: list[tuple[str, AbstractPrior | None]] = [
        ("model.widths.count", Choice((1, 2, 3))),
        ("model.widths.each", LogInteger(32, _widest(dataset))),
    ]
    wanted: list[tuple[str, AbstractPrior | None]] = [
        *(recipes.ranges_of_network(recipe) or perceptron),
        *((path, None if len(rates) > 1 else _rate(recipe, path)) for path in sorted(rates)),
        ("model.dropout", ZeroOr(Uniform(0.05, 0.6), zero=0.3)),
        ("criterion.penalties.0.coefficient", ZeroOr(LogUniform(1e-3, 10.0), zero=0.5)),
    ]
    if not _has_penalised(recipe):
        wanted.pop()
    found = [
        dimension(recipe, path, prior)
        for path, prior in wanted
        if path in (*known, recipes.AUGMENTATION) or path.rpartition(".")[0] in known
    ]
    if not found:  # a recipe of the user's own parts: everything that has a prior
        found = list(read_space(recipe))
    return Space(recipe, tuple(found))


def _has_penalised(recipe: Recipe) -> bool:
    """Whether the first penalty finds parameters in a module of the user's own, which may call them anything."""
    where = {path: value for path, _, value in knobs(recipe)}.get("criterion.penalties.0.where")
    if where is None or isinstance(recipe.model, AbstractModel):
        return True
    return any(hit for _, hit in named_leaves(matching(trainable(recipe.model)[0], where)))


def schedule_dimensions(recipe: Recipe) -> tuple[Dimension, ...]:
    """The schedule as something to choose: a curve over a run of fixed length, else a fall as 1/t."""
    rates = sorted(path for path, _, _ in knobs(recipe) if path.rpartition(".")[2] == "learning_rate")
    known = {path for path, part in parts_of(recipe) if isinstance(part, AbstractSchedule)}
    place = next((p for p in (f"{rate.rpartition('.')[0]}.schedule".lstrip(".") for rate in rates) if p in known), None)
    if place is None:
        return ()
    if isinstance(recipe.stopping, Off):
        curves = Choice((Constant(), RepeatedCosine(), OneCycle(), FlatCosine()))
        return (dimension(recipe, place, curves),)
    falling = replace(recipe, place, InverseTime())
    tau = dimension(falling, f"{place}.tau_updates", LogUniform(300.0, 30_000.0))
    return dimension(recipe, place, Choice((Constant(), InverseTime()))), tau


def _is_table(recipe: Recipe) -> bool:
    """Whether a recipe is that of tables, or near it."""
    return isinstance(recipe.model, Mlp) and recipes.is_for_tables(
        model=recipe.model, optimiser=recipe.optimiser, stopping=recipe.stopping
    )


def _near_table(recipe: Recipe) -> list[tuple[str, AbstractPrior]]:
    """Ranges around the recipe for tables. All of them are knobs that one compiled program reads."""
    rate, decay = "optimiser.optimiser.learning_rate", "optimiser.optimiser.decay"
    return [
        (rate, _around(recipe, rate, 2.5)),
        (decay, ZeroOr(LogUniform(0.003, 0.1), zero=0.2)),
        ("model.dropout", ZeroOr(Uniform(0.05, 0.4), zero=0.2)),
        ("model.inputs.numbers.deviation", LogUniform(0.03, 0.5)),
        ("criterion.loss.label_smoothing", ZeroOr(Uniform(0.02, 0.2), zero=0.3)),
    ]


def _features_space(recipe: Recipe) -> Space:
    """What a search for features varies: what Algorithm 1 varies of a layer, and the number of features.

    Two other sizes and not a range: each is a program of its own. They are judged by the same question (row E20).
    """
    present = {path: value for path, _, value in knobs(recipe)}
    units = present.get("model.units") or (present.get("model.widths") or (0,))[-1]
    path = "model.units" if "model.units" in present else "model.widths.each"
    found = list(level_space(recipe).dimensions)
    if "model.penalty" in present:
        found.append(dimension(recipe, "model.penalty", _around(recipe, "model.penalty", 5.0)))
    if units and len(present.get("model.widths") or (0,)) == 1:  # one value for several widths would undo their shape
        found.append(dimension(recipe, path, Choice((max(1, units // 2), units, 2 * units))))
    return Space(recipe, tuple(found))


def _width_steps(low: int, high: int) -> tuple[int, ...]:
    """Widths from low to high, about the root of 2 apart: layers of one width share a compiled program."""
    steps = max(1, round(2.0 * math.log2(high / low)))
    return tuple(sorted({round(low * (high / low) ** (step / steps)) for step in range(steps + 1)}))


def level_space(recipe: Recipe, widths: tuple[int, int] | None = None) -> Space:
    """What Algorithm 1 varies of a layer (row E8): its width, its rate, and what holds its code back.

    `widths` are the fewest and the most units; None leaves the recipe's own.
    """
    known = {path for path, _, _ in knobs(recipe)}
    units = "model.units" if "model.units" in known else "model.widths.0"
    wanted: list[tuple[str, AbstractPrior]] = [
        *([(units, Choice(_width_steps(*widths)))] if widths else []),
        ("optimiser.learning_rate", _around(recipe, "optimiser.learning_rate", 5.0)),
        ("criterion.corruption.level", Uniform(0.1, 0.5)),
        ("criterion.corruption.deviation", LogUniform(0.1, 0.6)),
        ("criterion.on_codes.0.coefficient", _around(recipe, "criterion.on_codes.0.coefficient", 5.0)),
    ]
    found = (dimension(recipe, path, prior) for path, prior in wanted if path in known or path == units)
    return Space(recipe, tuple(found))


def fine_tuning_space(recipe: Recipe) -> Space:
    """What Algorithm 1 varies of the fine-tuning: the rate, and dropout."""
    known = [path for path, _, _ in knobs(recipe)]
    rate = next(path for path in known if path.rpartition(".")[2] == "learning_rate")
    wanted = [(rate, LogUniform(1e-4, 3e-3)), ("model.dropout", ZeroOr(Uniform(0.1, 0.5), zero=0.5))]
    return Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in wanted if path in known))


def _around(recipe: Recipe, path: str, factor: float) -> AbstractPrior:
    """A range around the present value, where there is one."""
    value = {name: value for name, _, value in knobs(recipe)}.get(path)
    return LogUniform(float(value) / factor, float(value) * factor) if value else LogUniform(1e-4, 1.0)


def _rate(recipe: Recipe, path: str) -> AbstractPrior | None:
    """A decade and a half around the recommended rate; its whole prior where nothing is recommended."""
    declaration, value = next((declaration, value) for name, declaration, value in knobs(recipe) if name == path)
    recommended = isinstance(declaration.prior, LogUniform) and float(value) == declaration.default
    return _around(recipe, path, 10.0) if recommended else declaration.prior
