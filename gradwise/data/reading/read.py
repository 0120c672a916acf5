"""Reads a named set, a file, a folder of pictures or recordings, standard input or data in memory into a `Dataset`.

    read("houses.csv", ReadRequest(targets=("price",), drop=("id",)))
    read("digits", ReadRequest())
    read("pictures/", ReadRequest())                                     pictures/cat/1.png, pictures/dog/1.png, ...
    read(frame, ReadRequest(targets=("price",)))                         or read(X, ReadRequest(), y)
    read("faces.npy", ReadRequest())                                     no target: the inputs themselves are learned
    read("houses.csv", ReadRequest(unsupervised=True))                   all columns are inputs

A column given as `group`, `time` or `weight` is used by the split or the loss and is not an input. In particular, a
time that orders the split would take only new values in the test set.
In an array file these names, and `targets`, are names of arrays.

An array file without a target implies the task `Inputs`; in a table without one the target was more likely forgotten,
so `unsupervised` must be set. With it, any target is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import RequestError, nearest
from ...runtime.memory import row_blocks
from ...specs.dataset import Dataset, Inputs, Task
from . import files, named_sets
from .at_hand import load_at_hand, use_dataset
from .columns import Field, fields_of
from .files import Loaded
from .folders.class_folders import load_folder
from .folders.file_kinds import kind_of_files
from .input_arrays import alike, check_input_array, sequences_in, trees_in
from .tables import (
    Encoded,
    blank_warning,
    check_kinds,
    check_names,
    encode_table,
    from_frame,
    infer,
    listed,
    missing_notes,
    without_blank,
    written_notes,
)
from .targets import Target, of_array, of_field, under, understand

__all__ = ["Encoded", "ReadRequest", "from_frame", "read"]

FEWEST_ROWS = 5  # one to validate, one to test and three to train


@dataclass(frozen=True)
class ReadRequest:
    """How to read the data."""

    targets: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    task: str | None = None
    group: str | None = None
    time: str | None = None
    weight: str | None = None
    test: Any = None
    unsupervised: bool = False

    @property
    def helpers(self) -> dict[str, str]:
        """The columns that are neither inputs nor targets, by the option that names them."""
        given = {"--group": self.group, "--time": self.time, "--weight": self.weight}
        return {option: name for option, name in given.items() if name is not None}


def load_source(
    source: str,
    wanted: Sequence[str],
    text: Sequence[str],
    test: str | None = None,
    counted: bool = False,
    shape: tuple[int, ...] | None = None,
) -> Loaded:
    """Loads a named set, a file with its test file, or a folder of pictures, in this shape if one is given."""
    path = Path(source)
    try:
        exists = path.exists()
    except OSError as problem:
        raise RequestError(f"`{source[:60]}...` is not a file name: {problem.strerror}.") from None
    if source in named_sets.NAMES and not path.is_file():
        loaded = named_sets.load_named(source)
        return loaded if test is None else replace(loaded, test=files.load_file(test, wanted, text))
    kind = kind_of_files(path)
    if kind is not None:
        loaded = load_folder(path, kind, labelled=bool(wanted), shape=shape)
        if test is None:
            return loaded
        size = loaded.arrays["X"].shape[1:]
        return replace(loaded, test=load_folder(Path(test), kind, labelled=bool(wanted), shape=size))
    if source != "-" and not exists and not files.form_of(path.name) and path.name == source:
        beside = [entry.name for entry in Path().iterdir() if entry.is_file()]
        whole = {name.partition(".")[0]: name for name in beside}  # the ending is what people leave out
        hint = nearest(whole.get(source, source), [*named_sets.NAMES, *beside])
        suggestion = hint if "Did you" in hint else ""
        names = ", ".join(named_sets.NAMES)
        raise RequestError(f"no file or named set `{source}`.{suggestion} Named sets: {names}.")
    if test is not None:
        return files.load_pair(source, test, wanted, text)
    return files.load_file(source, wanted, text, counted)


def _check_roles(request: ReadRequest, targets: Sequence[str]) -> None:
    """Raises if a column has two conflicting roles."""
    roles: dict[str, str] = {}
    for option, names in (
        ("--target", targets),
        ("--drop", request.drop),
        *((option, (name,)) for option, name in request.helpers.items()),
    ):
        for name in names:
            if roles.get(name) == option:
                raise RequestError(f"`{name}` is given to {option} twice.")
            if name in roles and {option, roles[name]} != {"--group", "--time"}:
                raise RequestError(f"`{name}` is given to both {roles[name]} and {option}. Leave one out.")
            roles[name] = option


def _weights(values: np.ndarray, name: str) -> np.ndarray:
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise RequestError(f"--weight {name}: {values[row]} in data row {row + 1}; weights must be numbers, 0 or more.")
    if not values.any():
        raise RequestError(f"--weight {name}: every weight is 0.")
    return np.asarray(values, np.float64)


def _moments(field: Field) -> np.ndarray:
    """The order of rows in time: a number, or the seconds of a date."""
    if field.nature in ("text", "declared"):
        if field.moments is None:
            raise RequestError(f"--time {field.name}: expected numbers, or dates such as 2024-01-31 13:05.")
        return np.where(np.isnat(field.moments), np.nan, field.moments.astype(np.int64).astype(np.float64))
    return field.numbers()


def _whole(values: np.ndarray, missing: np.ndarray, option: str, name: str) -> np.ndarray:
    if missing.any():
        first = int(np.argmax(missing)) + 1
        raise RequestError(f"{option} {name}: {int(missing.sum())} values are missing, first in data row {first}.")
    return values


def _check_count(count: int, label: str) -> None:
    if count < FEWEST_ROWS:
        raise RequestError(
            f"{label} has {count} row{'s' if count != 1 else ''}: at least {FEWEST_ROWS} are needed to train, validate "
            "and test."
        )


def _no_targets(count: int, apart: Sequence[str]) -> tuple[Task, np.ndarray, tuple[str, ...]]:
    """The task without a target, with a note on any target that is ignored."""
    left = (f"target ignored: {listed(apart)}",) if apart else ("no target: features of the inputs are learned",)
    return Inputs(), np.zeros((count, 0)), left


def _table_targets(fields: Mapping[str, Field], names: Sequence[str], kinds: Mapping[str, str]) -> list[Target]:
    return [of_field(fields[name], kinds.get(name)) for name in names]


def _without_blank_rows(dataset: Dataset, label: str) -> Dataset:
    """The data set without rows in which every input is missing, with a warning; one column alone may be missing."""
    inputs = dataset.inputs
    if not isinstance(inputs, np.ndarray) or inputs.ndim != 2 or inputs.shape[1] < 2 or inputs.dtype.kind != "f":
        return dataset
    kept = np.concatenate([~np.isnan(rows).all(1) for _, rows in row_blocks(inputs)])
    gone = len(kept) - int(kept.sum())
    if gone == 0:
        return dataset
    if gone == len(kept):
        raise RequestError(f"{label} has no values in any input: there is nothing to learn from.")
    _check_count(len(kept) - gone, f"{label}, without its {gone} rows that have no inputs,")
    warning = f"{gone} of {len(kept)} rows have no inputs: dropped, first data row {int(np.argmin(kept)) + 1}"
    return replace(dataset.take(kept), rows=None, test=dataset.test, warnings=(*dataset.warnings, warning))


def _listed_apart(targets: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The targets, `price,colour` as two, unless a column is called so."""
    several = [one.split(",") if one not in names and set(one.split(",")) <= set(names) else [one] for one in targets]
    return tuple(name for each in several for name in each)


