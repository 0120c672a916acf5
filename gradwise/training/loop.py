"""The loop over intervals, and the work between them: history, checkpoints, time limit, interruption."""

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..records.outcome import Outcome
from ..runtime.interruption import listening
from ..runtime.progress import silent
from ..tracing.flow_monitor import FlowMonitor
from ..tracing.phase_clock import UPDATES, count_validations, phase
from . import checkpoint
from .history import Monitor
from .interval import AT_ONCE, intervals
from .state import Problem, State, uses_objective

Watch = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How to run, as opposed to what to train: none of this changes a number in the result.

    Checkpoints go into `folder` between intervals, first within two seconds, then every `checkpoint_seconds`, and at
    the end; `watch` is called with each row of the history, and if it raises, a checkpoint is written first. A run that
    is `settled` when its time is out is not resumed, because others depend on it. `monitor` records the flow of signals
    between updates, for the record of the run; `examples` what becomes of each example, where that is possible.
    """

    folder: Path | None = None
    resume: bool = False
    checkpoint_seconds: float = 10.0
    max_seconds: float = math.inf
    watch: Watch = silent
    settled: bool = False
    monitor: FlowMonitor | None = None
    examples: bool = True


def _ending(line: dict[str, Any], problem: Problem, seconds: float, options: RunOptions, asked: bool) -> Outcome | None:
    """Why the run ends here, if it does."""
    age = line["age_examples"]
    if line["diverged_examples"] >= 0:
        return Outcome("diverged", line["diverged_examples"])
    if line["stop"]:
        return Outcome("patience", age)
    if line["stalled"]:
        return Outcome("stalled", age)
    if line["updates"] >= problem.limit_updates:
        return Outcome("finished", age)
    if asked:
        return Outcome("interrupted", age)
    if seconds >= options.max_seconds:
        return Outcome("out_of_time", age)
    return None


FIRST_SAVE_SECONDS = 2.0  # whoever kills a run finds that it can be resumed, unless it had just begun


class _SaveTimes:
    """When checkpoints are due: the first soon after the run began, then every so many seconds."""

    def __init__(self, begun: float, seconds: float):
        self.last, self.seconds, self.wait = begun, seconds, min(seconds, FIRST_SAVE_SECONDS)

    def is_due(self, now: float, call_seconds: float) -> bool:
        """Whether to save now, after a call that took this long: the first is early rather than a call too late."""
        margin = 0.0 if self.wait == self.seconds else call_seconds
        return now - self.last + margin >= self.wait

    def saved(self, now: float) -> None:
        self.last, self.wait = now, self.seconds


CALL_SECONDS = 0.2  # how long one call of the compiled program should take: short enough to watch and to interrupt


class _IntervalsLeft:
    """How many intervals the next call should run: one at first, then as many as fit in so many seconds.

    Always one where an update may take hundreds of steps of its own: the last interval does not tell how long the next
    takes, and a run would be silent for minutes.
    """

    def __init__(self, problem: Problem, done: int, seconds: float):
        self.updates, self.limit, self.done = problem.interval_updates, problem.limit_updates, done
        self.seconds, self.count, self.calls = seconds, 1, 0
        self.most = 1 if uses_objective(problem.recipe.optimiser) else AT_ONCE

    def next(self) -> tuple[int, int]:
        """Updates of each interval, and how many intervals: all of one length, so the last may come alone."""
        left = self.limit - self.done
        if left < self.updates:
            return left, 1
        return self.updates, min(self.count, left // self.updates)

    def took(self, intervals: int, done: int, seconds: float) -> None:
        """Learns from a call; the first one compiled, so it tells nothing."""
        self.calls += 1
        self.done = done
        if self.calls > 1:
            self.count = max(1, min(self.most, int(self.seconds / max(seconds / intervals, 1e-6))))


def run_intervals(
    problem: Problem, state: State, options: RunOptions, fingerprint: str
) -> tuple[State, dict[str, list[Any]], Outcome, float]:
    """Runs intervals to the end; returns the last state, the history, the outcome and the seconds."""
    saved = (
        checkpoint.load_checkpoint(options.folder, state, fingerprint) if options.folder and options.resume else None
    )
    monitor = Monitor(len(problem.train), problem.classes, saved.history if saved else None)
    earlier = saved.seconds if saved else 0.0
    state = saved.state if saved else state
    if saved and saved.ended:  # killed after its end and before anybody was told
        return state, monitor.columns, saved.ended, earlier
    begun = time.monotonic()
    times = _SaveTimes(begun, options.checkpoint_seconds)

    def save(outcome: Outcome | None) -> None:
        if options.folder:
            seconds = earlier + time.monotonic() - begun
            settled = options.settled and outcome is not None and outcome.name == "out_of_time"
            ended = outcome if outcome is not None and (settled or not outcome.resumable) else None
            with phase("checkpoints"):
                checkpoint.save_checkpoint(
                    options.folder, checkpoint.Saved(state, monitor.columns, seconds, ended), fingerprint
                )

    left = _IntervalsLeft(problem, int(state.update), min(CALL_SECONDS, options.checkpoint_seconds))
    with listening() as asked:
        while True:
            begun_call = time.monotonic()
            with phase(UPDATES):
                state, rows = intervals(problem, state, *left.next())
                ended_call = time.monotonic()
                lines = monitor.add(rows, earlier + begun_call - begun, earlier + ended_call - begun)
            count_validations(len(lines))
            left.took(len(lines), lines[-1]["updates"], ended_call - begun_call)
            try:
                for line in lines:
                    options.watch(line)
            except Exception:  # of whoever watches: what was learned is not lost with it
                save(_ending(lines[-1], problem, 0.0, options, False))
                raise
            seconds = earlier + time.monotonic() - begun
            outcome = _ending(lines[-1], problem, seconds, options, asked.is_set())
            if outcome is not None or times.is_due(time.monotonic(), ended_call - begun_call):
                save(outcome)
                times.saved(time.monotonic())
            if outcome is not None:
                return state, monitor.columns, outcome, seconds
