"""The store of trained networks: each is saved when its training ends, so that a kill loses none of them.

    store = NetworkStore(folder)                  by number; with None, in memory alone
    store.put(done)
    store.find(17)                                training 17 as it ended, or None

    contenders = Contenders(folder)               the best trials of a search, with their networks
    contenders.offer(done, recipe, variants)      kept if among the best; a worse one goes
    contenders.all()                              best first, also after a kill: they are read from the folder

An entry is one safetensors file: the arrays of its modules, and one JSON text with the rest. Nothing is unpickled.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import RequestError, WorkError
from ...runtime.files import finite, write_whole
from ...specs.recipe import Recipe
from ...specs.serialisation import from_plain, to_plain
from ..running.evaluation_data import WHOLE, Variant
from ..running.jobs import Done

_FORMAT = 2
_ENDING = ".safetensors"


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a file holds: plain values, modules by name, and other arrays by name."""

    number: int
    plain: dict[str, Any]
    modules: dict[str, Any]
    arrays: dict[str, np.ndarray]


def _to_bytes(entry: Entry, classes: tuple[Any, ...]) -> bytes:
    """An entry as a file; refuses modules that could not be read again."""
    from safetensors.numpy import save

    arrays = {f"array/{name}": array for name, array in entry.arrays.items()}
    modules = {}
    for name, module in entry.modules.items():
        own: dict[str, np.ndarray] = {}
        modules[name] = to_plain(module, own)
        from_plain(modules[name], own, classes)
        arrays.update({f"{name}/{path}": array for path, array in own.items()})
    head = {"format": _FORMAT, "number": entry.number, "plain": finite(entry.plain), "modules": modules}
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(whole or {"empty": np.zeros(1, np.float32)}, {"gradwise": json.dumps(head)})


def _head(file: Any) -> dict[str, Any]:
    head = dict(json.loads((file.metadata() or {})["gradwise"]))
    if head["format"] != _FORMAT:
        raise RequestError(f"it has format {head['format']!r:.20}")
    return head