def _of_table(loaded: Loaded, request: ReadRequest) -> Dataset:
    """A data set from a table with named columns."""
    request = replace(request, kinds={**loaded.kinds, **request.kinds})
    fields = fields_of(loaded.table)
    names = list(fields)
    if len(names) == 1 and not loaded.kinds:  # a list of texts has no other column
        raise RequestError(
            f"{loaded.label} has only one column, `{names[0][:60]}`: a table needs inputs and a target, separated by "
            "commas, tabs, semicolons or bars."
        )
    targets = _listed_apart(request.targets, names) or loaded.targets
    blind = request.unsupervised or (not targets and loaded.targetless)
    if not targets and not blind:
        raise RequestError(
            "no target column. Name it with --target, or learn features of all columns with gradwise fit "
            f"--unsupervised. The columns are {listed(names, 30)}."
        )
    check_names(targets, names, "--target")
    check_names(request.drop, names, "--drop")
    for option, name in request.helpers.items():
        check_names([name], names, option)
    check_kinds(request.kinds, names)
    _check_roles(request, targets)
    _check_count(loaded.table.num_rows, loaded.label)
    task, values, target_notes = _no_targets(loaded.table.num_rows, targets)
    if not blind:
        task, values, target_notes = understand(_table_targets(fields, targets, request.kinds), request.task)
        target_notes += tuple(note for name in targets for note in written_notes(fields[name]))
    apart = {*targets, *request.drop, *request.helpers.values()}
    inputs = {name: item for name, item in fields.items() if name not in apart}
    inputs, blank = without_blank(inputs, loaded.label)
    columns, notes = infer(inputs, request.kinds)
    if not columns:
        raise RequestError(f"{loaded.label} has no input columns besides the target and those dropped.")
    encoded = encode_table(inputs, columns)
    groups = times = weights = None
    if request.group is not None:
        codes, _ = fields[request.group].words
        groups = _whole(codes, codes < 0, "--group", request.group)
    if request.time is not None:
        order = _moments(fields[request.time])
        times = _whole(order, np.isnan(order), "--time", request.time)
    if request.weight is not None:
        weights = _weights(fields[request.weight].numbers(), request.weight)
    dropped = [f"dropped (--drop): {listed(request.drop)}"] if request.drop else []
    dropped += [f"column `{name}` is used as {option} and is not an input" for option, name in request.helpers.items()]
    dataset = Dataset(
        encoded.inputs,
        values,
        task,
        columns=columns,
        weights=weights,
        groups=groups,
        times=times,
        name=loaded.name,
        notes=(*loaded.notes, *target_notes, *dropped, *notes, *missing_notes(encoded.missing, len(values))),
        warnings=blank_warning(blank),
    )
    dataset = _without_blank_rows(dataset, loaded.label)
    return _with_table_test(dataset, loaded.test, targets, request) if loaded.test else dataset


