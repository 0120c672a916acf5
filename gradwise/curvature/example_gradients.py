"""Each example's own gradient, without ever writing it out where it has a shorter form.

The gradient of one example in a weight matrix that is used as `W @ x` is the outer product of a slope and an input,
d x'. Its square, its covariance over examples and its product with anything follow from d and x, so B examples need
B (in + out) numbers and not B x in x out. A *tap* is such a place. Taps are found by reading the traced program of the
network for one example, so they work for any Equinox module; parameters that are used otherwise (biases, convolutions,
shared or scaled weights) keep their per-example gradients written out.

    terms = example_terms(objective, parameters, "vSGD")
    terms.mean()                     the mean gradient of the losses
    terms.mean_square()              the mean squared gradient, parameter by parameter

By default the slopes are those of each example's loss. With `columns`, they belong to any vectors in the output space,
several an example: those of a root of the loss's curvature make the squares the diagonal of the Gauss-Newton matrix.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ..tracing.program import bind, called, is_literal
from .objective import Objective

# Where an equation stands: its number in the program, after those of the calls it stands in. The equation itself would
# not do: two calls of one compiled function share their equations.
_Place = tuple[int, ...]


class _Use(NamedTuple):
    """An equation that reads a parameter: where, as which operand, whether through a transpose."""

    place: _Place
    equation: Any  # None where the parameter itself is an output of the network
    operand: int
    turned: bool


def _uses(
    jaxpr: Any, given: list[tuple[int, bool] | None], found: dict[int, list[_Use]], within: _Place = ()
) -> list[tuple[int, bool] | None]:
    """Collects the uses of each parameter; `given` and the answer mark which inputs and outputs are one, and turned."""
    marks = {variable: mark for variable, mark in zip(jaxpr.invars, given, strict=True) if mark is not None}

    def mark_of(variable: Any) -> tuple[int, bool] | None:
        return None if is_literal(variable) else marks.get(variable)

    for number, equation in enumerate(jaxpr.eqns):
        place = (*within, number)
        read = [mark_of(variable) for variable in equation.invars]
        opened = called(equation)
        if opened is not None:
            passed = _uses(opened[0], read, found, place)  # a call may hand a parameter back
            marks.update((v, mark) for v, mark in zip(equation.outvars, passed, strict=True) if mark is not None)
        elif equation.primitive.name == "transpose" and equation.params["permutation"] == (1, 0) and read[0]:
            marks[equation.outvars[0]] = (read[0][0], not read[0][1])  # `x @ W.T` reads W through its transpose
        else:
            for operand, mark in enumerate(read):
                if mark is not None:
                    found.setdefault(mark[0], []).append(_Use(place, equation, operand, mark[1]))
    return [mark_of(variable) for variable in jaxpr.outvars]


def _is_tap(use: _Use) -> bool:
    """Whether this is a product of a matrix with one vector."""
    if use.equation is None or use.equation.primitive.name != "dot_general":
        return False
    (left, right), (batch, _) = use.equation.params["dimension_numbers"]
    own, other = use.equation.invars[use.operand], use.equation.invars[1 - use.operand]
    return len(left) == len(right) == 1 and not batch and own.aval.ndim == 2 and other.aval.ndim == 1


class _Reader:
    """Runs a traced program, adds a nudge to the result of each tap and keeps the tap's input."""

    def __init__(self, taps: dict[_Place, int], nudges: dict[int, Array]):
        self.taps = taps  # -> number of the parameter
        self.nudges = nudges
        self.inputs: dict[int, Array] = {}

    def run(self, jaxpr: Any, constants: Any, arguments: list[Any], within: _Place = ()) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for number, equation in enumerate(jaxpr.eqns):
            place = (*within, number)
            given = [v.val if is_literal(v) else values[v] for v in equation.invars]
            opened = called(equation)
            if opened is not None and any(tap[: len(place)] == place for tap in self.taps):
                results = self.run(*opened, given, place)  # calls without a tap inside are left whole
            else:
                results = bind(equation, given)
            if place in self.taps:
                parameter = self.taps[place]
                self.inputs[parameter] = next(value for value in given if jnp.ndim(value) == 1)
                results = [results[0] + self.nudges[parameter]]
            values.update(zip(equation.outvars, results, strict=True))
        return [v.val if is_literal(v) else values[v] for v in jaxpr.outvars]


