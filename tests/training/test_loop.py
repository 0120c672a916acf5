"""The loop of intervals: how it ends, and that stopping and going on changes no bit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradwise
from gradwise.data.batches import Stream
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime.line_search_state import line_search
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.dataset import Dataset
from gradwise.specs.knobs import knob
from gradwise.specs.priors import Uniform
from gradwise.training import checkpoint, loop
from gradwise.training.interval import interval
from gradwise.training.loop import RunOptions, run_intervals
from gradwise.training.state import State
from gradwise.training.stopping import Off, Patience

Start = Callable[..., tuple[Any, State]]
LONG = {
    "optimiser": MovingAverage(Adam(learning_rate=0.01)),
    "stopping": Off(epochs=6.5, spacing=1.0, least_examples=1),
}


def same_but_seconds(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> bool:
    plain = [{name: column for name, column in one.items() if name != "seconds"} for one in (first, second)]
    return json.dumps(plain[0]) == json.dumps(plain[1])


def assert_same(first: Any, second: Any) -> None:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    for mine, theirs in pairs:
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


@pytest.fixture(scope="module")
def whole(start: Start) -> tuple[State, dict[str, list[Any]], Any]:
    """A run of 6.5 epochs that nothing disturbed."""
    state, history, outcome, _ = run_intervals(*start(**LONG), RunOptions(), "")
    return state, history, outcome


def test_a_run_ends_exactly_at_its_limit(whole: Any) -> None:
    state, history, outcome = whole
    # 6.5 epochs of 37 examples are 240 examples: 6 epochs of 5 updates, then 3 updates of 8 for the 18 left.
    assert (outcome.name, outcome.age_examples) == ("finished", 6 * 37 + 24)
    assert history["updates"] == [*range(3, 33, 3), 33]
    assert int(state.update) == 33
    assert history["epoch"] == [age / 37 for age in history["age_examples"]]


@pytest.mark.parametrize("epochs", [0.1, 4.0])
def test_a_limit_that_is_no_multiple_of_the_interval_is_kept(start: Start, epochs: float) -> None:
    problem, state = start(stopping=Off(epochs=epochs, spacing=1.0, least_examples=1))
    state, history, outcome, _ = run_intervals(problem, state, RunOptions(), "")
    assert int(state.update) == problem.limit_updates == history["updates"][-1]
    assert outcome.name == "finished"
    assert outcome.age_examples == history["age_examples"][-1] >= int(epochs * 37)


def test_a_stream_ends_with_its_last_example(start: Start) -> None:
    _, history, outcome, _ = run_intervals(
        *start(batches=Stream(8), stopping=Off(epochs=50, least_examples=1)), RunOptions(), ""
    )
    assert (outcome.name, outcome.age_examples, history["updates"][-1]) == ("finished", 37, 5)


def test_patience_ends_a_run(start: Start) -> None:
    rule = Patience(initial_examples=64, initial_epochs=0, spacing=1.0, least_examples=1, epochs=20)
    _, history, outcome, _ = run_intervals(*start(stopping=rule), RunOptions(), "")
    assert outcome.name == "patience"
    assert outcome.age_examples == history["age_examples"][-1] >= history["patience_examples"][-1]
    assert all(
        age < limit for age, limit in zip(history["age_examples"][:-1], history["patience_examples"], strict=False)
    )


def test_divergence_ends_a_run(start: Start) -> None:
    problem, state = start(optimiser=Sgd(learning_rate=1e38))
    state, history, outcome, _ = run_intervals(problem, state, RunOptions(), "")
    assert outcome.name == "diverged"
    assert 0 < outcome.age_examples <= history["age_examples"][-1]
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(state.best))


def test_time_ends_a_run_and_every_line_is_watched(start: Start) -> None:
    lines: list[dict[str, Any]] = []
    _, history, outcome, seconds = run_intervals(*start(**LONG), RunOptions(max_seconds=0.0, watch=lines.append), "")
    assert outcome.name == "out_of_time"
    assert len(lines) == len(history["updates"]) == 1
    assert {name: lines[0][name] for name in history} == {name: column[0] for name, column in history.items()}
    assert seconds > 0


@pytest.mark.parametrize("cuts", [1, 3])
def test_stopping_and_going_on_changes_no_bit(start: Start, whole: Any, tmp_path: Path, cuts: int) -> None:
    for number in range(cuts):
        options = RunOptions(folder=tmp_path, resume=number > 0, max_seconds=0.0)
        _, history, outcome, _ = run_intervals(*start(**LONG), options, "mark")
        assert outcome.name == "out_of_time"
        assert len(history["updates"]) == number + 1
    state, history, outcome, seconds = run_intervals(*start(**LONG), RunOptions(folder=tmp_path, resume=True), "mark")
    assert_same(state, whole[0])
    assert same_but_seconds(history, whole[1])
    assert outcome == whole[2]
    assert seconds >= history["seconds"][0] > 0
    assert history["seconds"] == sorted(history["seconds"])


def test_a_checkpoint_is_written_at_every_end(start: Start, tmp_path: Path) -> None:
    ends = {
        "finished": (LONG, RunOptions),
        "out_of_time": (LONG, lambda **more: RunOptions(max_seconds=0.0, **more)),
        "diverged": ({"optimiser": Sgd(learning_rate=1e38)}, RunOptions),
        "patience": (
            {"stopping": Patience(initial_examples=1, initial_epochs=0, spacing=1.0, least_examples=1, epochs=20)},
            RunOptions,
        ),
    }
    for name, (parts, options) in ends.items():
        folder = tmp_path / name
        folder.mkdir()
        problem, state = start(**parts)
        state, history, outcome, _ = run_intervals(
            problem, state, options(folder=folder, checkpoint_seconds=1e9), "mark"
        )
        assert outcome.name == name
        saved = checkpoint.load_checkpoint(folder, start(**parts)[1], "mark")
        assert saved is not None
        assert_same(saved.state, state)
        assert saved.history == history or same_but_seconds(saved.history, history)


@pytest.mark.parametrize("end", ["finished", "patience", "diverged"])
def test_a_run_killed_after_its_end_ends_as_it_did(start: Start, tmp_path: Path, end: str) -> None:
    """The process may die between the last checkpoint and the record: nothing must be trained again."""
    parts: dict[str, Any] = {
        "finished": {"stopping": Off(epochs=1.0, spacing=1.0, least_examples=1)},
        "patience": {
            "stopping": Patience(initial_examples=1, initial_epochs=0, spacing=1.0, least_examples=1, epochs=20)
        },
        "diverged": {"optimiser": Sgd(learning_rate=1e38)},
    }[end]
    state, history, outcome, seconds = run_intervals(*start(**parts), RunOptions(folder=tmp_path), "mark")
    lines: list[Any] = []
    options = RunOptions(folder=tmp_path, resume=True, watch=lines.append)
    again, told, same, later = run_intervals(*start(**parts), options, "mark")
    assert outcome.name == end
    assert lines == []
    assert same == outcome
    assert json.dumps(told) == json.dumps(history)
    assert_same(again, state)
    assert later == pytest.approx(seconds, abs=1.0)


def test_checkpoints_come_as_often_as_asked(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    monkeypatch.setattr(
        checkpoint, "save_checkpoint", lambda folder, what, mark: saved.append(len(what.history["updates"]))
    )
    run_intervals(*start(**LONG), RunOptions(folder=tmp_path, checkpoint_seconds=0.0), "mark")
    assert saved == list(range(1, 12))
    saved.clear()
    run_intervals(*start(**LONG), RunOptions(folder=tmp_path, checkpoint_seconds=1e9), "mark")
    assert saved == [11]


def test_checkpoints_change_no_bit(start: Start, whole: Any, tmp_path: Path) -> None:
    state, history, _, _ = run_intervals(*start(**LONG), RunOptions(folder=tmp_path, checkpoint_seconds=0.0), "mark")
    assert_same(state, whole[0])
    assert same_but_seconds(history, whole[1])


def test_equal_runs_leave_equal_notes_but_for_the_seconds(start: Start, tmp_path: Path) -> None:
    from safetensors import safe_open

    notes, arrays = [], []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run_intervals(*start(**LONG), RunOptions(folder=tmp_path / name), "mark")
        with safe_open(tmp_path / name / checkpoint.NAME, framework="numpy") as file:
            told = json.loads(file.metadata()["gradwise"])
            arrays.append({key: file.get_tensor(key).tobytes() for key in file.keys()})  # noqa: SIM118
        told.pop("seconds")
        told["history"].pop("seconds")
        notes.append(json.dumps(told))
    assert notes[0] == notes[1]
    assert arrays[0] == arrays[1]


def test_an_interrupt_ends_the_run_after_the_interval_and_it_goes_on_later(
    start: Start, whole: Any, tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGINT)

    def interrupt(line: dict[str, Any]) -> None:
        if line["updates"] == 6:
            signal.raise_signal(signal.SIGINT)

    _, history, outcome, _ = run_intervals(*start(**LONG), RunOptions(folder=tmp_path, watch=interrupt), "mark")
    assert (outcome.name, outcome.resumable) == ("interrupted", True)
    assert history["updates"] == [3, 6]
    assert signal.getsignal(signal.SIGINT) is before
    state, history, outcome, _ = run_intervals(*start(**LONG), RunOptions(folder=tmp_path, resume=True), "mark")
    assert_same(state, whole[0])
    assert same_but_seconds(history, whole[1])
    assert outcome == whole[2]


def test_a_second_interrupt_is_immediate(start: Start) -> None:
    def interrupt_twice(line: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_intervals(*start(**LONG), RunOptions(watch=interrupt_twice), "")
    assert signal.getsignal(signal.SIGINT) is before


def test_the_first_checkpoint_is_early_and_the_next_as_asked(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seconds, here a tenth: earlier than the ten seconds, or the hour, after which each next one comes."""
    monkeypatch.setattr(loop, "FIRST_SAVE_SECONDS", 0.1)
    seen: list[tuple[float, int | None]] = []
    file, begun = tmp_path / checkpoint.NAME, time.monotonic()

    def watch(line: dict[str, Any]) -> None:
        seen.append((time.monotonic() - begun, file.stat().st_mtime_ns if file.is_file() else None))
        time.sleep(0.06)

    run_intervals(*start(**LONG), RunOptions(folder=tmp_path, checkpoint_seconds=3600.0, watch=watch), "mark")
    written = {stamp for _, stamp in seen if stamp is not None}
    assert len(written) == 1
    assert file.stat().st_mtime_ns not in written  # and one at the end
    assert sum(stamp is None for _, stamp in seen) <= 3


