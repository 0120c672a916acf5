"""Limited-memory BFGS (rows C11, H7): Newton's direction, with the curvature estimated from the last few steps.

    Lbfgs()                             on the whole training set: `batches.size` at least T
    Lbfgs(memory=20, iterations=5)      a few iterations on each large mini-batch, then the next
    TwoStages(Sgd(), Lbfgs(), epochs=1)     after an epoch of stochastic gradient descent

Optax's `scale_by_lbfgs` gives the same directions on one fixed batch, as the tests verify. It does not
work on mini-batches: it compares the gradients of successive updates, which there belong to different examples, and
it keeps pairs without positive curvature. It also visits its memory in 2 m dependent steps, where the form used here
has two products with the whole memory and otherwise m x m matrices.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob, switch
from ...specs.priors import LogInteger
from .line_search import LINE_STEPS, TOLERANCE, Method, Move, all_products, cautious_step, descent

_CURVED = 10.0  # a pair counts if its cosine is above so many roundings


class _Pairs(NamedTuple):
    """The last steps s and changes of the gradient y, in a ring; `place` is where the next pair goes.

    Their products stand in the order of age, the youngest last, and are right on and above the diagonal.
    """

    rows: Float[Array, "2 m n"]  # all s, then all y: one array, so that one product serves both
    products: Float[Array, "2 m m"]  # s_i . y_j, then y_i . y_j
    scale: Scalar  # gamma: s . y / y . y of the youngest pair
    place: Int[Array, ""]
    held: Int[Array, ""]


def _empty(memory: int) -> Any:
    def init(point: Float[Array, " n"]) -> _Pairs:
        rows, products = (jnp.zeros((2, memory, size), point.dtype) for size in (point.shape[0], memory))
        none = jnp.zeros((), jnp.int32)
        return _Pairs(rows, products, jnp.ones((), point.dtype), none, none)

    return init


def _forget(pairs: _Pairs) -> _Pairs:
    return pairs._replace(held=jnp.zeros_like(pairs.held), scale=jnp.ones_like(pairs.scale))


def _by_age(of_rows: Float[Array, "2 m"], place: Int[Array, ""]) -> Float[Array, "2 m"]:
    """From the ring's order to that of age: the oldest stands where the next pair goes."""
    return jnp.roll(of_rows, -place, axis=1)


def _times(pairs: _Pairs, vector: Float[Array, " n"]) -> Float[Array, "2 m"]:
    """The products of all rows with a vector, in the ring's order."""
    return (pairs.rows.reshape(-1, vector.shape[0]) @ vector).reshape(2, -1)


def _aim(pairs: _Pairs, gradient: Float[Array, " n"]) -> tuple[Float[Array, " n"], Scalar]:
    """-H g with H as Byrd, Nocedal and Schnabel (1994, theorem 2.2) write it; S, Y hold the pairs from old to young:

    H = gamma I + [S, gamma Y] [[R^-T (D + gamma Y'Y) R^-1, -R^-T], [-R^-1, 0]] [S, gamma Y]'

    where R is the upper triangle of S'Y and D its diagonal.
    """
    size = pairs.products.shape[1]
    held = jnp.arange(size) >= size - pairs.held
    both = held[:, None] & held[None, :]
    mixed, squares = pairs.products
    mixed = jnp.where(both, mixed, jnp.eye(size, dtype=gradient.dtype))
    squares = jnp.where(both, jnp.triu(squares) + jnp.triu(squares, 1).T, 0.0)
    along, across = jnp.where(held, _by_age(_times(pairs, gradient), pairs.place), 0.0)
    gamma = pairs.scale
    first = solve_triangular(mixed, along, lower=False)
    inner = jnp.diagonal(mixed) * first + gamma * (squares @ first - across)
    second = solve_triangular(mixed, inner, trans="T", lower=False)
    # The coefficients back in the ring's order, so that the large array is read as it lies.
    shares = jnp.roll(jnp.stack([-second, gamma * first]), pairs.place, axis=1)
    direction = shares.ravel() @ pairs.rows.reshape(-1, gradient.shape[0]) - gamma * gradient
    return direction, jnp.where(pairs.held > 0, 1.0, cautious_step(gradient))