class Terms(eqx.Module):
    """Per-example gradients of every parameter, taps as factors. Axes: example, then column where there are several.

    `inputs` and `slopes` hold the taps by the number of their parameter among the leaves, `whole` the others; `flipped`
    are the taps whose weight stands as (in, out).
    """

    inputs: dict[int, Float[Array, "B in"]]
    slopes: dict[int, Float[Array, "B C out"]]
    whole: dict[int, Float[Array, "B C ..."]]
    weights: Float[Array, " B"]
    outputs: Float[Array, "B k"]
    flipped: tuple[int, ...] = eqx.field(static=True)
    structure: Any = eqx.field(static=True)

    def _assembled(self, taps: Callable[[Array, Array], Array], others: Callable[[Array], Array]) -> PyTree:
        leaves: list[Any] = [None] * self.structure.num_leaves
        for number, x in self.inputs.items():
            matrix = taps(self.slopes[number], x)
            leaves[number] = jnp.swapaxes(matrix, -1, -2) if number in self.flipped else matrix
        for number, gradients in self.whole.items():
            leaves[number] = others(gradients)
        return jax.tree.unflatten(self.structure, leaves)

    @property
    def total(self) -> Array:
        """The weights' sum; at least a little, so that an empty batch divides nothing by nothing."""
        return jnp.maximum(jnp.sum(self.weights), 1e-12)

    @property
    def share(self) -> Float[Array, " B"]:
        """The weight of each example in a mean."""
        return self.weights / self.total

    def mean(self) -> PyTree:
        """The weighted mean over the examples of the gradient, columns summed."""
        return self._assembled(
            lambda d, x: jnp.einsum("bco,bi,b->oi", d, x, self.share),
            lambda g: jnp.einsum("bc...,b->...", g, self.share),
        )

    def mean_square(self) -> PyTree:
        """The weighted mean over the examples of the squared gradient, squares of the columns summed."""
        return self._assembled(
            lambda d, x: jnp.einsum("bo,bi->oi", jnp.sum(d**2, axis=1) * self.share[:, None], x**2),
            lambda g: jnp.einsum("bc...,b->...", g**2, self.share),
        )

    def written_out(self) -> PyTree:
        """Every example's whole gradient, (B, ...) a parameter, columns summed: for small networks."""
        return self._assembled(lambda d, x: jnp.einsum("bco,bi->boi", d, x), lambda g: jnp.sum(g, axis=1))


def _found(program: Any, count: int) -> tuple[dict[_Place, int], dict[int, Any], tuple[int, ...]]:
    """The taps by place, the shape and type of each one's output, and which have their weight as (in, out)."""
    jaxpr = program.jaxpr
    uses: dict[int, list[_Use]] = {}
    given = [(number, False) if number < count else None for number in range(len(jaxpr.invars))]
    for mark in _uses(jaxpr, given, uses):
        if mark is not None:
            uses.setdefault(mark[0], []).append(_Use((), None, 0, mark[1]))
    taps: dict[_Place, int] = {}
    results: dict[int, Any] = {}
    flipped = []
    for number, readers in sorted(uses.items()):
        use = readers[0]
        if len(readers) > 1 or not _is_tap(use):
            continue  # used twice, or otherwise than in `W @ x`
        taps[use.place] = number
        results[number] = use.equation.outvars[0].aval
        contracted = use.equation.params["dimension_numbers"][0][use.operand][0]
        if (contracted == 1) == use.turned:
            flipped.append(number)
    return taps, results, tuple(flipped)


