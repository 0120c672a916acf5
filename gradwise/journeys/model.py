"""A trained model as a Python object: what `gw.fit` and `gw.search` return, and what the command line wrote.

    model = gw.load("runs/houses")             or gw.fit(...), gw.search(...)
    model.predict(frame)                       classes or numbers for rows with the training columns, in any order
    model.predict_proba(frame)
    model.score(frame)                         accuracy, or R²; the frame holds the target
    model.test, model.test_interval            the error on the test set, and its 95 % confidence interval
    model.history, model.trials                data frames: one row per validation, one row per trial
    model.examples                             another: one row per training and validation example
    model.plot(model.plots[0])                 a matplotlib figure; the plots are those of the report
    model.report("report.html"); model.save("runs/mine")
    model.export("model.onnx")                 for other programs; .stablehlo and .py too

Rows are a data frame, an Arrow table, an array, or a file. As in `gradwise predict`, other columns are ignored, a
missing one is an error that names it, and a category that training never saw counts as missing, with a warning.
"""

import dataclasses
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..data.reading.columns import fields_of, fields_of_frame
from ..data.reading.new_rows import Rows, read_rows
from ..data.reading.targets import of_field, under
from ..evaluation.metrics import METRICS, measure
from ..records.evidence.example_record import examples_frame
from ..records.fit import Fit
from ..records.study import Study
from ..runtime import compilation
from ..runtime.errors import RequestError, WorkError
from ..specs.dataset import Classes, Several, is_labelled
from ..training.model_files import MODEL, load_predictor, load_used_rows
from ..training.predictor import AbstractPredictor, reads_sequences, reads_trees
from .folders.run_folder import claim, publish_files, write_run
from .shown import Shown


