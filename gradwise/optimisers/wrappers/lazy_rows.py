"""Updates that see only what a mini-batch of sparse rows reads (row G2).

    LazyRows(Adam(0.001))

An optimiser that remembers gradients moves parameters whose gradient is 0, so that each update sweeps the whole first
layer: with a million columns that takes a hundred times as long as the rest. Under `LazyRows` the weights of a column
that no row of the mini-batch holds stay as they are, and so does all that is remembered of them:

| optimiser | what differs for a column that is read in some updates only |
|---|---|
| `Sgd`, `Adagrad` | nothing: they are lazy by themselves |
| momentum, `Adam` | it does not move on between, and its moments decay by its own updates, not by all |
| `AdamW` | it decays only in the updates that read it: a frequent column is held back more |

Corrections for the start, as of Adam's moments, count all updates.
"""

import optax
from jaxtyping import PyTree, Scalar

from ...runtime.errors import RequestError
from ...specs.contracts import AbstractOptimiser


class LazyRows(AbstractOptimiser):
    """An optimiser that leaves the weights of columns that a mini-batch does not hold as they are."""

    optimiser: AbstractOptimiser

    def __check_init__(self) -> None:
        if isinstance(self.optimiser, AbstractOptimiser) and not self.optimiser.acts_elementwise():
            raise RequestError(
                f"`LazyRows` needs an optimiser that moves each weight by itself; {type(self.optimiser).__name__} does "
                "not. Use Adam, AdamW, RmsProp, HeavyBall or Nesterov."
            )

    def build(self) -> optax.GradientTransformationExtraArgs:
        return self.optimiser.build()

    def acts_elementwise(self) -> bool:
        return True

    def rests_without_gradient(self) -> bool:
        return True

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return self.optimiser.judged(parameters, state)

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state)