def _with_table_test(dataset: Dataset, test: Loaded, targets: Sequence[str], request: ReadRequest) -> Dataset:
    """The data set with its official test set, encoded under the schema of the training rows."""
    if test.table is None:
        raise RequestError(
            f"the test set {test.label} contains arrays but the training set is a table: use the same format."
        )
    fields = fields_of(test.table)
    if not isinstance(dataset.task, Inputs):
        check_names(targets, list(fields), f"the test set {test.label}")
    encoded = encode_table(fields, dataset.columns)
    values = np.zeros((test.table.num_rows, 0))
    if not isinstance(dataset.task, Inputs):
        values = under(dataset.task, _table_targets(fields, targets, request.kinds))
    unseen = tuple(
        f"test set, column `{name}`: {count} values of categories not seen in training"
        for name, count in encoded.unseen.items()
    )
    weights = None
    if request.weight is not None and request.weight in fields:
        weights = _weights(fields[request.weight].numbers(), request.weight)
    official = Dataset(encoded.inputs, values, dataset.task, dataset.columns, weights=weights, name=test.name)
    return replace(dataset, test=official, notes=(*dataset.notes, *unseen))


def _array(loaded: Loaded, name: str, option: str, count: int) -> np.ndarray:
    """One array by name, with one entry per row."""
    if name not in loaded.arrays:
        present = [*loaded.arrays, *loaded.others]
        hint = (
            " Name the one to predict with --target, or use gradwise fit --unsupervised."
            if option == "--target"
            else ""
        )
        raise RequestError(f"{loaded.label} has no array `{name}`; it contains {', '.join(present)}.{hint}")
    array = np.asarray(loaded.arrays[name])
    if array.ndim not in (1, 2) or len(array) != count:
        raise RequestError(f"{loaded.label}: `{name}` has shape {array.shape}, but `X` has {count} rows.")
    return array


def _array_targets(loaded: Loaded, names: Sequence[str], count: int) -> list[Target]:
    targets = []
    for name in names:
        array = _array(loaded, name, "--target", count)
        if array.ndim == 1 or array.shape[1] == 1:
            targets.append(of_array(name, array.reshape(-1)))
        else:
            targets.extend(of_array(f"{name}{index + 1}", array[:, index]) for index in range(array.shape[1]))
    return targets


