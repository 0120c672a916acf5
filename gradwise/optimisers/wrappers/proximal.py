"""L1 with exact zeros (row D4): after each update weights shrink by a fixed amount, to 0 if they would cross it.

    Proximal(Sgd(0.1), coefficient=3.0)                                   all weights
    Proximal(Proximal(Sgd(0.1), 3.0, "layers.0.weight"), 1.0, "output.weight")   a coefficient for each layer

With its subgradient (`L1` in the criterion) the penalty only makes weights oscillate around 0. A coefficient means the
same in both: it is relative to the loss summed over the training set.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree, Scalar

from ...curvature.proximal_gradient import soft_threshold
from ...records.finding import Finding
from ...runtime.errors import RequestError, nearest
from ...specs.contracts import AbstractOptimiser, Batch
from ...specs.knobs import is_off, knob, switch
from ...specs.paths import WEIGHTS, matching, named_leaves, parts
from ...specs.priors import LogUniform, ZeroOr
from ..adaptive.adam import Adagrad, Adam, AdamW, RmsProp
from ..averaging.dual_averaging import DualAveraging
from ..averaging.parameter_average import refuse_averages
from ..first_order.sgd import HeavyBall, Nesterov
from .parameter_groups import Grouped
from .width_transfer import WidthTransfer


def marked(parameters: PyTree, where: str, asker: str) -> PyTree:
    """Which parameters match a pattern; an error that names the optimiser if none does."""
    marks = matching(parameters, where)
    if not any(jax.tree.leaves(marks)):
        names = [name for name, _ in named_leaves(parameters)]
        raise RequestError(f"no parameter matches `{asker}.where={where!r}`.{nearest(where, names)}")
    return marks


def prior_share(batch: Batch) -> Scalar:
    """(1/B) (B'/T): what of a prior beside the summed loss belongs to one update, whose losses are divided by B."""
    return jnp.sum(batch.present) / (batch.present.shape[0] * batch.total)


class Proximal(AbstractOptimiser):
    """Proximal gradient descent for L1. With the inner update u, B' of B slots in use and T training examples,

        theta <- soft(theta + u, rate (B'/B) coefficient / T),     soft(w, a) = sign(w) max(|w| - a, 0)

    Its fixed point minimises (sum of losses + coefficient |w|_1) / T: exactly for `Sgd`, with and without smoothing,
    and for `HeavyBall` and `Nesterov`, whose updates add up a constant gradient to 1 / (1 - momentum) times it, so
    the shrinkage is multiplied by the same factor (derived from the fixed point).

    With per-parameter rates (Adam and similar) the minimiser would need per-parameter shrinkage too;
    here it is the same for all, like AdamW's decay: weights shrink by rate * coefficient / T at each update
    whatever the gradient's size, and the coefficient is no longer the chapter's lambda. The zeros are exact there too.
    """

    needs_objective = True
    reads_examples = False
    optimiser: AbstractOptimiser
    coefficient: float = knob(
        0.1,
        allowed="[0, inf)",
        prior=ZeroOr(LogUniform(1e-4, 100.0)),
        row="D4",
        kind="capacity",
        off=0.0,
        about="lambda of L1 relative to the summed loss, with exact zeros",
    )
    where: str = switch(WEIGHTS, row="D4", kind="model", about="which parameters, by path")

    def __check_init__(self) -> None:
        refuse_averages(self)
        for _, part in parts(self):
            kind = type(part).__name__
            if isinstance(part, (Grouped, WidthTransfer)):
                raise RequestError(
                    f"`Proximal` around `{kind}` would not know each parameter's rate. "
                    "Give it one rule for all, and coefficients by `where`."
                )
            if isinstance(part, DualAveraging):
                raise RequestError(f"`Proximal` around `{kind}`, which leaves out other moves, would do nothing.")

    def _gain(self) -> Any:
        """How many times its rate a rule moves, in the long run, for a gradient that stays the same."""
        momenta = [part.momentum for _, part in parts(self) if isinstance(part, (HeavyBall, Nesterov))]
        return 1.0 / (1.0 - momenta[0]) if momenta else 1.0

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = self.optimiser.build()

        def update(updates: PyTree, state: PyTree, parameters: PyTree = None, *, objective: Any, **extra: Any) -> Any:
            moved, state = inner.update(updates, state, parameters, objective=objective, **extra)
            if is_off(self.coefficient):
                return moved, state
            share = prior_share(objective.batch)
            amount = self.optimiser.rate(state) * self._gain() * self.coefficient * share
            marks = marked(parameters, self.where, "Proximal")
            # 0 - p added to p is 0 exactly, and so is a weight that is not there (a padded one).
            moved = jax.tree.map(
                lambda mark, p, u: soft_threshold(p + u, amount) - p if mark else u, marks, parameters, moved
            )
            return moved, state

        return optax.GradientTransformationExtraArgs(inner.init, update)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return self.optimiser.judged(parameters, state)

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(state)

    def findings(self) -> tuple[Finding, ...]:
        own_rates = [part for _, part in parts(self) if isinstance(part, (Adagrad, RmsProp, Adam, AdamW))]
        if is_off(self.coefficient) or not own_rates:
            return ()
        return (
            Finding(
                "note",
                f"beside {type(own_rates[0]).__name__}, `Proximal.coefficient={float(self.coefficient):g}` shrinks the "
                "weights by rate x coefficient / T at each update. It is not the chapter's lambda beside the summed "
                "loss.",
                row="D4",
                next="for the chapter's meaning use Sgd, HeavyBall or Nesterov inside.",
            ),
        )
