"""The current model of a running search, saved to disk.

    answer = AnswerSoFar(folder / "model.safetensors", data, kind="ensemble", about={"metric": "error_rate"})
    answer.update(trials, contenders)         saves it again, if trials have ended and it is time

So a search that was killed can still predict. The model is saved after the first trial, and then as often as a small
share of the time allows. How long that took predicts how long the end of the study will take.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...records.trial import Trial
from ...records.used_rows import UsedRows
from ...training.model_files import save_predictor
from ..running.evaluation_data import EvaluationData
from ..storage.network_store import Contenders
from .finalists import decide

_SHARE = 0.05  # of the time
_MORE = 3.0  # times as long as the last, at the most: only some of the trials are kept


class AnswerSoFar:
    """One model, made again and again and written to a file, if there is a path; no `kind`, no model."""

    def __init__(
        self,
        path: Path | None,
        data: EvaluationData,
        *,
        kind: str | None,
        about: dict[str, Any],
        used: UsedRows | None = None,
    ):
        self.path, self.data, self.kind, self.about, self.used = path, data, kind, about, used
        self.seconds = 0.0  # what the last one took
        self._trials = 0  # that it was made of, ...
        self._seen = 0  # ... and those that have ended by now
        self._next = 0.0

    @property
    def concluding(self) -> float:
        """Seconds that the next one can be expected to take: it has more trials to choose from."""
        return self.seconds * min(_MORE, self._seen / max(1, self._trials))

    def update(self, trials: Mapping[int, Trial], contenders: Contenders) -> bool:
        """Makes the model if there are new trials and it is time; whether it did."""
        begun, self._seen = time.monotonic(), len(trials)
        if self.kind is None or len(trials) == self._trials or not len(contenders) or begun < self._next:
            return False
        self._trials = len(trials)
        found = decide(self.data, trials.values(), contenders.all(), kind=self.kind)
        if found.committee is not None and self.path is not None:
            several = len(found.committee.members) > 1
            model = found.committee if several else found.committee.members[0]
            save_predictor(model, self.path, about=self.about, used=self.used)
        ended = time.monotonic()
        self.seconds = ended - begun
        self._next = ended + self.seconds / _SHARE
        return found.committee is not None
