"""Sparse coding and predictive sparse decomposition (row A10): few of many atoms explain each input.

    SparseDictionary(units=256, penalty=0.1)              codes are the solution of a lasso, with exact zeros
    PredictiveSparse(units=256, penalty=0.1, pull=1.0)    a layer learns to predict them: fast, and can be stacked

Both are trained by `gradwise.criteria.SparseCode`. The penalty and the pull belong to the network, which
cannot encode without them; the criterion reads them there. The atoms are the columns of D below, and rows of arrays.

Atoms stay in the unit ball; otherwise they would grow and the codes shrink until the penalty had no effect. The
parameter is a free vector v, and the atom is v / max(1, |v|), the nearest point of the ball. So any optimiser works,
the gradient is that of the objective itself, and no update needs a projection afterwards.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from ..curvature.proximal_gradient import lasso_codes
from ..runtime.memory import require_memory
from ..specs.contracts import AbstractModel
from ..specs.knobs import knob, switch
from ..specs.networks import Network
from ..specs.paths import Buffer
from ..specs.priors import LogInteger, LogUniform
from .activations import AbstractActivation, Tanh
from .initial_weights import AbstractInitial, Glorot, normal
from .mlp import Layer

_COPIES = 6  # a parameter, its gradient, an optimiser's two means, the best so far, and the atoms made of it
_TURN = 0.1  # of each initial atom, its random direction


def in_unit_ball(vectors: Float[Array, "units inputs"]) -> Float[Array, "units inputs"]:
    """v / max(1, |v|), row by row."""
    squares = jnp.sum(vectors**2, axis=1, keepdims=True)
    outside = squares > 1.0
    return jnp.where(outside, vectors / jnp.sqrt(jnp.where(outside, squares, 1.0)), vectors)


class SparseCodingNetwork(Network):
    """A dictionary, and the penalty of the codes: z(x) = argmin 1/2 |x - Dz|^2 + lambda |z|_1."""

    offers = ("codes", "energy", "decode")
    dictionary: Float[Any, "units inputs"]
    penalty: Buffer
    iterations: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " units"]:
        return self.codes(jnp.ravel(x))

    @property
    def atoms(self) -> Float[Array, "units inputs"]:
        """The atoms, none longer than 1, a row each."""
        return in_unit_ball(self.dictionary)

    @property
    def filters(self) -> Float[Array, "units inputs"]:
        return self.atoms

    def codes(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows units"]:
        """The sparse codes of one input, or of many at once."""
        return lasso_codes(self.atoms, inputs, self.penalty.value.astype(inputs.dtype), self.iterations)

    def decode(self, code: Float[Array, "*rows units"]) -> Float[Array, "*rows inputs"]:
        """Dz: the reconstruction from a code."""
        return code @ self.atoms

    def energy(self, inputs: Float[Array, "*rows inputs"], codes: Float[Array, "*rows units"]) -> Float[Array, "*rows"]:
        """What the codes minimise, input by input."""
        return _lasso(inputs - self.decode(codes), codes, self.penalty.value)


def _lasso(residual: Array, codes: Array, penalty: Any) -> Array:
    return 0.5 * jnp.sum(residual**2, axis=-1) + penalty * jnp.sum(jnp.abs(codes), axis=-1)


class PredictiveSparseNetwork(Network):
    """A dictionary and a layer h(x) = tanh(Wx + b) that predicts the codes as f(x) = g h(x), g a gain for each unit:

        z(x) = argmin 1/2 |x - Dz|^2 + lambda |z|_1 + alpha/2 |z - f(x)|^2

    The features are h(x), a layer of any perceptron. The gain, without which bounded units could not reach the codes,
    sits on the way back: `decode(h)` is D(g h). So a stack is made of plain layers, and the next one has its own scale.
    """

    offers = ("codes", "energy", "decode")
    encoder: Layer
    gain: Float[Any, " units"]
    dictionary: Float[Any, "units inputs"]
    penalty: Buffer
    pull: Buffer
    iterations: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " units"]:
        return self.encoder(jnp.ravel(x), key=None)

    @property
    def hidden_layers(self) -> tuple[Layer, ...]:
        """The way from an input to its features, as a layer of a perceptron."""
        return (self.encoder,)

    @property
    def atoms(self) -> Float[Array, "units inputs"]:
        """The atoms, none longer than 1, a row each."""
        return in_unit_ball(self.dictionary)

    def predicted(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows units"]:
        """f(x): the codes as the layer predicts them, of one input or of many at once."""
        layer = self.encoder
        return self.gain * layer.activation(inputs @ layer.weight.T + layer.bias)

    def codes(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows units"]:
        """The sparse codes, found by descent from the prediction and pulled towards it."""
        penalty, pull = (one.value.astype(inputs.dtype) for one in (self.penalty, self.pull))
        return lasso_codes(self.atoms, inputs, penalty, self.iterations, pull=pull, towards=self.predicted(inputs))

    def decode(self, code: Float[Array, "*rows units"]) -> Float[Array, "*rows inputs"]:
        """D(g h): the reconstruction from features."""
        return (self.gain * code) @ self.atoms

    def energy(self, inputs: Float[Array, "*rows inputs"], codes: Float[Array, "*rows units"]) -> Float[Array, "*rows"]:
        """What the codes minimise, input by input."""
        away = codes - self.predicted(inputs)
        lasso = _lasso(inputs - codes @ self.atoms, codes, self.penalty.value)
        return lasso + 0.5 * self.pull.value * jnp.sum(away**2, axis=-1)


def _check_room(units: int, size: int, matrices: int) -> None:
    what = f"a dictionary of {units} atoms over {size} inputs needs about"
    require_memory(4 * _COPIES * matrices * units * size, what, "Use fewer `units`.")


def _directions(units: int, size: int, key: Key[Array, ""]) -> Float[Array, "units inputs"]:
    """Atoms of length 1 in random directions."""
    return _unit(normal((units, size), key))


def _unit(rows: Float[Array, "n d"]) -> Float[Array, "n d"]:
    lengths = jnp.linalg.norm(rows, axis=1, keepdims=True)
    return rows / jnp.where(lengths > 0, lengths, 1.0)


def _from_examples(directions: Float[Array, "units d"], inputs: Float[Array, "n ..."]) -> Float[Array, "units d"]:
    """Evenly spaced training examples, each turned a little towards its random direction.

    Atoms that look like data are all used from the start. If there are fewer examples than atoms, or equal ones, the
    directions still make the atoms differ; an example that is 0 is replaced by its direction.
    """
    units, count = directions.shape[0], inputs.shape[0]
    rows = inputs.reshape(count, -1)[np.arange(units) * count // units]
    return _unit(_unit(rows) + _TURN * directions)


_UNITS: dict[str, Any] = {
    "allowed": "[1, inf)",
    "prior": LogInteger(64, 1024),
    "row": "A10",
    "kind": "capacity",
    "about": "atoms of the dictionary, which are the features",
}
_PENALTY: dict[str, Any] = {
    "allowed": "(0, inf)",
    "prior": LogUniform(0.01, 1.0),
    "row": "A10",
    "kind": "capacity",
    "about": "lambda, the weight of |z|_1 relative to half the squared error: the larger, the more codes are 0",
}
_ITERATIONS: dict[str, Any] = {"allowed": "[1, inf)", "row": "A10", "about": "FISTA steps for each code"}


class SparseDictionary(AbstractModel):
    """Sparse coding (Olshausen and Field 1996): codes by FISTA, a dictionary by gradient descent."""

    units: int = switch(256, **_UNITS)
    penalty: float = knob(0.1, **_PENALTY)
    iterations: int = switch(50, **_ITERATIONS)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> SparseCodingNetwork:
        size = math.prod(inputs)
        _check_room(self.units, size, 1)
        dictionary = _directions(self.units, size, key)
        return SparseCodingNetwork(dictionary, Buffer(jnp.asarray(self.penalty)), self.iterations)

    def started(self, network: SparseCodingNetwork, inputs: Float[Array, "n ..."]) -> SparseCodingNetwork:
        return eqx.tree_at(lambda one: one.dictionary, network, _from_examples(network.dictionary, inputs))


class PredictiveSparse(AbstractModel):
    """Predictive sparse decomposition (Kavukcuoglu, Ranzato and LeCun 2008).

    Its criterion there, |x - Dz|^2 + lambda |z|_1 + alpha |z - f(x)|^2, is twice the one here with half its lambda, so
    that `penalty` means the same as for `SparseDictionary`; alpha is `pull` in both.
    """

    units: int = switch(256, **_UNITS)
    penalty: float = knob(0.1, **_PENALTY)
    pull: float = knob(
        1.0,
        allowed="(0, inf)",
        prior=LogUniform(0.1, 10.0),
        row="A10",
        kind="model",
        about="alpha: how strongly codes and their predictions are pulled together",
    )
    iterations: int = switch(30, **_ITERATIONS)
    activation: AbstractActivation = Tanh()
    initial: AbstractInitial = Glorot()

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> PredictiveSparseNetwork:
        size = math.prod(inputs)
        _check_room(self.units, size, 2)
        below, back = jr.split(key)
        weight = self.initial.draw(self.units, size, self.activation.gain(), key=below)
        return PredictiveSparseNetwork(
            encoder=Layer(weight, jnp.zeros(self.units), None, self.activation, None, residual=False),
            gain=jnp.ones(self.units),
            dictionary=_directions(self.units, size, back),
            penalty=Buffer(jnp.asarray(self.penalty)),
            pull=Buffer(jnp.asarray(self.pull)),
            iterations=self.iterations,
        )

    def started(self, network: PredictiveSparseNetwork, inputs: Float[Array, "n ..."]) -> PredictiveSparseNetwork:
        return eqx.tree_at(lambda one: one.dictionary, network, _from_examples(network.dictionary, inputs))
