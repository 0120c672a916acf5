"""The diagonal of the second derivatives: LeCun's back-propagation of them, and the exact Gauss-Newton diagonal.

    h = back_propagated_diagonal(objective, parameters, "DiagonalNewton")      one backward pass
    h = gauss_newton_diagonal(objective, parameters, "DiagonalNewton")         one for each output

Both are trees like the parameters, of the criterion's mean loss (1/B) sum over the batch, and never negative. The first
is the usual backward pass with every coefficient squared (LeCun et al. 1998): for a = W x, x' = f(a)

    d2E/da = f'(a)^2 d2E/dx'        d2E/dw_ij = d2E/da_i x_j^2        d2E/dx_j = sum_i w_ij^2 d2E/da_i

It drops the cross terms between units, so it equals the Gauss-Newton diagonal only where there are none: one hidden
layer and a loss whose second derivative in the outputs is diagonal, such as the squared error.

For any network the rule is applied to its linearised program, whose operations are linear with known coefficients. A
value of that program is kept as a sum of *bases* (parameters, or results of operations that mix elements) times
coefficients, element by element: a chain of elementwise steps is multiplied out before it is squared. tanh's slope
comes as (t + t b) c, which must become ((1 + b) c)^2 and not (1 + b^2) c^2. Different bases' squares add.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from ..runtime.errors import RequestError
from ..tracing.program import CALLS, bind, is_literal
from .example_gradients import example_terms, root_columns
from .objective import Objective
from .products import hessian_vector

_COLUMNS = 64  # as many columns of a curvature's root are held at once for each example
# Operations whose coefficients are 0 and 1, equal to their squares.
_PLACING = (
    *("broadcast_in_dim", "concatenate", "dynamic_slice", "expand_dims", "gather", "pad", "reduce_sum", "reshape"),
    *("reduce_window_sum", "rev", "select_and_gather_add", "slice", "split", "squeeze", "transpose"),
)
_PRODUCTS = ("dot_general", "conv_general_dilated")


class _Linear(NamedTuple):
    """A value of the linearised program: the sum over bases of coefficient times base, element by element."""

    terms: dict[int, Any]
    shape: tuple[int, ...]
    dtype: Any

    def scaled(self, factor: Callable[[Any], Any], shape: tuple[int, ...], dtype: Any) -> "_Linear":
        return _Linear({base: factor(coefficient) for base, coefficient in self.terms.items()}, shape, dtype)


class _Squarer:
    """Runs a linear program with all its coefficients squared. `bases` are values of the squared program."""

    def __init__(self, asker: str):
        self.asker = asker
        self.bases: list[Array] = []

    def base(self, value: Array) -> _Linear:
        self.bases.append(value)
        return _Linear({len(self.bases) - 1: 1.0}, value.shape, value.dtype)

    def squared(self, value: Any) -> Any:
        """The value as the squared program has it; what is known stays as it is."""
        if not isinstance(value, _Linear):
            return value
        total = jnp.zeros(value.shape, value.dtype)
        for base, coefficient in value.terms.items():
            total = total + jnp.asarray(coefficient**2 * self.bases[base], value.dtype)
        return total

    def run(self, jaxpr: Any, constants: Any, arguments: list[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            given = [v.val if is_literal(v) else values[v] for v in equation.invars]
            if not any(isinstance(value, _Linear) for value in given):
                results = bind(equation, given)
            elif equation.primitive.name in CALLS:
                inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
                results = self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), given)
            else:
                results = self._apply(equation, given)
            values.update(zip(equation.outvars, results, strict=True))
        return [v.val if is_literal(v) else values[v] for v in jaxpr.outvars]

    def _apply(self, equation: Any, given: list[Any]) -> list[Any]:
        """One operation on linear values. A known one beside them where they are added can only be 0."""
        name = equation.primitive.name
        shape, dtype = equation.outvars[0].aval.shape, equation.outvars[0].aval.dtype
        if name in _PRODUCTS:
            factors = [self.squared(v) if isinstance(v, _Linear) else jnp.square(v) for v in given]
            return [self.base(result) for result in bind(equation, factors)]
        if name in _PLACING:
            return [self.base(result) for result in bind(equation, [self.squared(v) for v in given])]
        if name == "select_n":
            return [self._selected(given[0], given[1:], shape, dtype)]
        if name in ("add", "add_any"):
            return [self._sum(given[0], given[1], 1.0, shape, dtype)]
        if name == "sub":
            return [self._sum(given[0], given[1], -1.0, shape, dtype)]
        if name == "mul":
            linear, known = given if isinstance(given[0], _Linear) else given[::-1]
            return [linear.scaled(lambda c: c * known, shape, dtype)]
        if name == "div":
            return [given[0].scaled(lambda c: c / given[1], shape, dtype)]
        if name == "neg":
            return [given[0].scaled(lambda c: -c, shape, dtype)]
        if name in ("convert_element_type", "copy", "copy_p"):
            return [_Linear(given[0].terms, shape, dtype)]
        raise RequestError(
            f"{self.asker}: the network cannot be passed by back-propagated second derivatives (operation `{name}`); "
            "use the exact `gauss_newton_diagonal` (`exact=True`), or another optimiser."
        )

    def _sum(self, left: Any, right: Any, sign: float, shape: tuple[int, ...], dtype: Any) -> _Linear:
        terms = dict(left.terms) if isinstance(left, _Linear) else {}
        for base, coefficient in right.terms.items() if isinstance(right, _Linear) else ():
            terms[base] = terms[base] + sign * coefficient if base in terms else sign * coefficient
        return _Linear(terms, shape, dtype)

    def _selected(self, which: Array, cases: list[Any], shape: tuple[int, ...], dtype: Any) -> _Linear:
        tables = [case.terms if isinstance(case, _Linear) else {} for case in cases]
        bases = sorted({base for table in tables for base in table})

        def chosen(base: int) -> Array:
            return jax.lax.select_n(
                which, *(jnp.broadcast_to(jnp.asarray(table.get(base, 0.0), dtype), shape) for table in tables)
            )

        return _Linear({base: chosen(base) for base in bases}, shape, dtype)


def _output_diagonal(objective: Objective, outputs: Float[Array, "B k"], asker: str) -> Float[Array, "B k"]:
    """The diagonal of S S', the loss's second derivative in the outputs of each example."""
    root = objective.root(asker)
    width = outputs.shape[1]

    def alone(output: Array, target: Array) -> Array:
        program = jax.make_jaxpr(lambda noise: root(output, target, noise))(jnp.zeros_like(output))
        squarer = _Squarer(asker)
        try:
            result = squarer.run(program.jaxpr, program.consts, [squarer.base(jnp.ones_like(output))])[0]
        except RequestError:
            result = None
        if isinstance(result, _Linear) and list(result.terms) == [0]:
            return squarer.squared(result)  # S is diagonal: exact, whatever the number of outputs
        if width <= _COLUMNS:
            return jnp.sum(root_columns(objective, asker)(output, target) ** 2, axis=0)

        def add(total: Array, unit: Array) -> tuple[Array, None]:
            return total + root(output, target, (jnp.arange(width) == unit).astype(output.dtype)) ** 2, None

        return jax.lax.scan(add, jnp.zeros_like(output), jnp.arange(width))[0]

    return jax.vmap(alone)(outputs, objective.batch.targets)


def _with_penalty(objective: Objective, parameters: PyTree, diagonal: PyTree, asker: str) -> PyTree:
    """Adds the penalty's own second derivatives: 2 lambda / T for L2, 0 for L1.

    The product of its Hessian with a vector of ones is the diagonal because a penalty is a sum over parameters, each
    one's own.
    """
    ones = optax.tree.ones_like(parameters)
    bent = hessian_vector(lambda point: objective.penalty(point, asker), parameters, ones)
    return jax.tree.map(lambda one, other: one + jnp.abs(other), diagonal, bent)


def back_propagated_diagonal(objective: Objective, parameters: PyTree, asker: str, *, penalty: bool = False) -> PyTree:
    """LeCun's diagonal of the criterion's mean loss on the batch, and with `penalty` of the penalty too.

    Raises an error that names the operation if the network has one that is not known here.
    """
    objective.summed(asker)
    outputs, forward = jax.linearize(objective.outputs, parameters)
    if outputs.ndim != 2:
        raise RequestError(
            f"{asker} needs one row of outputs for an example, but this network gives one for each of its members. "
            "Use another optimiser."
        )
    program = jax.make_jaxpr(forward)(parameters)

    def squared(tangent: PyTree) -> Array:
        squarer = _Squarer(asker)
        arguments = [squarer.base(leaf) for leaf in jax.tree.leaves(tangent)]
        return squarer.squared(squarer.run(program.jaxpr, program.consts, arguments)[0])

    share = objective.batch.weights / objective.batch.weights.shape[0]
    bend = share[:, None] * _output_diagonal(objective, outputs, asker)
    (diagonal,) = jax.linear_transpose(squared, parameters)(bend)
    return _with_penalty(objective, parameters, diagonal, asker) if penalty else diagonal


def gauss_newton_diagonal(objective: Objective, parameters: PyTree, asker: str, *, penalty: bool = False) -> PyTree:
    """The exact diagonal of J' H J, H the Hessian of the mean loss in the outputs: as many passes as outputs."""
    terms = example_terms(objective, parameters, asker, columns=root_columns(objective, asker))
    scale = terms.total / terms.weights.shape[0]  # a mean over the slots, as in the criterion
    diagonal = optax.tree.scale(scale, terms.mean_square())
    return _with_penalty(objective, parameters, diagonal, asker) if penalty else diagonal
