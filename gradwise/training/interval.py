"""The compiled unit of training: `advance` by N updates, then `judge` by one validation and one decision.

Everything between two intervals (progress, checkpoints, interruption) is ordinary Python. The state's buffers are
donated, so a run of any length allocates nothing anew (row F5).
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature.objective import Examples, labelled
from ..runtime.compilation import known_options
from ..runtime.control_flow import either
from ..runtime.line_search_state import stalled
from ..specs.contracts import Scores
from ..specs.networks import as_network
from ..tracing.example_accounts import Accounts
from ..tracing.flow_monitor import Looks
from ..tracing.phase_clock import PROFILING, running_clock
from .state import Problem, State, uses_objective
from .update import gather_batch, step

_UNROLL = 16  # updates in one turn of the loop on an accelerator, where a turn costs more than a kernel
_UNROLL_FEW = 4  # the same where kernels are larger, in big networks: compiles faster, runs as fast
_UNROLL_POPULATION = 1  # the same in a population: less to compile
_BIG = 2**19  # parameters of a network whose kernels outlast a turn of the loop
_MANY = 12  # arrays of parameters of a network whose many kernels outlast a turn, and take long to compile
_CALIBRATION_ROWS = 2048
_LONG = 0.05  # seconds of a validation that need not be timed again


class Row(eqx.Module):
    """One interval as a row of the history. Means by class are NaN for unseen classes."""

    age_examples: Int[Array, ""]
    updates: Int[Array, ""]
    train_loss: Float[Array, ""]
    train_score: Float[Array, ""]
    valid_loss: Float[Array, ""]
    valid_score: Float[Array, ""]
    train_score_by_class: Float[Array, " K"]
    valid_score_by_class: Float[Array, " K"]
    train_loss_by_class: Float[Array, " K"]
    valid_loss_by_class: Float[Array, " K"]
    best: Bool[Array, ""]
    stop: Bool[Array, ""]
    patience_examples: Int[Array, ""]
    learning_rate: Float[Array, ""]
    stalled: Bool[Array, ""]  # a line search found no lower point
    diverged_examples: Int[Array, ""]  # the age of the first loss that was not a number, or -1


def _by_class(weighted: Array, targets: Array, weights: Array, classes: int) -> Array:
    """The mean within each class of values that were multiplied by these weights."""
    if classes == 0:
        return jnp.zeros(0)
    return jax.ops.segment_sum(weighted, targets, classes) / jax.ops.segment_sum(weights, targets, classes)


def _monitored(
    problem: Problem, looks: Looks, body: Any, carry: Any, inputs: tuple[Array, Array], unroll: int
) -> tuple[Any, Array, Looks]:
    """The scan over updates in pieces, with a look before each: the same updates, and hardly any conditions.

    A condition at every update would cost more than the update on an accelerator.
    """
    assert problem.monitor is not None
    monitor, updates = problem.monitor, inputs[0].shape[0]
    piece = min(monitor.every, updates)
    whole = updates // piece

    def turn(both: tuple[Any, Looks], inputs: tuple[Array, Array]) -> Any:
        (parameters, optimiser, update, memory), looks = both
        batch = dataclasses.replace(gather_batch(problem, inputs[0][0], inputs[1][0]), memory=memory)
        coming = problem.objective(batch, update)

        def loss(there: PyTree, batch: PyTree, key: Array) -> Array:
            return coming.criterion(coming.model(there), batch, key=key)[0]

        looks = monitor.look(looks, update, loss, parameters, coming.batch, coming.noise)
        carry = (parameters, optimiser, update, memory)
        carry, seen = jax.lax.scan(body, carry, inputs, unroll=min(unroll, len(inputs[0])))
        return (carry, looks), seen

    pieces = jax.tree.map(lambda leaf: leaf[: whole * piece].reshape(whole, piece, *leaf.shape[1:]), inputs)
    both, seen = jax.lax.scan(turn, (carry, looks), pieces)
    seen = seen.reshape(whole * piece, *seen.shape[2:])
    if whole * piece < updates:
        both, rest = turn(both, jax.tree.map(lambda leaf: leaf[whole * piece :], inputs))
        seen = jnp.concatenate([seen, rest])
    return both[0], seen, both[1]


def advance(problem: Problem, state: State, updates: int) -> tuple[State, dict[str, Array]]:
    """N updates as one scan; training loss and score are those seen before each update, so they cost nothing."""
    numbers = state.update + jnp.arange(updates, dtype=jnp.int32)
    rows, present, ages = problem.recipe.batches.indices(numbers, len(problem.train), key=problem.key)
    end = ages[-1]
    if problem.last is not None:  # a member of a population may end within the interval
        present = jnp.where((numbers < problem.last)[:, None], present, 0.0)
        end = ages[jnp.clip(problem.last - 1 - state.update, 0, updates - 1)]

    def body(carry: tuple[Any, Any, Any, Any], inputs: tuple[Array, Array]) -> Any:
        # Only what an update changes is carried: the best model and the stopping state stay outside the loop.
        parameters, optimiser, update, memory = carry
        before = State(parameters, optimiser, (), (), update, memory)
        moving, terms = step(problem, before, gather_batch(problem, *inputs))
        if problem.last is not None:
            moving = optax.tree.where(update < problem.last, moving, before)
        total = jnp.broadcast_to(terms["total"], inputs[1].shape)
        # Stacked into one array: on an accelerator each array written by the loop is a kernel of its own.
        told = [terms.get("loss", total), terms.get("score", total)]
        if state.accounts is not None:  # of each example alone, where the criterion tells it
            told += [terms.get(name, jnp.full(total.shape, jnp.nan)) for name in ("loss", "margin")]
        seen = jnp.stack(told)
        return (moving.parameters, moving.optimiser, moving.update, moving.memory), seen

    carry = (state.parameters, state.optimiser, state.update, state.memory)
    leaves = jax.tree.leaves(state.parameters)
    big = sum(leaf.size for leaf in leaves) > _BIG
    # An update that asks much is a program of its own: repeating it gains nothing and takes long to compile.
    heavy = jax.default_backend() == "cpu" or uses_objective(problem.recipe.optimiser) or len(leaves) > _MANY
    alone = _UNROLL_FEW if big else _UNROLL
    unroll = 1 if heavy else alone if problem.last is None else _UNROLL_POPULATION
    looks = state.looks
    if looks is None:
        carry, seen = jax.lax.scan(body, carry, (rows, present), unroll=unroll)
    else:
        carry, seen, looks = _monitored(problem, looks, body, carry, (rows, present), unroll)
    parameters, optimiser, update, memory = carry
    accounts = None if state.accounts is None else _entered(problem, state, rows, present, seen)
    state = State(parameters, optimiser, state.stopping, state.best, update, memory, looks, accounts)
    bad = ~jnp.all(jnp.isfinite(seen[:, 0]) | (present == 0), axis=1)
    return state, {
        "age_examples": end,
        "diverged_examples": jnp.where(jnp.any(bad), ages[jnp.argmax(bad)], -1),
        **_training_curve(problem, rows, present, seen),
    }


def _entered(problem: Problem, state: State, rows: Array, present: Array, seen: Array) -> Accounts:
    """The accounts of the training examples after these updates; one without a target has none."""
    assert state.accounts is not None
    known, per_epoch = present * labelled(problem.train.targets)[rows], problem.updates_per_epoch
    return state.accounts.after_updates(rows, known, seen[:, 2], seen[:, 3], first=state.update, per_epoch=per_epoch)


def _training_curve(problem: Problem, rows: Array, present: Array, seen: Array) -> dict[str, Array]:
    """Mean loss and score of what the updates saw, before each of them; and both within each class."""
    train, losses, scores = problem.train, seen[:, 0], seen[:, 1]
    known = present * labelled(train.targets)[rows]
    weights = known if train.weights is None else known * train.weights[rows]  # as validation weighs its own
    targets = train.targets[rows].ravel()
    return {
        "train_loss": jnp.sum(losses * weights) / jnp.sum(weights),
        "train_score": jnp.sum(scores * weights) / jnp.sum(weights),
        "train_score_by_class": _by_class((scores * known).ravel(), targets, known.ravel(), problem.classes),
        "train_loss_by_class": _by_class((losses * known).ravel(), targets, known.ravel(), problem.classes),
    }


def calibrated(problem: Problem, model: Any) -> Any:
    """The network with its batch statistics measured, where it has some."""
    if not as_network(model).needs_calibration:
        return model
    return model.calibrate(problem.train.inputs[:_CALIBRATION_ROWS])


def judged_model(problem: Problem, state: State) -> Any:
    """The network as it is judged: averaged where the optimiser averages, its batch statistics measured."""
    return calibrated(problem, problem.model(problem.recipe.optimiser.judged(state.parameters, state.optimiser)))


def _counted(examples: Examples) -> Float[Array, " n"]:
    """How much each example counts in a mean over all of them."""
    if examples.weights is None:
        return jnp.ones(len(examples))
    return examples.weights / jnp.mean(examples.weights)


def _judged(problem: Problem, model: PyTree) -> tuple[Scores, Scores]:
    """Score and loss of every validation example, each by its weight; and as they are."""
    scores, weights = problem.recipe.criterion.judge(model, problem.train, problem.valid), _counted(problem.valid)
    return Scores(scores.score * weights, scores.loss * weights), scores


def evaluate(problem: Problem, model: PyTree) -> Scores:
    """Score and loss of every validation example, each by its weight."""
    return _judged(problem, model)[0]


def judge(problem: Problem, state: State, seen: dict[str, Array]) -> tuple[State, Row]:
    """One validation, one decision; a better model replaces the best one on the device."""
    stopping = problem.recipe.stopping
    model = judged_model(problem, state)
    scores, own = _judged(problem, model)
    stopped, better, stop = stopping.step(state.stopping, seen["age_examples"], scores)
    finite = jnp.isfinite(jnp.mean(scores.loss)) & (seen["diverged_examples"] < 0)
    better = better & finite
    arrays = eqx.filter(model, eqx.is_array)
    best = either(better, lambda: arrays, state.best)
    accounts = None if state.accounts is None else state.accounts.after_validation(own.loss, better)
    diverged = jnp.where(finite, -1, jnp.maximum(seen["diverged_examples"], 0))
    diverged = jnp.where(~finite & (diverged == 0), seen["age_examples"], diverged)
    grouped = (problem.valid.targets, _counted(problem.valid), problem.classes)
    row = Row(
        age_examples=seen["age_examples"],
        updates=state.update,
        train_loss=seen["train_loss"],
        train_score=seen["train_score"],
        valid_loss=jnp.mean(scores.loss),
        valid_score=jnp.mean(scores.score),
        train_score_by_class=seen["train_score_by_class"],
        train_loss_by_class=seen["train_loss_by_class"],
        valid_score_by_class=_by_class(scores.score, *grouped),
        valid_loss_by_class=_by_class(scores.loss, *grouped),
        best=better,
        stop=stop,
        patience_examples=stopping.patience_examples(stopped),
        learning_rate=problem.recipe.optimiser.rate(state.optimiser),
        stalled=stalled(state.optimiser),
        diverged_examples=diverged,
    )
    return dataclasses.replace(state, stopping=stopped, best=best, accounts=accounts), row


AT_ONCE = 32  # intervals in one call of the compiled program, at the most
_SHORT = 10**9  # updates times parameters, below which a run takes no longer than compiling it well
_SHORT_OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}


@functools.cache
def _compiled(function: Callable[..., Any], short: bool) -> Any:
    """A short run is compiled in XLA's older way, which takes half of the time; the program is some 8 % slower."""
    known = known_options() if short and jax.default_backend() == "cpu" else {}
    options = {name: value for name, value in _SHORT_OPTIONS.items() if name in known}
    jit: Any = eqx.filter_jit  # whose type does not mention the options that it passes on
    return jit(function, donate="all-except-first", compiler_options=options or None)


