"""Files that are written whole or not at all, and numbers that JSON can hold."""

import dataclasses
import math
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_RANDOM = 16  # hexadecimal digits in the name of a temporary file


def finite(value: Any) -> Any:
    """The value as JSON holds it: records become dictionaries and arrays lists; what could not be measured is null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, np.ndarray):
        return finite(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextmanager
def new_file_beside(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """An empty file in the same folder, to be renamed to `path`; removed at the end unless it was.

    Nobody can have planted a link at its name: the name is random, and a file that is there is never opened.
    """
    beside = path.with_name(f"{path.name}.{secrets.token_hex(_RANDOM // 2)}.partial")
    with open(beside, "xb") as file:
        try:
            yield beside, file
        finally:
            file.close()
            beside.unlink(missing_ok=True)


def remove_torn(folder: Path) -> None:
    """Removes what processes that were killed while they wrote have left in this folder."""
    for torn in folder.glob(f"*.{'[0-9a-f]' * _RANDOM}.partial"):
        torn.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file so that it is either the old one or the new one, never half of either.

    A link is replaced; what it points at stays as it is.
    """
    with new_file_beside(path) as (beside, file):
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        file.close()
        os.replace(beside, path)
