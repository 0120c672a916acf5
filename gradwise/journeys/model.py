"""A trained model as a Python object: what `gradwise fit` or `gradwise search` wrote, opened again.

    model = gw.load("runs/houses")
    model.predict(frame)                       classes or numbers for rows with the training columns, in any order
    model.predict_proba(frame)
    model.score(frame)                         accuracy, or R²; the frame holds the target
    model.test, model.test_interval            the error on the test set, and its 95 % confidence interval
    model.history, model.trials                data frames: one row per validation, one row per trial
    model.plot(model.plots[0])                 a matplotlib figure; the plots are those of the report
    model.report("report.html")

Rows are a data frame, an Arrow table, an array, or a file. As in `gradwise predict`, other columns are ignored, a
missing one is an error that names it, and a category that training never saw counts as missing, with a warning.
"""

import dataclasses
import math
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data.reading.columns import fields_of, fields_of_frame
from ..data.reading.new_rows import Rows, read_rows
from ..data.reading.targets import of_field, under
from ..evaluation.metrics import measure
from ..records.fit import Fit
from ..records.study import Study
from ..runtime import compilation
from ..runtime.errors import RequestError, WorkError, nearest
from ..runtime.files import write_whole
from ..specs.dataset import Classes, is_labelled
from ..training.model_files import MODEL, load_predictor
from ..training.predictor import AbstractPredictor


@dataclasses.dataclass(frozen=True, repr=False)
class Model:
    """A trained network, or the committee of a search, with the record of how it was made."""

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
    def test_interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of `test`."""
        return self.record.test_interval if isinstance(self.record, Fit) else self.record.estimates.test_interval

    @property
    def history(self) -> Any:
        """One row per validation during training; of a search, see `trials`."""
        import pandas as pd

        return pd.DataFrame(self.record.history if isinstance(self.record, Fit) else {})

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
    def trials(self) -> Any:
        """One row per trial of a search, with the knobs that it searched; none after a single training."""
        import pandas as pd

        names = ("number", "phase", "outcome", "score", "loss", "age_examples", "seconds", "parameters")
        several = () if isinstance(self.record, Fit) else self.record.trials
        return pd.DataFrame([{name: getattr(one, name) for name in names} | one.values for one in several])

    def _rows(self, rows: Any) -> Rows:
        compilation.use_compilation_cache()
        read = read_rows(rows, self.predictor.columns, self.predictor.shape)
        for name, count in read.unseen.items():
            warnings.warn(
                f"column `{name}`: {count} values of categories not seen in training are treated as missing.",
                UserWarning,
                stacklevel=3,
            )
        return read

    def _named(self, predictions: np.ndarray) -> np.ndarray:
        """What a user calls the predictions: labels of classes, 0 or 1 for labels, numbers as they are."""
        task = self.predictor.task
        if isinstance(task, Classes):
            return np.asarray(task.labels)[predictions.argmax(1)]
        if task.kind == "labels":
            return (predictions > 0.5).astype(int)
        return predictions[:, 0] if task.kind == "numbers" and predictions.shape[1] == 1 else predictions

    def predict(self, rows: Any) -> np.ndarray:
        """A class or number for each row, 0 or 1 for each label, or the features of a learner without a target."""
        return self._named(self.predictor.predict(self._rows(rows).inputs))

    def predict_proba(self, rows: Any) -> np.ndarray:
        """The probability of each class or label, in the order of `classes`."""
        if self.predictor.task.kind not in ("classes", "labels"):
            raise RequestError(f"this model predicts {self.predictor.task.kind}, which have no probabilities.")
        return self.predictor.predict(self._rows(rows).inputs)

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes or labels that `predict_proba` has columns for."""
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
        """Accuracy for classes and labels, R² for numbers, as scikit-learn's `score`. `measure` has every metric."""
        found = self.measure(rows, targets)
        return found["r2"] if "r2" in found else 1.0 - found["error_rate"]

    @cached_property
    def _figures(self) -> dict[str, Any]:
        from ..reporting.blocks import Figure
        from ..reporting.report import page_of

        blocks = (block for section in page_of(self.record).sections for block in section.blocks)
        return {block.name: block for block in blocks if isinstance(block, Figure)}

    @property
    def plots(self) -> tuple[str, ...]:
        """The names that `plot` knows."""
        return tuple(self._figures)

    def plot(self, name: str, ax: Any = None) -> Any:
        """A picture of the report, drawn into a new matplotlib figure or into `ax`; returns the figure."""
        if name not in self._figures:
            raise RequestError(f"this model has no plot `{name}`.{nearest(name, self.plots)}")
        figure = self._figures[name]
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(figsize=(figure.width / 72, figure.height / 72))[1]
        figure.draw(ax)
        ax.set_title(figure.title)
        return ax.figure

    def report(self, path: str | Path) -> Path:
        """Writes the report, one self-contained page."""
        from ..reporting.report import report

        try:
            write_whole(Path(path), report(self.record).encode())
        except OSError as problem:
            raise WorkError(f"could not write {path}: {problem.strerror or problem}.") from None
        return Path(path)

    def _told(self) -> list[str]:
        from ..reporting.report import verdict

        said = verdict(self.record)
        kind = "gradwise model" if isinstance(self.record, Fit) else "gradwise model of a search"
        return [f"{kind}, {self.record.data.name or 'data'}: {said.headline}", said.interval, said.story]

    def __repr__(self) -> str:
        return "\n".join(filter(None, self._told()))

    def _repr_html_(self) -> str:
        from ..reporting.html import render_card

        first = next(iter(self._figures.values()), None)
        return render_card(self._told(), first)


def load(path: str | Path, *, classes: tuple[Any, ...] = ()) -> Model:
    """Opens the run or study in a folder that the command line or `write_fit` wrote, ready to predict.

    `classes` are your own parts that its recipe names.
    """
    from ..reporting.report import read_record

    folder = Path(path)
    if not (folder / MODEL).is_file():
        raise RequestError(f"{folder} has no {MODEL}: it is not the folder of a finished run.")
    record = read_record(folder, classes)
    assert isinstance(record, Fit | Study)  # only these have a model file
    return Model(record, load_predictor(folder / MODEL, classes)[0])
