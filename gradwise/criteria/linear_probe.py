"""A linear probe: how well a linear map predicts the target from a code (rows E8, E20).

    Probed(Reconstruction(corruption=Masking()), Ridge(), classes=10)

The score shows which features suit the task, whatever learned them and however many there are. `Probed`
wraps any criterion that learns from inputs: the network is trained as before, and at every validation it is scored by a
probe fitted on the codes of the training set, so early stopping follows the final task (row A1).

Ridge has a closed form. Logistic runs a fixed number of accelerated gradient steps from zero with step 1/L, which is
deterministic, needs no line search, and comes close enough to the optimum for an error rate.
"""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from ..specs.contracts import AbstractCriterion, Batch, Scores, ValueAndTerms
from ..specs.dataset import UNLABELLED, Task
from ..specs.knobs import Spec, knob, switch
from ..specs.networks import apply_batch
from ..specs.priors import LogUniform


class AbstractProbe(Spec):
    """A linear map fitted on codes. Targets are class indices, or rows of numbers; `classes` is 0 for numbers."""

    @abc.abstractmethod
    def fit(self, codes: Float[Array, "n h"], targets: Float[Array, "n k"], weights: Float[Array, " n"]) -> Any:
        """`(W, b)` of the map codes W + b, each example counted by its weight."""


def _decay(default: float) -> Any:
    return knob(
        default,
        allowed="(0, inf)",
        prior=LogUniform(1e-6, 1.0),
        row="E8",
        kind="model",
        about="weight decay of the probe, in units of the codes' mean square",
    )


def _centred(values: Float[Array, "n h"], weights: Float[Array, " n"]) -> tuple[Array, Array]:
    mean = weights @ values / jnp.sum(weights)
    return (values - mean) * (weights > 0)[:, None], mean


class Ridge(AbstractProbe):
    """Least squares on targets (0 and 1 for classes) with weight decay: W = (C'C + d I)^-1 C'Y."""

    decay: float = _decay(1e-3)

    def fit(self, codes: Float[Array, "n h"], targets: Float[Array, "n k"], weights: Float[Array, " n"]) -> Any:
        count = jnp.sum(weights)
        features, centre = _centred(codes, weights)
        goals, middle = _centred(targets, weights)
        gram = (features * weights[:, None]).T @ features / count
        size = self.decay * jnp.mean(jnp.diagonal(gram)) + 1e-12  # constant codes: nothing to read, nothing divided
        root = jax.scipy.linalg.cho_factor(gram + size * jnp.eye(gram.shape[0]))
        weight = jax.scipy.linalg.cho_solve(root, (features * weights[:, None]).T @ goals / count)
        return weight, middle - centre @ weight


class Logistic(AbstractProbe):
    """Multinomial logistic regression with weight decay, by Nesterov's accelerated gradient from zero."""

    decay: float = _decay(1e-4)
    iterations: int = switch(200, allowed="[1, inf)", row="E8", about="steps of accelerated gradient descent")

    def fit(self, codes: Float[Array, "n h"], targets: Float[Array, "n k"], weights: Float[Array, " n"]) -> Any:
        share = weights / jnp.sum(weights)
        features, centre = _centred(codes, weights)
        mean_square = jnp.sum(share[:, None] * features**2) / features.shape[1]
        decay = self.decay * mean_square + 1e-12

        def turn(direction: Array, _: None) -> tuple[Array, None]:
            moved = features.T @ (share * (features @ direction))
            return moved / (jnp.linalg.norm(moved) + 1e-30), None

        start = jnp.ones(features.shape[1]) / features.shape[1] ** 0.5
        top, _ = jax.lax.scan(turn, start, None, length=20)
        # Böhning's bound: the softmax's Hessian is at most half the inputs'. A tenth more: the power method errs low.
        steepest = 0.55 * (jnp.linalg.norm(features.T @ (share * (features @ top))) + 1.0) + decay
        shape = (features.shape[1], targets.shape[1])

        def gradient(weight: Array, bias: Array) -> tuple[Array, Array]:
            wrong = share[:, None] * (jax.nn.softmax(features @ weight + bias, axis=1) - targets)
            return features.T @ wrong + decay * weight, jnp.sum(wrong, axis=0)

        def step(carry: Any, _: None) -> tuple[Any, None]:
            (weight, bias), (ahead, shifted), t = carry
            slope, tilt = gradient(ahead, shifted)
            new = (ahead - slope / steepest, shifted - tilt / steepest)
            later = (1.0 + jnp.sqrt(1.0 + 4.0 * t * t)) / 2.0
            push = (t - 1.0) / later
            onward = (new[0] + push * (new[0] - weight), new[1] + push * (new[1] - bias))
            return (new, onward, later), None

        zero = (jnp.zeros(shape), jnp.zeros(shape[1]))
        (found, _, _), _ = jax.lax.scan(step, (zero, zero, jnp.ones(())), None, length=self.iterations)
        return found[0], found[1] - centre @ found[0]


