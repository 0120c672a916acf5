"""What is done with a finished run: predictions for new rows, and its report.

Predicting needs only the model file, which also holds the input columns and their preprocessing.
"""

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.reading.columns import fields_of
from ..data.reading.new_rows import Rows, read_rows
from ..data.reading.targets import of_field, under
from ..evaluation.metrics import measure
from ..records.check import Checked
from ..records.fit import Fit
from ..records.study import Study
from ..records.used_rows import UsedRows
from ..runtime import compilation
from ..runtime.errors import RequestError, WorkError, nearest
from ..runtime.files import write_whole
from ..specs.dataset import Classes, Labels, Numbers, Several, is_labelled
from ..training.model_files import MODEL, load_predictor, load_used_rows
from ..training.predictor import Predictor, reads_sequences, reads_trees
from .progress import SILENT, AbstractProgress
from .requests.training_requests import PredictRequest, ReportRequest

FORMATS = ("csv", "parquet", "json")
_FEW = 0.05  # of the rows: so many may equal one that was used by chance, and change the error little


def _model_of(run: str) -> Path:
    """The model file in a run folder, or the file itself."""
    path = Path(run)
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise RequestError(f"{run} has no {MODEL}: it is not the folder of a finished run.")
        return path / MODEL
    if not path.is_file():
        raise RequestError(f"no run at {run}.")
    return path


def _format_of(out: str, chosen: str | None) -> str:
    """The output format: as chosen, or from the extension of the file."""
    form = chosen or ("csv" if out == "-" else Path(out).suffix.removeprefix(".").lower())
    if form not in FORMATS:
        given = f"--format {chosen}" if chosen else f"--out {out}"
        hint = nearest(form, FORMATS) if chosen else " Give --format csv, parquet or json, or one of these extensions."
        raise RequestError(f"{given}: unknown format; choose from {', '.join(FORMATS)}.{hint}")
    return form


def _check_out(out: str, *read: str | Path) -> None:
    """Raises if the output cannot be written or would overwrite an input."""
    if out == "-":
        return
    path = Path(out)
    if path.is_dir():
        raise RequestError(f"--out {out} is a folder: give a file.")
    if not path.absolute().parent.is_dir():
        raise RequestError(f"--out {out}: the folder {path.parent} does not exist.")
    for source in map(Path, read):
        if path.exists() and source.exists() and path.samefile(source):
            raise RequestError(f"--out {out} would overwrite an input: choose another file.")


def _predict(predictor: Predictor, rows: Rows, path: Path) -> np.ndarray:
    """The predictions; raises if the model file is inconsistent."""
    try:
        return predictor.predict(rows.inputs)
    except (TypeError, ValueError, AttributeError, IndexError) as problem:
        if isinstance(problem, RequestError):
            raise
        raise RequestError(f"{path} is damaged: the model cannot be run ({type(problem).__name__}).") from None


def _columns_of_several(task: Several, predictions: np.ndarray, probabilities: bool) -> dict[str, list[Any]]:
    """One column for each target; with probabilities, one for each class of `colour`: `probability_colour_red`."""
    columns: dict[str, list[Any]] = {}
    for piece in task.pieces:
        own, one = predictions[:, piece.outputs], piece.task
        if isinstance(one, Classes):
            labels = np.asarray(one.labels)
            columns[one.name] = labels[own[:, : len(labels)].argmax(1)].tolist()
            names = [f"{one.name}_{label}" for label in labels.tolist()]
        else:
            given = own if isinstance(one, Numbers) else (own > 0.5).astype(int)
            columns |= {name: given[:, k].tolist() for k, name in enumerate(one.names)}
            names = [] if isinstance(one, Numbers) else list(one.names)
        if probabilities:
            columns |= {f"probability_{name}": own[:, k].tolist() for k, name in enumerate(names)}
    return columns


def _columns(predictor: Predictor, predictions: np.ndarray, probabilities: bool) -> dict[str, list[Any]]:
    """The predictions by output column."""
    task = predictor.task
    if isinstance(task, Several):
        return _columns_of_several(task, predictions, probabilities)
    if isinstance(task, Classes):
        labels = np.asarray(task.labels)
        columns = {"prediction": labels[predictions[:, : len(labels)].argmax(1)].tolist()}
        names = [str(label) for label in labels.tolist()]
    elif isinstance(task, Labels):
        columns = {name: (predictions[:, k] > 0.5).astype(int).tolist() for k, name in enumerate(task.names)}
        names = list(task.names)
    elif task.kind == "inputs":
        if probabilities:
            raise RequestError("--probabilities: this model computes features, not classes. Leave it out.")
        return {f"feature_{k + 1}": predictions[:, k].tolist() for k in range(predictions.shape[1])}
    elif probabilities:
        raise RequestError("--probabilities: this model predicts numbers, not classes. Leave it out.")
    else:
        return {name: predictions[:, k].tolist() for k, name in enumerate(task.names)}
    if probabilities:
        columns |= {f"probability_{name}": predictions[:, k].tolist() for k, name in enumerate(names)}
    return columns


