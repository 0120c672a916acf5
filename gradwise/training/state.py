"""What a run holds: the `Problem`, which does not change, and the `State`, one pytree, which does.

problem, state = init(recipe, train, valid, outputs=10, key=key)
"""

import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from ..curvature.objective import Examples, Objective, count_seen, gather
from ..runtime import keys
from ..runtime.compilation import options_for
from ..specs.adapters import as_criterion, as_model
from ..specs.contracts import AbstractOptimiser, Batch
from ..specs.paths import parts, replace, trainable
from ..specs.recipe import Recipe
from ..specs.schedules import AbstractSchedule
from ..specs.sparse.rows import Rows
from ..tracing.example_accounts import Accounts
from ..tracing.flow_monitor import FlowMonitor, Looks


def _updates_for(examples: int, count: int, batch: int) -> int:
    """Updates that visit at least this many examples of a training set of `count`."""
    batch = min(batch, count)
    epochs, part = divmod(examples, count)
    return max(1, epochs * -(-count // batch) + -(-part // batch))


def updates_of_run(recipe: Recipe, count: int) -> int:
    """Updates after which a run on `count` training examples ends at the latest."""
    limit = recipe.stopping.limit_examples(count)
    ends = recipe.batches.limit_examples(count)
    return _updates_for(limit if ends is None else min(limit, ends), count, recipe.batches.size)


class Problem(eqx.Module):
    """What one run is about. `rest` is the model without its parameters; `classes` is 0 where there are none.

    With `last`, updates from that number on change nothing: in a population each member ends at an age of its own.
    `monitor` looks at the network between updates, and changes nothing.
    """

    recipe: Recipe
    rest: PyTree
    train: Examples
    valid: Examples
    key: Key[Array, ""]
    classes: int = eqx.field(static=True)
    last: Int[Array, ""] | None = None
    monitor: FlowMonitor | None = None

    @property
    def batch_size(self) -> int:
        return min(self.recipe.batches.size, len(self.train))

    @property
    def updates_per_epoch(self) -> int:
        return -(-len(self.train) // self.batch_size)

    @property
    def interval_updates(self) -> int:
        """Updates between validations: enough to visit at least as many examples as validation reads."""
        examples = self.recipe.stopping.interval_examples(len(self.train), len(self.valid))
        return max(1, -(-examples // self.batch_size))

    @property
    def limit_updates(self) -> int:
        """Updates after which the run ends at the latest."""
        return updates_of_run(self.recipe, len(self.train))

    def updates_for(self, examples: int) -> int:
        """Updates that visit at least this many examples."""
        return _updates_for(examples, len(self.train), self.recipe.batches.size)

    def model(self, parameters: PyTree) -> Any:
        """The network with these parameters."""
        return eqx.combine(parameters, self.rest)

    def objective(self, batch: Batch, update: Int[Array, ""]) -> Objective:
        """The criterion as the optimiser of this update sees it."""
        recipe = self.recipe
        batch = count_seen(batch, recipe.batches, update, self.train)
        return Objective(recipe.criterion, recipe.batches, self.rest, self.train, self.key, update, batch)


class State(eqx.Module):
    """All that changes. `best` is the best model so far: its parameters and measured buffers.

    `memory` is what the criterion keeps from one update to the next; most keep nothing. `looks` are the monitor's,
    `accounts` those of the examples, where they are kept.
    """

    parameters: PyTree
    optimiser: PyTree
    stopping: PyTree
    best: PyTree
    update: Int[Array, ""]
    memory: PyTree = None
    looks: Looks | None = None
    accounts: Accounts | None = None


def start(recipe: Recipe, inputs: Rows, outputs: int, sizes: tuple[int, int], key: Key[Array, ""]) -> tuple[State, Any]:
    """The state before the first update, and the network it belongs to."""
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((recipe, inputs, key)))
    program = _start if traced else _start_program()  # compiler options are for the outermost program alone
    return program(recipe, inputs, outputs, sizes, key)


@functools.cache
def _start_program() -> Any:
    """It runs once and draws many random numbers, so it takes far longer to compile well than to run."""
    jit: Any = eqx.filter_jit  # whose type does not mention the options that it passes on
    return jit(_start, compiler_options=options_for(0))


def _start(
    recipe: Recipe, inputs: Rows, outputs: int, sizes: tuple[int, int], key: Key[Array, ""]
) -> tuple[State, Any]:
    network = recipe.model.build(inputs.shape[1:], outputs, key=keys.named(key, "model"))
    recipe.criterion.check_network(network)
    network = recipe.model.started(network, inputs)
    parameters, _ = trainable(network)
    arrays = eqx.filter(network, eqx.is_array)
    state = State(
        parameters=parameters,
        optimiser=recipe.optimiser.build().init(parameters),
        stopping=recipe.stopping.init(*sizes),
        best=jax.tree.map(jnp.array, arrays),
        update=jnp.zeros((), jnp.int32),
        memory=recipe.criterion.begin(network, inputs, key=keys.named(key, "memory")),
    )
    # Weakly typed scalars would come back strongly typed, and the second interval would be compiled anew.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state), network


def _exchanged(recipe: Recipe, **parts: Any) -> Recipe:
    """The recipe with other things in the places of parts, unchecked: None is no part."""
    before = tuple(getattr(recipe, name) for name in parts)
    return eqx.tree_at(
        lambda r: tuple(getattr(r, name) for name in parts),
        recipe,
        tuple(parts.values()),
        is_leaf=lambda node: any(node is one for one in before),
    )


def with_room(optimiser: AbstractOptimiser, count: int) -> AbstractOptimiser:
    """The optimiser with room for so many examples, where it remembers them, however deep it stands."""
    for path, part in parts(optimiser):
        if isinstance(part, AbstractOptimiser) and part.sized(count) is not part:
            optimiser = replace(optimiser, path, part.sized(count))
    return optimiser.sized(count)


def count_network(
    model: Any, optimiser: AbstractOptimiser, shape: tuple[int, ...], outputs: int, examples: int
) -> tuple[int, int]:
    """The number of parameters and the bytes of the training state, without allocating either."""

    def begin(key: Any) -> Any:
        parameters, _ = trainable(as_model(model).build(shape, outputs, key=key))
        return parameters, with_room(optimiser, examples).build().init(parameters)

    def size(tree: Any, bytes_each: bool) -> int:
        return sum(math.prod(a.shape) * (a.dtype.itemsize if bytes_each else 1) for a in jax.tree.leaves(tree))

    parameters, state = eqx.filter_eval_shape(begin, jax.eval_shape(lambda: jax.random.key(0)))
    # Parameters, their gradient and the best ones so far, and what the optimiser remembers.
    return size(parameters, False), 3 * size(parameters, True) + size(state, True)


def _over_run(part: Any, updates: int) -> Any:
    """The part with every schedule in it that waits for the run's length knowing it."""
    for path, schedule in parts(part):
        if isinstance(schedule, AbstractSchedule) and schedule.over(updates) is not schedule:
            part = replace(part, path, schedule.over(updates))
    return part


def lasts_a_run(optimiser: AbstractOptimiser) -> bool:
    """Whether a schedule of the optimiser waits to be told the length of the run."""
    return _over_run(optimiser, 1) is not optimiser


def for_building(recipe: Recipe, train: Examples) -> Recipe:
    """What making the network takes: the user's own pieces as parts, each told what this training set is like.

    Split and scaler have done their work.
    """
    updates = updates_of_run(recipe, len(train))
    model = _over_run(as_model(recipe.model).for_inputs(train.layout), updates)
    criterion = _over_run(as_criterion(recipe.criterion), updates)
    optimiser = _over_run(with_room(recipe.optimiser, len(train)), updates)
    return _exchanged(recipe, model=model, criterion=criterion, optimiser=optimiser, split=None, scaler=None)


def uses_objective(optimiser: AbstractOptimiser) -> bool:
    """Whether the optimiser, or one within it, asks for more than the gradient."""
    inside = (part for _, part in parts(optimiser) if isinstance(part, AbstractOptimiser))
    return any(part.needs_objective for part in (optimiser, *inside))


def reads_examples(optimiser: AbstractOptimiser) -> bool:
    """Whether the optimiser, or one within it, evaluates the criterion on examples of its own choice."""
    inside = (part for _, part in parts(optimiser) if isinstance(part, AbstractOptimiser))
    return any(part.needs_objective and part.reads_examples for part in (optimiser, *inside))


def refuse_unfit(problem: Problem, state: State) -> None:
    """Traces one update on nothing, so that an optimiser refuses a model or a loss it cannot use before training."""
    if not uses_objective(problem.recipe.optimiser):
        return

    def update(problem: Problem, state: State) -> Any:
        rows = jnp.zeros(problem.batch_size, jnp.int32)
        batch = gather(problem.train, rows, jnp.ones(problem.batch_size), state.memory)
        criterion = problem.objective(batch, state.update)
        value, gradient = criterion.value_and_gradient(state.parameters)
        return problem.recipe.optimiser.build().update(
            gradient, state.optimiser, state.parameters, value=value, objective=criterion
        )

    eqx.filter_eval_shape(update, problem, state)


def refuse_inputs(recipe: Recipe, *parts: Examples) -> None:
    """Lets a criterion that learns the inputs themselves, or a model of them, refuse those it cannot mean."""
    for part in parts:
        if not isinstance(part.inputs, jax.core.Tracer | jax.ShapeDtypeStruct):  # shapes alone tell nothing
            with jax.ensure_compile_time_eval():  # the values are here, even while the rest is traced for its shapes
                recipe.criterion.check_inputs(part.inputs)
                recipe.model.check_inputs(part.inputs)


def for_training(recipe: Recipe) -> Recipe:
    """What the intervals take. What has done its work, left in, would make a program of its own of each value."""
    return _exchanged(recipe, model=None)


def without_length(recipe: Recipe) -> Recipe:
    """What a population takes: each member ends at an age of its own, so runs of any length share a program."""
    return _exchanged(recipe, stopping=recipe.stopping.without_length())


def init(
    recipe: Recipe,
    train: Examples,
    valid: Examples,
    *,
    outputs: int,
    classes: int = 0,
    monitor: FlowMonitor | None = None,
    accounts: bool = False,
    key: Key[Array, ""],
) -> tuple[Problem, State]:
    """Builds the network and the state before the first update, with accounts of the examples if they are asked for."""
    recipe = for_building(recipe, train)
    refuse_inputs(recipe, train, valid)
    state, network = start(recipe, train.inputs, outputs, (len(train), len(valid)), key)
    _, rest = trainable(network)
    problem = Problem(for_training(recipe), rest, train, valid, keys.named(key, "training"), classes, monitor=monitor)
    refuse_unfit(problem, state)
    looks = None if monitor is None else monitor.begin(state.parameters)
    kept = Accounts.begin(len(train), len(valid)) if accounts else None
    return problem, dataclasses.replace(state, looks=looks, accounts=kept)
