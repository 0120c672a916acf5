"""Many networks trained at once: `fit`'s interval under `vmap`, with slots that are refilled (row E18).

    population = Population(template, train, valid, slots=64)
    population.fill(3, member, state)         # a new network into slot 3
    rows = population.interval(updates)       # one interval for every slot; one line of history each
    population.best(3)                        # the best model of slot 3, on the host

A member is a recipe whose leaves are numbers; a population is the same recipe whose leaves have one more axis. Members
enter and leave between intervals, so none waits for a slow one, and nothing is recompiled. A member's result does not
depend on its neighbours: its examples, its noise and its end are computed from its own key and numbers.

A slot without a member is inert: its `last` update is 0, so it does not change. Tests fill such slots with NaN
(row F4).
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from ..curvature.objective import Examples
from ..runtime import keys
from ..runtime.compilation import SMALL, options_for
from ..specs.networks import apply_batch
from ..specs.paths import trainable
from ..specs.recipe import Recipe
from .interval import AT_ONCE, Row, advance, evaluate, judge, program_of_run, repeat, several
from .state import (
    Problem,
    State,
    for_building,
    for_training,
    refuse_inputs,
    refuse_unfit,
    start,
    updates_of_run,
    without_length,
)

_SEVERAL, _TOGETHER = 4, 16  # slots from which on their best models are read in one call, and how many in each


class Member(eqx.Module):
    """What one slot trains: all of a `Problem` but the examples, which the slots share.

    `fold` says which of several stacked folds of the examples are its own; None where all slots have the same ones.
    """

    recipe: Recipe
    rest: PyTree
    key: Key[Array, ""]
    last: Int[Array, ""]
    fold: Int[Array, ""] | None = None

    def problem(self, train: Examples, valid: Examples) -> Problem:
        if self.fold is not None:
            train, valid = fold_of((train, valid), self.fold)
        return Problem(self.recipe, self.rest, train, valid, self.key, 0, self.last)

    def sizes(self, train: Examples, valid: Examples) -> Problem:
        """The same with shapes in the place of examples: enough to count with, and nothing moves on the device."""
        if self.fold is not None:
            train, valid = eqx.filter_eval_shape(fold_of, (train, valid), 0)
        return Problem(self.recipe, self.rest, train, valid, self.key, 0, self.last)


def stack_folds(folds: Sequence[tuple[Examples, Examples]]) -> tuple[Examples, Examples] | None:
    """Training and validation examples of all folds with one more axis, or None where their shapes differ."""
    if len({program_signature(fold) for fold in folds}) > 1:
        return None
    stacked: tuple[Examples, Examples] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *folds)
    return stacked


def fold_of(stacked: tuple[Examples, Examples], fold: Any) -> tuple[Examples, Examples]:
    """One fold of what `stack_folds` made."""
    found: tuple[Examples, Examples] = jax.tree.map(lambda leaf: leaf[fold], stacked)
    return found


def _typed(leaf: Any) -> Any:
    """A number as the device holds it: one kind of leaf for every member, whatever the recipe held."""
    return (
        jnp.asarray(leaf, jnp.float32)
        if isinstance(leaf, (np.floating, np.ndarray)) and leaf.dtype.kind == "f"
        else leaf
    )


def enter(
    recipe: Recipe,
    train: Examples,
    valid: Examples,
    *,
    outputs: int,
    examples: int | None = None,
    fold: int | None = None,
    key: Key[Array, ""],
) -> tuple[Member, State]:
    """A network ready to enter a slot; `examples` ends its training at that age, else its recipe does.

    `train` and `valid` are its own; `fold` says where the population's stacked ones have them.
    """
    recipe = jax.tree.map(_typed, for_building(recipe, train))
    last = updates_of_run(recipe, len(train))
    recipe = without_length(recipe)
    refuse_inputs(recipe, train, valid)
    state, network = start(recipe, train.inputs, outputs, (len(train), len(valid)), key)
    _, rest = trainable(network)
    problem = Problem(for_training(recipe), rest, train, valid, keys.named(key, "training"), 0)
    refuse_unfit(problem, state)
    if examples is not None:
        last = min(last, problem.updates_for(examples))
    place = None if fold is None else jnp.asarray(fold, jnp.int32)
    return Member(problem.recipe, rest, problem.key, jnp.asarray(last, jnp.int32), place), state


def enter_together(
    recipes: Sequence[Recipe],
    train: Examples,
    valid: Examples,
    *,
    outputs: int,
    examples: Sequence[int | None],
    folds: Sequence[int] | None = None,
    key: Key[Array, " k"],
) -> tuple[Member, State]:
    """What `enter` makes of each of these recipes, with one more axis: one program instead of one call for each.

    The recipes may differ in numbers alone. With `folds` the examples are stacked ones.
    """
    own = (train, valid) if folds is None else fold_of((train, valid), folds[0])
    built: dict[int, Recipe] = {}
    updates: dict[int, int] = {}
    for recipe in recipes:  # the folds of a trial have the same one
        if id(recipe) not in built:
            whole = jax.tree.map(_typed_on_host, for_building(recipe, own[0]))
            updates[id(recipe)] = updates_of_run(whole, len(own[0]))
            built[id(recipe)] = without_length(whole)
    refuse_inputs(built[id(recipes[0])], *own)
    several: Recipe = jax.tree.map(_stacked_numbers, *(built[id(recipe)] for recipe in recipes))
    places = None if folds is None else jnp.asarray(folds, jnp.int32)
    run = _enter_together_program()
    drawn, rest, trainings, states = run(several, key, places, train, outputs, len(own[1]))
    last = []
    for recipe, end in zip(recipes, examples, strict=True):
        problem = Problem(built[id(recipe)], None, *own, trainings[0], 0)
        limit = updates[id(recipe)]
        last.append(limit if end is None else min(limit, problem.updates_for(end)))
    return Member(drawn, rest, trainings, jnp.asarray(last, jnp.int32), places), states


def _typed_on_host(leaf: Any) -> Any:
    return np.asarray(leaf, np.float32) if getattr(leaf, "dtype", np.dtype(int)).kind == "f" else leaf


def _stacked_numbers(*leaves: Any) -> Any:
    return np.stack(leaves) if isinstance(leaves[0], np.ndarray) else leaves[0]


def _enter_together(
    several: Recipe, key: Key[Array, " k"], folds: Int[Array, " k"] | None, train: Examples, outputs: int, judged: int
) -> tuple[Recipe, PyTree, Key[Array, " k"], State]:
    def one(recipe: Recipe, key: Key[Array, ""], fold: Int[Array, ""] | None) -> Any:
        own = train if fold is None else jax.tree.map(lambda leaf: leaf[fold], train)
        state, network = start(recipe, own.inputs, outputs, (len(own), judged), key)
        return for_training(recipe), trainable(network)[1], keys.named(key, "training"), state

    found: tuple[Recipe, PyTree, Key[Array, " k"], State] = eqx.filter_vmap(one)(several, key, folds)
    return found


@functools.cache
def _enter_together_program() -> Any:
    jit: Any = eqx.filter_jit  # whose type does not mention the options that it passes on
    return jit(_enter_together, compiler_options=options_for(0))


def program_signature(*trees: Any) -> tuple[Any, ...]:
    """What must be equal for two members to share a program: structure, static values, shapes and types."""
    leaves, structure = jax.tree.flatten(trees)
    marks = tuple((np.shape(leaf), str(leaf.dtype)) if hasattr(leaf, "dtype") else leaf for leaf in leaves)
    return structure, marks


@eqx.filter_jit
def _repeated_on_device(arrays: Any, slots: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), arrays)


def _repeated(tree: Any, slots: int) -> Any:
    """Every array so many times. On a CPU by NumPy: to compile the copies takes longer than a trial may."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    if jax.default_backend() != "cpu":
        return eqx.combine(_repeated_on_device(arrays, slots), rest)

    def on_host(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(leaf, (slots, *leaf.shape)).copy()
        return jax.device_put(np.repeat(np.asarray(leaf)[None], slots, axis=0))

    return eqx.combine(jax.tree.map(on_host, arrays), rest)


@eqx.filter_jit(donate="all-except-first")
def _fill(fixed: tuple[Array, Member, State], members: Member, states: State) -> tuple[Member, State]:
    slot, member, state = fixed

    def write(several: Any, one: Any) -> Any:
        return several.at[slot].set(one) if eqx.is_array(several) else several

    return jax.tree.map(write, members, member), jax.tree.map(write, states, state)


@eqx.filter_jit(donate="all-except-first")
def _fill_several(
    fixed: tuple[Int[Array, " k"], Member, State], members: Member, states: State
) -> tuple[Member, State]:
    slots, newcomers, beginnings = fixed

    def write(several: Any, new: Any) -> Any:
        return several.at[slots].set(new, mode="drop") if eqx.is_array(several) else several

    return jax.tree.map(write, members, newcomers), jax.tree.map(write, states, beginnings)


def _interval(fixed: tuple[Examples, Examples, Member, int], states: State) -> tuple[State, Row]:
    train, valid, members, updates = fixed

    def one(member: Member, state: State) -> tuple[State, Row]:
        problem = member.problem(train, valid)
        return judge(problem, *advance(problem, state, updates))

    return _each(one, members, states)


def _turns(fixed: tuple[Examples, Examples, Member, int, Int[Array, ""]], states: State) -> tuple[State, Row]:
    """Several intervals of every slot; of a single one none goes beyond its last update."""
    train, valid, members, updates, count = fixed
    if states.update.shape[0] > 1:
        return repeat(lambda states: _interval((train, valid, members, updates), states), states, count)
    member, state = _slot((members, states), 0)
    problem = dataclasses.replace(member.problem(train, valid), last=None)
    state, rows = several((problem, updates, count), state)
    return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, state), rows