def known_rows(targets: Array, classes: int) -> Bool[Array, " n"]:
    """Which examples have a target."""
    return targets != UNLABELLED if classes else ~jnp.any(jnp.isnan(targets), axis=1)


def as_goals(targets: Array, classes: int) -> Float[Array, "n k"]:
    """Targets as rows of numbers: 0 and 1 for classes; an example without a target gets zeros."""
    return jax.nn.one_hot(targets, classes) if classes else jnp.nan_to_num(targets)


def probe_scores(
    probe: AbstractProbe, codes: tuple[Array, Array], targets: tuple[Array, Array], classes: int
) -> tuple[Float[Array, " v"], Float[Array, " v"]]:
    """Score and loss of each validation example under a probe fitted on the training codes; pairs (train, valid)."""
    known = known_rows(targets[0], classes).astype(codes[0].dtype)
    weight, bias = probe.fit(codes[0], as_goals(targets[0], classes), known)
    told = codes[1] @ weight + bias
    goals = as_goals(targets[1], classes)
    if not classes:
        squared = jnp.mean((told - goals) ** 2, axis=1)
        return squared, squared
    wrong = (jnp.argmax(told, axis=1) != targets[1]).astype(codes[0].dtype)
    loss = -jnp.sum(goals * jax.nn.log_softmax(told, axis=1), axis=1) if isinstance(probe, Logistic) else None
    return wrong, jnp.sum((told - goals) ** 2, axis=1) if loss is None else loss


class Probed(AbstractCriterion):
    """Trains as `criterion` does, scored by a linear probe fitted on `rows` training examples."""

    learns_from = "inputs"
    criterion: AbstractCriterion
    probe: AbstractProbe = Ridge()
    classes: int = switch(0, allowed="[0, inf)", row="E8", about="the number of classes; 0 for regression")
    rows: int = switch(10_000, allowed="[1, inf)", row="E8", about="training examples that the probe is fitted on")

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        return self.criterion(model, batch, key=key)

    def begin(self, model: PyTree, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> PyTree:
        return self.criterion.begin(model, inputs, key=key)

    def judge(self, model: PyTree, train: PyTree, valid: PyTree) -> Scores:
        inputs, targets = train.inputs[: self.rows], train.targets[: self.rows]
        codes = (apply_batch(model, inputs, None), apply_batch(model, valid.inputs, None))
        return Scores(*probe_scores(self.probe, codes, (targets, valid.targets), self.classes))

    def examples(
        self, model: PyTree, inputs: Float[Array, "n ..."], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return self.criterion.examples(model, inputs, targets)

    def measured(self, model: PyTree) -> tuple[str, ...]:
        return self.criterion.measured(model)

    def measures(self, model: PyTree, inputs: Float[Array, "n ..."]) -> dict[str, Float[Array, " n"]]:
        return self.criterion.measures(model, inputs)

    def check_inputs(self, inputs: Float[Array, "n ..."]) -> None:
        self.criterion.check_inputs(inputs)

    def check_task(self, task: Task) -> None:
        self.criterion.check_task(task)

    def check_network(self, network: PyTree) -> None:
        self.criterion.check_network(network)

    def decode(self, model: PyTree, code: Float[Array, " k"]) -> Float[Array, " d"] | None:
        return self.criterion.decode(model, code)