@dataclasses.dataclass(frozen=True, repr=False)
class Model(Shown):
    """A trained network, or the committee of a search, with the record of how it was made.

    `record` holds everything that was measured; `predictor` maps encoded rows to probabilities or numbers.
    """

    record: Fit | Study
    predictor: AbstractPredictor

    @property
    def test(self) -> float:
        """The metric on the test set; NaN if there was none."""
        if isinstance(self.record, Fit):
            return self.record.test
        found = self.record.estimates.test
        return math.nan if found is None else found

    @property
    def tests(self) -> dict[str, dict[str, float]]:
        """Every metric on the test set by the name of its target, where there are several kinds of targets."""
        task = self.predictor.task
        if not isinstance(self.record, Fit) or not isinstance(task, Several):
            return {}
        measured = self.record.metrics["test"]
        return {
            one.name: {name: measured[f"{one.name}.{name}"] for name in METRICS[one.task.kind]} for one in task.pieces
        }

    @property
    def test_interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of `test`."""
        return self.record.test_interval if isinstance(self.record, Fit) else self.record.estimates.test_interval

    @property
    def history(self) -> Any:
        """One row per validation during training; of a search, see `trials`."""
        import pandas as pd

        return pd.DataFrame(self.record.history if isinstance(self.record, Fit) else {})

    @property
    def examples(self) -> Any:
        """One row per training and validation example: its losses, when it was learned, how often it was forgotten.

        `ExampleRecord` explains the columns; without a record of examples (a search, a stream) there are no rows.
        """
        return examples_frame(self.record.examples if isinstance(self.record, Fit) else None)

    @property
    def importance(self) -> Any:
        """One row per column of a table, the most important first; none where that was not measured.

        The rise is how much worse the metric of held-out rows gets when the values of the column are shuffled.
        """
        import pandas as pd

        evidence = self.record.evidence if isinstance(self.record, Fit) else self.record.estimates.evidence
        found = () if evidence.importance is None else evidence.importance.columns
        return pd.DataFrame([vars(one) for one in found], columns=["column", "rise", "standard_error"])

    @property
    def profile(self) -> Any:
        """One row per phase of a training with `profile=True`: where its time went; none of any other."""
        import pandas as pd

        found = self.record.evidence.profile if isinstance(self.record, Fit) else None
        phases = () if found is None else found.phases
        return pd.DataFrame([vars(one) for one in phases], columns=["name", "seconds", "times"])

    @property
    def trials(self) -> Any:
        """One row per trial of a search, with the knobs that it searched; none after a single training."""
        import pandas as pd

        names = ("number", "phase", "outcome", "score", "loss", "age_examples", "seconds", "parameters")
        several = () if isinstance(self.record, Fit) else self.record.trials
        return pd.DataFrame([{name: getattr(one, name) for name in names} | one.values for one in several])

    def _rows(self, rows: Any) -> Rows:
        compilation.use_compilation_cache()
        read = read_rows(
            rows,
            self.predictor.columns,
            self.predictor.shape,
            reads_sequences(self.predictor),
            reads_trees(self.predictor),
        )
        for name, count in read.unseen.items():
            warnings.warn(
                f"column `{name}`: {count} values of categories not seen in training are treated as missing.",
                UserWarning,
                stacklevel=3,
            )
        return read

    def _named(self, predictions: np.ndarray, task: Any) -> Any:
        """What a user calls the predictions: labels of classes, 0 or 1 for labels, numbers as they are."""
        if isinstance(task, Several):
            import pandas as pd

            pieces = {one.task.names: self._named(predictions[:, one.outputs], one.task) for one in task.pieces}
            columns = {names: np.reshape(own, (len(predictions), -1)) for names, own in pieces.items()}
            return pd.DataFrame({n: own[:, k] for names, own in columns.items() for k, n in enumerate(names)})
        if isinstance(task, Classes):
            return np.asarray(task.labels)[predictions.argmax(1)]
        if task.kind == "labels":
            return (predictions > 0.5).astype(int)
        return predictions[:, 0] if task.kind == "numbers" and predictions.shape[1] == 1 else predictions

    def predict(self, rows: Any) -> Any:
        """A class or number for each row, 0 or 1 for each label, or the features of a learner without a target.

        An array; of several kinds of targets a data frame, with a column for each.
        """
        return self._named(self.predictor.predict(self._rows(rows).inputs), self.predictor.task)

    def predict_proba(self, rows: Any) -> Any:
        """The probability of each class or label, in the order of `classes`.

        An array; of several kinds of targets a dictionary of them, by the name of each target that holds classes.
        """
        if isinstance(task := self.predictor.task, Several):
            found = self.predictor.predict(self._rows(rows).inputs)
            return {one.name: found[:, one.outputs] for one in task.pieces if one.task.kind != "numbers"}
        if self.predictor.task.kind not in ("classes", "labels"):
            raise RequestError(f"this model predicts {self.predictor.task.kind}, which have no probabilities.")
        return self.predictor.predict(self._rows(rows).inputs)

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes or labels that `predict_proba` has columns for; of several kinds of targets, their names."""
        task = self.predictor.task
        return tuple(np.asarray(task.labels).tolist()) if isinstance(task, Classes) else tuple(task.names)

    def _targets(self, rows: Rows, targets: Any) -> np.ndarray:
        import pandas as pd

        names = list(self.predictor.task.names)
        if targets is not None:
            fields = fields_of_frame(pd.DataFrame(np.reshape(targets, (len(targets), -1)), columns=names))
        else:
            fields = {} if rows.table is None else fields_of(rows.table)
        if missing := [name for name in names if name not in fields]:
            raise RequestError(f"the rows have no column `{missing[0]}` to score by: pass the targets beside them.")
        return under(self.predictor.task, [of_field(fields[name]) for name in names])

    def measure(self, rows: Any, targets: Any = None) -> dict[str, float]:
        """Every metric on these rows, whose targets are given or in the column that training predicted."""
        read = self._rows(rows)
        found, task = self._targets(read, targets), self.predictor.task
        if len(found) != read.inputs.shape[0]:
            raise RequestError(f"there are {read.inputs.shape[0]} rows, but {len(found)} targets.")
        known = is_labelled(found, task)
        if not known.any():
            raise RequestError("none of the rows has a target to score by.")
        return measure(task, self.predictor.predict(read.inputs)[known], found[known], None)

    def score(self, rows: Any, targets: Any = None) -> float:
        """Accuracy for classes and labels, R² for numbers, as scikit-learn's `score`. `measure` has every metric.

        Of several kinds of targets it is 1 less the mean relative error: 1 is perfect, 0 the best constant.
        """
        found = self.measure(rows, targets)
        if "relative_error" in found:
            return 1.0 - found["relative_error"]
        return found["r2"] if "r2" in found else 1.0 - found["error_rate"]

    def export(self, path: str | Path) -> Path:
        """Writes the model as one file for other programs: `.onnx`, `.stablehlo`, or `.py`, which needs NumPy alone."""
        from ..exporting.export import export_model

        return export_model(self.predictor, path)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Writes the folder that the command line would have written, with its report; `gw.load` opens it again."""
        folder = Path(path)
        if folder.exists() and not overwrite:
            raise RequestError(f"{folder} already exists: choose another folder, or replace it with overwrite=True.")
        record = dataclasses.replace(self.record, predictor=self.predictor)
        with claim(folder, resume=False, overwrite=overwrite) as work:
            publish_files(folder, work, lambda staging: write_run(record, staging))
        return folder

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "model" if isinstance(self.record, Fit) else "model of a search"


def model_of_record(record: Fit | Study, folder: Path | None = None) -> Model:
    """The model of a finished journey, whose files are in the folder, if it wrote any; raises if there is none."""
    if record.predictor is None and folder is not None and (folder / MODEL).is_file():
        return load(folder)
    if record.predictor is None:
        why = next((one.what for one in record.findings if one.level == "error"), "no network could be trained.")
        raise WorkError(why)
    failure = next((one for one in record.findings if one.level == "error"), None)
    if isinstance(record, Fit) and record.outcome.failed and failure is not None:
        warnings.warn(f"{failure.what} {failure.next}".strip(), RuntimeWarning, stacklevel=4)
    return Model(record, record.predictor)


def load(path: str | Path, *, classes: tuple[Any, ...] = ()) -> Model:
    """Opens the run or study in a folder that the command line or `Model.save` wrote, ready to predict.

    `classes` are your own classes and functions that its recipe names; of a network whose code cannot be written down,
    such as `equinox.nn.MLP`, pass a network of the same shape, which gets the trained weights.
    """
    from ..reporting.report import read_record

    folder = Path(path)
    if not (folder / MODEL).is_file():
        raise RequestError(f"{folder} has no {MODEL}: it is not the folder of a finished run.")
    record = read_record(folder, tuple(classes))
    assert isinstance(record, Fit | Study)  # only these have a model file
    record = dataclasses.replace(record, used=load_used_rows(folder / MODEL))
    return Model(record, load_predictor(folder / MODEL, tuple(classes))[0])
