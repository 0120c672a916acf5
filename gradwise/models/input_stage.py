"""What a network does with its inputs before the first layer (row G6): embeddings, and a learned factor for each input.

    Mlp(inputs=Embedded())                                     periodic embeddings, categories of 8 numbers, factors
    Mlp(inputs=Embedded(numbers=PiecewiseLinear(bins=16)))
    Mlp(inputs=Embedded(texts=ConvolveWords()))                a text through filters (`gradwise.models.text`)
    Mlp(inputs=Direct())                                       unchanged; categories one-hot, texts as word counts

The scaler determines which inputs are numbers, flags, codes or words (`InputLayout`). A category that is missing, or
was not in the training set, is the last row of its table, which starts at 0.

| embedding of a number x                    | is                                                                     |
|--------------------------------------------|------------------------------------------------------------------------|
| `NoEmbedding`                              | x                                                                      |
| `Periodic`                                 | x and a linear map of cos(2 pi w x + b)                                |
| `PeriodicRectified`                        | a rectified linear map of sin(2 pi w x) and cos(2 pi w x)              |
| `PiecewiseLinear`                          | x and a linear map of the position of x within each of its bins        |

Each column has its own linear map.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..runtime import keys
from ..specs.dataset import InputLayout
from ..specs.knobs import Spec, knob, switch
from ..specs.paths import Buffer
from ..specs.priors import Choice, LogUniform
from .text.readers import AbstractTextReader, AverageWords, BagOfWords

_SIZE: dict[str, Any] = {"allowed": "[1, inf)", "row": "G6", "kind": "capacity"}
_DEVIATION: dict[str, Any] = {
    "allowed": "(0, inf)",
    "row": "G6",
    "kind": "model",
    "about": "initial standard deviation of the frequencies: larger ones distinguish closer values",
}


class ColumnMaps(eqx.Module):
    """A linear map for each column, from its features to its embedding."""

    projection: Float[Any, "columns features size"]
    shift: Float[Any, "columns size"]

    def __call__(self, features: Float[Array, "columns features"]) -> Float[Array, "columns size"]:
        return jnp.einsum("cf,cfs->cs", features, self.projection) + self.shift


def _column_maps(columns: int, features: int, size: int, key: Key[Array, ""]) -> ColumnMaps:
    """Weights of variance 1 / features, shifts with the spread of a usual layer's biases."""
    weights, shifts = jr.split(key)
    scale = features**-0.5
    return ColumnMaps(
        scale * jr.normal(weights, (columns, features, size)),
        scale * jr.uniform(shifts, (columns, size), minval=-1.0, maxval=1.0),
    )


@jax.custom_jvp
def cosine_of_turns(turns: Float[Array, "..."]) -> Float[Array, "..."]:
    """cos(2 pi t) to 2e-7: on a CPU a tenth of the time of the library's cosine, which takes radians of any size.

    The nearest whole turn is taken off, which is exact; what is left is folded into a quarter turn either side of 0,
    where six terms of the sine's series are enough.
    """
    left = turns - jnp.round(turns)
    quarter = 0.25 - jnp.abs(left)
    square = quarter * quarter
    series = jnp.zeros_like(square)
    for term in reversed(range(6)):
        series = series * square + (-1) ** term * (2.0 * math.pi) ** (2 * term + 1) / math.factorial(2 * term + 1)
    return quarter * series