def program_of_run(function: Callable[..., Any], problem: Problem, state: State) -> Any:
    """The function, compiled as suits the length of this run; its first argument is fixed, the state is used up."""
    size = sum(leaf.size for leaf in jax.tree.leaves(state.parameters))
    return _compiled(function, problem.limit_updates * size < _SHORT)


def _once(fixed: tuple[Problem, int], state: State) -> tuple[State, Row]:
    problem, updates = fixed
    return judge(problem, *advance(problem, state, updates))


def interval(problem: Problem, state: State, updates: int) -> tuple[State, Row]:
    """`updates` updates, one validation, one decision. The given state is consumed: continue with the returned one."""
    return program_of_run(_once, problem, state)((problem, updates), state)


def repeat(one: Callable[[State], tuple[State, Row]], state: State, count: Int[Array, ""]) -> tuple[State, Row]:
    """Up to `count` intervals, ended by the first that ends a run; rows beyond have `updates` 0."""
    converted: Any = eqx.filter_closure_convert(one, state)  # traced here, not in the loop
    _, shape = converted.out_struct
    rows = jax.tree.map(lambda leaf: jnp.zeros((AT_ONCE, *leaf.shape), leaf.dtype), shape)

    def goes_on(carry: tuple[Int[Array, ""], Bool[Array, ""], State, Row]) -> Bool[Array, ""]:
        return (carry[0] < count) & ~carry[1]

    def body(carry: tuple[Int[Array, ""], Bool[Array, ""], State, Row]) -> Any:
        done, _, state, rows = carry
        state, row = converted(state)
        ended = jnp.any(row.stop | row.stalled | (row.diverged_examples >= 0))
        return done + 1, ended, state, jax.tree.map(lambda several, new: several.at[done].set(new), rows, row)

    start = (jnp.zeros((), jnp.int32), jnp.zeros((), bool), state, rows)
    _, _, state, rows = jax.lax.while_loop(goes_on, body, start)
    return state, rows


