"""The ends of a Hessian's spectrum without the matrix (row H5), and the learning rate that they imply.

All of it takes a symmetric matrix as its product with a vector, a function of trees; `products` makes such maps.

    lowest, highest = hessian_range(objective, parameters, key=key)
    best, limit = implied_rate(highest.value)                  1 / lambda, and 2 / lambda where descent diverges

    largest_eigenvalue(product, like, key=key)                 power method: the largest |lambda|, with its sign
    lanczos(product, like, key=key, steps=20)                  both ends and more, with far fewer products
    online_eigenvalue(loss, parameters, batches, key=key)      over a stream of batches, a product each

Lanczos is the one to use where its `steps` vectors fit into memory: the power method needs a number of products that
grows with the ratio of the largest eigenvalue to the gap below it, Lanczos with the square root of that ratio.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key, PyTree, Scalar

from ..runtime.errors import RequestError
from ..specs.knobs import is_plain_number
from .products import hessian_map, hessian_vector

Product = Callable[[PyTree], PyTree]
_LEAST = 1e-30  # divides nothing by nothing


class Eigenpair(NamedTuple):
    """An eigenvalue with its sign, its vector of length 1, the residual ||H v - lambda v|| and the products it took."""

    value: Scalar
    vector: PyTree
    residual: Scalar
    products: Int[Array, ""]


class Ritz(NamedTuple):
    """What Lanczos found, in ascending order: values, vectors (one more axis, the first) and residuals."""

    values: Float[Array, " m"]
    vectors: PyTree
    residuals: Float[Array, " m"]


def _unit(tree: PyTree) -> PyTree:
    return optax.tree.scale(1.0 / jnp.maximum(optax.tree.norm(tree), _LEAST), tree)


def _random(like: PyTree, key: Key[Array, ""]) -> PyTree:
    """A direction of length 1, evenly drawn."""
    leaves, structure = jax.tree.flatten(like)
    keys = jr.split(key, max(1, len(leaves)))
    drawn = [jr.normal(k, jnp.shape(leaf), jnp.result_type(leaf)) for k, leaf in zip(keys, leaves, strict=False)]
    return _unit(jax.tree.unflatten(structure, drawn))


# --- the power method


def largest_eigenvalue(
    product: Product, like: PyTree, *, key: Key[Array, ""], steps: int = 200, tolerance: float = 1e-3
) -> Eigenpair:
    """The eigenvalue that is largest in size, with its sign, by the power method: v <- H v / ||H v||.

    It ends when the residual is at most `tolerance` |lambda|, or after `steps` products. Two ends of one size and
    opposite signs have no largest: then the residual stays large, and `lanczos` tells them apart.
    """

    def measured(vector: PyTree) -> tuple[PyTree, Scalar, Scalar]:
        image = product(vector)
        value = optax.tree.vdot(vector, image)
        return image, value, optax.tree.norm(optax.tree.add_scale(image, -value, vector))

    def unfinished(carry: tuple[Any, ...]) -> Array:
        _, image, value, residual, count = carry
        return (count < steps) & (residual > tolerance * jnp.abs(value)) & (optax.tree.norm(image) > _LEAST)

    def turn(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        _, image, _, _, count = carry
        vector = _unit(image)
        return vector, *measured(vector), count + 1

    start = _random(like, key)
    first = (start, *measured(start), jnp.ones((), jnp.int32))
    vector, _, value, residual, count = jax.lax.while_loop(unfinished, turn, first)
    return Eigenpair(value, vector, residual, count)


# --- Lanczos


def lanczos(product: Product, like: PyTree, *, key: Key[Array, ""], steps: int = 30) -> Ritz:
    """Ritz values and vectors of the Krylov space of so many products, the ends of the spectrum first to be right.

    Every new direction is made orthogonal to all before it, twice: in 32 bits the three-term recurrence alone finds
    copies of the values that it has found. Where the space is exhausted, it goes on from a new random direction.
    """
    start, unravel = ravel_pytree(_random(like, key))
    count, size = min(steps, start.shape[0]), start.shape[0]
    tiny = jnp.finfo(start.dtype).eps * 100

    def without(basis: Array, vector: Array) -> Array:
        for _ in range(2):
            vector = vector - basis.T @ (basis @ vector)
        return vector

    def turn(number: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        basis, vector, diagonal, beside, scale = carry
        basis = basis.at[number].set(vector)
        image = ravel_pytree(product(unravel(vector)))[0]
        diagonal = diagonal.at[number].set(vector @ image)
        rest = without(basis, image)
        length = jnp.linalg.norm(rest)
        scale = jnp.maximum(scale, jnp.linalg.norm(image))
        goes_on = length > tiny * scale
        fresh = without(basis, jr.normal(jr.fold_in(key, number + 1), (size,), start.dtype))
        vector = jnp.where(goes_on, rest, fresh)
        vector = vector / jnp.maximum(jnp.linalg.norm(vector), _LEAST)
        return basis, vector, diagonal, beside.at[number].set(jnp.where(goes_on, length, 0.0)), scale

    zeros = jnp.zeros(count, start.dtype)
    first = (jnp.zeros((count, size), start.dtype), start, zeros, zeros, jnp.zeros((), start.dtype))
    basis, _, diagonal, beside, _ = jax.lax.fori_loop(0, count, turn, first)
    small = jnp.diag(diagonal) + jnp.diag(beside[:-1], 1) + jnp.diag(beside[:-1], -1)
    values, mixed = jnp.linalg.eigh(small)
    return Ritz(values, jax.vmap(unravel)(mixed.T @ basis), jnp.abs(beside[-1] * mixed[-1]))


@eqx.filter_jit
def _range(loss: Callable[[PyTree], Scalar], parameters: PyTree, key: Key[Array, ""], steps: int) -> Any:
    product = hessian_map(loss, parameters)
    found = lanczos(product, parameters, key=key, steps=steps)
    products = jnp.asarray(len(found.values) + 1, jnp.int32)

    def end(place: int) -> Eigenpair:
        value, vector = found.values[place], jax.tree.map(lambda leaf: leaf[place], found.vectors)
        # Measured: Lanczos's own estimate knows nothing of rounding.
        residual = optax.tree.norm(optax.tree.add_scale(product(vector), -value, vector))
        return Eigenpair(value, vector, residual, products)

    return end(0), end(-1)


def hessian_range(
    loss: Callable[[PyTree], Scalar], parameters: PyTree, *, key: Key[Array, ""], steps: int = 30
) -> tuple[Eigenpair, Eigenpair]:
    """The lowest and the highest eigenvalue of the Hessian of a loss, or of an `Objective`, at these parameters.

    By Lanczos; `residual` bounds the error of each value.
    """
    if not jax.tree.leaves(parameters):
        raise RequestError("`hessian_range` needs parameters; got none. Give the trainable part of the network.")
    return _range(loss, parameters, key, steps)


# --- on line


def online_step(product: Product, mean: PyTree, share: Any) -> PyTree:
    """Psi <- (1 - share) Psi + share H_p Psi / ||Psi||: a turn of the power method on the present batch's Hessian H_p.

    Its fixed point is lambda v: the length of Psi is the eigenvalue. A turn multiplies the direction by
    (1 - share) + share H / ||Psi||, which grows with lambda *with its sign*: the highest eigenvalue wins, and not a
    lower one of larger size, as long as that one is above -(2 / share - 1) times the highest. (Derived, not published.)
    """
    return optax.tree.add_scale(optax.tree.scale(1.0 - share, mean), share, product(_unit(mean)))


def online_eigenvalue(
    loss: Callable[[PyTree, Any], Scalar],
    parameters: PyTree,
    batches: PyTree,
    *,
    key: Key[Array, ""],
    shares: tuple[float, float] = (0.3, 0.01),
) -> Eigenpair:
    """The highest eigenvalue of the mean Hessian over a stream of batches (LeCun, Simard and Pearlmutter 1993).

    `loss(parameters, batch)`; `batches` has one more axis, the first, with a batch for each turn. The share of a new
    batch falls geometrically between `shares`: at first it finds the direction, at last it averages the noise away.
    Products are exact, not the published differences of gradients: no distance suits every scale of the parameters.
    """
    turns = jax.tree.leaves(batches)[0].shape[0]
    fall = jnp.linspace(0.0, 1.0, turns)
    schedule = shares[0] ** (1.0 - fall) * shares[1] ** fall

    def turn(mean: PyTree, given: tuple[Any, Scalar]) -> tuple[PyTree, None]:
        batch, share = given

        def product(vector: PyTree) -> PyTree:
            return hessian_vector(lambda point: loss(point, batch), parameters, vector)

        moved = online_step(product, mean, share)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, mean), None

    mean, _ = jax.lax.scan(turn, _random(parameters, key), (batches, schedule))

    def whole(point: PyTree) -> Scalar:
        return jnp.mean(jax.lax.map(lambda batch: loss(point, batch), batches))

    value, vector = optax.tree.norm(mean), _unit(mean)
    residual = optax.tree.norm(optax.tree.add_scale(hessian_vector(whole, parameters, vector), -value, vector))
    return Eigenpair(value, vector, residual, jnp.asarray(turns, jnp.int32))


# --- the rate


def implied_rate(
    eigenvalue: Any, momentum: Any = 0.0, smoothing: Any = 1.0, *, nesterov: bool = False
) -> tuple[Scalar, Scalar]:
    """The best and the largest learning rate of gradient descent where the highest curvature is this eigenvalue.

    On a quadratic each eigenvector is a recursion of its own; with a = rate lambda its characteristic polynomial is

        plain         z - (1 - a)                                         |z| < 1  for  a < 2
        heavy ball    z^2 - (1 + mu - a) z + mu                           z = -1   at   a = 2 (1 + mu)
        Nesterov      z^2 - (1 + mu)(1 - a) z + mu (1 - a)                z = -1   at   a = 2 (1 + mu) / (1 + 2 mu)
        smoothing     the heavy ball of mu = 1 - beta, rate beta a        z = -1   at   a = 2 (2 - beta) / beta

    (derived; the plain case is LeCun 1998's). The best is half the limit: 1 / lambda without momentum, where the
    sharpest direction is done in one update; a factor of 2 from divergence always, and with the heavy ball the sharpest
    direction still shrinks by sqrt(mu) an update, which is the fastest it can. Without positive curvature both are
    infinite.
    """
    if is_plain_number(momentum) and is_plain_number(smoothing) and momentum != 0 and smoothing != 1:
        raise RequestError(
            f"`implied_rate` takes one kind of momentum; got momentum={momentum} and smoothing={smoothing}."
        )
    rounds = 1.0 + 2.0 * momentum if nesterov else 1.0
    most = 2.0 * (1.0 + momentum) / rounds * (2.0 - smoothing) / smoothing
    value = jnp.asarray(eigenvalue)
    limit = jnp.where(value > 0, most / jnp.where(value > 0, value, 1.0), jnp.inf)
    return limit / 2.0, limit
