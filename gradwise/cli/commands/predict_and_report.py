"""The verbs that use a finished run: `gradwise predict` and `gradwise report`.

Predicting needs the model file alone: it holds the columns that the network reads and how it reads them.
"""

import csv
import io
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...data.reading.columns import fields_of
from ...data.reading.read import Rows, read_rows
from ...data.reading.targets import of_field, under
from ...evaluation.metrics import measure
from ...records.used_rows import UsedRows
from ...runtime import compilation
from ...runtime.errors import RequestError, WorkError, nearest
from ...runtime.files import write_whole
from ...specs.dataset import Classes, Labels, is_labelled
from ...training.model_files import MODEL, load_predictor, load_used_rows
from ...training.predictor import Predictor
from ..terminal.output import Progress, say

FORMATS = ("csv", "parquet", "json")
_FEW = 0.05  # of the rows: so many may equal one that was used by chance, and change the error little


def _model_of(run: str) -> Path:
    """The model file in a run folder, or the file itself."""
    path = Path(run)
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise RequestError(f"{run} is not a finished run: it has no {MODEL}.")
        return path / MODEL
    if not path.is_file():
        raise RequestError(f"there is no run at {run}.")
    return path


def _format_of(out: str, chosen: str | None) -> str:
    """The form to write: as chosen, or by the file's ending."""
    form = chosen or ("csv" if out == "-" else Path(out).suffix.removeprefix(".").lower())
    if form not in FORMATS:
        given = f"--format {chosen}" if chosen else f"--out {out}"
        hint = nearest(form, FORMATS) if chosen else " Give --format csv, parquet or json, or such an ending."
        raise RequestError(f"{given}: predictions are written as {', '.join(FORMATS)}.{hint}")
    return form


def _check_out(out: str, *read: str | Path) -> None:
    """Refuses to write where nothing can be written, or over what is being read."""
    if out == "-":
        return
    path = Path(out)
    if path.is_dir():
        raise RequestError(f"--out {out} is a folder: name a file.")
    if not path.absolute().parent.is_dir():
        raise RequestError(f"--out {out}: there is no folder {path.parent}.")
    for source in map(Path, read):
        if path.exists() and source.exists() and path.samefile(source):
            raise RequestError(f"--out {out} would replace what is read: choose another file.")


def _predict(predictor: Predictor, rows: Rows, path: Path) -> np.ndarray:
    """The predictions; a model file whose pieces do not fit together is the file's fault."""
    try:
        return predictor.predict(rows.inputs)
    except (TypeError, ValueError, AttributeError, IndexError) as problem:
        if isinstance(problem, RequestError):
            raise
        raise RequestError(f"{path} does not work as a model ({type(problem).__name__}): it is damaged.") from None


def _columns(predictor: Predictor, predictions: np.ndarray, probabilities: bool) -> dict[str, list[Any]]:
    """The predictions by the name of the column that they are written to."""
    task = predictor.task
    if isinstance(task, Classes):
        labels = np.asarray(task.labels)
        columns = {"prediction": labels[predictions[:, : len(labels)].argmax(1)].tolist()}
        names = [str(label) for label in labels.tolist()]
    elif isinstance(task, Labels):
        columns = {name: (predictions[:, k] > 0.5).astype(int).tolist() for k, name in enumerate(task.names)}
        names = list(task.names)
    elif task.kind == "inputs":
        if probabilities:
            raise RequestError("--probabilities: this network gives features, which have none. Leave it out.")
        return {f"feature_{k + 1}": predictions[:, k].tolist() for k in range(predictions.shape[1])}
    elif probabilities:
        raise RequestError("--probabilities: this network predicts numbers, which have none. Leave it out.")
    else:
        return {name: predictions[:, k].tolist() for k, name in enumerate(task.names)}
    if probabilities:
        columns |= {f"probability_{name}": predictions[:, k].tolist() for k, name in enumerate(names)}
    return columns


def _kept(rows: Rows, names: list[str]) -> dict[str, list[Any]]:
    """Columns of the data that are to stand beside the predictions."""
    known = [] if rows.table is None else list(rows.table.column_names)
    for name in names:
        if name not in known:
            hint = nearest(name, known) if known else " The data has no named columns."
            raise RequestError(f"--keep {name}: there is no such column.{hint}")
    return {name: rows.table.column(name).to_pylist() for name in names}


