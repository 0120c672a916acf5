"""The problem to check: a loss, a model and a batch from any library, in one form.

    subject = Subject.of(loss, model, batch)                     an Equinox module, a Flax NNX module, any pytree
    subject.value(subject.parameters, subject.batch, key)        the loss
    subject.outputs(subject.parameters, inputs, key)             the network's outputs, as in training
    subject.evaluated(subject.parameters, inputs)                the same in evaluation: without noise

`loss(model, batch, key)` may omit the key, may take the arrays of a batch separately, and may return
`(value, anything)`. A batch is a pytree of arrays with examples along the first axis: `(x, y)`, a dictionary, a
`gradwise` batch. The optimiser, the training set and the evaluation function, if given, enable more checks.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Scalar

from ..runtime.errors import RequestError
from ..specs.networks import apply_batch, deterministic
from ..specs.paths import matching, named_leaves, trainable
from ..tracing.program import is_library
from .batch_access import count_of, inputs_of, take, targets_of

_KEYS = ("key", "rng", "rngs", "prng", "prng_key", "rng_key", "seed")
_SIGNATURES = "It may be loss(model, batch), loss(model, batch, key), loss(model, x, y) or loss(model, x, y, key)."


def describe_user_error(problem: BaseException) -> str:
    """An error of the user's program in one line, with the line of their code that raised it."""
    where, last = "", problem.__traceback__
    while last is not None:
        code = last.tb_frame.f_code
        if not is_library(code.co_filename):
            where = f" ({code.co_filename.rpartition('/')[2]}:{last.tb_lineno} in {code.co_name})"
        last = last.tb_next
    first = (str(problem).strip().splitlines() or [""])[0]
    return f"{type(problem).__name__}: {first}{where}"


