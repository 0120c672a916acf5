"""Each example's own gradient, without ever writing it out where it has a shorter form.

The gradient of one example in a weight matrix that is used as `W @ x` is the outer product of a slope and an input,
d x'. Its square, its covariance over examples and its product with anything follow from d and x, so B examples need
B (in + out) numbers and not B x in x out. A *tap* is such a place. Taps are found by reading the traced program of the
network for one example, so any Equinox module has them; parameters that are used otherwise (biases, convolutions,
shared or scaled weights) keep their per-example gradients written out.

    terms = example_terms(objective, parameters, "vSGD")
    terms.mean(lambda g: g)          the mean gradient of the losses
    terms.mean_square()              the mean squared gradient, parameter by parameter

By default the slopes are those of each example's loss. With `columns`, they belong to any vectors in the output space,
several an example: those of a root of the loss's curvature make the squares the diagonal of the Gauss-Newton matrix.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .objective import Objective

_CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "remat2", "custom_lin")


def _inner(equation: Any) -> Any:
    """The program inside a call, if this is a call that can be opened."""
    if equation.primitive.name not in _CALLS:
        return None
    return equation.params.get("jaxpr", equation.params.get("call_jaxpr"))


def _bind(equation: Any, values: list[Any]) -> list[Any]:
    told = equation.primitive.get_bind_params(equation.params)
    functions, settings = told if isinstance(told, tuple) else ((), told)  # before JAX 0.10 the two came apart
    found = equation.primitive.bind(*functions, *values, **settings)
    return list(found) if equation.primitive.multiple_results else [found]


def _is_literal(variable: Any) -> bool:
    return hasattr(variable, "val")


def _uses(jaxpr: Any, marks: dict[Any, tuple[int, bool]], found: dict[int, list[tuple[Any, int, bool]]]) -> None:
    """Collects the equations that read each marked parameter: equation, operand, whether through a transpose."""
    for equation in jaxpr.eqns:
        given = [None if _is_literal(variable) else marks.get(variable) for variable in equation.invars]
        inner = _inner(equation)
        if inner is not None:
            program = getattr(inner, "jaxpr", inner)
            inside = {variable: mark for variable, mark in zip(program.invars, given, strict=True) if mark is not None}
            _uses(program, inside, found)
        elif equation.primitive.name == "transpose" and given[0] is not None:
            number, turned = given[0]  # `x @ W.T` reads W through its transpose
            marks[equation.outvars[0]] = (number, not turned)
        else:
            for place, mark in enumerate(given):
                if mark is not None:
                    found.setdefault(mark[0], []).append((equation, place, mark[1]))


def _is_tap(equation: Any, place: int) -> bool:
    """Whether this is a product of a matrix with one vector."""
    if equation.primitive.name != "dot_general":
        return False
    (left, right), (batch, _) = equation.params["dimension_numbers"]
    other = equation.invars[1 - place]
    return len(left) == len(right) == 1 and not batch and other.aval.ndim == 1 and equation.invars[place].aval.ndim == 2


class _Reader:
    """Runs a traced program, adds a nudge to the result of each tap and keeps the tap's input."""

    def __init__(self, taps: dict[int, int], nudges: dict[int, Array]):
        self.taps = taps  # equation (by identity) -> number of the parameter
        self.nudges = nudges
        self.inputs: dict[int, Array] = {}

    def run(self, jaxpr: Any, constants: Any, arguments: list[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            given = [v.val if _is_literal(v) else values[v] for v in equation.invars]
            inner = _inner(equation)
            if inner is not None and self._opens(inner):
                program = getattr(inner, "jaxpr", inner)
                results = self.run(program, getattr(inner, "consts", ()), given)
            else:
                results = _bind(equation, given)
                number = self.taps.get(id(equation))
                if number is not None:
                    vector = next(value for value in given if jnp.ndim(value) == 1)
                    self.inputs[number] = vector
                    results = [results[0] + self.nudges[number]]
            values.update(zip(equation.outvars, results, strict=True))
        return [v.val if _is_literal(v) else values[v] for v in jaxpr.outvars]

    def _opens(self, inner: Any) -> bool:
        """Whether a tap stands inside; other calls are left whole."""
        program = getattr(inner, "jaxpr", inner)
        return any(
            id(equation) in self.taps or ((deeper := _inner(equation)) is not None and self._opens(deeper))
            for equation in program.eqns
        )


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
            leaves[number] = matrix.T if number in self.flipped else matrix
        for number, gradients in self.whole.items():
            leaves[number] = others(gradients)
        return jax.tree.unflatten(self.structure, leaves)

    @property
    def total(self) -> Array:
        """The weights' sum; at least a little, so that an empty batch divides nothing by nothing."""
        return jnp.maximum(jnp.sum(self.weights), 1e-12)

    def mean(self) -> PyTree:
        """The weighted mean over the examples of the gradient, columns summed."""
        share = self.weights / self.total

        def taps(d: Array, x: Array) -> Array:
            return jnp.einsum("bco,bi,b->oi", d, x, share)

        return self._assembled(taps, lambda g: jnp.einsum("bc...,b->...", g, share))

    def mean_square(self) -> PyTree:
        """The weighted mean over the examples of the squared gradient, squares of the columns summed."""
        share = self.weights / self.total

        def taps(d: Array, x: Array) -> Array:
            return jnp.einsum("bo,bi->oi", jnp.sum(d**2, axis=1) * share[:, None], x**2)

        return self._assembled(taps, lambda g: jnp.einsum("bc...,b->...", g**2, share))

    def squared_norm(self) -> Float[Array, " B"]:
        """The squared length of each example's gradient over all parameters, columns summed in quadrature."""
        parts = [jnp.sum(self.slopes[n] ** 2, (1, 2)) * jnp.sum(x**2, 1) for n, x in self.inputs.items()]
        parts += [jnp.sum(g**2, tuple(range(1, g.ndim))) for g in self.whole.values()]
        return sum(parts, start=jnp.zeros(self.weights.shape[0]))

    def written_out(self) -> PyTree:
        """Every example's whole gradient, (B, ...) a parameter, columns summed: for small networks."""
        leaves: list[Any] = [None] * self.structure.num_leaves
        for number, x in self.inputs.items():
            matrix = jnp.einsum("bco,bi->boi", self.slopes[number], x)
            leaves[number] = jnp.swapaxes(matrix, 1, 2) if number in self.flipped else matrix
        for number, gradients in self.whole.items():
            leaves[number] = jnp.sum(gradients, axis=1)
        return jax.tree.unflatten(self.structure, leaves)


def _found(program: Any, count: int) -> tuple[dict[int, int], dict[int, int], tuple[int, ...]]:
    """The taps by equation, the size of each one's output, and which have their weight as (in, out)."""
    jaxpr = program.jaxpr
    uses: dict[int, list[tuple[Any, int, bool]]] = {}
    _uses(jaxpr, {variable: (number, False) for number, variable in enumerate(jaxpr.invars[:count])}, uses)
    taps: dict[int, int] = {}
    sizes: dict[int, int] = {}
    flipped = []
    for number, readers in sorted(uses.items()):
        equation, place, turned = readers[0]
        if len(readers) > 1 or not _is_tap(equation, place) or id(equation) in taps:
            continue  # used twice, otherwise than in `W @ x`, or times another parameter
        taps[id(equation)] = number
        sizes[number] = equation.outvars[0].aval.shape[0]
        contracted = equation.params["dimension_numbers"][0][place][0]
        if (contracted == 1) == turned:
            flipped.append(number)
    return taps, sizes, tuple(flipped)


def example_terms(
    objective: Objective,
    parameters: PyTree,
    asker: str,
    columns: Callable[[Array, Array], Float[Array, "C k"]] | None = None,
) -> Terms:
    """The per-example gradients of the batch.

    `columns(output, target)` gives the vectors in the output space to pull back; without it, the loss's gradient. The
    penalty is no example's and is left out. Networks that look at the whole batch are refused in the asker's name.
    """
    objective.check_alone(parameters, asker)
    criterion = objective.summed(asker)
    leaves, structure = jax.tree.flatten(parameters)

    def output(leaves: list[Array], example: Array, key: Array) -> Array:
        return objective.output(jax.tree.unflatten(structure, leaves), example, key)

    keys = objective.example_keys()
    program = jax.make_jaxpr(output)(leaves, objective.batch.inputs[0], keys[0])
    taps, sizes, flipped = _found(program, len(leaves))
    others = [number for number in range(len(leaves)) if number not in sizes]
    default = jax.grad(criterion.of_output)

    def one(example: Array, target: Array, key: Array) -> Any:
        def nudged(nudges: dict[int, Array], free: dict[int, Array]) -> tuple[Array, dict[int, Array]]:
            reader = _Reader(taps, nudges)
            given = [free.get(number, leaf) for number, leaf in enumerate(leaves)]
            return reader.run(program.jaxpr, program.consts, [*given, example, key])[0], reader.inputs

        nudges = {number: jnp.zeros(size) for number, size in sizes.items()}
        free = {number: leaves[number] for number in others}
        result, pull, inputs = jax.vjp(nudged, nudges, free, has_aux=True)
        vectors = default(result, target)[None] if columns is None else columns(result, target)
        slopes, whole = jax.vmap(pull)(vectors)
        return inputs, slopes, whole, result

    inputs, slopes, whole, results = jax.vmap(one)(objective.batch.inputs, objective.batch.targets, keys)
    return Terms(inputs, slopes, whole, objective.batch.weights, results, flipped, structure)


def root_columns(objective: Objective, asker: str) -> Callable[[Array, Array], Float[Array, "k k"]]:
    """All columns of a root of each example's loss curvature: exact, k back-propagations."""
    root = objective.root(asker)

    def columns(output: Array, target: Array) -> Array:
        return jax.vmap(lambda unit: root(output, target, unit))(jnp.eye(output.shape[0]))

    return columns
