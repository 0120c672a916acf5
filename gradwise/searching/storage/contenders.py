"""The best trials' networks, kept while the search goes on: what the end of a study needs of them.

    contenders = Contenders(folder)
    contenders.offer(done, recipe, variants)      kept if among the best; a worse one goes
    contenders.all()                              best first, also after a kill: they are read from the folder

Each is one file, written whole before another is removed. A trial's network is one, or one for each fold.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...records.fit import write_whole
from ...runtime.errors import RequestError, WorkError
from ...specs.recipe import Recipe
from ...specs.serialisation import from_plain, to_plain
from ..running.cohort import Done
from ..running.evaluation_data import WHOLE, Variant

_FORMAT = 1
_ENDING = ".safetensors"


@dataclasses.dataclass(frozen=True)
class Kept:
    """A trial with its networks, one for each of its variants, and its score on each validation example."""

    number: int
    recipe: Recipe
    score: float
    loss: float
    scores: np.ndarray
    networks: tuple[Any, ...]
    variants: tuple[Variant, ...]
    always: bool = False


@dataclasses.dataclass(frozen=True, order=True)
class _Rank:
    """Where a contender stands; the smaller, the better."""

    score: float
    loss: float
    number: int
    always: bool

    @staticmethod
    def of(number: int, score: float, loss: float, always: bool) -> "_Rank":
        return _Rank(score, loss if math.isfinite(loss) else math.inf, number, always)


def keep(done: Done, recipe: Recipe, variants: tuple[Variant, ...], *, always: bool = False) -> Kept | None:
    """What is kept of a training that ended; nothing where it left no model."""
    if done.network is None or done.scores is None or not math.isfinite(done.score):
        return None
    if done.outcome in {"failed", "diverged"}:
        return None
    networks = done.network if len(variants) > 1 else (done.network,)
    return Kept(done.number, recipe, done.score, done.loss, np.asarray(done.scores), tuple(networks), variants, always)


def _content(kept: Kept, classes: tuple[Any, ...]) -> bytes:
    """One contender as a file; refuses what could not be read again."""
    from safetensors.numpy import save as to_bytes

    arrays: dict[str, np.ndarray] = {"scores": kept.scores}

    def plain(module: Any, prefix: str) -> Any:
        own: dict[str, np.ndarray] = {}
        written = to_plain(module, own)
        from_plain(written, own, classes)
        arrays.update({f"{prefix}/{path}": array for path, array in own.items()})
        return written

    head = {
        "format": _FORMAT,
        "number": kept.number,
        "score": kept.score,
        "loss": kept.loss,
        "always": kept.always,
        "variants": [list(variant) for variant in kept.variants],
        "recipe": plain(kept.recipe, "recipe"),
        "networks": [plain(network, f"network {place}") for place, network in enumerate(kept.networks)],
    }
    return to_bytes({name: np.ascontiguousarray(a) for name, a in arrays.items()}, {"gradwise": json.dumps(head)})


def _under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(f"{prefix}/"): a for name, a in arrays.items() if name.startswith(f"{prefix}/")}


def _head(file: Any) -> dict[str, Any]:
    head = dict(json.loads((file.metadata() or {})["gradwise"]))
    if head["format"] != _FORMAT:
        raise RequestError(f"it has format {head['format']!r:.20}")
    return head


def _read_rank(path: Path) -> _Rank:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        head = _head(file)
    return _Rank.of(int(head["number"]), float(head["score"]), float(head["loss"]), bool(head["always"]))


def _read(path: Path, classes: tuple[Any, ...]) -> Kept:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        head = _head(file)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)

    def piece(plain: Any, prefix: str) -> Any:
        return from_plain(plain, _under(arrays, prefix), classes)

    return Kept(
        number=int(head["number"]),
        recipe=piece(head["recipe"], "recipe"),
        score=float(head["score"]),
        loss=float(head["loss"]),
        scores=arrays["scores"],
        networks=tuple(piece(one, f"network {place}") for place, one in enumerate(head["networks"])),
        variants=tuple((str(kind), int(number)) for kind, number in head["variants"]),
        always=bool(head["always"]),
    )


class Contenders:
    """The best `most` trials, and those that are to be kept always. `notes` says what could not be kept or read.

    In `folder`/contenders, or in memory where there is no folder. Classes from outside gradwise are passed in; without
    them a recipe that holds such has no file that could be read, and is kept in memory alone.
    """

    def __init__(self, folder: Path | None, most: int = 64, *, classes: tuple[Any, ...] = ()):
        self.most, self.classes = most, classes
        self.notes: list[str] = []
        self._folder = None if folder is None else folder / "contenders"
        self._ranks: dict[int, _Rank] = {}
        self._held: dict[int, Kept] = {}  # those that have no file
        if self._folder is not None:
            self._look(self._folder)

    def __len__(self) -> int:
        return len(self._ranks)

    def _path(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{number}{_ENDING}"

    def _look(self, folder: Path) -> None:
        """What an earlier run left in the folder."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise WorkError(f"{folder} could not be made: {problem.strerror or problem}.") from None
        for torn in folder.glob("*.partial"):
            torn.unlink(missing_ok=True)
        for path in sorted(folder.glob(f"*{_ENDING}")):
            rank: _Rank | None = self._tried(path, _read_rank)
            if rank is not None:
                self._ranks[rank.number] = rank

    def _tried(self, path: Path, read: Callable[[Path], Any]) -> Any:
        """What a file holds, or None and a note: a network less is no reason to lose a study."""
        try:
            found = read(path)
            if path.name != f"{found.number}{_ENDING}":
                raise RequestError(f"it is of trial {found.number}")
            return found
        except Exception as problem:  # what a damaged file can do to the code that reads it has no list
            told = str(problem).partition("\n")[0][:160] or type(problem).__name__
            why = told if path.is_file() else "it is gone"
            note = f"the network of trial {path.name.removesuffix(_ENDING)} could not be read ({why})."
            self.notes.extend([] if note in self.notes else [note])
            return None

    def _store(self, kept: Kept) -> None:
        self._held.pop(kept.number, None)
        if self._folder is None:
            self._held[kept.number] = kept
            return
        try:
            content = _content(kept, self.classes)
        except RequestError as problem:
            note = f"networks are kept in memory alone and are lost if the search is killed: {problem}"
            self.notes.extend([] if note in self.notes else [note])
            self._held[kept.number] = kept
            return
        path = self._path(kept.number)
        try:
            write_whole(path, content)
        except OSError as problem:
            raise WorkError(f"{path} could not be written: {problem.strerror or problem}.") from None

    def _remove(self, number: int) -> None:
        if self._ranks.pop(number, None) is None:
            return
        if self._held.pop(number, None) is None:
            self._path(number).unlink(missing_ok=True)

    def forget_all_but(self, numbers: Container[int]) -> None:
        """Lets go of networks whose trials were never written down: such a trial is run again."""
        for number in [n for n in self._ranks if n not in numbers]:
            self._remove(number)

    def offer(
        self, done: Done, recipe: Recipe, variants: tuple[Variant, ...] = (WHOLE,), *, always: bool = False
    ) -> bool:
        """Keeps it if it is among the best, by score, then loss, or if it is to be kept always; whether it was."""
        kept = keep(done, recipe, variants, always=always)
        if kept is None:
            return False
        rank = _Rank.of(kept.number, kept.score, kept.loss, always)
        others = sorted(one for one in self._ranks.values() if not one.always and one.number != kept.number)
        if not always and len(others) >= self.most and others[self.most - 1] < rank:
            self._remove(kept.number)
            return False
        self._store(kept)
        self._ranks[kept.number] = rank
        for worse in others[self.most - 1 + always :]:
            self._remove(worse.number)
        return True

    def all(self) -> list[Kept]:
        """Every contender with its networks, best first."""
        found = []
        for rank in sorted(self._ranks.values()):
            kept = self._held.get(rank.number)
            if kept is None:
                kept = self._tried(self._path(rank.number), lambda path: _read(path, self.classes))
            if kept is not None:
                found.append(kept)
        return found
