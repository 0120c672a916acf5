"""What the recommended recipes hold for pictures, sequences, trees and texts (A12, G6, G11), and the form of a set.

    input_form(dataset)                                  InputForm("pictures", rows=60_000, sides=(28, 28))
    parts_for_pictures(rows=60_000, sides=(28, 28))      what `defaults.pictures` puts into a recipe
    parts_for_sequences()                                what `defaults.sequences` does, and `parts_for_trees`
    parts_for_texts(rows=5000)                           what `defaults.texts` does
    ranges_of_network(recipe)                            what a search varies of such a network

Pictures get a convolutional network in a run of fixed length, chosen on 10,000 digits of MNIST's training set, with
45,000 of the others, 8 epochs of one rise and fall of the rate: 0.82 % errors without normalisation, 0.61 % with batch
normalisation and a larger rate, 0.57 % with shifts as well. Gradients of sequences are clipped, since those of a
recurrent network have cliffs; the numbers behind it: `docs/sequences.md`.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

from .criteria.losses import AbstractLoss, GaussianLoss, SigmoidLoss, SoftmaxLoss
from .criteria.several_losses import SeveralLosses
from .data.batches import Reshuffled
from .data.category_scaling import Categories
from .data.input_kind import kind_of_inputs
from .data.scaling import Automatic, Robust
from .models.convolution.augmentation import NoAugmentation, Shift
from .models.convolution.convolutional import Convolutional
from .models.input_stage import Embedded
from .models.mlp import BatchNorm, Mlp
from .models.recurrence.pooling import AttentionPooling
from .models.recurrence.recurrent import Recurrent
from .models.shared_weights import SharedWeights
from .models.text.readers import AverageWords
from .models.trees.recursive import Recursive
from .optimisers.adaptive.adam import Adam
from .optimisers.averaging.parameter_average import MovingAverage
from .optimisers.first_order.schedules import OneCycle
from .optimisers.wrappers.clipped import Clipped
from .optimisers.wrappers.rates_by_kind import RatesByKind
from .specs.dataset import Dataset, text_places
from .specs.priors import AbstractPrior, Choice, LogInteger
from .training.stopping import Off, Patience

# Pixels along each side. Smaller pictures keep the perceptron for the time: on scikit-learn's digits it makes 1.9 %
# errors in a second or two, and this recipe 1.0 % in seven.
SMALLEST = 16
AUGMENTATION = "model.augmentation"  # a part that a search exchanges
_LARGE = 64  # pixels along a side, from which the filters of a stage move by two: memory grows with the area
_TEXTS = 100_000  # rows with text that a run visits
_EXAMPLES = 600_000  # that a run visits, within these epochs
_FEWEST, _MOST = 10.0, 100.0

# Of tables, by the kind of the task (`docs/tables.md`).
TABLE_RATES = {"classes": 0.025, "labels": 0.025, "numbers": 0.12, "several": 0.025}

TABLE_LOSSES: dict[str, AbstractLoss] = {
    "classes": SoftmaxLoss(label_smoothing=0.1),
    "labels": SigmoidLoss(),
    "numbers": GaussianLoss(),
    "several": SeveralLosses(classes=SoftmaxLoss(label_smoothing=0.1)),
}


@dataclasses.dataclass(frozen=True)
class InputForm:
    """What a recommended recipe depends on beside the task: "table", "texts", "pictures", "sequences" or "trees".

    "texts" is a table with a column of text, "" stands for other inputs. `rows` is the number of examples, `sides` are
    those of pictures.
    """

    kind: str = ""
    rows: int = 0
    sides: tuple[int, ...] = ()


def input_form(dataset: Dataset) -> InputForm:
    """The form of a data set's inputs. Pictures smaller than `SMALLEST` are "other inputs"."""
    kind, shape = kind_of_inputs(dataset.inputs, dataset.columns), dataset.shape
    if text_places(dataset.columns):
        return InputForm("texts", len(dataset))
    if kind in ("table", "sequences", "trees"):
        return InputForm(kind, len(dataset))
    pictures = len(shape) in (2, 3) and min(shape[:2]) >= SMALLEST and (len(shape) == 2 or shape[2] <= 4)
    return InputForm("pictures", len(dataset), shape[:2]) if kind == "images" and pictures else InputForm()


def form_of_recipe(recipe: Any, rows: int, shape: tuple[int, ...], *, is_table: bool) -> InputForm:
    """The form of the inputs that a recommended recipe was made for, by its network."""
    if isinstance(recipe.model, Recurrent):
        return InputForm("sequences", rows)
    if isinstance(recipe.model, Recursive):
        return InputForm("trees", rows)
    if isinstance(recipe.model, Convolutional):
        return InputForm("pictures", rows, shape[:2])
    if isinstance(recipe.model, Mlp) and isinstance(recipe.model.inputs, Embedded) and not is_table:
        return InputForm("texts", rows)
    return InputForm("table", rows) if is_table else InputForm()


