"""The result of a fit, which the report shows: a plain record, saved as JSON and Parquet.

A run folder holds `recipe.json`, `result.json`, `history.parquet`, `examples.npz` and `model.safetensors`; a `Fit` is
the first four in memory. Equal runs give equal files but for the wall-clock fields.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from ..runtime.errors import RequestError
from ..runtime.files import finite, write_whole
from ..specs.recipe import Recipe
from ..specs.serialisation import Unwritten, from_plain, to_json
from .data_read import DataRead
from .evidence.example_record import ExampleRecord, read_examples, write_examples
from .evidence.fit_evidence import FitEvidence
from .finding import Finding
from .outcome import Outcome
from .plain_values import from_values, to_values
from .readings import write_readings
from .used_rows import UsedRows


@dataclasses.dataclass(frozen=True, repr=False)
class Fit:
    """One trained network and the record of its training.

    `history` has one entry per interval in each column. `metrics` holds every metric of each part ("train",
    "valid", "test"). `evidence` is what the pictures need: confusion matrix, reliability, residuals. `data` is the
    data as read. `predictor` maps raw rows to predictions and is saved beside the record, not in it; `state` is
    the last state, to continue training; `used` identifies the rows used to train or choose the network; `examples`
    says what became of each of them.
    """

    recipe: Recipe
    outcome: Outcome
    task: str
    metric: str
    metrics: dict[str, dict[str, float]]
    test_interval: tuple[float, float]
    history: dict[str, list[Any]]
    evidence: FitEvidence
    data: DataRead
    findings: tuple[Finding, ...]
    seconds: float
    seed: int
    version: str
    machine: dict[str, Any]
    predictor: Any = None
    state: Any = None
    used: UsedRows | None = dataclasses.field(default=None, repr=False)
    examples: ExampleRecord | None = dataclasses.field(default=None, repr=False)

    @property
    def test(self) -> float:
        return self.metrics["test"][self.metric]

    def __repr__(self) -> str:
        low, high = self.test_interval
        found = f"{self.metric}={self.test:.4g}, test_interval=({low:.4g}, {high:.4g})"
        return f"Fit({self.data.name!r}, task={self.task!r}, {found}, outcome={self.outcome.name!r}, seed={self.seed})"

    def with_command(self, command: str) -> "Fit":
        """The record with the shell line that repeats it."""
        return dataclasses.replace(self, data=dataclasses.replace(self.data, command=command))

    def summary(self) -> dict[str, Any]:
        """The record as JSON values, without history and recipe: the content of `result.json`."""
        plain = {
            "task": self.task,
            "outcome": self.outcome.name,
            "metric": self.metric,
            **{part: self.metrics[part][self.metric] for part in ("train", "valid", "test")},
            "test_interval": list(self.test_interval),
            **({"r2": self.metrics["test"]["r2"]} if self.task == "numbers" else {}),
            "age_examples": self.outcome.age_examples,
            "seconds": self.seconds,
            "seed": self.seed,
            "version": self.version,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "metrics": self.metrics,
            "machine": self.machine,
            "data": to_values(self.data),
            "evidence": to_values(self.evidence),
        }
        return dict(finite(plain))


def write_fit(record: Fit, folder: Path) -> None:
    """Writes the record's files; `result.json` comes last, so a folder that has it is complete."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    write_whole(folder / "recipe.json", to_json(record.recipe, incomplete=True).encode())
    buffer = io.BytesIO()
    pq.write_table(pa.table(record.history), buffer)
    write_whole(folder / "history.parquet", buffer.getvalue())
    write_readings(record.data.test_readings, folder)
    if record.examples is not None:
        write_examples(record.examples, folder)
    write_whole(folder / "result.json", json.dumps(record.summary(), indent=2).encode())


def read_fit(folder: Path, classes: tuple[Any, ...] = ()) -> Fit:
    """The record in a run folder, without its predictor."""
    import pyarrow.parquet as pq

    missing = [name for name in ("recipe.json", "result.json", "history.parquet") if not (folder / name).is_file()]
    if missing:
        raise RequestError(f"{folder} is not the folder of a finished run: it has no {', '.join(missing)}.")
    try:
        result = json.loads((folder / "result.json").read_text())
        recipe = from_plain(json.loads((folder / "recipe.json").read_text()), classes=classes, incomplete=True)
        if isinstance(recipe, Unwritten):
            raise RequestError(f"recipe.json holds a `{recipe.kind}`, which is not part of gradwise.")
        if not isinstance(recipe, Recipe):
            raise RequestError("recipe.json contains no recipe.")
        history = pq.read_table(folder / "history.parquet").to_pydict()
        low, high = (math.nan if end is None else float(end) for end in result["test_interval"])
        return Fit(
            recipe=recipe,
            outcome=Outcome(result["outcome"], result["age_examples"]),
            findings=tuple(Finding(**finding) for finding in result["findings"]),
            test_interval=(low, high),
            metrics={
                part: {name: math.nan if value is None else value for name, value in values.items()}
                for part, values in result["metrics"].items()
            },
            history=history,
            data=from_values(DataRead, result["data"]),
            evidence=from_values(FitEvidence, result["evidence"]),
            examples=read_examples(folder),
            **{name: result[name] for name in ("task", "metric", "seconds", "seed", "version", "machine")},
        )
    except RequestError as problem:
        raise RequestError(f"{folder}: {problem}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        told = str(problem).partition("\n")[0]
        raise RequestError(f"the run in {folder} is damaged: {type(problem).__name__}: {told}.") from None
