"""Reads every file format into a `Loaded`: a table with named columns, or arrays by name.

    load_file("rows.csv.gz")    a table              load_file("digits.npz")         arrays X and y
    load_file("rows.parquet")   a table              load_file("train.svm")          arrays X (sparse) and y
    load_file("rows.npy")       a table x1, x2, ...  load_file("train-images.idx")   X, y and the official test set
    load_file("speech.npz")   values, offsets, y     load_file("images.npy")         an array X without a target

Nothing is ever unpickled. Images keep their stored integers.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import RequestError, nearest
from ...runtime.memory import LARGE, make_room, row_blocks
from ...specs.sequences import Sequences
from . import delimited, large_files
from .list_columns import read_json_lines

FORMATS = ".csv, .tsv, .txt (or .gz of these), .parquet, .jsonl, .npz, .npy, .svm, .libsvm, .idx"
_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@dataclass(frozen=True)
class Loaded:
    """What a file holds: an Arrow table, or arrays by name with the inputs under "X".

    `targets` are the default targets; `others` are arrays in the file that were not requested; `headless`: the columns
    are named by position; `targetless`: there is no default target; `paths` are the files of pictures and recordings;
    `kinds` are those of columns that are known beforehand.
    """

    name: str
    table: Any = None
    arrays: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    headless: bool = False
    targetless: bool = False
    integers_are_classes: bool = False
    test: Loaded | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    source: str = ""
    paths: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name for messages: the path that the user gave, or the name of the set."""
        return self.source or self.name


def form_of(name: str) -> str:
    """The format by the extension: "text", "parquet", "jsonl", "npz", "npy", "svm", "idx", or empty if unknown."""
    bare = name.lower().removesuffix(".gz")
    if bare.endswith(("-ubyte", ".idx")) or re.search(r"idx\d-ubyte$", bare):
        return "idx"
    endings = {"csv": "text", "tsv": "text", "txt": "text", "svm": "svm", "libsvm": "svm", "svmlight": "svm"}
    packed = {"parquet": "parquet", "jsonl": "jsonl", "npz": "npz", "npy": "npy"}
    ending = bare.rpartition(".")[2] if "." in bare else ""
    return endings.get(ending, "") or (packed.get(ending, "") if bare == name.lower() else "")


def read_bytes(path: Path) -> bytes:
    """A file's content, decompressed if necessary."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise RequestError(f"{path} cannot be read: {problem.strerror or problem}.") from None
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise RequestError(f"{path} is a damaged or truncated gzip file: download or write it again.") from None


def check_file(path: Path) -> None:
    """Raises if there is no file at this path, with the closest name."""
    if path.is_dir():
        raise RequestError(f"{path} is a folder: give one file in it.")
    if not path.exists():
        folder = path.parent
        if not folder.is_dir():
            raise RequestError(f"no file {path}: the folder {folder} does not exist.")
        files = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and form_of(entry.name))
        raise RequestError(f"no file {path}.{nearest(path.name, files)}")


def _text(data: bytes, label: str, name: str, text: Collection[str], counted: bool) -> Loaded:
    parsed = delimited.parse_delimited(data, label, text, counted)
    return Loaded(name, parsed.table, headless=parsed.headless, notes=parsed.notes)


def _parquet(path: Path) -> Loaded:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        table = large_files.read_by_columns(path) if path.stat().st_size > LARGE else None
        if table is None:
            with parquet.ParquetFile(path) as file:
                table = file.read()
    except (pa.ArrowException, OSError) as problem:
        reason = " ".join(str(problem).split())[:120]
        raise RequestError(f"{path} is not a valid Parquet file ({reason}): write it again.") from None
    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise RequestError(f"{path}: the column name `{twice[0]}` appears twice. Rename one.")
    index = [name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)]
    return Loaded(path.stem, table.drop_columns(index) if index else table)


def native(array: np.ndarray) -> np.ndarray:
    """The same numbers in this machine's byte order and precision."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


_DAMAGED = (ValueError, OSError, EOFError, MemoryError, RuntimeError, zlib.error, zipfile.BadZipFile)


def _numpy_file(file: Any, path: Path) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except _DAMAGED as problem:
        if "Object" in str(problem):
            raise RequestError(
                f"{path} contains Python objects, which gradwise never unpickles: save numbers or text."
            ) from None
        raise RequestError(
            f"{path} is not a valid NumPy file: write it again with numpy.savez or numpy.save."
        ) from None


