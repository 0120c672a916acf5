"""Callbacks around a training or a search: begun before it, called with its rows, ended whatever happens.

    with call_back([print, TensorBoard("runs/tb")], describe_recipe(recipe)) as calls:
        result = train(recipe, dataset, key=key, options=RunOptions(watch=calls.watch))
        calls.end(result)

A search gets `StudyOptions(trial_ended=calls.trial_ended)`. A block that is left without `end` ends with no record.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..records.fit import Fit
from ..records.study import Study
from ..records.trial import Trial, best_of
from ..runtime.errors import RequestError, WorkError
from .tracker import AbstractTracker, Callback, Plain, Row, trial_row


class _Function(AbstractTracker):
    """A function that takes rows."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, row: Row) -> None:
        self._function(row)

    @property
    def name(self) -> str:
        return getattr(self._function, "__qualname__", type(self._function).__name__)


def _tracker(place: int, callback: Any) -> AbstractTracker:
    if isinstance(callback, AbstractTracker):
        return callback
    if isinstance(callback, type) or not callable(callback):
        got = f"the class {callback.__name__}" if isinstance(callback, type) else repr(callback)
        expected = "a function of one row, or a tracker such as TensorBoard('runs/tb')"
        raise RequestError(f"callbacks[{place}]: expected {expected}; got {got}.")
    return _Function(callback)


def _failure(tracker: AbstractTracker, problem: Exception) -> str:
    name = tracker.name if isinstance(tracker, _Function) else type(tracker).__name__
    return f"the callback {name} failed: {type(problem).__name__}: {problem}"


@contextmanager
def _stopping(tracker: AbstractTracker) -> Iterator[None]:
    """An exception of the callback is one of the work, which it stops; what names its own remedy is left as it is."""
    try:
        yield
    except (RequestError, WorkError):
        raise
    except Exception as problem:
        raise WorkError(f"{_failure(tracker, problem)}. Correct the callback or leave it out.") from problem


class Callbacks:
    """Callbacks that follow one training or one search together."""

    def __init__(self, callbacks: Iterable[Callback] | Callback | None = None) -> None:
        several = [callbacks] if callable(callbacks) else list(callbacks or ())
        self._trackers = [_tracker(place, one) for place, one in enumerate(several)]
        self._begun: list[AbstractTracker] = []
        self._best: Trial | None = None

    def begin(self, about: Mapping[str, Plain]) -> None:
        """Begins every tracker; if one fails, those before it end."""
        for tracker in self._trackers:
            self._begun.append(tracker)
            with _stopping(tracker):
                tracker.begin(dict(about))

    def watch(self, row: Row) -> None:
        """Hands a row to every callback, each its own copy."""
        for tracker in self._trackers:
            with _stopping(tracker):
                tracker(dict(row))

    def trial_ended(self, trial: Trial) -> None:
        """Hands a finished trial to every callback, as a row."""
        self._best = best_of(one for one in (self._best, trial) if one is not None)
        self.watch(trial_row(trial, best=trial is self._best))

    def end(self, record: Fit | Study | None, report: Path | None = None) -> None:
        """Ends every tracker, once."""
        begun, self._begun = self._begun, []
        for tracker in begun:
            try:
                tracker.end(record, report)
            except Exception as problem:  # the network is trained: a chart less is no reason to lose it
                warnings.warn(f"{_failure(tracker, problem)}. The result is complete.", stacklevel=2)


@contextmanager
def call_back(
    callbacks: Iterable[Callback] | Callback | None, about: Mapping[str, Plain] | None = None
) -> Iterator[Callbacks]:
    """Runs callbacks around a training or a search, described by `about`."""
    calls = Callbacks(callbacks)
    try:
        calls.begin(about or {})
        yield calls
    finally:
        calls.end(None)  # nothing, if it has ended with a record
