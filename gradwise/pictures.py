"""The recommended recipe for pictures: a convolutional network in a run of fixed length (row A12).

    parts_for_pictures(rows=60_000, sides=(28, 28))      what `defaults.pictures` puts into a recipe
    ranges_for_pictures(recipe)                          what a search varies of such a network

Chosen on 10,000 digits of MNIST's training set, with 45,000 of the others, 8 epochs of one rise and fall of the rate:
0.82 % errors without normalisation, 0.61 % with batch normalisation and a larger rate, 0.57 % with shifts as well.
"""

from collections.abc import Mapping
from typing import Any

from .data.batches import Reshuffled
from .data.scaling import kind_of_inputs
from .models.convolution.augmentation import NoAugmentation, Shift
from .models.convolution.convolutional import Convolutional
from .models.mlp import BatchNorm
from .optimisers.adaptive.adam import Adam
from .optimisers.first_order.schedules import OneCycle
from .optimisers.wrappers.rates_by_kind import RatesByKind
from .specs.dataset import Dataset
from .specs.priors import AbstractPrior, Choice, LogInteger
from .training.stopping import Off

# Pixels along each side. Smaller pictures keep the perceptron for the time: on scikit-learn's digits it makes 1.9 %
# errors in a second or two, and this recipe 1.0 % in seven.
SMALLEST = 16
AUGMENTATION = "model.augmentation"  # a part that a search exchanges
_LARGE = 64  # pixels along a side, from which the filters of a stage move by two: memory grows with the area
_EXAMPLES = 600_000  # that a run visits, within these epochs
_FEWEST, _MOST = 10.0, 100.0


def sides_of_pictures(dataset: Dataset) -> tuple[int, int] | None:
    """The sides of the pictures; None where the examples are something else, or smaller than `SMALLEST`."""
    if kind_of_inputs(dataset.inputs, dataset.columns) != "images":
        return None
    shape = dataset.shape
    if len(shape) not in (2, 3) or min(shape[:2]) < SMALLEST or (len(shape) == 3 and shape[2] > 4):
        return None
    return shape[0], shape[1]


def sides_to_filter(dataset: Dataset, parts: Mapping[str, Any]) -> tuple[int, int] | None:
    """The sides of pictures that get a convolutional network; None with a model of the user's own, or for tables."""
    given = parts.get("model") is not None or isinstance(parts.get("optimiser"), RatesByKind)
    return None if given or dataset.task.kind == "inputs" else sides_of_pictures(dataset)


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


def ranges_for_pictures(recipe: Any) -> list[tuple[str, AbstractPrior | None]]:
    """What a search varies of such a network beside rates, dropout and penalties; None: the knob has a prior itself."""
    if not isinstance(recipe.model, Convolutional):
        return []
    pictures = [(AUGMENTATION, Choice((NoAugmentation(), Shift(1), Shift(2))))]
    return [
        ("model.channels", None),
        ("model.kernel", None),
        ("model.widths.each", LogInteger(32, 256)),
        *(pictures if recipe.model.dimensions == 2 else []),
    ]
