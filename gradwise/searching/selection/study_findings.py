"""What a study tells besides its numbers: the data as understood, and findings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...evaluation.run_findings import describe_data
from ...evaluation.trials.expected_best import Advice
from ...evaluation.trials.failures import why_all_failed
from ...records.finding import Finding
from ...records.trial import Trial
from ...specs.recipe import Recipe
from ...specs.search_space import Space
from ..running.evaluation_data import EvaluationData
from ..storage.study_definition import Budget


def describe_evaluation_data(data: EvaluationData, recipe: Recipe) -> dict[str, Any]:
    """The data as understood, for the report."""
    sizes = {
        "train": len(data.train),
        "valid": len(data.valid),
        "test": 0 if data.test is None else len(data.test),
    }
    scaler = data.scaler(recipe.scaler)
    return describe_data(data.pool, sizes, scaler, recipe) | {
        "notes": list(data.train.notes),
        "folds": data.folds,
    }


def only_one(trials: Sequence[Trial], budget: Budget, first_ended: float = 0.0) -> list[Finding]:
    """A time that was over before a trial had ended, or that was enough for one alone."""
    if budget.seconds is None:
        return []
    overdue = first_ended >= budget.seconds
    if len(trials) != 1 and not overdue:
        return []
    told = "was enough for one trial only"
    if overdue:
        those = "that one" if len(trials) == 1 else f"{len(trials)} that ran side by side"
        told = f"was over before a trial had ended: {those} went on to the end all the same"
    return [
        Finding(
            "warning",
            f"the budget of {budget} {told}.",
            row="E1",
            next="give it more time and go on with --resume, or search smaller networks.",
        )
    ]


_LEAST_TRIALS = 4  # of which the halves can be compared
_SHOWS = 0.005  # the share of the error that more trials must take off to be worth their time
_HIGHER = {"auc", "r2"}  # metrics of which 1 is perfect


def ensemble_advice(committee: Mapping[str, Any], trials: int, metric: str) -> Advice | None:
    """Whether more trials are worth it: what the second half of them took off the ensemble's honest error."""
    half, whole = committee.get("honest_half"), committee.get("honest")
    if half is None or whole is None or trials < _LEAST_TRIALS:
        return None
    if metric in _HIGHER:
        half, whole = 1.0 - half, 1.0 - whole
    gain = (half - whole) / half if half > 0 else 0.0
    if gain > _SHOWS:
        said = f"took {100 * gain:.1f} % off the ensemble's error: more may help."
    else:
        said = "took nothing off the ensemble's error: more are hardly worth it."
    return Advice(gain > _SHOWS, f"the second half of the {trials} trials {said}", gain, math.nan, trials)


def find_in_study(space: Space, trials: Sequence[Trial], said: Advice, notes: Sequence[str]) -> list[Finding]:
    """What a reader should know: nothing left a model, trials failed, what could not be kept."""
    found = []
    verdict = why_all_failed(space, trials) if trials else None
    if verdict is not None:
        found.append(Finding("error", verdict.sentence, row="E16", next="search again in the range it names."))
    failed = [trial for trial in trials if trial.outcome == "failed"]
    if failed and verdict is None:
        found.append(
            Finding(
                "warning",
                f"{len(failed)} of {len(trials)} trials failed, the first because: {failed[0].reason}",
                row="E16",
                next="their recipes and reasons are in the table of trials.",
            )
        )
    found += [Finding("note", note, row="E16") for note in notes]
    if not said.go_on and verdict is None:
        found.append(Finding("note", said.sentence, row="E10", next="spend the time on data or on the model instead."))
    return found
