"""Sequences through the front door: fit, predict, measure, save, load, report, check, and the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwise as gw
from gradwise.cli.main import run_program

CHANNELS = 2


def _waves(count: int, seed: int, longest: int = 24) -> tuple[list[np.ndarray], np.ndarray]:
    """Slow or fast waves of random phase and length; only order over time tells which."""
    random = np.random.default_rng(seed)
    targets = np.arange(count) % 2
    several = []
    for fast in targets:
        time = np.arange(random.integers(10, longest))
        phase = random.uniform(0, 2 * np.pi) + time * (1.6 if fast else 0.5)
        several.append(np.stack([np.sin(phase), np.cos(phase)], 1) + 0.1 * random.normal(size=(len(time), CHANNELS)))
    return several, targets


SMALL: dict[str, Any] = {"model.units": (8,), "stopping.epochs": 30, "model.directions": "forward"}


@pytest.fixture(scope="module")
def model() -> Any:
    waves, targets = _waves(160, 0)
    return gw.fit(waves, targets, set=SMALL, seed=0, no_baselines=True)


def test_the_recommended_recipe_reads_sequences(model: Any) -> None:
    assert isinstance(model.record.recipe.model, gw.Recurrent)
    assert isinstance(model.record.recipe.optimiser.optimiser, gw.Clipped)
    assert model.test <= 0.1
    waves, targets = _waves(60, 1)
    assert model.score(waves, targets) >= 0.9
    assert model.score(gw.Sequences.from_list(waves), targets) == model.score(waves, targets)


def test_a_prediction_depends_on_its_own_sequence_alone(model: Any) -> None:
    waves, _ = _waves(4, 2)
    longer = [np.tile(waves[0], (9, 1)), *waves]  # beyond the longest of training
    together = model.predict_proba(longer)
    for place, one in enumerate(longer):
        np.testing.assert_allclose(model.predict_proba([one])[0], together[place], atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(waves), together[1:], atol=1e-6)


def test_a_saved_model_predicts_the_same_and_reports(model: Any, tmp_path: Path) -> None:
    waves, _ = _waves(6, 3)
    folder = model.save(tmp_path / "run")
    assert (folder / "report.html").is_file()
    np.testing.assert_array_equal(gw.load(folder).predict_proba(waves), model.predict_proba(waves))


def test_the_command_line_fits_and_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    waves, targets = _waves(80, 4)
    some = gw.Sequences.from_list(waves)
    np.savez("waves.npz", values=some.values, offsets=some.offsets, kind=targets, device=np.arange(80) // 8)
    options = "--set model.units=4 --set stopping.epochs=3 --group device --no-baselines"
    assert run_program(["fit", "waves.npz", "--target", "kind", *options.split(), "--out", "run"]) == 0
    assert run_program(["predict", "run", "waves.npz", "--out", "found.csv"]) == 0
    assert len(Path("found.csv").read_text().splitlines()) == 81
    capsys.readouterr()


def test_without_a_target_sequences_are_refused() -> None:
    waves, _ = _waves(40, 5)
    with pytest.raises(gw.RequestError, match="sequences need a target"):
        gw.fit(waves)


def test_a_perceptron_refuses_sequences_and_names_the_remedy() -> None:
    waves, targets = _waves(40, 5)
    with pytest.raises(gw.RequestError, match=r"NaN beyond their ends.*Use `Recurrent"):
        gw.fit(waves, targets, model=gw.Mlp(widths=(4,)), set={"stopping.epochs": 1})
