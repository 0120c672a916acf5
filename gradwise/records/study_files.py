"""A study on disk: `study.json` (the space), `trials.parquet` (one row per trial), `result.json` (the conclusions).

    write_study(study, folder)
    read_study(folder)              the same study, without its predictor

`trials.parquet` is a flat table for any tool: each dimension of the space is a column of its own name, empty where a
trial had no such knob. The recipe and the curve of a trial are JSON text in the last two columns. Equal studies give
equal files but for the wall-clock fields.
"""

import dataclasses
import functools
import io
import json
import math
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..runtime.errors import RequestError, WorkError
from ..runtime.files import finite, write_whole
from ..specs.recipe import Recipe
from ..specs.search_space import space_from_plain, space_to_plain
from ..specs.serialisation import from_plain, public_path, to_plain
from .plain_values import from_values
from .readings import write_readings
from .study import SUMMARY, Study
from .trial import Trial

FILES = ("study.json", "trials.parquet", "result.json")
# The columns that every trial has; "int64" may be empty, as the end of a run that has none.
COLUMNS = {
    "number": "int64",
    "phase": "string",
    "outcome": "string",
    "score": "float64",
    "loss": "float64",
    "train_loss": "float64",
    "age_examples": "int64",
    "best_age": "int64",
    "seconds": "float64",
    "parameters": "int64",
    "reason": "string",
    "examples": "int64",
    "continues": "int64",
}
TEXTS = ("recipe", "curve")
_FORM = b"gradwise"  # of a column of values: how they are written
_TYPES: dict[type, str] = {bool: "bool", int: "int64", float: "float64", str: "string"}
_PARTS = tuple(field.name for field in dataclasses.fields(Recipe))
_RECIPE = public_path(Recipe)
_WHOLE = 2**53  # beyond it, a whole number is no longer exact among others that are not


def _form(values: list[Any]) -> str:
    """The type of a column that holds all these values, or "json" where they have none in common."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and (kind := kinds.pop()) in _TYPES:
        large = kind is int and any(abs(value) >= 2**63 for value in values)
        return "json" if large else _TYPES[kind]
    if kinds <= {int, float} and all(abs(value) <= _WHOLE for value in values if isinstance(value, int)):
        return "float64"
    return "json"


def _plain_text(value: Any) -> str:
    return json.dumps(to_plain(value, incomplete=True))


def _table(trials: tuple[Trial, ...]) -> Any:
    import pyarrow as pa

    arrays, fields = [], []
    for name, kind in COLUMNS.items():
        arrays.append(pa.array([getattr(trial, name) for trial in trials], type=kind))
        fields.append(pa.field(name, kind))
    for path in dict.fromkeys(path for trial in trials for path in trial.values):
        form = _form([trial.values[path] for trial in trials if path in trial.values])
        write: Callable[[Any], Any] = _plain_text if form == "json" else lambda x: x
        kind = "string" if form == "json" else form
        column = [write(trial.values[path]) if path in trial.values else None for trial in trials]
        arrays.append(pa.array(column, type=kind))
        fields.append(pa.field(path, kind, metadata={_FORM: form.encode()}))
    for name in TEXTS:
        recipes = name == "recipe"
        texts = [_plain_text(one.recipe) if recipes else json.dumps(finite(one.curve)) for one in trials]
        arrays.append(pa.array(texts, type="string"))
        fields.append(pa.field(name, "string"))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def write_study(study: Study, folder: Path | str) -> None:
    """Writes the study's files; `result.json` comes last, so a folder that has it is complete."""
    import pyarrow.parquet as pq

    folder = Path(folder)
    buffer = io.BytesIO()
    pq.write_table(_table(study.trials), buffer)
    spaces = {name: space_to_plain(getattr(study, name)) for name in ("space", "asked")}
    contents = (
        json.dumps(spaces, indent=2).encode(),
        buffer.getvalue(),
        json.dumps(study.summary(), indent=2).encode(),
    )
    write_readings(study.data.test_readings, folder)
    for name, content in zip(FILES, contents, strict=True):
        try:
            write_whole(folder / name, content)
        except OSError as problem:
            raise WorkError(f"could not write {folder / name}: {problem.strerror or problem}.") from problem


def is_study(folder: Path | str) -> bool:
    """Whether a folder holds a study rather than a run; what cannot be read is neither."""
    try:
        plain = json.loads((Path(folder) / "result.json").read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(plain, dict) and plain.get("kind") == "study"


def _recipes(classes: tuple[Any, ...]) -> Callable[[str], Recipe]:
    """Reads recipes that have most of their parts in common: equal parts are made once, which saves half the time."""

    @functools.cache
    def part(text: str) -> Any:
        return from_plain(json.loads(text), classes=classes, incomplete=True)

    def recipe(text: str) -> Recipe:
        plain = json.loads(text)
        if not isinstance(plain, dict) or set(plain) != {"class", *_PARTS} or plain["class"] != _RECIPE:
            raise RequestError("a trial without its recipe: the file was not written by gradwise.")
        return Recipe(**{name: part(json.dumps(plain[name])) for name in _PARTS})

    return recipe


def _curve(text: str) -> dict[str, list[float]]:
    plain = json.loads(text)
    return {name: [math.nan if x is None else x for x in column] for name, column in plain.items()}


def _trials(table: Any, classes: tuple[Any, ...]) -> tuple[Trial, ...]:
    forms = {field.name: field.metadata[_FORM].decode() for field in table.schema if _FORM in (field.metadata or {})}
    columns = {name: table[name].to_pylist() for name in (*COLUMNS, *forms, *TEXTS)}
    for path in (path for path, form in forms.items() if form == "json"):
        # An active knob may have no value: "null" is that, an empty cell is a knob that was not there.
        columns[path] = [cell if cell is None else (from_plain(json.loads(cell)),) for cell in columns[path]]
    recipe = _recipes(classes)

    def values(line: int) -> dict[str, Any]:
        cells = {path: columns[path][line] for path in forms}
        return {path: cell[0] if forms[path] == "json" else cell for path, cell in cells.items() if cell is not None}

    return tuple(
        Trial(
            **{name: columns[name][line] for name in COLUMNS},
            values=values(line),
            recipe=recipe(columns["recipe"][line]),
            curve=_curve(columns["curve"][line]),
        )
        for line in range(table.num_rows)
    )


def read_study(folder: Path | str, classes: tuple[Any, ...] = ()) -> Study:
    """The study in a folder, without its predictor; `classes` are the user's own parts that its recipes name."""
    import pyarrow.parquet as pq

    folder = Path(folder)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise RequestError(f"{folder} is not the folder of a finished study: it has no {', '.join(missing)}.")
    try:
        result = json.loads((folder / "result.json").read_text())
        if result["kind"] != "study":
            raise RequestError(f"{folder} contains a {result['kind']}, not a study.")
        spaces = json.loads((folder / "study.json").read_text())
        kinds = typing.get_type_hints(Study)
        return Study(
            **{name: from_values(kinds[name], result[name]) for name in SUMMARY},
            space=space_from_plain(spaces["space"], classes),
            asked=space_from_plain(spaces["asked"], classes),
            trials=_trials(pq.read_table(folder / "trials.parquet"), classes),
        )
    except RequestError as problem:
        raise RequestError(f"{folder}: {problem}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        said = str(problem).partition("\n")[0]
        raise RequestError(f"the study in {folder} is damaged: {type(problem).__name__}: {said}.") from None
