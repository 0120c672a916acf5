"""What became of each example during training, as a run folder holds it (row F6): `examples.npz`.

examples_frame(record.examples)            a pandas frame with a row for each example
record.examples.columns["forgotten"]       one of its columns
"""

import dataclasses
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import RequestError
from ...runtime.files import write_whole

EXAMPLES = "examples.npz"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ExampleRecord:
    """One entry for each training example, then one for each validation example, in every column.

    | column | meaning |
    |---|---|
    | `set`, `row` | "training" or "validation"; the row in the data, counted from 0 |
    | `target`, `predicted` | the target, and what the kept network predicts (`target_NAME`, ... if there are several) |
    | `seen` | visits by updates; of a validation example, validations |
    | `first_loss`, `mean_loss`, `last_loss`, `deviation` | of the losses of its visits |
    | `learned_at` | the visit at which it was first right; NaN if it never was |
    | `forgotten` | how often it was wrong after having been right (Toneva et al. 2019) |
    | `margin` | mean margin: the output of its class less the largest other one (Pleiss et al. 2020) |
    | `confidence` | mean of (p - q) / (p + q) until the kept network: its label's probability p, the best other one q |
    | `suspect` | whether its label is probably wrong |

    What is known of right and wrong is known of training examples alone, and not of numbers: it is NaN elsewhere.
    """

    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.columns["row"])

    def __repr__(self) -> str:
        return f"ExampleRecord({len(self)} examples, {int(self.columns['suspect'].sum())} suspected label errors)"


def examples_frame(record: ExampleRecord | None) -> Any:
    """The record as a pandas frame; without one (a search, a stream, `partial_fit`), a frame without rows."""
    import pandas as pd

    return pd.DataFrame(columns=["set", "row", "suspect"]) if record is None else pd.DataFrame(record.columns)


def write_examples(record: ExampleRecord, folder: Path) -> None:
    """Writes `examples.npz`; equal records give equal bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **record.columns)  # type: ignore[arg-type]
    write_whole(folder / EXAMPLES, buffer.getvalue())


def read_examples(folder: Path) -> ExampleRecord | None:
    """The record in a run folder; None if the run kept none."""
    path = folder / EXAMPLES
    if not path.is_file():
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, ValueError, EOFError) as problem:
        raise RequestError(f"{path} is damaged: {problem}.") from None
    if len({len(column) for column in columns.values()}) != 1:
        raise RequestError(f"{path} is damaged: its columns differ in length.")
    return ExampleRecord(columns)
