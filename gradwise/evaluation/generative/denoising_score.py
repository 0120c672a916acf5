"""What a denoising auto-encoder has learned about the density of its training data (row A13).

    criterion, network = record.predictor.criterion, record.predictor.network
    one = lambda x: criterion.decode(network, network(x))
    denoising_score(one, points, deviation)           (n, d): the slope of the log-density at points
    tangents(one, points[0], 2)                       the two directions in which the data go on from there
    reconstruction_gap(one, points, elsewhere)        errors on the data and off them

Trained with normal noise of deviation s and a squared error, the best reconstruction of x is x + s^2 times the slope of
the log-density of the data blurred by that noise (Alain & Bengio 2012; Vincent 2011). So r(x) - x points to where data
are denser, r varies along the data's manifold and not across it, and the error is lowest on the data.

Every function takes r (or an encoder) as a function of one example.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...runtime.errors import RequestError

OfOne = Callable[[Float[Array, " d"]], Float[Array, " k"]]


def denoising_score(reconstruct: OfOne, points: Float[Array, "n d"], deviation: float) -> Float[Array, "n d"]:
    """(r(x) - x) / s^2: the slope of the log-density blurred by the noise of this deviation, trained with."""
    if not deviation > 0:
        raise RequestError(f"`deviation` must be positive, that of the noise in training; got {deviation}.")
    return (jax.vmap(reconstruct)(points) - points) / deviation**2


def tangents(
    function: OfOne, x: Float[Array, " d"], count: int
) -> tuple[Float[Array, "count d"], Float[Array, " count"]]:
    """The directions of the input to which a reconstruction or an encoder is most sensitive, and how much.

    They are the leading right singular vectors of its Jacobian, of length 1, with their singular values.
    """
    slopes = jax.jacobian(function)(x)
    most = min(slopes.shape)
    if not 1 <= count <= most:
        raise RequestError(f"`count` must lie in [1, {most}], the directions that there can be; got {count}.")
    _, strengths, directions = jnp.linalg.svd(slopes, full_matrices=False)
    return directions[:count], strengths[:count]


@dataclass(frozen=True)
class Gap:
    """Mean squared reconstruction errors on and off the data, and how often a point off them has the larger one.

    `separated` is 0.5 where the error says nothing and 1 where it tells all points apart.
    """

    on: float
    off: float
    separated: float


def reconstruction_gap(reconstruct: OfOne, data: Float[Array, "n d"], elsewhere: Float[Array, "m d"]) -> Gap:
    """How much higher the reconstruction error is at points elsewhere than at the data."""
    on, off = (
        np.asarray(jnp.sum((jax.vmap(reconstruct)(points) - points) ** 2, axis=1)) for points in (data, elsewhere)
    )
    ranked = np.sort(on)
    below = (np.searchsorted(ranked, off, "left") + np.searchsorted(ranked, off, "right")) / 2.0  # ties count half
    return Gap(float(on.mean()), float(off.mean()), float(below.mean() / len(on)))


@dataclass(frozen=True)
class SmallNoise:
    """E ||r(x + e) - x||^2 = error + s^2 (contraction + curvature) + O(s^4), for normal noise of deviation s.

    `error` is ||r - x||^2, `contraction` the squared norm of dr/dx, `curvature` (r - x) . Laplacian of r. It is the
    Jacobian of the reconstruction that counts, not the encoder's, and the curvature vanishes only where r = x.
    """

    error: Float[Array, ""]
    contraction: Float[Array, ""]
    curvature: Float[Array, ""]

    def at(self, deviation: float) -> Float[Array, ""]:
        """The denoising error at a small deviation of the noise."""
        return self.error + deviation**2 * (self.contraction + self.curvature)


def small_noise(reconstruct: OfOne, x: Float[Array, " d"]) -> SmallNoise:
    """What the denoising error at one example consists of when the noise is small."""
    gap = reconstruct(x) - x

    def second(direction: Float[Array, " d"]) -> Float[Array, " d"]:
        def first(point: Float[Array, " d"]) -> Float[Array, " d"]:
            return jax.jvp(reconstruct, (point,), (direction,))[1]

        return jax.jvp(first, (x,), (direction,))[1]

    laplacian = jnp.sum(jax.vmap(second)(jnp.eye(x.shape[0], dtype=x.dtype)), axis=0)
    return SmallNoise(jnp.sum(gap**2), jnp.sum(jax.jacobian(reconstruct)(x) ** 2), jnp.sum(gap * laplacian))
