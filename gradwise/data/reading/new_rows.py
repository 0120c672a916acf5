"""New rows under the schema of a trained model: from a file, a data frame, an Arrow table or an array.

read_rows("new.csv", predictor.columns, predictor.shape)
read_rows(frame, predictor.columns, predictor.shape)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import RequestError
from ...specs.dataset import Column, places_of_columns
from ...specs.sequences import Sequences
from ...specs.trees.container import Trees
from .at_hand import texts_as_table
from .columns import fields_of
from .files import Loaded
from .folders.class_folders import CLASS
from .input_arrays import check_input_array, sequences_in, trees_in
from .read import load_source
from .tables import encode_table, from_frame, listed, source_of


@dataclass(frozen=True)
class Rows:
    """New rows under a saved schema. `unseen` counts, by column, values of categories not seen in training.

    `paths` are the files of pictures and recordings, `remarks` what the user should know of them.
    """

    inputs: Any
    unseen: Mapping[str, int]
    table: Any = None
    paths: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @cached_property
    def frame(self) -> Any:
        """The raw rows as a pandas frame, or None for arrays."""
        return None if self.table is None else self.table.to_pandas()


def _shaped(inputs: Any, shape: tuple[int, ...], label: str) -> Any:
    """Inputs in the shape that the model expects; a sparse matrix may lack its last columns."""
    if isinstance(inputs, Sequences):
        if inputs.shape[2] != shape[-1]:
            raise RequestError(f"{label} has sequences of {inputs.shape[2]} channels; the model expects {shape[-1]}.")
        return inputs
    if isinstance(inputs, np.ndarray):
        if inputs.shape[1:] != shape and inputs.ndim == 2 and inputs.shape[1] == np.prod(shape):
            return inputs.reshape(len(inputs), *shape)
    elif len(shape) == 1 and inputs.shape[1] < shape[0]:
        inputs.resize((inputs.shape[0], shape[0]))
    if tuple(inputs.shape[1:]) != shape:
        wants = " x ".join(map(str, shape))
        got = " x ".join(map(str, inputs.shape[1:]))
        raise RequestError(f"{label} has examples of {got} values; the model expects {wants}.")
    return inputs


def _array_rows(inputs: Any, columns: tuple[Column, ...], shape: tuple[int, ...], label: str) -> Rows:
    """Rows of an array, whose columns have no names."""
    inputs = check_input_array(inputs, label)
    if any(column.kind != "number" for column in columns):
        needs = listed(list(places_of_columns(columns)))
        raise RequestError(f"{label} contains arrays; the model expects a table with {needs}.")
    inputs = _shaped(inputs, shape, label)
    return Rows(inputs.astype(np.float64) if columns else inputs, {})


def _file_rows(loaded: Loaded, columns: tuple[Column, ...], shape: tuple[int, ...]) -> Rows:
    """Pictures or recordings, with the classes that their folders name, if they do."""
    import pyarrow as pa

    found = _array_rows(loaded.arrays["X"], columns, shape, loaded.label)
    classes = loaded.arrays.get(CLASS)
    table = None if classes is None else pa.table({CLASS: classes.tolist()})
    return replace(found, table=table, paths=loaded.paths, remarks=tuple(f"{line}." for line in loaded.warnings))


def _as_sequences(data: Any, trees: bool) -> Sequences:
    """Sequences from a list of arrays, or from one array (sequences, steps, channels); trees from their lists."""
    if isinstance(data, Trees if trees else Sequences):
        return data
    if trees:
        if not isinstance(data, list | tuple) or len(data) == 0:
            told = "a list of trees, in brackets or nested tuples, even for a single one, or `Trees`"
            raise RequestError(f"the model expects {told}; got a {type(data).__name__}.")
        return Trees.from_list(data)
    if not isinstance(data, list | tuple | np.ndarray) or len(data) == 0 or np.ndim(data[0]) == 0:
        raise RequestError(
            "the model expects sequences: a list of arrays (steps, channels), even for a single one, or `Sequences`; "
            f"got a {type(data).__name__}."
        )
    return Sequences.from_list(data)


def _of_one_column(texts: Any, columns: tuple[Column, ...]) -> Any:
    """A table of texts under the name of the only column that the model reads."""
    names = list(places_of_columns(columns))
    if len(names) != 1:
        needs = listed(names) if names else "an array of numbers"
        raise RequestError(f"the data are a list of texts; the model expects {needs}.")
    return texts.rename_columns(names)


def _rows_at_hand(data: Any, columns: tuple[Column, ...], shape: tuple[int, ...]) -> Rows:
    """Rows of a data frame, an Arrow table, a list of dictionaries or an array."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        data = pd.DataFrame(data)
    texts = texts_as_table(data)
    if texts is not None:
        data = _of_one_column(texts, columns)
    if not isinstance(data, pd.DataFrame | pa.Table):
        return _array_rows(data if hasattr(data, "tocsr") else np.asarray(data), columns, shape, "the data")
    if not columns:
        return _array_rows(
            data.to_pandas().to_numpy() if isinstance(data, pa.Table) else data.to_numpy(), (), shape, "the data"
        )
    encoded = from_frame(data, columns)
    table = data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    return Rows(encoded.inputs, encoded.unseen, table)


def read_rows(
    source: Any, columns: tuple[Column, ...], shape: tuple[int, ...], sequences: bool = False, trees: bool = False
) -> Rows:
    """New rows, encoded as the training rows were; other columns are ignored.

    `source` is what `read` takes, a data frame (or Arrow table), or an array of inputs. Rows without column names are
    matched by position if they have as many columns as the model expects. With `sequences` each row is a sequence
    of any length, and with `trees` beside it a tree.
    """
    if isinstance(source, Path):
        source = str(source)
    if sequences and not isinstance(source, str):
        return _array_rows(_as_sequences(source, trees), columns, shape, "the data")
    if not isinstance(source, str):
        return _rows_at_hand(source, columns, shape)
    text = [source_of(column) for column in columns if column.kind in ("category", "text") or column.decimal]
    counted = bool(columns) and all(re.fullmatch(r"x[1-9]\d*", source_of(column)) for column in columns)
    is_image = not sequences and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3)))
    loaded = load_source(source, (), text, counted=counted, shape=shape if is_image else None)
    loaded = trees_in(loaded) if trees else sequences_in(loaded) if sequences else loaded
    if loaded.paths and loaded.test is not None:
        raise RequestError(f"{loaded.label} has a training and a test set: give one of them, {loaded.label}/test.")
    if loaded.paths:
        return _file_rows(loaded, columns, shape)
    if loaded.table is None:
        return _array_rows(loaded.arrays["X"], columns, shape, loaded.label)
    fields = fields_of(loaded.table)
    if not columns:
        plain = {name: item for name, item in fields.items() if name not in loaded.targets}
        inputs = encode_table(plain, [Column(name) for name in plain]).inputs
        return Rows(_shaped(inputs, shape, loaded.label), {}, loaded.table)
    names = list(places_of_columns(columns))
    if loaded.headless and len(fields) == len(names) and all(column.kind != "date" for column in columns):
        fields = dict(zip(names, fields.values(), strict=True))
    encoded = encode_table(fields, columns)
    return Rows(encoded.inputs, encoded.unseen, loaded.table)
