"""Pictures and recordings are told apart by the endings of their files."""

from pathlib import Path

import pytest

from gradwise.data.reading.folders.file_kinds import kind_of_files
from gradwise.data.reading.folders.pictures import PICTURES
from gradwise.data.reading.folders.recordings import RECORDINGS
from gradwise.runtime.errors import RequestError


def test_a_path_is_of_the_kind_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "words" / "train" / "no").mkdir(parents=True)
    (tmp_path / "words" / "train" / "no" / "1.WAV").touch()
    assert kind_of_files(tmp_path / "words") is RECORDINGS
    assert kind_of_files(Path("one.wav")) is RECORDINGS
    assert kind_of_files(Path("one.PNG")) is PICTURES
    assert kind_of_files(Path("rows.csv")) is None
    (tmp_path / "bare").mkdir()
    assert kind_of_files(tmp_path / "bare") is PICTURES  # whose reader says what is missing


def test_compressed_recordings_are_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "songs" / "fast").mkdir(parents=True)
    (tmp_path / "songs" / "fast" / "1.mp3").touch()
    for path in (tmp_path / "songs", Path("one.flac")):
        with pytest.raises(RequestError, match=r"Convert them to \.wav"):
            kind_of_files(path)