def _each(one: Any, members: Member, states: State) -> Any:
    """A function of every slot. A single slot is no batch: plain products are compiled better than batched ones."""
    if states.update.shape[0] > 1:
        return eqx.filter_vmap(one)(members, states)
    alone = one(*_slot((members, states), 0))
    return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, alone)


def _slot(tree: Any, slot: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[slot] if eqx.is_array(leaf) else leaf, tree)


def _best(members: Member, states: State, train: Examples, valid: Examples, slot: Array) -> tuple[Any, Any, Any]:
    """The best model of one slot, and its validation scores and outputs, example by example."""
    member, state = _slot(members, slot), _slot(states, slot)
    model = eqx.combine(state.best, member.rest)
    problem = member.problem(train, valid)
    return model, evaluate(problem, model), apply_batch(model, problem.valid.inputs, None)


@eqx.filter_jit
def _state(states: State, slot: Array) -> Any:
    return _slot(states, slot)


@functools.cache
def _best_program(small: bool, several: bool) -> Any:
    """It runs once a trial, or once for several that end together: it takes longer to compile well than to run."""
    each = eqx.filter_vmap(_best, in_axes=(None, None, None, None, 0))
    jit: Any = eqx.filter_jit  # whose type does not mention the options that it passes on
    return jit(each if several else _best, compiler_options=options_for(0 if small else SMALL))


