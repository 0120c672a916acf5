"""Recordings: the spectra against a plain sum over samples, every way to write samples, and what is refused."""

import cmath
import math
import wave
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

import gradwise as gw
from gradwise.data.reading.folders.recordings import BANDS, RATE, log_mel, mel
from gradwise.data.reading.new_rows import read_rows
from gradwise.runtime import memory
from gradwise.runtime.errors import RequestError
from gradwise.specs.sequences import Sequences


def tone(frequency: float, seconds: float = 0.1, rate: int = RATE, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    time = np.arange(int(seconds * rate)) / rate
    return 0.5 * np.sin(2 * math.pi * frequency * time) + noise * np.random.default_rng(seed).normal(size=len(time))


def save(path: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    wavfile.write(path, rate, samples)
    return path


def test_a_step_is_the_power_of_its_spectrum_in_each_triangle() -> None:
    samples = tone(700.0, noise=0.1)
    window = [samples[160 + k] * (0.5 - 0.5 * math.cos(2 * math.pi * k / 400)) for k in range(400)]  # the second step
    power = [
        abs(sum(w * cmath.exp(-2j * math.pi * f * k / 512) for k, w in enumerate(window))) ** 2 for f in range(257)
    ]
    corners = [mel(np.asarray(20.0)) + n * (mel(np.asarray(8000.0)) - mel(np.asarray(20.0))) / 41 for n in range(42)]
    heights = [mel(np.asarray(f * RATE / 512)) for f in range(257)]
    expected = []
    for low, top, high in zip(corners, corners[1:], corners[2:], strict=False):
        weight = [max(0.0, min((h - low) / (top - low), (high - h) / (high - top))) for h in heights]
        expected.append(10 * math.log10(max(1e-10, sum(w * p for w, p in zip(weight, power, strict=True)))))
    found = log_mel(samples, RATE)
    assert found.shape == (1 + (len(samples) - 400) // 160, BANDS)
    np.testing.assert_allclose(found[1], expected, atol=1e-3)


def test_silence_has_a_floor_and_a_short_recording_one_step() -> None:
    np.testing.assert_allclose(log_mel(np.zeros(30), RATE), np.full((1, BANDS), -100.0))


@pytest.mark.parametrize("rate", [8000, 22_050, 44_100])
def test_the_rate_of_a_recording_does_not_matter(rate: int) -> None:
    ours, theirs = (log_mel(tone(1000.0, 0.2, one), one) for one in (RATE, rate))
    assert len(ours) == len(theirs)
    loud = ours[3:-3].max(axis=0) > -10.0
    assert loud.sum() >= 3
    np.testing.assert_allclose(theirs[3:-3][:, loud], ours[3:-3][:, loud], atol=0.3)


def test_samples_are_read_however_they_are_written(tmp_path: Path) -> None:
    samples = tone(500.0)
    whole = np.round(samples * 2**15)
    cases = {
        "float": samples.astype(np.float32),
        "short": whole.astype(np.int16),
        "long": (whole * 2**16).astype(np.int32),
        "both": np.stack([whole, whole], axis=1).astype(np.int16),
    }
    paths = [save(tmp_path / "all" / f"{name}.wav", written) for name, written in cases.items()]
    with wave.open(str(tmp_path / "all" / "three.wav"), "wb") as file:  # 24 bits
        file.setparams((1, 3, RATE, 0, "NONE", ""))
        file.writeframes(b"".join(int(one * 256).to_bytes(3, "little", signed=True) for one in whole))
    save(tmp_path / "bytes" / "byte.wav", np.round(samples * 127 + 128).astype(np.uint8))
    rows = read_rows(tmp_path / "all", (), (10, BANDS), sequences=True)
    assert isinstance(rows.inputs, Sequences)
    assert [Path(path).stem for path in rows.paths] == ["both", "float", "long", "short", "three"]
    assert len(paths) == 4
    for number in range(5):
        np.testing.assert_allclose(rows.inputs[number][:, :12], log_mel(samples, RATE)[:, :12], atol=0.2)
    coarse = read_rows(tmp_path / "bytes", (), (10, BANDS), sequences=True).inputs[0]
    loud = log_mel(samples, RATE) > 0
    np.testing.assert_allclose(coarse[loud], log_mel(samples, RATE)[loud], atol=0.5)


def _break(path: Path, case: str) -> None:
    whole = save(path / "no" / "1.wav", tone(300.0).astype(np.float32))
    if case == "text":
        whole.write_text("no recording")
    elif case == "cut":
        whole.write_bytes(whole.read_bytes()[:30])
    elif case == "empty":
        save(whole, np.zeros(0, np.int16))
    elif case == "nan":
        save(whole, np.full(900, np.nan, np.float32))
    elif case == "stray":
        (path / "no" / "list.csv").write_text("a,b")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("text", "1.wav is not a recording that can be read"),
        ("cut", "1.wav is not a recording that can be read"),
        ("empty", "1.wav has no samples"),
        ("nan", "no finite numbers"),
        ("stray", "list.csv is not a recording"),
    ],
)
def test_what_is_no_recording_is_named_in_one_line(tmp_path: Path, case: str, words: str) -> None:
    _break(tmp_path, case)
    with pytest.raises(RequestError, match=words) as refusal:
        gw.read(str(tmp_path))
    assert "\n" not in str(refusal.value)


def test_memory_is_checked_before_any_sample_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "no" / "1.wav", tone(300.0)).write_bytes(b"x" * 1000)  # fails if read
    monkeypatch.setattr(memory, "available_bytes", lambda: 600.0)
    with pytest.raises(RequestError, match="1 recordings need"):
        gw.read(str(tmp_path))


@pytest.mark.slow
def test_a_folder_of_recordings_is_learned_and_new_ones_are_named(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for kind, heights in {"low": (300.0, 500.0), "high": (900.0, 1500.0)}.items():
        for number in range(24):
            samples = tone(draw.uniform(*heights), draw.uniform(0.05, 0.15), noise=0.05, seed=number)
            save(tmp_path / "tones" / kind / f"{number}.wav", samples.astype(np.float32))
    dataset = gw.read(str(tmp_path / "tones"))
    assert dataset.warnings == ()
    assert dataset.inputs.shape[2] == BANDS
    quick = {"model.units": (8,), "stopping": "Off", "stopping.epochs": 15}
    model = gw.fit(str(tmp_path / "tones"), set=quick, out=str(tmp_path / "run"), no_report=True)
    assert model.test == 0.0
    save(tmp_path / "new" / "1.wav", tone(400.0, 0.4))
    save(tmp_path / "new" / "2.wav", tone(1200.0, 0.1, rate=8000), 8000)
    named = gw.load(str(tmp_path / "run")).predict(str(tmp_path / "new"))
    assert list(np.asarray(named).ravel()) == ["low", "high"]