def _member(archive: Any, name: str) -> np.ndarray:
    """One array of an archive."""
    if f"{name}.npy" in archive.zip.namelist():
        with archive.zip.open(f"{name}.npy") as file:
            found = large_files.read_array(file)
        if found is not None:
            return found
    return np.asarray(archive[name])


def _sequences(values: np.ndarray, offsets: np.ndarray, path: Path) -> Sequences:
    """All steps of a file, one after another, and where each sequence begins."""
    try:
        return Sequences(values, offsets)
    except RequestError as problem:
        raise RequestError(f"{path}: {problem}") from None


def _npz(file: Any, path: Path, wanted: Collection[str]) -> Loaded:
    archive = _numpy_file(file, path)
    if isinstance(archive, np.ndarray):
        raise RequestError(f"{path} contains one unnamed array: rename it to .npy, or save X and y with numpy.savez.")
    arrays: dict[str, Any] = {}
    with archive:
        names = tuple(archive.files)
        steps = next((name for name in ("values", "frames") if name in names and "offsets" in names), None)
        if "X" not in names and steps is None:
            raise RequestError(f"{path} has no array `X`; it contains {', '.join(names) or 'nothing'}.")
        inputs = ["X"] if "X" in names else [str(steps), "offsets"]
        for name in dict.fromkeys([*inputs, *wanted]):
            if name not in names:
                continue
            try:
                arrays[name] = native(_member(archive, name))
            except _DAMAGED as problem:
                if "Object" in str(problem):
                    raise RequestError(
                        f"{path}: the array `{name}` contains Python objects, which gradwise never unpickles. Save "
                        f"numbers or text, for example {name}.astype(float) or {name}.astype(str)."
                    ) from None
                raise RequestError(f"{path}: the array `{name}` is damaged: write the file again.") from None
    others = tuple(name for name in names if name not in arrays)
    if "X" not in arrays:
        arrays = {"X": _sequences(arrays.pop(str(steps)), arrays.pop("offsets"), path), **arrays}
    # X alone has no target; another array may be the target, but the user must name it.
    targets = ("y",) if "y" in arrays or len(names) > len(inputs) else ()
    return Loaded(path.stem, arrays=arrays, targets=targets, others=others, integers_are_classes=True)


def _npy_array(file: Any, path: Path) -> Any:
    try:
        found = large_files.read_array(file)
    except _DAMAGED:
        raise RequestError(f"{path} is damaged: it ends within its array. Write it again.") from None
    if found is None:
        file.seek(0)
        found = _numpy_file(file, path)
    return found


def _npy(file: Any, path: Path) -> Loaded:
    import pyarrow as pa

    array = _npy_array(file, path)
    if not isinstance(array, np.ndarray):
        array.close()
        raise RequestError(f"{path} is an archive of arrays: rename it to .npz.")
    if not 2 <= array.ndim <= 4 or array.dtype.kind not in "biuf":
        raise RequestError(
            f"{path} contains {array.dtype} of shape {array.shape}: an .npy file must be a table of numbers with two "
            "dimensions (columns x1, x2, ...) or images without a target. Save inputs and targets as X and y in an "
            ".npz."
        )
    if array.ndim > 2:
        return Loaded(path.stem, arrays={"X": native(array)})
    columns = make_room(array.shape[::-1], native(array[:0]).dtype)
    for start, rows in row_blocks(array):
        columns[:, start : start + len(rows)] = rows.T
    names = [f"x{index + 1}" for index in range(len(columns))]
    note = f"columns are named x1 to x{len(names)}"
    return Loaded(path.stem, pa.table(list(columns), names=names), headless=True, targetless=True, notes=(note,))


def _numpy(path: Path, wanted: Collection[str]) -> Loaded:
    """An `.npz` or an `.npy`; the file is opened here because NumPy leaves it open when it is damaged."""
    try:
        file = path.open("rb")
    except OSError as problem:
        raise RequestError(f"{path} cannot be read: {problem.strerror}.") from None
    with file:
        return _npy(file, path) if form_of(path.name) == "npy" else _npz(file, path, wanted)


