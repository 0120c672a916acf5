"""Adapters for the user's own code: built modules as models, plain functions as criteria, Optax's optimisers.

    recipe = gradwise.defaults.classification(model=my_equinox_module, criterion=my_loss, optimiser=optax.adam(1e-3))

where `my_loss(model, batch, key)` returns one number for a `Batch`, or `my_loss(output, target)` one for an example,
which curvature and per-example optimisers need. Modules of Flax, NNX or Linen, are in `flax_models`.
"""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree, Scalar

from ..runtime.errors import RequestError
from .contracts import AbstractCriterion, AbstractModel, AbstractOptimiser, Batch, ValueAndTerms
from .flax_models import as_flax_model, is_flax
from .networks import apply, apply_batch, as_network, deterministic
from .serialisation import Unwritten


class BuiltModel(AbstractModel):
    """A network that is already built; training starts from its parameters."""

    network: Any

    def takes_sparse(self) -> bool:
        return as_network(self.network).takes_sparse

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

    def takes_sparse(self) -> bool:
        return True

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


class OptaxOptimiser(AbstractOptimiser):
    """An Optax transformation as it is. What was passed to it is inside its functions, so it has no knobs to search."""

    transformation: Any = eqx.field(static=True)

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(self.transformation)

    def rate(self, state: PyTree) -> Scalar:
        """Known where the transformation was made with `optax.inject_hyperparams`; NaN elsewhere."""
        found = optax.tree.get_all_with_path(state, "learning_rate")
        return jnp.asarray(found[0][1] if found else jnp.nan, jnp.float32)


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
    if is_flax(thing):
        return as_flax_model(thing)
    if callable(thing):
        return BuiltModel(thing)
    raise TypeError(f"expected a model such as `Mlp()`, or a module of Equinox or Flax; got {_word(thing)}.")


def as_criterion(thing: Any) -> AbstractCriterion:
    """The spec itself, or a spec around a plain function."""
    if isinstance(thing, AbstractCriterion):
        return thing
    if callable(thing):
        return OutputCriterion(thing) if _takes_an_output(thing) else FunctionCriterion(thing)
    raise TypeError(f"expected a criterion such as `Supervised()`, or a loss function; got {_word(thing)}.")


def as_optimiser(thing: Any) -> AbstractOptimiser:
    """The spec itself, or a spec around an Optax transformation."""
    if isinstance(thing, AbstractOptimiser):
        return thing
    if isinstance(thing, optax.GradientTransformation | Unwritten):
        return OptaxOptimiser(thing)
    raise RequestError(f"expected an optimiser such as `Adam()`, or an Optax transformation; got {_word(thing)}.")


def _word(thing: Any) -> str:
    return f"the text {thing!r}" if isinstance(thing, str) else f"an object of type {type(thing).__name__}"
