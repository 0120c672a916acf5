"""Reads folders of files in which each class is a sub-folder, whose name is the label.

    pets/cat/1.png  pets/dog/1.png                          classes `cat` and `dog`
    pets/train/cat/1.png ...  pets/test/cat/9.png ...       with an official test set
    pets/1.png  pets/2.png                                  no classes: to learn features of, or to predict

What the files hold, a `FileKind` says: pictures (`pictures.py`) or recordings (`recordings.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....runtime.errors import RequestError
from ..files import Loaded

CLASS = "class"
_LITTER = {"thumbs.db", "desktop.ini"}  # hidden files of Windows

Shape = tuple[int, ...] | None


@dataclass(frozen=True)
class FileKind:
    """A kind of files: what one is called, its endings, and what reads them.

    `stack(files, shape)` returns the inputs and warnings; `shape` is that of one example, where new files must have it.
    """

    noun: str
    endings: tuple[str, ...]
    stack: Callable[[Sequence[Path], Shape], tuple[Any, tuple[str, ...]]]

    def owns(self, path: Path) -> bool:
        """Whether the name is that of such a file."""
        return path.suffix.lower() in self.endings

    def is_in(self, folder: Path, depth: int = 2) -> bool:
        """Whether there are such files in a folder, its sub-folders or theirs."""
        entries = _visible(folder)
        return any(map(self.owns, entries)) or bool(
            depth and any(self.is_in(one, depth - 1) for one in entries if one.is_dir())
        )


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, in the order of names, without hidden files."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as problem:
        raise RequestError(f"{folder} cannot be read: {problem.strerror or problem}.") from None
    return [one for one in entries if not one.name.startswith(".") and one.name.lower() not in _LITTER]


def _files(folder: Path, kind: FileKind) -> list[Path]:
    """The files of a folder; raises on anything else."""
    for entry in _visible(folder):
        if entry.is_dir():
            raise RequestError(
                f"{entry} is a folder inside the class `{folder.name}`: put all {kind.noun}s side by side."
            )
        if not kind.owns(entry):
            raise RequestError(f"{entry} is not a {kind.noun} ({', '.join(kind.endings)}): move it elsewhere.")
    return _visible(folder)


def _of_classes(folder: Path, kind: FileKind) -> tuple[list[Path], list[str]]:
    """The files in the sub-folders of a folder, and their classes."""
    files, classes = [], []
    for entry in _visible(folder):
        if not entry.is_dir():
            told = f"it is in no sub-folder of {folder}, and those name the classes" if kind.owns(entry) else ""
            raise RequestError(
                f"{entry} is not {'labelled: ' + told if told else f'a {kind.noun}: move it elsewhere'}."
            )
        found = _files(entry, kind)
        if not found:
            raise RequestError(f"{entry} has no {kind.noun}s: remove the folder, or add some.")
        files += found
        classes += [entry.name] * len(found)
    return files, classes


def _listed(path: Path, kind: FileKind) -> tuple[list[Path], list[str]]:
    """The files of a path, with their classes if it has sub-folders."""
    if not path.is_dir():
        return [path], []
    if any(entry.is_dir() for entry in _visible(path)):
        return _of_classes(path, kind)
    return _files(path, kind), []


def _refuse(path: Path, kind: FileKind, labelled: bool) -> None:
    """Raises where there is nothing to read, or no class to learn."""
    if not path.exists():
        raise RequestError(f"no {kind.noun} {path}.")
    if path.is_dir() and not kind.is_in(path):
        raise RequestError(
            f"{path} is a folder without {kind.noun}s: give a file, or a folder of CLASS/FILE{kind.endings[0]}."
        )
    if labelled and not path.is_dir():
        raise RequestError(f"{path} is one {kind.noun}: give the folder that has a sub-folder for each class.")
    if labelled and not any(one.is_dir() for one in _visible(path)):
        raise RequestError(
            f"{path} has {kind.noun}s without classes: sort them into sub-folders, one for each class, or learn "
            "features with gradwise fit --unsupervised."
        )


def load_folder(path: Path, kind: FileKind, *, labelled: bool = True, shape: Shape = None) -> Loaded:
    """The files of a folder, or a single one, as X; their classes beside it if sub-folders name them."""
    name = path.resolve().name.partition(".")[0]
    _refuse(path, kind, labelled)
    folders = {one.name for one in _visible(path) if one.is_dir()} if path.is_dir() else set()
    if (path / "train").is_dir() and folders <= {"train", "test"}:
        train = replace(load_folder(path / "train", kind, labelled=labelled, shape=shape), name=name)
        if not (path / "test").is_dir():
            return train
        test = load_folder(path / "test", kind, labelled=labelled, shape=train.arrays["X"].shape[1:])
        also = tuple(f"test set: {line}" for line in test.warnings)
        return replace(train, test=test, source=str(path), warnings=(*train.warnings, *also))
    files, classes = _listed(path, kind)
    inputs, told = kind.stack(files, shape)
    arrays = {"X": inputs, **({CLASS: np.array(classes)} if classes else {})}
    targets = (CLASS,) if labelled else ()
    return Loaded(name, arrays=arrays, targets=targets, warnings=told, source=str(path), paths=tuple(map(str, files)))