def _svm(paths: list[Path]) -> Loaded:
    """A sparse file, read together with its test file so that both agree where the numbering of columns starts."""
    from sklearn.datasets import load_svmlight_files

    data = [read_bytes(one) for one in paths]
    for one, content in zip(paths, data, strict=True):
        if not content.strip():
            raise RequestError(f"{one} is empty: each line needs a target, then index:value pairs.")
    try:
        parts = load_svmlight_files([io.BytesIO(content) for content in data])
    except (ValueError, OverflowError, UnicodeDecodeError) as problem:
        reason = " ".join(str(problem).split())[:120]
        raise RequestError(
            f"{paths[0]} is not in svmlight format ({reason}): each line needs a target, then index:value pairs."
        ) from None
    loaded: Loaded | None = None
    for index in range(len(paths) - 1, -1, -1):
        inputs, targets = parts[2 * index], parts[2 * index + 1]
        if np.all(targets % 1 == 0):
            targets = targets.astype(np.int64)
        name = paths[index].name.partition(".")[0]
        loaded = Loaded(name, arrays={"X": inputs, "y": targets}, targets=("y",), test=loaded)
    assert loaded is not None
    return loaded


def read_idx(path: Path) -> np.ndarray:
    """The array in an IDX file."""
    data = read_bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES or not 1 <= data[3] <= 4:
        raise RequestError(f"{path} is not an IDX file: it must start with 0, 0, type, dimensions.")
    start = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    kind = np.dtype(_IDX_TYPES[data[2]])
    need = start + int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if len(data) != need:
        raise RequestError(f"{path} is damaged: its header announces {need} bytes, but it has {len(data)}.")
    values = np.frombuffer(data, kind, offset=start).reshape(shape)
    return native(values)


def _either(path: Path) -> Path | None:
    """The file, compressed or not."""
    bare = path.name.removesuffix(".gz")
    return next((one for one in (path, path.with_name(bare), path.with_name(bare + ".gz")) if one.is_file()), None)


def _idx_pair(path: Path, labelled: bool) -> Loaded:
    images = read_idx(path)
    name = path.name.partition(".")[0]
    if not labelled:
        return Loaded(name, arrays={"X": images})
    if images.ndim < 2:
        raise RequestError(f"{path} contains labels: give the images file, and its labels are found beside it.")
    if "images" not in path.name:
        raise RequestError(
            f"{path}: rename the file so that its name contains `images`; its labels are then found beside it."
        )
    beside = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1"))
    labels = _either(beside)
    if labels is None:
        raise RequestError(
            f"{path} has no labels: no file {beside.name} beside it. To learn features, use gradwise fit "
            "--unsupervised."
        )
    arrays = {"X": images, "y": read_idx(labels)}
    return Loaded(name, arrays=arrays, targets=("y",), integers_are_classes=True)


def load_idx(path: Path, labelled: bool = True) -> Loaded:
    """Images with the labels beside them, and the official test set when this is a training file that has one."""
    loaded = _idx_pair(path, labelled)
    if labelled and "train" in path.name:
        test = _either(path.with_name(path.name.replace("train", "t10k")))
        if test is not None:
            return replace(loaded, test=_idx_pair(test, True), notes=(f"official test set: {test.name}",))
    return loaded


def _load_path(path: Path, wanted: Collection[str], text: Collection[str], counted: bool) -> Loaded:
    check_file(path)
    form = form_of(path.name) if path.is_file() else "text"  # a pipe has no ending: it carries text
    if form == "text":
        return _text(read_bytes(path), str(path), path.name.partition(".")[0], text, counted)
    if form == "parquet":
        return _parquet(path)
    if form == "jsonl":
        return Loaded(path.stem, read_json_lines(path))
    if form in ("npz", "npy"):
        return _numpy(path, wanted)
    if form == "svm":
        return _svm([path])
    if form == "idx":
        return load_idx(path, labelled=bool(wanted))
    raise RequestError(f"{path}: unknown file extension; use one of {FORMATS}.")


def load_file(
    source: str, wanted: Collection[str] = ("y",), text: Collection[str] = (), counted: bool = False
) -> Loaded:
    """What a file or standard input ("-") holds.

    `wanted` are the arrays to read beside X, `text` the columns of delimited files to keep as text; `counted`:
    columns are named by position.
    """
    if source == "-":
        loaded = _text(sys.stdin.buffer.read(), "standard input", "stdin", text, counted)
        return replace(loaded, source="standard input")
    return replace(_load_path(Path(source), wanted, text, counted), source=source)


def load_pair(source: str, test: str, wanted: Collection[str] = ("y",), text: Collection[str] = ()) -> Loaded:
    """A training file and its test file."""
    if form_of(source) == form_of(test) == "svm":
        check_file(Path(source))
        check_file(Path(test))
        return _svm([Path(source), Path(test)])
    return replace(load_file(source, wanted, text), test=load_file(test, wanted, text))
