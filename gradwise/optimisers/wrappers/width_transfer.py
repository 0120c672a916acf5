"""Width transfer (row J7): a learning rate tuned on a narrow network also works on a wide one.

    MovingAverage(WidthTransfer(Adam(0.003), base_width=64))
    with Mlp(widths=(n, n), initial=FanIn(), output_initial=OutputScaled(base_width=64))

The maximal update parametrisation (Yang et al. 2021, Tensor Programs V, table 3): every layer's activations should move
by the same amount in an update however wide the network is. With n hidden units, h of size 1 in each of them, output
weights of size 1/n and so gradients of size 1/n at each hidden activation:

| parameter | its update, times the rate | moves its layer's activations by | so the rate is multiplied by |
|---|---|---|---|
| output weights, Sgd | h | sum of h h over n units: n | base / fan_in |
| hidden weights, Sgd | h / n | 1 | 1 |
| input weights and hidden biases, Sgd | x / n, 1 / n | 1 / n | fan_out / base |
| output weights, Adam | 1 in each | sum of h over n units: n | base / fan_in |
| hidden weights, Adam | 1 in each | n | base / fan_in |
| input weights and hidden biases, Adam | 1 in each | 1 | 1 |
| output biases | 1 | 1 | 1 |

At the base width every factor is 1: nothing changes there. Rules with a second moment count as Adam, the others as
Sgd. AdamW's decay is multiplied together with its step.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree, Scalar

from ...runtime.errors import RequestError
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import switch
from ...specs.paths import knobs, map_named, named_leaves, parts
from ..adaptive.adam import Adagrad
from ..averaging.dual_averaging import DualAveraging
from ..averaging.parameter_average import refuse_averages


class _TransferState(NamedTuple):
    inner: PyTree
    factors: PyTree


class _Matrix(NamedTuple):
    """A layer's weights: where it stands, its array's shape, and how many of its units and inputs are there."""

    place: str
    shape: tuple[int, ...]
    units: Any
    inputs: Any


def _present(weight: Array) -> Any:
    """The units that are there. In a network padded to a larger array the others have weights of exactly 0."""
    count = jnp.sum(jnp.any(weight != 0, axis=1))
    return jnp.where(count == 0, weight.shape[0], count)


def _matrices(parameters: PyTree) -> list[_Matrix]:
    """The weights of all layers, in order; a layer that follows another has as many inputs as that has units."""
    found: list[_Matrix] = []
    for name, leaf in named_leaves(parameters):
        if jnp.ndim(leaf) == 2:
            follows = bool(found) and found[-1].shape[0] == leaf.shape[1]
            inputs = found[-1].units if follows else leaf.shape[1]
            found.append(_Matrix(name.rpartition(".")[0], leaf.shape, _present(leaf), inputs))
    return found


def _factor(name: str, leaf: Array, matrices: list[_Matrix], base: float, adaptive: bool) -> Any:
    """The table above, for one parameter."""
    if len(matrices) < 2:
        return 1.0  # no hidden layer, no width
    own = [number for number, matrix in enumerate(matrices) if name.startswith(f"{matrix.place}.")]
    if not own or own[0] == len(matrices) - 1:
        return base / matrices[own[0]].inputs if own and jnp.ndim(leaf) == 2 else 1.0
    if jnp.ndim(leaf) == 2 and own[0] > 0:
        return base / matrices[own[0]].inputs if adaptive else 1.0
    return 1.0 if adaptive else matrices[own[0]].units / base


class WidthTransfer(AbstractOptimiser):
    """Multiplies an optimiser's updates of each parameter by a factor that depends on its layer's width.

    Layers are identified by order: the first weight matrix takes the inputs, the last one gives the outputs.
    """

    optimiser: AbstractOptimiser
    base_width: int = switch(
        64, allowed="[1, inf)", row="J7", kind="optimiser", about="the width at which the learning rate was tuned"
    )

    def __check_init__(self) -> None:
        refuse_averages(self)
        for _, part in parts(self):
            asks = isinstance(part, AbstractOptimiser) and part.needs_objective
            if asks or isinstance(part, (Adagrad, DualAveraging)):
                raise RequestError(
                    f"`WidthTransfer` does not know how the steps of `{type(part).__name__}` grow with the width. "
                    "Use Sgd and its momenta, Adam, AdamW or RmsProp."
                )
        if len(self._kinds()) > 1:
            raise RequestError("`WidthTransfer` needs groups of one kind: all like Adam or all like Sgd.")

    def _kinds(self) -> set[bool]:
        """Whether the rules inside have a second moment."""
        names = [name for name, _, _ in knobs(self.optimiser)]
        rules = {name.removesuffix("learning_rate") for name in names if name.endswith("learning_rate")}
        return {f"{rule}second_moment" in names for rule in rules}

    def factors(self, parameters: PyTree) -> PyTree:
        """What each parameter's update is multiplied by."""
        masked = jax.tree.leaves(parameters, is_leaf=lambda node: isinstance(node, optax.MaskedNode))
        if any(isinstance(node, optax.MaskedNode) for node in masked):
            raise RequestError("`WidthTransfer` must see the whole network: write WidthTransfer(Grouped(...)).")
        matrices = _matrices(parameters)
        adaptive = True in self._kinds()
        return map_named(
            lambda name, leaf: jnp.asarray(_factor(name, leaf, matrices, self.base_width, adaptive), jnp.float32),
            parameters,
        )

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = self.optimiser.build()

        def init(parameters: PyTree) -> _TransferState:
            return _TransferState(inner.init(parameters), self.factors(parameters))

        def update(updates: PyTree, state: _TransferState, parameters: PyTree = None, **extra: Any) -> Any:
            moved, inner_state = inner.update(updates, state.inner, parameters, **extra)
            moved = optax.tree.mul(state.factors, moved)
            return moved, _TransferState(inner_state, state.factors)

        return optax.GradientTransformationExtraArgs(init, update)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return self.optimiser.judged(parameters, state.inner)

    def rate(self, state: PyTree) -> Scalar:
        """The rate at the base width."""
        return self.optimiser.rate(state.inner)