def _of_arrays(loaded: Loaded, request: ReadRequest) -> Dataset:
    """A data set from arrays; they have no column names, so none can be dropped or given a kind."""
    for option, given in (("--drop", list(request.drop)), ("--kind", list(request.kinds))):
        if given:
            raise RequestError(f"{option} {given[0]}: {loaded.label} contains arrays, whose columns have no names.")
    names = request.targets or loaded.targets
    _check_roles(request, names)
    inputs = check_input_array(loaded.arrays["X"], loaded.label)
    count = inputs.shape[0]
    _check_count(count, loaded.label)
    blind = request.unsupervised or not names
    task, values, notes = _no_targets(count, names)
    if not blind:
        targets = _array_targets(loaded, names, count)
        task, values, notes = understand(targets, request.task, loaded.integers_are_classes)
    helpers = {option: _array(loaded, name, option, count).reshape(-1) for option, name in request.helpers.items()}
    groups, times, weights = (helpers.get(option) for option in ("--group", "--time", "--weight"))
    if groups is not None:
        groups = np.unique(groups, return_inverse=True)[1].reshape(-1)
    if times is not None:
        if times.dtype.kind not in "iufM":
            raise RequestError(f"--time {request.time}: expected numbers or dates.")
        missing = np.isnat(times) if times.dtype.kind == "M" else np.isnan(times)
        seconds = times.astype("datetime64[s]").astype(np.int64) if times.dtype.kind == "M" else times
        times = _whole(seconds.astype(np.float64), missing, "--time", str(request.time))
    if weights is not None:
        if weights.dtype.kind not in "biuf":
            raise RequestError(f"--weight {request.weight}: weights must be numbers, 0 or more.")
        weights = _weights(weights.astype(np.float64), str(request.weight))
    dataset = Dataset(
        inputs,
        values,
        task,
        weights=weights,
        groups=groups,
        times=times,
        name=loaded.name,
        notes=loaded.notes + notes,
        warnings=loaded.warnings,
    )
    dataset = _without_blank_rows(dataset, loaded.label)
    if loaded.test is None:
        return dataset
    if loaded.test.table is not None:
        raise RequestError(
            f"the test set {loaded.test.label} is a table but the training set contains arrays: use the same format."
        )
    others = check_input_array(loaded.test.arrays["X"], loaded.test.label)
    if not alike(others, inputs):
        raise RequestError(
            f"the test set {loaded.test.label} has examples of shape {others.shape[1:]}, the training set "
            f"{dataset.shape}."
        )
    official = np.zeros((others.shape[0], 0))
    if not blind:
        official = under(task, _array_targets(loaded.test, names, others.shape[0]))
    return replace(dataset, test=Dataset(others, official, task, name=loaded.test.name))


def read(source: Any, request: ReadRequest = ReadRequest(), targets: Any = None) -> Dataset:
    """Reads a named set, a file, a folder of pictures or standard input ("-"), or takes data in memory.

    `targets` are those of inputs in memory, if they are not among their columns.
    """
    if isinstance(source, Dataset):
        asked = {"target": request.targets, "drop": request.drop, "kind": request.kinds, "task": request.task}
        asked |= {"targets": targets, **{option[2:]: name for option, name in request.helpers.items()}}
        return use_dataset(source, asked, test=request.test, unsupervised=request.unsupervised)
    text = [name for name, kind in request.kinds.items() if kind in ("category", "text")]
    wanted = [*(() if request.unsupervised else request.targets or ("y",)), *request.helpers.values()]
    test = request.test
    test_file = str(test) if isinstance(test, str | Path) else None
    if isinstance(source, str | Path):
        if targets is not None:
            raise RequestError("`targets` go with inputs in memory: name the column of a file with `target`.")
        loaded = load_source(str(source), wanted, text, test_file)
    else:
        loaded = load_at_hand(source, targets)
        loaded = loaded if test_file is None else replace(loaded, test=files.load_file(test_file, wanted, text))
    if test is not None and test_file is None:
        loaded = replace(loaded, test=load_at_hand(test, name="test data"))
    found = trees_in(sequences_in(loaded, request.drop), request.drop)
    if found is not loaded:
        return _of_arrays(found, replace(request, drop=()))
    return _of_arrays(loaded, request) if loaded.table is None else _of_table(loaded, request)
