"""Folders of classes, whatever their files hold; `test_pictures.py` has what is refused."""

from pathlib import Path

import numpy as np
from scipy.io import wavfile

import gradwise as gw
from gradwise.data.reading.folders.class_folders import load_folder
from gradwise.data.reading.folders.recordings import RECORDINGS


def _fill(folder: Path, classes: tuple[str, ...], each: int, samples: int) -> None:
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(each):
            wavfile.write(folder / name / f"{number}.wav", 16_000, np.zeros(samples, np.int16))


def test_sub_folders_are_classes_and_a_folder_named_test_is_the_test_set(tmp_path: Path) -> None:
    _fill(tmp_path / "words" / "train", ("no", "yes"), 3, samples=720)
    _fill(tmp_path / "words" / "test", ("yes",), 2, samples=880)
    dataset = gw.read(str(tmp_path / "words"))
    assert (dataset.name, len(dataset), dataset.targets.tolist()) == ("words", 6, [0, 0, 0, 1, 1, 1])
    assert dataset.inputs.lengths.tolist() == [3] * 6
    assert dataset.test is not None
    assert dataset.test.targets.tolist() == [1, 1]
    assert dataset.test.inputs.lengths.tolist() == [4, 4]


def test_files_without_classes_are_listed_in_the_order_of_their_names(tmp_path: Path) -> None:
    _fill(tmp_path, ("flat",), 3, samples=400)
    loaded = load_folder(tmp_path / "flat", RECORDINGS, labelled=False)
    assert [Path(path).name for path in loaded.paths] == ["0.wav", "1.wav", "2.wav"]
    assert (list(loaded.arrays), loaded.targets) == (["X"], ())


def test_recordings_of_several_rates_are_told(tmp_path: Path) -> None:
    _fill(tmp_path, ("no", "yes"), 3, samples=800)
    wavfile.write(tmp_path / "yes" / "0.wav", 8000, np.zeros(400, np.int16))
    (told,) = gw.read(str(tmp_path)).warnings
    assert "recordings of 8,000, 16,000 Hz" in told
    assert "above 4,000 Hz" in told
    assert "yes/0.wav" in told
