"""The user's own pieces in the places of parts: a built module for a model spec, a plain function for a criterion.

    recipe = gradwise.defaults.classification(model=my_equinox_module, criterion=my_loss)

where `my_loss(model, batch, key)` returns one number for a `Batch`.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, Scalar

from .dataset import Task
from .errors import RequestError
from .parts import AbstractCriterion, AbstractModel, Batch, apply, deterministic


class BuiltModel(AbstractModel):
    """A network that exists already; its parameters are where training starts."""

    network: Any

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> Any:
        example = jax.ShapeDtypeStruct(inputs, jnp.float32)
        try:
            given = eqx.filter_eval_shape(lambda network, x: apply(network, x, None), self.network, example)
        except Exception as problem:
            raise RequestError(
                f"the given model does not take an example of shape {inputs}: {type(problem).__name__}: "
                f"{str(problem).splitlines()[0] if str(problem) else ''}"
            ) from problem
        if getattr(given, "shape", None) != (outputs,):
            raise RequestError(
                f"the given model returns shape {getattr(given, 'shape', type(given).__name__)} for one example, "
                f"but the task needs ({outputs},)."
            )
        return self.network


class FunctionCriterion(AbstractCriterion):
    """A plain function `loss(model, batch, key)`; an example's score is the function's value on it alone."""

    function: Callable[..., Scalar] = eqx.field(static=True)

    def __call__(
        self, model: PyTree, batch: Batch, *, key: Key[Array, ""]
    ) -> tuple[Scalar, dict[str, Float[Array, "..."]]]:
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

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        return output

    def check_task(self, task: Task) -> None:
        if task.kind != "numbers":
            raise RequestError(
                f"a plain loss function says nothing of how outputs become {task.kind}. "
                "Subclass `AbstractCriterion` and give it a `link`, or use `Supervised(loss=...)`."
            )


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
        return FunctionCriterion(thing)
    raise TypeError(f"a recipe's `criterion` must be a spec or a function; got {type(thing).__name__}.")
