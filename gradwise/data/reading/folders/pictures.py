"""Pictures as arrays of bytes.

    load_folder(Path("pets"), PICTURES)                                   X (n, h, w) or (n, h, w, 3), and class
    load_folder(Path("one.png"), PICTURES, labelled=False, shape=(8, 8))  one picture, in the shape that a model expects

All pictures grey: (h, w); any in colour: (h, w, 3), red, green and blue last. Pictures of another size than most are
resized, with a warning. Sizes are read from the headers first, so that memory is checked before any pixel is decoded.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ....runtime import memory
from ....runtime.errors import RequestError
from .class_folders import FileKind

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
_TURNED = (5, 6, 7, 8)  # values of the orientation that swap width and height
_ORIENTATION = 0x0112


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


PICTURES = FileKind("picture", ENDINGS, _stacked)