KILLED = """
import sys
sys.path[:0] = sys.argv[2].split(chr(10))
import pathlib, jax, numpy as np, gradwise
from gradwise.data.batches import Reshuffled
from gradwise.models.mlp import Mlp
from gradwise.training.loop import RunOptions
from gradwise.training.stopping import Off
draw = np.random.default_rng(0)
dataset = gradwise.Dataset(draw.normal(size=(150, 4)), draw.integers(0, 3, 150), gradwise.Classes(np.arange(3)))
recipe = gradwise.defaults.classification(
    batches=Reshuffled(8), model=Mlp(widths=(8,)), stopping=Off(epochs=40, spacing=1.0, least_examples=1)
)
options = RunOptions(
    folder=pathlib.Path(sys.argv[1]), resume=True, checkpoint_seconds=0.0,
    watch=lambda line: print(line["updates"], flush=True),
)
result = gradwise.train(recipe, dataset, key=jax.random.key(3), options=options)
print("done", result.outcome.name)
"""


@pytest.mark.slow
def test_a_killed_process_goes_on_without_a_bit_changed(tmp_path: Path) -> None:
    """SIGKILL in the middle of a run, then the same command again, against a run that was left alone."""
    command = [sys.executable, "-c", KILLED]
    paths = "\n".join(path for path in sys.path if path)
    (tmp_path / "killed").mkdir()
    (tmp_path / "whole").mkdir()
    first = subprocess.Popen([*command, str(tmp_path / "killed"), paths], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    for line in first.stdout:
        if int(line) >= 100:
            os.kill(first.pid, signal.SIGKILL)
            break
    first.stdout.close()
    assert first.wait() == -signal.SIGKILL
    told = {}
    for name in ("killed", "whole"):
        done = subprocess.run([*command, str(tmp_path / name), paths], capture_output=True, text=True, check=True)
        told[name] = done.stdout.split()
    assert told["whole"][-2:] == told["killed"][-2:] == ["done", "finished"]
    assert len(told["killed"]) < len(told["whole"])
    from safetensors import safe_open

    contents = []
    for name in ("killed", "whole"):
        with safe_open(tmp_path / name / checkpoint.NAME, framework="numpy") as file:
            notes = json.loads(file.metadata()["gradwise"])
            arrays = {key: file.get_tensor(key).tobytes() for key in file.keys()}  # noqa: SIM118
        notes.pop("seconds")
        notes["history"].pop("seconds")
        contents.append((json.dumps(notes), arrays))
    assert contents[0] == contents[1]


def test_a_run_tells_its_seconds(start: Start) -> None:
    begun = time.monotonic()
    _, history, _, seconds = run_intervals(*start(**LONG), RunOptions(), "")
    assert 0 < history["seconds"][0] <= history["seconds"][-1] <= seconds + 1e-6
    assert seconds <= time.monotonic() - begun


# --- a line search that finds nothing


class Stubborn(AbstractOptimiser):
    """Moves for `lasts` updates, uphill after the first `falls`; then its line search finds nothing, and it stays."""

    lasts: float = knob(2.0, allowed="[0, inf)", prior=Uniform(0.0, 9.0), row="H7", about="updates before it fails")
    falls: float = knob(1e9, allowed="[0, inf)", prior=Uniform(0.0, 9.0), row="H7", about="updates that descend")

    def build(self) -> optax.GradientTransformationExtraArgs:
        def init(parameters: Any) -> Any:
            return jnp.zeros((), jnp.int32), line_search()

        def update(updates: Any, state: Any, parameters: Any = None, **extra: Any) -> Any:
            found = state[0] < self.lasts
            rate = jnp.where(state[0] < self.falls, -0.1, 2.0)
            moved = jax.tree.map(lambda g: jnp.where(found, rate * g, 0.0), updates)
            return moved, (state[0] + 1, state[1].after(found))

        return optax.GradientTransformationExtraArgs(init, update)

    def rate(self, state: Any) -> Any:
        return jnp.asarray(0.1)


ENDLESS = Patience(initial_examples=10**6, initial_epochs=0, spacing=1.0, least_examples=1, epochs=20)


def test_a_line_search_that_gives_up_ends_the_run_and_the_best_is_kept(start: Start, tmp_path: Path) -> None:
    """Updates 0 to 2 descend and 3 to 5 climb; 6 and 7 find nothing, so the interval that ends with 8 is the last."""
    parts = {"optimiser": Stubborn(6.0, falls=3.0), "stopping": ENDLESS}
    problem, state = start(**parts)
    three, _ = interval(problem, start(**parts)[1], 3)
    state, history, outcome, _ = run_intervals(problem, state, RunOptions(folder=tmp_path), "mark")
    assert (outcome.name, outcome.failed, outcome.resumable) == ("stalled", False, False)
    assert history["updates"] == [3, 6, 9]
    assert outcome.age_examples == history["age_examples"][-1]
    assert history["best"] == [True, False, False]
    assert history["valid_loss"][0] < history["valid_loss"][1] == history["valid_loss"][2]
    assert_same(state.best, three.parameters)  # the lowest point, not the last one
    saved = checkpoint.load_checkpoint(tmp_path, start(**parts)[1], "mark")
    assert saved is not None
    assert saved.ended == outcome


def test_one_failure_alone_does_not_end_a_run(start: Start) -> None:
    """The first interval ends after one failure, the second after four."""
    _, history, outcome, _ = run_intervals(*start(optimiser=Stubborn(2.0), stopping=ENDLESS), RunOptions(), "")
    assert (history["updates"], outcome.name) == ([3, 6], "stalled")


@pytest.mark.slow
def test_fit_tells_of_a_line_search_that_gave_up(recipe: Any, iris: Dataset) -> None:
    import dataclasses

    chosen = dataclasses.replace(recipe, optimiser=Stubborn(40.0), stopping=ENDLESS)
    result = gradwise.train(chosen, iris, key=jax.random.key(0))
    assert result.outcome.name == "stalled"
    assert "found no lower point" in str(result.outcome)
    assert np.isfinite(result.test)
    assert result.test < 0.6  # chance is two thirds: it is the trained network