def parts_for_sequences() -> dict[str, Any]:
    """The parts of the recipe for sequences of any length: gated units that read from both ends."""
    return {
        "batches": Reshuffled(size=32),
        "model": Recurrent(units=(64,), directions="both", pooling=AttentionPooling(), dropout=0.3),
        "optimiser": MovingAverage(Clipped(Adam(0.003), norm=1.0)),
        "stopping": Patience(initial_examples=40_000.0, epochs=60.0),
    }


def parts_for_trees() -> dict[str, Any]:
    """The parts of the recipe for trees of any shape, as those of sequences."""
    return {**parts_for_sequences(), "model": Recursive()}


def parts_for_texts(rows: int) -> dict[str, Any]:
    """The parts of the recipe for so many rows with text: the mean of the vectors of words, and one small layer.

    Thousands of words are learned from few rows each, so the run is short and hides half of them in every update.
    """
    epochs = min(max(_TEXTS / max(1, rows), _FEWEST), _MOST)
    return {
        "scaler": Automatic(numbers=Robust(), categories=Categories()),
        "batches": Reshuffled(size=50),
        "model": Mlp(widths=(64,), dropout=0.2, inputs=Embedded(texts=AverageWords(word_dropout=0.5))),
        "optimiser": MovingAverage(Adam(0.003)),
        "stopping": Off(epochs=epochs, keep="best", significance=0.07, spacing=1.0, least_examples=1, every_epochs=1.0),
    }


def parts_for_pictures(rows: int, sides: tuple[int, ...]) -> dict[str, Any]:
    """The parts of the recipe for so many pictures of this size."""
    epochs = min(max(_EXAMPLES / max(1, rows), _FEWEST), _MOST)
    stride = 2 if max(sides, default=0) > _LARGE else 1
    return {
        "batches": Reshuffled(size=128),
        "model": Convolutional(stride=stride, normalisation=BatchNorm()),
        "optimiser": Adam(0.005, schedule=OneCycle()),
        "stopping": Off(epochs=epochs, keep="best", significance=0.07, spacing=1.0, least_examples=1, every_epochs=1.0),
    }


def parts_for(form: InputForm) -> dict[str, Any]:
    """The parts of the recipe for inputs of this form, beside the general ones."""
    parts = {
        "texts": lambda: parts_for_texts(form.rows),
        "pictures": lambda: parts_for_pictures(form.rows, form.sides),
        "sequences": parts_for_sequences,
        "trees": parts_for_trees,
    }
    return parts[form.kind]() if form.kind in parts else {}


def ranges_of_network(recipe: Any) -> list[tuple[str, AbstractPrior | None]]:
    """What a search varies of such a network beside rates, dropout and penalties; None: the knob has a prior itself."""
    if isinstance(recipe.model, Recurrent):
        return [("model.units.each", Choice((32, 64, 128)))]
    if isinstance(recipe.model, Recursive):
        return [("model.units", None), ("model.width", None)]
    if not isinstance(recipe.model, Convolutional):
        return []
    pictures = [(AUGMENTATION, Choice((NoAugmentation(), Shift(1), Shift(2))))]
    return [
        ("model.channels", None),
        ("model.kernel", None),
        ("model.widths.each", LogInteger(32, 256)),
        *(pictures if recipe.model.dimensions == 2 else []),
    ]


def is_for_tables(**parts: Any) -> bool:
    """Whether parts of the user's own go with the rest of the recipe for tables; None stands for the recommended one.

    Its rates are those of its parametrisation, and its schedules those of a run of fixed length.
    """
    model, optimiser, stopping = (parts.get(name) for name in ("model", "optimiser", "stopping"))
    network = model.mlp if isinstance(model, SharedWeights) else model
    return (
        (network is None or (isinstance(network, Mlp) and network.parametrisation == "ntk"))
        and (optimiser is None or isinstance(optimiser, RatesByKind))
        and (stopping is None or isinstance(stopping, Off))
    )


def kept_form(form: InputForm, exchanged: Collection[str] = (), **parts: Any) -> InputForm:
    """The form of the inputs if its own recipe suits what the user has exchanged, by name or as parts; else none."""
    model, optimiser = parts.get("model"), parts.get("optimiser")
    own_network = "model" in exchanged or model is not None or isinstance(optimiser, RatesByKind)
    own_rates = not {"model", "optimiser", "stopping"}.isdisjoint(exchanged) or not is_for_tables(**parts)
    unsuited = {"pictures": own_network, "table": own_rates}.get(form.kind, False)
    return InputForm() if unsuited else form