def _kept(rows: Rows, names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of the data to copy beside the predictions."""
    known = [] if rows.table is None else list(rows.table.column_names)
    for name in names:
        if name not in known:
            hint = nearest(name, known) if known else " The data have no named columns."
            raise RequestError(f"--keep {name}: unknown column.{hint}")
    return {name: rows.table.column(name).to_pylist() for name in names}


def _plain(value: Any) -> Any:
    """A value that JSON can represent."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _content(columns: dict[str, list[Any]], form: str) -> bytes:
    """The columns in the chosen format."""
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
    try:
        write_whole(Path(out), content)
    except OSError as problem:
        raise WorkError(f"could not write {out}: {problem.strerror or problem}.") from None


def _told(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def _optimism(used: UsedRows | None, rows: Rows, judge: Callable[[np.ndarray], str]) -> str:
    """A warning if rows were used in training, so that their error is optimistic; with the error on the other rows."""
    if used is None:
        return ""
    among = used.among(rows.inputs)
    if not len(among) or among.mean() < _FEW:
        return ""
    why = "used to train or choose this model, so this error is optimistic"
    if among.all():
        return f" All of these rows were {why}: quote the run's test error."
    if not used.exact:
        return f" About {among.mean():.0%} of these rows were {why}. Leave them out for an unbiased one."
    return f" {int(among.sum()):,} of these rows were {why}. On the {int((~among).sum()):,} others: {judge(~among)}."


def _judge(predictor: Predictor, predictions: np.ndarray, rows: Rows, used: UsedRows | None) -> str:
    """The error of the predictions, if the data hold the target, and whether it is optimistic."""
    task = predictor.task
    names = list(task.names)
    if not names or rows.table is None or not set(names) <= set(rows.table.column_names):
        return ""
    fields = fields_of(rows.table)
    try:
        targets = under(task, [of_field(fields[name]) for name in names])
    except RequestError as problem:
        return f"the data hold the target, but its error cannot be measured: {problem}"
    known = is_labelled(targets, task)  # rows without a target judge nothing

    def judge(some: np.ndarray) -> str:
        some = some & known
        return _told(measure(task, predictions[some], targets[some], None)) if some.any() else "no known target"

    told = f"error against the target in the data: {judge(known)} on {int(known.sum()):,} rows."
    return told + _optimism(used, rows, judge)


@dataclasses.dataclass(frozen=True)
class Predicted:
    """Predictions by column, the same as the bytes of a file, and remarks about them."""

    columns: dict[str, list[Any]]
    content: bytes
    remarks: tuple[str, ...]


def run_predict(request: PredictRequest, progress: AbstractProgress = SILENT) -> Predicted:
    """Predicts the rows of the data and writes the predictions to `out`, unless it is `-`."""
    form = _format_of(request.out, request.format)
    path = _model_of(request.run)
    _check_out(request.out, request.data, path)
    compilation.use_compilation_cache()
    progress.phase(f"reading {path}")
    predictor, _ = load_predictor(path)
    progress.phase(f"reading {request.data}")
    rows = read_rows(
        request.data, predictor.columns, predictor.shape, reads_sequences(predictor), reads_trees(predictor)
    )
    kept = ({"file": list(rows.paths)} if rows.paths else {}) | _kept(rows, request.keep)
    progress.phase("predicting")
    predictions = _predict(predictor, rows, path)
    columns = _columns(predictor, predictions, request.probabilities)
    twice = next((name for name in kept if name in columns), None)
    if twice:
        raise RequestError(f"--keep {twice}: the predictions already have a column of this name. Leave it out.")
    columns = {**kept, **columns}
    content = _content(columns, form)
    if request.out != "-":
        _write(content, request.out)
    unseen = [
        f"column `{name}`: {count} values of categories not seen in training are treated as missing."
        for name, count in rows.unseen.items()
    ]
    judged = _judge(predictor, predictions, rows, load_used_rows(path))
    return Predicted(columns, content, (*rows.remarks, *unseen, *filter(None, [judged])))


def run_report(request: ReportRequest) -> tuple[Fit | Study | Checked, str, Path | None]:
    """The record of a finished run, its page, and the file written: `out`, by default the run's own, none if `-`."""
    from ..reporting.report import read_record, report, write_report

    folder, out = Path(request.run), request.out
    if not folder.is_dir():
        raise RequestError(f"no run at {folder}. Give the folder that holds {MODEL}.")
    found = read_record(folder)
    if out is None:
        path = write_report(folder, found)
        return found, path.read_text(), path
    _check_out(out, *folder.iterdir())
    page = report(found)
    if out == "-":
        return found, page, None
    _write(page.encode(), out)
    return found, page, Path(out)