def _arguments(function: Callable[..., Any], optional: bool = False) -> list[str]:
    """The names of the arguments a function takes by position or as `key=`; optionally those with a default."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # no Python function
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [p for p in found if p.kind in kinds and (optional or p.default is p.empty or p.name in _KEYS)]
    return [p.name for p in (*wanted, *(p for p in found if p.kind == p.KEYWORD_ONLY and p.name in _KEYS))]


def _takes_key(names: Sequence[str]) -> bool:
    return bool(names) and names[-1].lower() in _KEYS


def _call(function: Callable[..., Any], names: Sequence[str], given: Sequence[Any], key: Any) -> Any:
    """Calls with the key, by name if possible: other arguments with defaults may come before it."""
    if not names:
        return function(*given, key)
    kind = inspect.signature(function).parameters[names[-1]].kind
    named = kind == inspect.Parameter.KEYWORD_ONLY or (_takes_key(names) and kind != inspect.Parameter.POSITIONAL_ONLY)
    return function(*given, **{names[-1]: key}) if named else function(*given, key)


def is_nnx(model: Any) -> bool:
    return any(kind.__module__.startswith("flax.nnx") for kind in type(model).__mro__)


def _parted(model: Any) -> tuple[PyTree, Callable[[PyTree], Any]]:
    """The trainable parameters as a pytree with readable paths, and a function from them to the model."""
    if not is_nnx(model):
        parameters, rest = trainable(model)
        return parameters, lambda moved: eqx.combine(moved, rest)
    from flax import nnx  # installed, since the model uses it

    parted: Any = nnx.split(model, nnx.Param, ...)
    graph, state, rest = parted
    pure = nnx.to_pure_dict(state)

    def merged(moved: PyTree) -> Any:
        restored = jax.tree.map(lambda leaf: leaf, state)
        nnx.replace_by_pure_dict(restored, moved)
        return nnx.merge(graph, restored, rest, copy=True)  # or a forward pass would write into the original

    return pure, merged


def as_judged(model: Any) -> Any:
    """A model in evaluation mode."""
    if is_nnx(model):
        model.eval()
        return model
    return deterministic(model)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A loss, its parameters and a batch in one form; make one with `Subject.of`.

    `train`, `valid` and `test` are whole sets in the form of the batch; `batches` are successive batches in training
    order; `optimiser` is an Optax transformation, `extra(parameters, batch, key)` the further arguments of its update.
    `frozen` is a pattern of parameters that should not learn (`encoder.*`). `task` is "classes", "numbers" or "" if
    unknown.
    """

    value: Callable[[PyTree, Any, Any], Scalar]
    parameters: PyTree
    batch: Any
    model_of: Callable[[PyTree], Any]
    outputs: Callable[[PyTree, Any, Any], Array] | None = None
    evaluated: Callable[[PyTree, Any], Array] | None = None
    own_evaluation: bool = False  # the user's own `evaluate`, not what is made from `apply`
    train: Any = None
    valid: Any = None
    test: Any = None
    batches: tuple[Any, ...] = ()
    optimiser: Any = None
    extra: Callable[[PyTree, Any, Any], dict[str, Any]] | None = None
    frozen: str = ""
    task: str = ""
    columns: tuple[str, ...] = ()
    name: str = "problem"
    place: str = ""  # file and line of the user's loss

    @classmethod
    def of(
        cls,
        loss: Callable[..., Any],
        model: Any,
        batch: Any,
        *,
        apply: Callable[..., Any] | None = None,
        evaluate: Callable[..., Any] | None = None,
        train: Any = None,
        valid: Any = None,
        test: Any = None,
        batches: Iterable[Any] = (),
        optimiser: Any = None,
        frozen: str = "",
        task: str = "",
        columns: Sequence[str] = (),
        name: str = "",
    ) -> "Subject":
        """`apply(model, inputs, key)` returns a batch's outputs, `evaluate(model, inputs)` those in evaluation.

        Without `apply` the model itself is called: an Equinox module on each example, any other callable on all.
        """
        if not callable(loss):
            raise RequestError(f"`loss` must be a function loss(model, batch, key); got a {type(loss).__name__}.")
        parameters, model_of = _parted(model)
        if not jax.tree.leaves(parameters):
            whole = any(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(model))
            why = "its arrays are integers; convert them to `jnp.float32`" if whole else "there is nothing to check"
            raise RequestError(f"the model ({type(model).__name__}) has no trainable array: {why}.")
        if not count_of(batch):
            raise RequestError("the batch is empty: the first axis of its arrays has length 0.")
        if optimiser is not None and not (hasattr(optimiser, "init") and hasattr(optimiser, "update")):
            raise RequestError(
                f"`optimiser` must be an Optax transformation like optax.adam(1e-3); got a {type(optimiser).__name__}."
            )
        value = _value_of(loss, model_of, parameters, batch)
        if apply is None and callable(model):
            default = _default_apply(model)
            apply = default if _answers(_outputs_of(default, model_of), parameters, batch) else None
        subject = cls(
            value=value,
            parameters=parameters,
            batch=batch,
            model_of=model_of,
            outputs=None if apply is None else _outputs_of(apply, model_of),
            evaluated=_evaluated_of(apply, evaluate, model_of),
            own_evaluation=evaluate is not None,
            train=train,
            valid=valid,
            test=test,
            batches=tuple(batches),
            optimiser=optimiser,
            frozen=frozen,
            task=task or _task_of(batch),
            columns=tuple(columns),
            name=name or getattr(loss, "__name__", "problem"),
            place=_place_of(loss),
        )
        subject.check()
        return subject

    def check(self) -> None:
        """Rejects a loss that cannot be called on the batch, or that is not a scalar, in one line."""
        key = jax.random.key(0)
        try:
            given = jax.eval_shape(self.value, self.parameters, self.batch, key)
        except RequestError:
            raise
        except Exception as problem:
            how = f" {_SIGNATURES}" if isinstance(problem, TypeError) and "argument" in str(problem) else ""
            raise RequestError(
                f"the loss cannot be computed on this batch: {describe_user_error(problem)}.{how}"
            ) from problem
        if given.shape != () or not jnp.issubdtype(given.dtype, jnp.floating):
            raise RequestError(
                f"the loss must be a real scalar; got {given.dtype} of shape {given.shape}. "
                "Take its mean over the batch."
            )
        if self.frozen and not self.frozen_names:
            raise RequestError(f"frozen={self.frozen!r} matches no parameter of {', '.join(self.names[:6])}, ...")
        self._check_evaluation()

    def _check_evaluation(self) -> None:
        if not self.own_evaluation or self.evaluated is None:
            return
        inputs = inputs_of(self.batch)
        try:
            jax.eval_shape(self.evaluated, self.parameters, inputs)
        except Exception:  # it need not be a program of JAX's: then it must at least run
            try:
                self.evaluated(self.parameters, inputs)
            except Exception as problem:
                raise RequestError(
                    f"`evaluate` cannot be called on the inputs: {describe_user_error(problem)}."
                ) from problem

    @property
    def count(self) -> int:
        return count_of(self.batch)

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of the parameters, in the order of their leaves."""
        return tuple(name for name, _ in named_leaves(self.parameters))

    @property
    def frozen_names(self) -> frozenset[str]:
        """The parameters that should not learn."""
        if not self.frozen:
            return frozenset()
        marks = named_leaves(matching(self.parameters, self.frozen))
        return frozenset(name for name, mark in marks if mark)

    @property
    def size(self) -> int:
        """The number of parameters, counting every entry."""
        return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(self.parameters))

    def gradient(self, parameters: PyTree, batch: Any, key: Any) -> PyTree:
        return jax.grad(self.value)(parameters, batch, key)

    def smaller(self, count: int) -> "Subject":
        """The same subject on the first examples of its batch."""
        rows = np.arange(min(count, self.count))
        return dataclasses.replace(self, batch=take(self.batch, rows))


ARGUMENTS = tuple(name for name in inspect.signature(Subject.of).parameters if name not in ("loss", "model", "batch"))


def _forms(loss: Callable[..., Any], batch: Any) -> list[tuple[bool, bool]]:
    """The possible call signatures of a loss, likeliest first: batch unpacked or not, with a key or not."""
    names = _arguments(loss)
    parts = len(batch) if isinstance(batch, (tuple, list)) and len(batch) > 1 else 0
    keyed = _takes_key(names)
    given = len(names) - 1 - keyed
    if not names:
        return [(False, True), (False, False)]
    if given == 1:  # loss(model, batch, train=True), or loss(model, x, y=None)
        room = len(_arguments(loss, optional=True)) - 1 - keyed
        return [(False, keyed), *([(True, keyed)] if 0 < parts <= room else [])]
    spread = [(True, keyed)] if parts and given == parts else []
    spread += [(True, True)] if parts and given == parts + 1 and not keyed else []
    return [*spread, *([(False, True)] if given == 2 and not keyed else [])] or [(False, keyed)]


def _value_of(
    loss: Callable[..., Any], model_of: Callable[[PyTree], Any], parameters: PyTree, batch: Any
) -> Callable[..., Scalar]:
    """The loss as a function of parameters, batch and key, with the first call signature that works."""
    names = _arguments(loss)

    def form(spread: bool, keyed: bool) -> Callable[..., Scalar]:
        def value(parameters: PyTree, given: Any, key: Any) -> Scalar:
            arguments = (model_of(parameters), *given) if spread else (model_of(parameters), given)
            found = _call(loss, names, arguments, key) if keyed else loss(*arguments)
            return jnp.asarray(found[0] if isinstance(found, tuple) else found)

        return value

    forms = [form(*one) for one in _forms(loss, batch)]
    for value in forms[:-1]:
        try:
            jax.eval_shape(value, parameters, batch, jax.random.key(0))
        except Exception:  # any error: another form may fit, and `check` reports the error of the last one
            continue
        return value
    return forms[-1]


def _default_apply(model: Any) -> Callable[..., Any]:
    if isinstance(model, eqx.Module):
        return lambda network, inputs, key: apply_batch(network, inputs, key)
    return lambda network, inputs: network(inputs)


def _applied(apply: Callable[..., Any], model: Any, inputs: Any, key: Any) -> Array:
    """`apply(model, inputs)`, with the key if it takes one."""
    names = _arguments(apply)
    return _call(apply, names, (model, inputs), key) if len(names) > 2 else apply(model, inputs)


def _outputs_of(apply: Callable[..., Any], model_of: Callable[[PyTree], Any]) -> Callable[..., Array]:
    return lambda parameters, inputs, key: _applied(apply, model_of(parameters), inputs, key)


def _answers(outputs: Callable[..., Array], parameters: PyTree, batch: Any) -> bool:
    """Whether the model can be called on the inputs alone: one that also needs a mask cannot."""
    try:
        jax.eval_shape(outputs, parameters, inputs_of(batch), jax.random.key(0))
    except Exception:  # any error of a model that needs more than its inputs
        return False
    return True


def _evaluated_of(
    apply: Callable[..., Any] | None, evaluate: Callable[..., Any] | None, model_of: Callable[[PyTree], Any]
) -> Callable[..., Array] | None:
    if evaluate is not None:
        return lambda parameters, inputs: _applied(evaluate, model_of(parameters), inputs, None)
    if apply is None:
        return None
    return lambda parameters, inputs: _applied(apply, as_judged(model_of(parameters)), inputs, None)


def _task_of(batch: Any) -> str:
    """Integers in one column are classes, floats are numbers."""
    targets = targets_of(batch)
    if targets is None or not hasattr(targets, "dtype"):
        return ""
    whole = jnp.issubdtype(targets.dtype, jnp.integer)
    return "classes" if whole and np.ndim(targets) == 1 else "numbers" if not whole else ""


def _place_of(loss: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(loss), "__code__", None)
    return "" if code is None else f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno} in {code.co_name}"


def in_64_bits(tree: PyTree) -> PyTree:
    """The same numbers in 64 bits; to be called, and used, inside `jax.enable_x64(True)`."""

    def wider(leaf: Any) -> Any:
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(np.asarray(leaf, np.float64))  # by NumPy: as JAX's each shape would be compiled
        return leaf

    return jax.tree.map(wider, tree)