def _plain(value: Any) -> Any:
    """A value that JSON has."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _content(columns: dict[str, list[Any]], form: str) -> bytes:
    """The columns in the chosen form."""
    if form == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(pa.table(columns), buffer)
        return buffer.getvalue()
    rows = zip(*columns.values(), strict=True)
    if form == "json":
        return (json.dumps([dict(zip(columns, map(_plain, row), strict=True)) for row in rows]) + "\n").encode()
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def _write(content: bytes, out: str) -> None:
    if out != "-":
        try:
            write_whole(Path(out), content)
        except OSError as problem:
            raise WorkError(f"{out} could not be written: {problem.strerror or problem}.") from None
    elif hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(content.decode())


def _told(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def _optimism(used: UsedRows | None, rows: Rows, judge: Callable[[np.ndarray], str]) -> str:
    """What an error is worth that was measured on rows the network was made of; of the other rows it is honest."""
    if used is None:
        return ""
    among = used.among(rows.inputs)
    if not len(among) or among.mean() < _FEW:
        return ""
    why = "used to train or to choose this network, so this error is optimistic"
    if among.all():
        return f" All of these rows were {why}: quote the run's test error."
    if not used.exact:
        return f" About {among.mean():.0%} of these rows were {why}. Leave them out for an honest one."
    return f" {int(among.sum()):,} of these rows were {why}. On the {int((~among).sum()):,} others: {judge(~among)}."


def _judge(predictor: Predictor, predictions: np.ndarray, rows: Rows, used: UsedRows | None) -> str:
    """How good the predictions are, where the data tells the right answers, and what that figure is worth."""
    task = predictor.task
    names = [task.name] if isinstance(task, Classes) else list(task.names)
    if not names or rows.table is None or not set(names) <= set(rows.table.column_names):
        return ""
    fields = fields_of(rows.table)
    try:
        targets = under(task, [of_field(fields[name]) for name in names])
    except RequestError as problem:
        return f"the target is in the data, but no error can be measured: {problem}"
    known = is_labelled(targets, task)  # rows without a target judge nothing

    def judge(some: np.ndarray) -> str:
        some = some & known
        return _told(measure(task, predictions[some], targets[some], None)) if some.any() else "no target is known"

    told = f"against the target in the data: {judge(known)} on {int(known.sum()):,} rows."
    return told + _optimism(used, rows, judge)


def run_predict(
    run: str, data: str, out: str, chosen: str | None, probabilities: bool, keep: list[str], quiet: bool
) -> int:
    """The command; returns its exit code."""
    form = _format_of(out, chosen)
    path = _model_of(run)
    _check_out(out, data, path)
    if form == "parquet" and out == "-" and sys.stdout.isatty():
        raise RequestError("--format parquet: a terminal cannot show it. Name a file with --out.")
    compilation.use_compilation_cache()
    with Progress(not quiet) as progress:
        progress.phase(f"reading {path}")
        predictor, _ = load_predictor(path)
        progress.phase(f"reading {data}")
        rows = read_rows(data, predictor.columns, predictor.shape)
        kept = _kept(rows, keep)
        progress.phase("predicting")
        predictions = _predict(predictor, rows, path)
        columns = _columns(predictor, predictions, probabilities)
        twice = next((name for name in kept if name in columns), None)
        if twice:
            raise RequestError(f"--keep {twice}: the predictions have a column of this name. Leave it out.")
        _write(_content({**kept, **columns}, form), out)
    if not quiet:
        for name, count in rows.unseen.items():
            say(f"column `{name}`: {count} values are of categories that training never saw; they count as missing.")
        if judged := _judge(predictor, predictions, rows, load_used_rows(path)):
            say(judged)
    return 0


def run_report(run: str, out: str | None, as_json: bool) -> int:
    """The command; returns its exit code."""
    from ...reporting.report import read_record, report, write_report

    folder = Path(run)
    if not folder.is_dir():
        raise RequestError(f"there is no run folder {run}. Name the folder that holds {MODEL}.")
    found = read_record(folder)
    if out is None:
        path = write_report(folder, found)
    else:
        _check_out(out, *folder.iterdir())
        path = Path(out)
        _write(report(found).encode(), out)
    if as_json:
        print(json.dumps({**found.summary(), "out": str(folder), "report": str(path)}))
    elif out != "-":
        print(path)
    return 0
