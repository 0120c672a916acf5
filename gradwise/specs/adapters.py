"""Adapters for the user's own code: a built module as a model, a plain function as a criterion.

    recipe = gradwise.defaults.classification(model=my_equinox_module, criterion=my_loss)

where `my_loss(model, batch, key)` returns one number for a `Batch`, or `my_loss(output, target)` one for an example,
which curvature and per-example optimisers need.
"""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, Scalar

from ..runtime.errors import RequestError
from .contracts import AbstractCriterion, AbstractModel, Batch, ValueAndTerms
from .networks import apply, apply_batch, deterministic


class BuiltModel(AbstractModel):
    """A network that is already built; training starts from its parameters."""

    network: Any

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> Any:
        example = jax.ShapeDtypeStruct(inputs, jnp.float32)
        try:
            given = eqx.filter_eval_shape(lambda network, x: apply(network, x, None), self.network, example)
        except Exception as problem:
            raise RequestError(
                f"the model failed on an example of shape {inputs}: {type(problem).__name__}: "
                f"{str(problem).splitlines()[0] if str(problem) else ''}"
            ) from problem
        if outputs and getattr(given, "shape", None) != (outputs,):  # without a target, any code will do
            raise RequestError(
                f"the model returns shape {getattr(given, 'shape', type(given).__name__)} for one example, "
                f"but the task needs ({outputs},)."
            )
        return self.network


class FunctionCriterion(AbstractCriterion):
    """A plain function `loss(model, batch, key)`; an example's score is the function's value on it alone."""

    function: Callable[..., Scalar] = eqx.field(static=True)

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        total = self.function(model, batch, key)
        if jnp.shape(total) != ():
            raise RequestError(f"the loss function must return one number; it returned shape {jnp.shape(total)}.")
        return total, {}

    def examples(
        self, model: PyTree, inputs: Float[Array, "n ..."], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        one = jnp.ones(1)
        model = deterministic(model)

        def alone(x: Array, y: Array) -> Scalar:
            batch = Batch(x[None], y[None], one, one, jnp.asarray(1.0))
            return self.function(model, batch, jax.random.key(0))

        losses = jax.vmap(alone)(inputs, targets)
        return losses, losses


class OutputCriterion(AbstractCriterion):
    """A plain function `loss(output, target)` of one example's output; its mean over the batch is minimised."""

    function: Callable[..., Scalar] = eqx.field(static=True)

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        losses = jax.vmap(self.of_output)(apply_batch(model, batch.inputs, key), batch.targets)
        return jnp.sum(batch.weights * losses) / batch.weights.shape[0], {"loss": losses, "score": losses}

    def of_output(self, output: Float[Array, " k"], target: Array) -> Scalar:
        value = self.function(output, target)
        if jnp.shape(value) != ():
            raise RequestError(f"`loss(output, target)` must return one number; it returned shape {jnp.shape(value)}.")
        return value

    def not_summed(self) -> str:
        return ""

    def examples(
        self, model: PyTree, inputs: Float[Array, "n ..."], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        losses = jax.vmap(self.of_output)(apply_batch(model, inputs, None), targets)
        return losses, losses


def _takes_an_output(function: Callable[..., Any]) -> bool:
    """Whether a loss function takes one example, `(output, target)`, rather than `(model, batch, key)`."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # no Python function
        return False
    return len(names) == 2


def as_model(thing: Any) -> AbstractModel:
    """The spec itself, or a spec around a module that is already built."""
    if isinstance(thing, AbstractModel):
        return thing
    if callable(thing):
        return BuiltModel(thing)
    raise TypeError(f"a recipe's `model` must be a spec or a callable module; got {type(thing).__name__}.")


def as_criterion(thing: Any) -> AbstractCriterion:
    """The spec itself, or a spec around a plain function."""
    if isinstance(thing, AbstractCriterion):
        return thing
    if callable(thing):
        return OutputCriterion(thing) if _takes_an_output(thing) else FunctionCriterion(thing)
    raise TypeError(f"a recipe's `criterion` must be a spec or a function; got {type(thing).__name__}.")