def several(fixed: tuple[Problem, int, Int[Array, ""]], state: State) -> tuple[State, Row]:
    """Up to `count` intervals of one network."""
    problem, updates, count = fixed
    return repeat(partial(_once, (problem, updates)), state, count)


def intervals(problem: Problem, state: State, updates: int, count: int) -> tuple[State, Row]:
    """Up to `count` intervals in one call, ended by the first that ends the run; rows beyond have `updates` 0.

    In a small run the way from Python to the device and back costs more than the updates.
    """
    run = program_of_run(several, problem, state)
    return run((problem, updates, jnp.asarray(min(count, AT_ONCE), jnp.int32)), state)


def _validate(fixed: tuple[Problem, State], nothing: None) -> Scores:
    problem, state = fixed
    return evaluate(problem, judged_model(problem, state))


def time_validation(problem: Problem, state: State) -> None:
    """Tells the clock, if one runs, how long a validation takes: within the program of an interval there is none."""
    clock = running_clock()
    if clock is None:
        return
    with clock.phase(PROFILING):
        run, seconds = program_of_run(_validate, problem, state), []
        for _ in range(4):  # the first compiles, or reads the program from its cache
            begun = time.monotonic()
            jax.block_until_ready(run((problem, state), None))
            seconds.append(time.monotonic() - begun)
            if len(seconds) > 1 and seconds[-1] > _LONG:
                break
    clock.part_validation(min(seconds[1:]))