def example_terms(
    objective: Objective,
    parameters: PyTree,
    asker: str,
    columns: Callable[..., Float[Array, "C k"]] | None = None,
    draws: Key[Array, " B"] | None = None,
) -> Terms:
    """The per-example gradients of the batch.

    `columns(output, target)` gives the vectors in the output space to pull back; without it, the loss's gradient. Where
    they are random, `draws` has a key for each example: `columns(output, target, key)`. The penalty
    belongs to no example and is left out. Raises an error, naming the asker, if the network uses the whole batch.
    """
    objective.check_alone(parameters, asker)
    criterion = objective.summed(asker)
    leaves, structure = jax.tree.flatten(parameters)

    def output(leaves: list[Array], example: Array, key: Array) -> Array:
        return objective.output(jax.tree.unflatten(structure, leaves), example, key)

    keys = objective.example_keys()
    program = jax.make_jaxpr(output)(leaves, objective.batch.inputs[0], keys[0])
    taps, tapped, flipped = _found(program, len(leaves))
    others = [number for number in range(len(leaves)) if number not in tapped]
    default = jax.grad(criterion.of_output)

    def one(example: Array, target: Array, key: Array, *draw: Array) -> Any:
        def nudged(nudges: dict[int, Array], free: dict[int, Array]) -> tuple[Array, dict[int, Array]]:
            reader = _Reader(taps, nudges)
            given = [free.get(number, leaf) for number, leaf in enumerate(leaves)]
            return reader.run(program.jaxpr, program.consts, [*given, example, key])[0], reader.inputs

        nudges = {number: jnp.zeros(at.shape, at.dtype) for number, at in tapped.items()}
        free = {number: leaves[number] for number in others}
        result, pull, inputs = jax.vjp(nudged, nudges, free, has_aux=True)
        vectors = default(result, target)[None] if columns is None else columns(result, target, *draw)
        slopes, whole = jax.vmap(pull)(vectors)
        return inputs, slopes, whole, result

    inputs, slopes, whole, results = jax.vmap(one)(
        objective.batch.inputs, objective.batch.targets, keys, *(() if draws is None else (draws,))
    )
    return Terms(inputs, slopes, whole, objective.batch.weights, results, flipped, structure)


def _marked(jaxpr: Any, given: list[bool]) -> list[bool]:
    """Which results depend on the marked arguments: calls are opened, every other equation is taken whole."""
    marks = {variable for variable, mark in zip(jaxpr.invars, given, strict=True) if mark}

    def among(variable: Any) -> bool:
        return not is_literal(variable) and variable in marks

    for equation in jaxpr.eqns:
        opened = called(equation)
        inside = [among(variable) for variable in equation.invars]
        results = [any(inside)] * len(equation.outvars) if opened is None else _marked(opened[0], inside)
        marks.update(variable for variable, mark in zip(equation.outvars, results, strict=True) if mark)
    return [among(variable) for variable in jaxpr.outvars]


def is_linear(objective: Objective, parameters: PyTree) -> bool:
    """Whether the outputs are linear in the parameters (a constant aside), in the same way at every visit.

    Then an example's gradient is J(x)' d with J of the data alone, so that d, the loss's slope in the outputs, stands
    for it. In the traced program the change of the output along a direction depends on neither the parameters nor the
    noise. A bend on the outputs (rectifier) is seen too; a program that cannot be read counts as bent.
    """
    count = len(jax.tree.leaves(parameters))

    def along(point: PyTree, direction: PyTree, example: Array, key: Array) -> Array:
        return jax.jvp(lambda there: objective.output(there, example, key), (point,), (direction,))[1]

    program = jax.make_jaxpr(along)(parameters, parameters, objective.batch.inputs[0], objective.noise)
    return not any(_marked(program.jaxpr, [True] * count + [False] * (count + 1) + [True]))


def root_columns(objective: Objective, asker: str) -> Callable[[Array, Array], Float[Array, "k k"]]:
    """All columns of a root of each example's loss curvature: exact, k back-propagations."""
    root = objective.root(asker)

    def columns(output: Array, target: Array) -> Array:
        return jax.vmap(lambda unit: root(output, target, unit))(jnp.eye(output.shape[0]))

    return columns