class _Files:
    """Entries by number, a file each, in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        if folder.is_symlink():  # what is written here is also removed: never elsewhere
            raise WorkError(f"{folder} is a symbolic link. Replace it with a folder, or choose another with --out.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise WorkError(f"could not create {folder}: {problem.strerror or problem}.") from None
        for torn in folder.glob("*.partial"):
            torn.unlink(missing_ok=True)

    def path(self, number: int) -> Path:
        return self.folder / f"{number}{_ENDING}"

    def paths(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{_ENDING}"))

    def write(self, entry: Entry, classes: tuple[Any, ...]) -> None:
        content, path = _to_bytes(entry, classes), self.path(entry.number)
        try:
            write_whole(path, content)
        except OSError as problem:
            raise WorkError(f"could not write {path}: {problem.strerror or problem}.") from None

    def read_plain(self, path: Path) -> Entry:
        """An entry without its modules and arrays: quick, however large the network."""
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            head = _head(file)
        return Entry(int(head["number"]), head["plain"], {}, {})

    def read(self, path: Path, classes: tuple[Any, ...]) -> Entry:
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            head = _head(file)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)

        def under(prefix: str) -> dict[str, np.ndarray]:
            return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}

        modules = {name: from_plain(plain, under(f"{name}/"), classes) for name, plain in head["modules"].items()}
        return Entry(int(head["number"]), head["plain"], modules, under("array/"))


def _number(value: Any) -> float:
    """A number of a file, where not-a-number is written as nothing."""
    return math.nan if value is None else float(value)


class NetworkStore:
    """Finished trainings by number, in a folder, or nowhere."""

    def __init__(self, folder: Path | None):
        self._files = None if folder is None else _Files(folder)

    def put(self, done: Done, mark: str = "") -> None:
        """Writes a training down, whole or not at all; `mark` says what it was."""
        if self._files is None:
            return
        held = ("network", "scores", "outputs")
        plain = {f.name: getattr(done, f.name) for f in dataclasses.fields(done) if f.name not in held}
        plain["mark"] = mark
        modules = {} if done.network is None else {"network": done.network}
        arrays = {name: array for name in held[1:] if (array := getattr(done, name)) is not None}
        self._files.write(Entry(done.number, plain, modules, arrays), ())

    def find(self, number: int, mark: str = "") -> Done | None:
        """The training of this number, if it was finished and has this mark."""
        if self._files is None or not self._files.path(number).is_file():
            return None
        entry = self._files.read(self._files.path(number), ())
        if entry.plain.pop("mark", "") != mark:
            return None
        numbers = {name: _number(entry.plain[name]) for name in ("score", "loss", "train_loss")}
        curve = {name: [_number(v) for v in column] for name, column in entry.plain["curve"].items()}
        held = {"network": entry.modules.get("network"), **{n: entry.arrays.get(n) for n in ("scores", "outputs")}}
        return Done(**{**entry.plain, **numbers, "curve": curve, **held})


@dataclasses.dataclass(frozen=True)
class TrainedTrial:
    """A trial with its networks, one for each of its variants, and its score on each validation example.

    `outputs` are those for the same examples, where they are known: for each those of a network that did not see it.
    """

    number: int
    recipe: Recipe
    score: float
    loss: float
    scores: np.ndarray
    networks: tuple[Any, ...]
    variants: tuple[Variant, ...]
    always: bool = False
    outputs: np.ndarray | None = None

    def to_entry(self) -> Entry:
        plain = {
            "score": self.score,
            "loss": self.loss,
            "always": self.always,
            "variants": [list(variant) for variant in self.variants],
        }
        networks = {f"network {place}": network for place, network in enumerate(self.networks)}
        arrays = {"scores": self.scores} if self.outputs is None else {"scores": self.scores, "outputs": self.outputs}
        return Entry(self.number, plain, {"recipe": self.recipe, **networks}, arrays)

    @staticmethod
    def from_entry(entry: Entry) -> "TrainedTrial":
        plain, modules = entry.plain, entry.modules
        return TrainedTrial(
            number=entry.number,
            recipe=modules["recipe"],
            score=_number(plain["score"]),
            loss=_number(plain["loss"]),
            scores=entry.arrays["scores"],
            networks=tuple(modules[f"network {place}"] for place in range(len(plain["variants"]))),
            variants=tuple((str(kind), int(number)) for kind, number in plain["variants"]),
            always=bool(plain["always"]),
            outputs=entry.arrays.get("outputs"),
        )


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

    @staticmethod
    def from_entry(entry: Entry) -> "_Rank":
        plain = entry.plain
        return _Rank.of(entry.number, _number(plain["score"]), _number(plain["loss"]), bool(plain["always"]))


def keep_trial(
    done: Done, recipe: Recipe, variants: tuple[Variant, ...], *, always: bool = False
) -> TrainedTrial | None:
    """What is kept of a training that ended; nothing where it left no model."""
    if done.network is None or done.scores is None or not math.isfinite(done.score):
        return None
    if done.outcome in {"failed", "diverged"}:
        return None
    networks = tuple(done.network) if len(variants) > 1 else (done.network,)
    scores = np.asarray(done.scores)
    return TrainedTrial(done.number, recipe, done.score, done.loss, scores, networks, variants, always, done.outputs)


class Contenders:
    """The best `most` trials, and those that are to be kept always. `notes` says what could not be kept or read.

    In `folder`/contenders, or in memory where there is no folder. Classes from outside gradwise are passed in; without
    them a recipe that holds such has no file that could be read, and is kept in memory alone.
    """

    def __init__(self, folder: Path | None, most: int = 64, *, classes: tuple[Any, ...] = ()):
        self.most, self.classes = most, classes
        self.notes: list[str] = []
        self._files = None if folder is None else _Files(folder / "contenders")
        self._ranks: dict[int, _Rank] = {}
        self._held: dict[int, TrainedTrial] = {}  # those that have no file
        for path in [] if self._files is None else self._files.paths():
            found = self._tried(path, self._files.read_plain)  # type: ignore[union-attr]
            if found is not None:
                self._ranks[found.number] = _Rank.from_entry(found)

    def __len__(self) -> int:
        return len(self._ranks)

    def _note(self, note: str) -> None:
        self.notes.extend([] if note in self.notes else [note])

    def _tried(self, path: Path, read: Callable[[Path], Entry]) -> Entry | None:
        """What a file holds, or None and a note: a network less is no reason to lose a study."""
        try:
            found = read(path)
            if path.name != f"{found.number}{_ENDING}":
                raise RequestError(f"it belongs to trial {found.number}")
            return found
        except Exception as problem:  # what a damaged file can do to the code that reads it has no list
            first = str(problem).partition("\n")[0][:160] or type(problem).__name__
            why = first if path.is_file() else "the file is missing"
            self._note(f"the network of trial {path.name.removesuffix(_ENDING)} could not be read ({why}).")
            return None

    def _store(self, kept: TrainedTrial) -> None:
        self._held.pop(kept.number, None)
        try:
            if self._files is not None:
                self._files.write(kept.to_entry(), self.classes)
                return
        except RequestError as problem:
            self._note(f"networks are kept only in memory and will be lost if the search is killed: {problem}")
        self._held[kept.number] = kept

    def _remove(self, number: int) -> None:
        if self._ranks.pop(number, None) is None:
            return
        if self._held.pop(number, None) is None and self._files is not None:
            self._files.path(number).unlink(missing_ok=True)

    def forget_all_but(self, numbers: Container[int]) -> None:
        """Lets go of networks whose trials were never written down: such a trial is run again."""
        for number in [n for n in self._ranks if n not in numbers]:
            self._remove(number)

    def offer(
        self, done: Done, recipe: Recipe, variants: tuple[Variant, ...] = (WHOLE,), *, always: bool = False
    ) -> bool:
        """Keeps it if it is among the best, by score, then loss, or if it is to be kept always; whether it was."""
        kept = keep_trial(done, recipe, variants, always=always)
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

    def find(self, number: int) -> TrainedTrial | None:
        """The contender of this number, if it was kept."""
        files = self._files
        if number not in self._ranks:
            return None
        if number in self._held or files is None:
            return self._held.get(number)
        entry = self._tried(files.path(number), lambda path: files.read(path, self.classes))
        return None if entry is None else TrainedTrial.from_entry(entry)

    def all(self) -> list[TrainedTrial]:
        """Every contender with its networks, best first."""
        found = [self.find(rank.number) for rank in sorted(self._ranks.values())]
        return [kept for kept in found if kept is not None]
