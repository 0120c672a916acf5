"""Where the time of a run goes (row G1): a clock that knows which phase runs, and what JAX compiles meanwhile.

    with keeping_time() as clock:
        with phase("reading"): ...                  wherever it happens, below in any module
        clock.profile()                             seconds by phase; they sum to the whole

A second belongs to the innermost phase alone, and what JAX says that it spent on tracing, lowering and compiling
belongs to "compiling", in whatever phase it happened. Without a clock `phase` does nothing. A thread that is started
meanwhile has no clock.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax.monitoring

from ..records.evidence.fit_evidence import PhaseTime, Profile

COMPILING, UPDATES, VALIDATION = "compiling", "updates", "validation"
STARTING, PROFILING, OTHER = "starting", "this profile", "other"
_COMPILES = ("/jax/core/compile/", "/jax/compilation_cache/cache_retrieval_time_sec")
_clock: ContextVar["PhaseClock | None"] = ContextVar("clock", default=None)


class PhaseClock:
    """Seconds by phase since `begun`, by `time.monotonic`; what passed before the clock was made is starting."""

    def __init__(self, begun: float) -> None:
        self.begun, self._last = begun, time.monotonic()
        self._stack = [OTHER]
        self._seconds: dict[str, float] = {STARTING: self._last - begun}
        self.times: Counter[str] = Counter({STARTING: 1})
        self._compiled: list[tuple[float, float]] = []  # when something was compiled: intervals that do not overlap
        self._thread = threading.get_ident()
        self.validations = 0  # whose time is still among that of the updates

    def _charge(self) -> None:
        """Gives the time since the last change to the phase that is running."""
        now = time.monotonic()
        self.move("", self._stack[-1], now - self._last)
        self._last = now

    def move(self, source: str, target: str, seconds: float) -> None:
        """Takes seconds from one phase, if one is named, for another."""
        self._seconds[target] = self._seconds.get(target, 0.0) + seconds
        if source:
            self._seconds[source] = self._seconds.get(source, 0.0) - seconds

    def seconds_of(self, name: str) -> float:
        return self._seconds.get(name, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._charge()
        self._seconds.setdefault(name, 0.0)
        self._stack.append(name)
        self.times[name] += 1
        try:
            yield
        finally:
            self._charge()
            self._stack.pop()

    def hear(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Hears from JAX what took how long; tracing a function includes tracing those that it calls."""
        if not event.startswith(_COMPILES) or self._stack[-1] == PROFILING or threading.get_ident() != self._thread:
            return
        end = time.monotonic()
        begin = max(end - duration_secs, self.begun)
        known = 0.0
        while self._compiled and self._compiled[-1][1] > begin:
            earlier = self._compiled.pop()
            known += earlier[1] - earlier[0]
            begin = min(begin, earlier[0])
        self._compiled.append((begin, end))
        self.times[COMPILING] += event.endswith("backend_compile_duration")
        self.move(self._stack[-1], COMPILING, end - begin - known)

    def part_validation(self, seconds: float) -> None:
        """Parts the validations since the last call from the updates, with which they share a program: so many seconds
        each."""
        self.times[VALIDATION] += self.validations
        self.move(UPDATES, VALIDATION, min(self.validations * seconds, self.seconds_of(UPDATES)))
        self.validations = 0

    def profile(self) -> Profile:
        """The profile so far."""
        self._charge()
        times = {name: max(0.0, seconds) for name, seconds in self._seconds.items() if name != OTHER}
        whole = self._last - self.begun
        phases = [PhaseTime(name, seconds, self.times[name]) for name, seconds in times.items()]
        return Profile(whole, (*phases, PhaseTime(OTHER, max(0.0, whole - sum(times.values())))))


@contextmanager
def keeping_time(begun: float | None = None) -> Iterator[PhaseClock]:
    """Meanwhile, a clock runs; see `PhaseClock`."""
    clock = PhaseClock(time.monotonic() if begun is None else begun)
    jax.monitoring.register_event_duration_secs_listener(clock.hear)
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)
        jax.monitoring.unregister_event_duration_listener(clock.hear)


def running_clock() -> PhaseClock | None:
    """The clock that runs, if one does."""
    return _clock.get()


def count_validations(number: int) -> None:
    """Tells the clock, if one runs, how many validations were among the updates."""
    clock = _clock.get()
    if clock is not None:
        clock.validations += number


@contextmanager
def phase(name: str) -> Iterator[None]:
    """What happens meanwhile belongs to this phase, if a clock runs."""
    clock = _clock.get()
    if clock is None:
        yield
        return
    with clock.phase(name):
        yield
