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
    with pytest.raises(gw.RequestError, match="sequences and trees need a target"):
        gw.fit(waves)


def test_a_perceptron_refuses_sequences_and_names_the_remedy() -> None:
    waves, targets = _waves(40, 5)
    with pytest.raises(gw.RequestError, match=r"NaN beyond their ends.*Use `Recurrent"):
        gw.fit(waves, targets, model=gw.Mlp(widths=(4,)), set={"stopping.epochs": 1})


def test_a_model_of_sequences_is_not_exported(model: Any, tmp_path: Path) -> None:
    with pytest.raises(gw.RequestError, match="a model of sequences cannot be exported"):
        model.export(tmp_path / "model.onnx")


@pytest.mark.slow
def test_a_check_finds_nothing_wrong_and_sees_copies() -> None:
    waves, targets = _waves(80, 6)
    areas = ["data", "gradient", "wiring", "padding", "start"]
    sound = gw.check(waves, targets, set=SMALL, only=areas)
    assert not [one for one in sound.findings if one.level != "note"]
    copied = gw.check([*waves, *waves], np.tile(targets, 2), set=SMALL, only=["data"])
    assert any(one.code == "GW201" for one in copied.findings)


@pytest.mark.slow
def test_a_search_trains_several_networks_of_sequences() -> None:
    waves, targets = _waves(80, 7)
    study = gw.search(waves, targets, budget="2 trials", set={**SMALL, "stopping.epochs": 5})
    assert study.predict(waves[:3]).shape == (3,)


def test_a_search_varies_the_rate_the_units_and_dropout() -> None:
    space = gw.defaults.search_space(gw.defaults.sequences("classes"))
    assert tuple(space.paths) == (
        "model.units.each",
        "optimiser.optimiser.optimiser.learning_rate",
        "model.dropout",
        "criterion.penalties.0.coefficient",
    )


@pytest.mark.slow
def test_gated_units_add_what_is_far_apart() -> None:
    """The adding problem: two of 20 to 30 numbers are marked, and their sum is the target."""
    random = np.random.default_rng(0)
    rows, sums = [], []
    for steps in random.integers(20, 31, 2400):
        marks = np.zeros(steps)
        marks[random.choice(steps, 2, replace=False)] = 1.0
        numbers = random.uniform(size=steps)
        rows.append(np.stack([numbers, marks], 1))
        sums.append(float(numbers @ marks))
    network = gw.Recurrent(units=(24,), dropout=0.0)  # its last state alone
    model = gw.fit(rows, sums, model=network, set={"stopping.epochs": 25}, seed=0, no_baselines=True)
    assert model.test < 0.2 * np.std(sums)


@pytest.mark.slow
def test_spoken_digits_are_recognised(data_folder: Path) -> None:
    """A third of the training recordings, and half of the official test set."""
    with np.load(data_folder / "fsdd" / "fsdd_logmel32.npz") as file:
        recordings, digit, take = gw.Sequences(file["frames"], file["offsets"]), file["y"], file["take"]
    learned, tested = np.flatnonzero(take >= 5)[::3], np.flatnonzero(take < 5)[::2]
    test = (recordings[tested], digit[tested])
    model = gw.fit(recordings[learned], digit[learned], test=test, set={"stopping.epochs": 15}, no_baselines=True)
    assert model.test <= 0.06
