"""Which kind of files a path holds.

kind_of_files(Path("pets"))      PICTURES, if there are pictures in the folder or its sub-folders
kind_of_files(Path("one.wav"))   RECORDINGS
kind_of_files(Path("rows.csv"))  None: no such file
"""

from __future__ import annotations

from pathlib import Path

from ....runtime.errors import RequestError
from .class_folders import FileKind
from .pictures import PICTURES
from .recordings import RECORDINGS

KINDS = (PICTURES, RECORDINGS)
_PACKED = FileKind("compressed recording", (".mp3", ".flac", ".ogg", ".m4a", ".opus", ".aac"), RECORDINGS.stack)


def kind_of_files(path: Path) -> FileKind | None:
    """The kind of a file or of the files in a folder; None for another file."""
    belongs = FileKind.is_in if path.is_dir() else FileKind.owns
    for kind in KINDS:
        if belongs(kind, path):
            return kind
    if belongs(_PACKED, path):
        raise RequestError(f"{path}: compressed recordings are not read. Convert them to .wav.")
    return PICTURES if path.is_dir() else None