class Population:
    """Slots on one device, or spread over several; slots and examples stay there for the whole search."""

    def __init__(
        self,
        member: Member,
        state: State,
        train: Examples,
        valid: Examples,
        *,
        slots: int,
        devices: tuple[Any, ...] = (),
    ):
        """Slots like this member and this state, all of them inert."""
        self.slots = -(-slots // max(1, len(devices))) * max(1, len(devices))
        inert = eqx.tree_at(lambda m: m.last, member, jnp.zeros((), jnp.int32))
        self.members: Member = _repeated(inert, self.slots)
        self.states: State = _repeated(state, self.slots)
        self.train, self.valid = train, valid
        problem = member.sizes(train, valid)
        self.updates = problem.interval_updates
        if len(devices) > 1:
            self._spread(devices)
        self._program: Any = program_of_run(_interval, problem, state)
        self._turns_program: Any = program_of_run(_turns, problem, state)
        self.compiled: Any = None

    def _spread(self, devices: tuple[Any, ...]) -> None:
        """The population axis over all devices; the examples on each of them."""
        mesh = jax.sharding.Mesh(np.asarray(devices), ("population",))
        each = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("population"))
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self.members, self.states = eqx.filter_shard((self.members, self.states), each)
        self.train, self.valid = eqx.filter_shard((self.train, self.valid), whole)

    @functools.cached_property
    def signature(self) -> Any:
        """What is equal for populations that one compiled program serves: those of the folds of a data set, say."""
        return program_signature(self.train, self.valid, self.members, self.states), self.updates

    def compile(self) -> Any:
        """The program of `turns`, compiled and not run; may be called from another thread. `compiled` is one to use."""
        fixed = (self.train, self.valid, self.members, self.updates, jnp.ones((), jnp.int32))
        return self._turns_program.lower(fixed, self.states).compile()

    @property
    def _is_small(self) -> bool:
        return sum(leaf.size for leaf in jax.tree.leaves(self.states.parameters)) // self.slots < SMALL

    def fill(self, slot: int, member: Member, state: State) -> None:
        """Puts a network into a slot, over whatever was there."""
        if self.slots == 1:
            self.members, self.states = _repeated((member, state), 1)
            return
        fixed = (jnp.asarray(slot, jnp.int32), member, state)
        self.members, self.states = _fill(fixed, self.members, self.states)

    def fill_several(self, slots: Sequence[int], members: Member, states: State) -> None:
        """Puts the networks that entered together into these slots; a slot beyond the last takes none."""
        fixed = (jnp.asarray(slots, jnp.int32), members, states)
        self.members, self.states = _fill_several(fixed, self.members, self.states)

    def state_of(self, slot: int) -> State:
        """A copy of a slot's state: what `restore` goes on from."""
        state: State = _state(self.states, jnp.asarray(slot, jnp.int32))
        return state

    def restore(self, slot: int, state: State) -> None:
        """Puts a state into a slot that has its member."""
        self.fill(slot, _slot(self.members, slot), state)

    def interval(self) -> Row:
        """One interval of every slot. The rows come back while the device is still at work: read them late."""
        self.states, rows = self._program((self.train, self.valid, self.members, self.updates), self.states)
        return rows

    def turns(self, count: int) -> Row:
        """Up to so many intervals in one call, and none after one that stops a slot; rows beyond have `updates` 0.

        A single slot has no axis in the rows, and its intervals may not lead beyond its last update.
        """
        fixed = (self.train, self.valid, self.members, self.updates, jnp.asarray(min(count, AT_ONCE), jnp.int32))
        self.states, rows = (self.compiled or self._turns_program)(fixed, self.states)
        return rows

    def best(self, slot: int) -> tuple[Any, np.ndarray, np.ndarray]:
        """The best model of a slot, and its score on each validation example and its outputs for it; on the host."""
        return self.best_of([slot])[0]

    def best_of(self, slots: Sequence[int]) -> list[tuple[Any, np.ndarray, np.ndarray]]:
        """The same of several slots; on an accelerator many of them in one call."""
        together = _TOGETHER if len(slots) >= _SEVERAL and jax.default_backend() != "cpu" else 1
        run, found = _best_program(self._is_small, together > 1), []
        for first in range(0, len(slots), together):
            some = slots[first : first + together]
            padded = [*some, *[some[-1]] * (together - len(some))]  # always as many: one program
            asked = jnp.asarray(padded if together > 1 else some[0], jnp.int32)
            arrays, rest = eqx.partition(run(self.members, self.states, self.train, self.valid, asked), eqx.is_array)
            host = jax.device_get(arrays)
            each = [jax.tree.map(lambda leaf, n=n: leaf[n], host) for n in range(len(some))] if together > 1 else [host]
            answers = [eqx.combine(one, rest) for one in each]
            found += [(model, scores.score, outputs) for model, scores, outputs in answers]
        return found
