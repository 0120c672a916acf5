"""A shelf of finished trainings: each written when it ends, so that a run that was killed goes on from them.

    shelf = Shelf(folder)        # or Shelf(None), which remembers nothing
    shelf.put(kept)
    shelf.find(17)               # None, or training 17 as it was

A training is one safetensors file: its network's arrays, and one JSON text with the rest. Nothing is unpickled.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from ...records.fit import finite, write_whole
from ...specs.serialisation import from_plain, to_plain


@dataclasses.dataclass(frozen=True)
class Kept:
    """What is left of a training: how it ended, and the best network it had, if any."""

    number: int
    outcome: str
    score: float
    seconds: float
    age_examples: int
    reason: str = ""
    network: Any = None
    scores: np.ndarray | None = None
    curve: dict[str, list[float]] = dataclasses.field(default_factory=dict)


class Shelf:
    """Trainings by number, in a folder or nowhere."""

    def __init__(self, folder: Path | None):
        self.folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def _path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{number:06d}.safetensors"

    def put(self, kept: Kept) -> None:
        """Writes a training down, whole or not at all."""
        from safetensors.numpy import save

        if self.folder is None:
            return
        arrays: dict[str, np.ndarray] = {}
        plain = {field.name: getattr(kept, field.name) for field in dataclasses.fields(kept)}
        network = None if kept.network is None else to_plain(kept.network, arrays)
        arrays = {f"network/{name}": np.ascontiguousarray(array) for name, array in arrays.items()}
        if kept.scores is not None:
            arrays["scores"] = np.ascontiguousarray(kept.scores)
        head = json.dumps(finite({**plain, "network": network, "scores": None}))
        write_whole(self._path(kept.number), save(arrays or {"empty": np.zeros(1, np.float32)}, {"gradwise": head}))

    def find(self, number: int) -> Kept | None:
        """The training of this number, if it was finished."""
        from safetensors import safe_open

        if self.folder is None or not self._path(number).is_file():
            return None
        with safe_open(self._path(number), framework="numpy") as file:
            head = json.loads((file.metadata() or {})["gradwise"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        own = {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith("network/")}
        network = None if head["network"] is None else from_plain(head["network"], own)
        score = math.nan if head["score"] is None else head["score"]
        curve = {name: [math.nan if v is None else v for v in column] for name, column in head["curve"].items()}
        return Kept(**{**head, "network": network, "score": score, "scores": arrays.get("scores"), "curve": curve})
