"""Files that are written whole or not at all, and numbers that JSON can hold."""

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np


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


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file so that it is either the old one or the new one, never half of either."""
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
