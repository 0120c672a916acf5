"""Seconds by phase: against planted moments, and as JAX tells what it compiles."""

import threading
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest

from gradwise.tracing import phase_clock
from gradwise.tracing.phase_clock import COMPILING, PROFILING, UPDATES, VALIDATION, keeping_time, phase, running_clock

COMPILE, TRACE = "/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_trace_duration"


class Time:
    """A clock on the wall that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    made = Time()
    monkeypatch.setattr(phase_clock, "time", made)
    return made


def seconds_of(clock: phase_clock.PhaseClock) -> dict[str, float]:
    return {one.name: round(one.seconds, 9) for one in clock.profile().phases}


def test_a_second_belongs_to_the_innermost_phase_and_all_sum_to_the_whole(time: Time) -> None:
    with keeping_time(begun=97.0) as clock:
        time.now += 1
        with phase("outer"):
            time.now += 2
            with phase("inner"):
                time.now += 4
            time.now += 8
        with phase("inner"):
            time.now += 16
        time.now += 32
        assert seconds_of(clock) == {"starting": 3, "outer": 10, "inner": 20, "other": 33}
        profile = clock.profile()
    assert profile.seconds == 66 == sum(one.seconds for one in profile.phases)
    assert [one.times for one in profile.phases] == [1, 1, 2, 1]
    assert sum(profile.share(one) for one in profile.phases) == pytest.approx(1)


def test_what_is_compiled_is_taken_from_the_phase_in_which_it_happens_and_counted_once(time: Time) -> None:
    with keeping_time() as clock:
        with phase(UPDATES):
            time.now += 10
            clock.hear(TRACE, 1.0)  # from 109 to 110, within the trace that ends at 111
            time.now += 1
            clock.hear(TRACE, 5.0)  # from 106 to 111
            time.now += 3
            clock.hear(COMPILE, 3.0)
            clock.hear("/jax/some/other/duration", 3.0)
            time.now += 2
        with clock.phase(PROFILING):
            time.now += 1
            clock.hear(COMPILE, 1.0)  # the profile's own cost stays its own
        assert seconds_of(clock) == {"starting": 0, UPDATES: 8, COMPILING: 8, PROFILING: 1, "other": 0}
        assert clock.times[COMPILING] == 1


def test_validations_are_parted_from_the_updates_that_hold_them(time: Time) -> None:
    with keeping_time() as clock:
        for _ in range(2):
            with phase(UPDATES):
                time.now += 10
            phase_clock.count_validations(3)
        clock.part_validation(0.5)
        assert seconds_of(clock) == {"starting": 0, UPDATES: 17, VALIDATION: 3, "other": 0}
        clock.part_validation(0.5)  # which were parted already
        assert clock.times[VALIDATION] == 6
        phase_clock.count_validations(1)
        clock.part_validation(1000.0)  # never more than there is
        assert seconds_of(clock) == {"starting": 0, UPDATES: 0, VALIDATION: 20, "other": 0}


def test_jax_says_what_it_compiles_until_the_clock_is_gone() -> None:
    with keeping_time() as clock:
        with phase("work"):
            jax.jit(lambda x: jnp.sin(x) * 3.0 + 1.5)(jnp.arange(7.0)).block_until_ready()
        assert clock.times[COMPILING] >= 1
        assert 0 < clock.seconds_of(COMPILING) < clock.profile().seconds
        told = clock.seconds_of(COMPILING)
    jax.jit(lambda x: jnp.cos(x) * 3.0 + 1.5)(jnp.arange(7.0)).block_until_ready()
    assert clock.seconds_of(COMPILING) == told
    assert running_clock() is None


def test_without_a_clock_and_in_other_threads_nothing_is_kept() -> None:
    with phase("nothing"):
        pass
    with keeping_time() as clock:
        seen: list[object] = []

        def other() -> None:
            seen.append(running_clock())
            clock.hear(COMPILE, 1.0)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert seen == [None]
        assert clock.seconds_of(COMPILING) == 0
