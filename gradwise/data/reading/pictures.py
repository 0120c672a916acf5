"""Reads folders of pictures: each class is a sub-folder, whose name is the label.

    pictures/cat/1.png  pictures/dog/1.png                          classes `cat` and `dog`
    pictures/train/cat/1.png ...  pictures/test/cat/9.png ...       with an official test set
    load_pictures(Path("pictures"))                                 X (n, h, w) or (n, h, w, 3) of bytes, and class
    load_pictures(Path("one.png"), labelled=False, shape=(28, 28))  one picture, in the shape that a model expects

All pictures grey: (h, w); any in colour: (h, w, 3), red, green and blue last. Pictures of another size than most are
resized, with a warning. Sizes are read from the headers first, so that memory is checked before any pixel is decoded.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime import memory
from ...runtime.errors import RequestError
from .files import Loaded

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
CLASS = "class"
_TURNED = (5, 6, 7, 8)  # values of the orientation that swap width and height
_ORIENTATION = 0x0112
_LITTER = {"thumbs.db", "desktop.ini"}  # hidden files of Windows


def is_picture(path: Path) -> bool:
    """Whether the name is that of a picture."""
    return path.suffix.lower() in ENDINGS


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, in the order of names, without hidden files."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as problem:
        raise RequestError(f"{folder} cannot be read: {problem.strerror or problem}.") from None
    return [one for one in entries if not one.name.startswith(".") and one.name.lower() not in _LITTER]


def _has_pictures(folder: Path, depth: int = 2) -> bool:
    """Whether there are pictures in a folder, its sub-folders or theirs."""
    entries = _visible(folder)
    deeper = depth and any(_has_pictures(one, depth - 1) for one in entries if one.is_dir())
    return bool(deeper) or any(map(is_picture, entries))


def _files(folder: Path) -> list[Path]:
    """The pictures of a folder; raises on anything else."""
    for entry in _visible(folder):
        if entry.is_dir():
            raise RequestError(f"{entry} is a folder inside the class `{folder.name}`: put all pictures side by side.")
        if not is_picture(entry):
            raise RequestError(f"{entry} is not a picture ({', '.join(ENDINGS)}): move it elsewhere.")
    return _visible(folder)


def _of_classes(folder: Path) -> tuple[list[Path], list[str]]:
    """The pictures in the sub-folders of a folder, and their classes."""
    files, classes = [], []
    for entry in _visible(folder):
        if not entry.is_dir():
            told = f"it is in no sub-folder of {folder}, and those name the classes" if is_picture(entry) else ""
            raise RequestError(f"{entry} is not {'labelled: ' + told if told else 'a picture: move it elsewhere'}.")
        found = _files(entry)
        if not found:
            raise RequestError(f"{entry} has no pictures: remove the folder, or add some.")
        files += found
        classes += [entry.name] * len(found)
    return files, classes


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The picture; raises in one line if it is damaged."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata; damage raises
            with Image.open(path) as image:
                yield image
    except RequestError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as problem:
        reason = " ".join(str(problem).replace(str(path), "the file").split())[:100]
        raise RequestError(f"{path} is not a picture that can be read ({reason}): replace or remove it.") from None


def _outline(path: Path) -> tuple[int, int, bool]:
    """Height, width, and whether the picture is grey, from its header."""
    with _opened(path) as image:
        width, height = image.size
        if image.getexif().get(_ORIENTATION) in _TURNED:
            width, height = height, width
        if image.mode == "P":
            colours = np.array(image.getpalette() or [0, 0, 0]).reshape(-1, 3)
            return height, width, bool(np.all(colours == colours[:, :1]))
        return height, width, image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I")


def _pixels(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The pixels as bytes, resized to this shape if they have another."""
    from PIL import Image, ImageOps

    with _opened(path) as image:
        image.load()
        turned = ImageOps.exif_transpose(image)
        if turned.mode.startswith("I"):  # 16 bits for each pixel
            turned = Image.fromarray((np.asarray(turned, np.int64) >> 8).clip(0, 255).astype(np.uint8))
        plain = turned.convert("RGB" if len(shape) == 3 and shape[2] == 3 else "L")
        if plain.size != (shape[1], shape[0]):
            plain = plain.resize((shape[1], shape[0]), Image.Resampling.LANCZOS)
        return np.asarray(plain).reshape(shape)


def _stacked(files: Sequence[Path], shape: tuple[int, ...] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """All pictures in one array, and a warning if some were resized. Without a shape, the most frequent one."""
    outlines = [_outline(file) for file in files]
    if shape is None:
        size = Counter((height, width) for height, width, _ in outlines).most_common(1)[0][0]
        shape = size if all(grey for _, _, grey in outlines) else (*size, 3)
    odd = [file for file, outline in zip(files, outlines, strict=True) if outline[:2] != shape[:2]]
    told: tuple[str, ...] = ()
    if odd:
        first = outlines[files.index(odd[0])]
        height, width = shape[:2]
        told = (
            f"{len(odd)} of {len(files)} pictures resized to {height} x {width} (height x width), first {odd[0]} of "
            f"{first[0]} x {first[1]}",
        )
    what = f"{len(files)} pictures of {' x '.join(map(str, shape))}, as bytes and 32-bit numbers, need"
    memory.require_memory(5 * len(files) * int(np.prod(shape)), what, "Use fewer or smaller pictures.", share=0.8)
    pixels = np.empty((len(files), *shape), np.uint8)
    for number, file in enumerate(files):
        pixels[number] = _pixels(file, shape)
    return pixels, told


def _list_pictures(path: Path) -> tuple[list[Path], list[str]]:
    """The pictures of a path, with their classes if it has sub-folders."""
    if not path.is_dir():
        return [path], []
    if any(entry.is_dir() for entry in _visible(path)):
        return _of_classes(path)
    return _files(path), []


def load_pictures(path: Path, *, labelled: bool = True, shape: tuple[int, ...] | None = None) -> Loaded:
    """The pictures of a folder, or a single one, in this shape or the most frequent one."""
    name = path.resolve().name.partition(".")[0]
    if not path.exists():
        raise RequestError(f"no picture {path}.")
    entries = _visible(path) if path.is_dir() else []
    if path.is_dir() and not _has_pictures(path):
        raise RequestError(f"{path} is a folder without pictures: give a file, or a folder of CLASS/FILE.png.")
    if (path / "train").is_dir() and {one.name for one in entries if one.is_dir()} <= {"train", "test"}:
        train = replace(load_pictures(path / "train", labelled=labelled, shape=shape), name=name)
        if not (path / "test").is_dir():
            return train
        test = load_pictures(path / "test", labelled=labelled, shape=train.arrays["X"].shape[1:])
        also = tuple(f"test set: {line}" for line in test.warnings)
        return replace(train, test=test, source=str(path), warnings=(*train.warnings, *also))
    if labelled and not path.is_dir():
        raise RequestError(f"{path} is one picture: give the folder that has a sub-folder for each class.")
    if labelled and not any(one.is_dir() for one in entries):
        raise RequestError(
            f"{path} has pictures without classes: sort them into sub-folders, one for each class, or learn features "
            "with gradwise fit --unsupervised."
        )
    files, classes = _list_pictures(path)
    pixels, told = _stacked(files, shape)
    arrays = {"X": pixels, **({CLASS: np.array(classes)} if classes else {})}
    targets = (CLASS,) if labelled else ()
    return Loaded(name, arrays=arrays, targets=targets, warnings=told, source=str(path), paths=tuple(map(str, files)))