def _learn(pairs: _Pairs, move: Move) -> _Pairs:
    """One more pair, the oldest going; one whose curvature s . y is not clearly positive is not taken in."""
    step, change = move.step * move.direction, move.after - move.before
    (length, curvature), (_, square) = all_products(step, change)
    least = _CURVED * jnp.finfo(step.dtype).eps * jnp.sqrt(length) * jnp.sqrt(square)
    size, zero = pairs.products.shape[1], jnp.zeros_like(pairs.place)
    own = jnp.arange(size) == pairs.place
    youngest = jnp.where(own, jnp.stack([curvature, square])[:, None], _times(pairs, change))
    # That this asks for all the products also lets the compiler write the large array in its place: what is written
    # depends on all that is read.
    taken = (curvature > least) & jnp.all(jnp.isfinite(youngest))
    older = jnp.pad(pairs.products[:, 1:, 1:], ((0, 0), (0, 1), (0, 0)))
    place = (pairs.place + 1) % size
    products = jnp.concatenate([older, _by_age(youngest, place)[:, :, None]], axis=2)
    at = (zero, pairs.place, zero)
    before = jax.lax.dynamic_slice(pairs.rows, at, (2, 1, change.shape[0]))
    rows = jax.lax.dynamic_update_slice(pairs.rows, jnp.where(taken, jnp.stack([step, change])[:, None], before), at)
    return _Pairs(
        rows,
        jnp.where(taken, products, pairs.products),
        jnp.where(taken, curvature / square, pairs.scale),
        jnp.where(taken, place, pairs.place),
        jnp.where(taken, jnp.minimum(pairs.held + 1, size), pairs.held),
    )


class Lbfgs(AbstractOptimiser):
    """Limited-memory BFGS (Nocedal 1980, Liu and Nocedal 1989) with a strong-Wolfe line search.

    theta <- theta - t H g, where H is built from remembered steps s and the changes y = g(theta + s) - g(theta) that
    they made to the gradient (H y = s for the youngest), and t is 1 if the line search accepts it. Both gradients of
    a pair come from the same batch; pairs whose curvature s.y is not clearly positive are skipped.

    An update is `iterations` such steps on one batch of B examples; the pairs are kept from batch to batch. It adds B
    to the age, however often the line search evaluates the criterion; those evaluations only cost time.

    Keeping the pairs between batches was tested on digits only (B = 300, 20 epochs, two seeds): with three iterations
    it is better than dropping them (criterion 0.029 and 0.030 against 0.033 and 0.033), with six it is not (0.029 and
    0.031 against 0.029 and 0.029); with one, only the gradient would be left.

    If a line search fails, the pairs are dropped; if the gradient's own direction then fails too, the run is stalled.
    """

    needs_objective = True
    memory: int = switch(
        10,
        allowed="[1, inf)",
        prior=LogInteger(3, 40),
        row="C11",
        kind="optimiser",
        about="steps stored; each costs two vectors of the size of the parameters",
    )
    line_steps: float = knob(20.0, **LINE_STEPS)
    tolerance: float = knob(0.9, **TOLERANCE)
    iterations: int = switch(
        1,
        allowed="[1, inf)",
        prior=LogInteger(1, 10),
        row="H7",
        kind="optimiser",
        about="iterations on each mini-batch before the next",
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        method = Method(_empty(self.memory), _aim, _learn, _forget)
        return descent(method, iterations=self.iterations, steps=self.line_steps, tolerance=self.tolerance)

    def rate(self, state: PyTree) -> Scalar:
        """The last step t that a line search found; 1 before the first."""
        return state.step