@cosine_of_turns.defjvp
def _slope_of_cosine(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (turns,), (change,) = primals, tangents
    return cosine_of_turns(turns), -2.0 * jnp.pi * cosine_of_turns(turns - 0.25) * change


class PeriodicNumbers(eqx.Module):
    """Linear maps of waves of each number, preceded by the number itself if it is kept."""

    frequency: Float[Any, "columns frequencies"]
    phase: Float[Any, "columns frequencies"] | None
    maps: ColumnMaps

    def __call__(self, x: Float[Array, " columns"]) -> Float[Array, " embedded"]:
        turns = self.frequency * x[:, None]
        if self.phase is None:
            waves = jnp.concatenate([cosine_of_turns(turns - 0.25), cosine_of_turns(turns)], axis=1)
            return jax.nn.relu(self.maps(waves)).ravel()
        mapped = self.maps(cosine_of_turns(turns + self.phase / (2.0 * jnp.pi)))
        return jnp.concatenate([x[:, None], mapped], axis=1).ravel()


class PiecewiseNumbers(eqx.Module):
    """Linear maps of each number's position within each bin, from 0 to 1, preceded by the number itself."""

    edges: Buffer  # (columns, bins + 1), rising
    maps: ColumnMaps

    def features(self, x: Float[Array, " columns"]) -> Float[Array, "columns bins"]:
        """0 below a bin, 1 above it; the outermost bins go on as lines."""
        left, right = self.edges.value[:, :-1], self.edges.value[:, 1:]
        wide = right > left
        part = jnp.where(wide, (x[:, None] - left) / jnp.where(wide, right - left, 1.0), 0.0)
        bins = part.shape[1]
        low = jnp.where(jnp.arange(bins) == 0, -jnp.inf, 0.0)
        high = jnp.where(jnp.arange(bins) == bins - 1, jnp.inf, 1.0)
        return jnp.clip(part, low, high)

    def __call__(self, x: Float[Array, " columns"]) -> Float[Array, " embedded"]:
        return jnp.concatenate([x[:, None], self.maps(self.features(x))], axis=1).ravel()

    def started(self, numbers: Float[Array, "n columns"]) -> "PiecewiseNumbers":
        """A copy with the quantiles of these numbers as edges."""
        bins = self.edges.value.shape[1] - 1
        edges = jnp.quantile(numbers, jnp.linspace(0.0, 1.0, bins + 1), axis=0).T
        return eqx.tree_at(lambda one: one.edges, self, Buffer(edges))


class AbstractNumberEmbedding(Spec):
    @abc.abstractmethod
    def build(self, columns: int, *, key: Key[Array, ""]) -> Any:
        """The module that maps the numbers of one example to a longer row; None if they stay unchanged."""


class NoEmbedding(AbstractNumberEmbedding):
    """Numbers unchanged."""

    def build(self, columns: int, *, key: Key[Array, ""]) -> Any:
        return None


class Periodic(AbstractNumberEmbedding):
    """x, and a linear map of cos(2 pi w x + b), w ~ N(0, deviation^2), b ~ U(-pi, pi): RealMLP's embedding.

    Holzmueller, Grinsztajn and Steinwart 2024. Low frequencies vary smoothly, so it is safe for any column.
    """

    frequencies: int = switch(16, **_SIZE, prior=Choice((8, 16, 32)), about="waves per number")
    size: int = switch(3, **_SIZE, prior=Choice((3, 7, 15)), about="embedding size, besides the number itself")
    deviation: float = knob(0.1, **_DEVIATION, prior=LogUniform(0.02, 1.0))

    def build(self, columns: int, *, key: Key[Array, ""]) -> PeriodicNumbers:
        first, second, third = jr.split(key, 3)
        shape = (columns, self.frequencies)
        return PeriodicNumbers(
            self.deviation * jr.normal(first, shape),
            jr.uniform(second, shape, minval=-jnp.pi, maxval=jnp.pi),
            _column_maps(columns, self.frequencies, self.size, third),
        )


class PeriodicRectified(AbstractNumberEmbedding):
    """A rectified linear map of sin(2 pi w x) and cos(2 pi w x), w ~ N(0, deviation^2) ("PLR").

    Gorishniy, Rubachev and Babenko 2022. Tune its `deviation`.
    """

    frequencies: int = switch(16, **_SIZE, prior=Choice((16, 32, 48)), about="frequencies per number")
    size: int = switch(8, **_SIZE, prior=Choice((8, 16, 24)), about="embedding size of a column")
    deviation: float = knob(0.1, **_DEVIATION, prior=LogUniform(0.01, 10.0))

    def build(self, columns: int, *, key: Key[Array, ""]) -> PeriodicNumbers:
        first, second = jr.split(key)
        frequency = self.deviation * jr.normal(first, (columns, self.frequencies))
        return PeriodicNumbers(frequency, None, _column_maps(columns, 2 * self.frequencies, self.size, second))


class PiecewiseLinear(AbstractNumberEmbedding):
    """x, and a linear map of its position within each bin; bin edges are quantiles of the training rows.

    Gorishniy, Rubachev and Babenko 2022. It represents steps, like those of a tree, easily.
    """

    bins: int = switch(16, **_SIZE, prior=Choice((8, 16, 32, 64)), about="bins per number")
    size: int = switch(3, **_SIZE, prior=Choice((3, 7, 15)), about="embedding size, besides the number itself")

    def build(self, columns: int, *, key: Key[Array, ""]) -> PiecewiseNumbers:
        edges = jnp.broadcast_to(jnp.linspace(-1.0, 1.0, self.bins + 1), (columns, self.bins + 1))
        return PiecewiseNumbers(Buffer(edges), _column_maps(columns, self.bins, self.size, key))


class InputStage(eqx.Module):
    """Transforms one example's inputs for the first layer."""

    numbers: PeriodicNumbers | PiecewiseNumbers | None
    tables: tuple[Any, ...]  # one for each category: (values + 1, size), or its number of values where it is one-hot
    factor: Float[Any, " width"] | None
    columns: int = eqx.field(static=True)  # inputs that are numbers; they come first, then codes, and words last
    texts: tuple[Any, ...] = ()  # a reader for each text
    places: tuple[int, ...] = eqx.field(static=True, default=())  # of each text

    def __call__(self, x: Float[Array, " inputs"], *, key: Key[Array, ""] | None = None) -> Float[Array, " width"]:
        start = x.shape[0] - sum(self.places)
        first, last = x[: self.columns], start - len(self.tables)
        pieces = [first if self.numbers is None else self.numbers(first), x[self.columns : last]]
        for place, table in enumerate(self.tables):
            code = x[last + place].astype(jnp.int32)
            pieces.append(jax.nn.one_hot(code, table) if isinstance(table, int) else table[code])
        for number, (reader, places) in enumerate(zip(self.texts, self.places, strict=True)):
            own = None if key is None else jr.fold_in(keys.named(key, "text"), number)
            pieces.append(reader(x[start : start + places], key=own))
            start += places
        joined = jnp.concatenate(pieces)
        return joined if self.factor is None else joined * self.factor

    def started(self, inputs: Float[Array, "n inputs"]) -> "InputStage":
        """A copy fitted to the training inputs."""
        if not isinstance(self.numbers, PiecewiseNumbers):
            return self
        return eqx.tree_at(lambda stage: stage.numbers, self, self.numbers.started(inputs[:, : self.columns]))


def places_of_texts(layout: InputLayout) -> tuple[int, ...]:
    """The places of each text."""
    return tuple(places for places, _ in layout.texts)


class AbstractInputStage(Spec):
    @abc.abstractmethod
    def build(self, layout: InputLayout, *, key: Key[Array, ""]) -> InputStage | None:
        """The stage for inputs of this layout; None if they go to the first layer unchanged."""

    def layout(self, width: int) -> InputLayout:
        """The layout of this many inputs: all numbers, unless the scaler has set another."""
        return InputLayout(numbers=width)


class Direct(AbstractInputStage):
    """Inputs unchanged; codes of categories become one-hot, and a text the share of each word."""

    def build(self, layout: InputLayout, *, key: Key[Array, ""]) -> InputStage | None:
        if not layout.categories and not layout.texts:
            return None
        bags = tuple(BagOfWords(words) for _, words in layout.texts)
        return InputStage(None, layout.categories, None, layout.numbers, bags, places_of_texts(layout))


class Embedded(AbstractInputStage):
    """Embeddings of numbers and categories, and a vector for each text, then a learned factor for each input."""

    numbers: AbstractNumberEmbedding = Periodic()
    texts: AbstractTextReader = AverageWords()
    category_size: int = switch(
        8, **_SIZE, prior=Choice((4, 8, 16)), about="embedding size of a category with many values"
    )
    factor: bool = switch(
        True,
        allowed=(True, False),
        prior=Choice((True, False)),
        row="G6",
        about="whether each input has a learned factor, initially 1: a soft selection of inputs",
    )

    def build(self, layout: InputLayout, *, key: Key[Array, ""]) -> InputStage:
        first, second = jr.split(key)
        numbers = self.numbers.build(layout.numbers, key=first) if layout.numbers else None
        tables = []
        for place, values in enumerate(layout.categories):
            rows = jr.normal(jr.fold_in(second, place), (values, self.category_size))
            tables.append(jnp.concatenate([rows, jnp.zeros((1, self.category_size))]))
        third = keys.named(key, "texts")
        readers = [self.texts.build(words, key=jr.fold_in(third, k)) for k, (_, words) in enumerate(layout.texts)]
        stage = InputStage(numbers, tuple(tables), None, layout.numbers, tuple(readers), places_of_texts(layout))
        width = stage_width(stage, layout)
        return eqx.tree_at(
            lambda one: one.factor, stage, jnp.ones(width) if self.factor else None, is_leaf=lambda leaf: leaf is None
        )


class LaidOut(AbstractInputStage):
    """A stage that knows its input layout; created when a run begins, not chosen by users."""

    stage: AbstractInputStage
    told: InputLayout = eqx.field(static=True)

    def build(self, layout: InputLayout, *, key: Key[Array, ""]) -> InputStage | None:
        return self.stage.build(layout, key=key)

    def layout(self, width: int) -> InputLayout:
        return self.told


def stage_width(stage: InputStage | None, layout: InputLayout) -> int:
    """How many inputs the first layer has."""
    if stage is None:
        return layout.width
    return int(math.prod(eqx.filter_eval_shape(stage, jnp.zeros(layout.width)).shape))
