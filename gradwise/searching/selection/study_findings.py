"""The findings of a study, and how its data were read."""

import dataclasses
import math
from collections.abc import Sequence

from ...evaluation.run_findings import describe_data
from ...evaluation.trials.expected_best import advice
from ...evaluation.trials.failures import why_all_failed
from ...records.data_read import DataRead, SetSizes
from ...records.finding import Finding
from ...records.score_scale import ScoreScale
from ...records.study_analysis import Advice, PopulationHistory
from ...records.study_conclusions import CommitteeSummary
from ...records.trial import Trial
from ...specs.recipe import Recipe
from ...specs.search_space import Space
from ..running.driver import Driver
from ..running.effort import Effort
from ..running.evaluation_data import EvaluationData
from ..storage.budget import Budget
from ..strategies.contract import AbstractStrategy
from ..strategies.recommended import Recommended


def describe_evaluation_data(data: EvaluationData, recipe: Recipe, test_readings: int = 0) -> DataRead:
    """How the data were read, for the report."""
    sizes = SetSizes(len(data.train), len(data.valid), len(data.test or ()))
    return dataclasses.replace(
        describe_data(data.pool, sizes, data.scaler(recipe.scaler), recipe),
        notes=tuple(data.train.notes),
        folds=data.folds,
        judged_on=data.judged_on,
        test_readings=test_readings,
    )


def only_one(trials: Sequence[Trial], budget: Budget, first_ended: float = 0.0) -> list[Finding]:
    """A time that was over before a trial had ended, or that was enough for one alone."""
    if budget.seconds is None:
        return []
    overdue = first_ended >= budget.seconds
    if len(trials) != 1 and not overdue:
        return []
    told = "sufficed for one trial only"
    if overdue:
        those = "that one" if len(trials) == 1 else f"{len(trials)} that ran side by side"
        told = f"ran out before a trial had ended; {those} still ran to the end"
    return [
        Finding(
            "warning",
            f"the budget of {budget} {told}.",
            row="E1",
            next="give it more time and continue with --resume, or search smaller networks.",
        )
    ]


_LEAST_TRIALS = 4  # of which the halves can be compared


def ensemble_advice(committee: CommitteeSummary | None) -> Advice | None:
    """Whether more trials are worth it: what the second half of them took off the ensemble's loss, against chance."""
    if committee is None or committee.last_gain is None or committee.trials < _LEAST_TRIALS:
        return None
    (gain, error), trials = committee.last_gain, committee.trials
    go_on = gain > error
    said = (
        "lowered the ensemble's loss: more may help"
        if go_on
        else "made no measurable difference: more are unlikely to help"
    )
    return Advice(go_on, f"the second half of the trials {said}.", gain, error, trials)


def population_advice(story: PopulationHistory, scale: ScoreScale) -> Advice:
    """Whether members should train for longer: what the last quarter of the generations took off the best score."""
    seen = [min((s for s in line if math.isfinite(s)), default=math.inf) for line in story.scores]
    before = min(seen[: max(1, len(seen) - max(1, len(seen) // 4))])
    best = float(min(seen))
    go_on = math.isfinite(best) and best < before
    levels = f"{scale.say(before)} to {scale.say(best)}" if go_on else ""
    said = (
        f"the last quarter of the generations lowered the best score from {levels}: more may help, such as "
        f"--strategy 'pbt(intervals={2 * story.intervals})'."
        if go_on
        else "the last quarter of the generations did not lower the best score: more are unlikely to help."
    )
    return Advice(go_on, said, before - best if go_on else 0.0, math.nan, story.members)


def advise_study(
    driver: Driver,
    strategy: AbstractStrategy,
    trials: tuple[Trial, ...],
    chance: float,
    committee: CommitteeSummary | None,
) -> Advice:
    """Whether more trials, or longer ones, are worth it."""
    scale = driver.scale
    if driver.populations:
        return population_advice(max(driver.populations, key=lambda story: story.intervals), scale)
    if not driver.data.can_estimate:
        searched = sum(trial.phase == "search" for trial in trials)
        why = f"{len(driver.data.pool)} rows" if driver.data.judged_on == "valid" else "rows that were trained on"
        return Advice(False, f"scores on {why} cannot tell whether more trials are worth it.", math.nan, 0.0, searched)
    found = ensemble_advice(committee) if isinstance(strategy, Recommended) else None
    return found or advice(
        trials,
        worst=chance,
        noise=driver.noise,
        independent=strategy.independent,
        scale=scale,
    )


def shortened_runs(effort: Effort) -> list[Finding]:
    """That runs were made shorter than their recipe says, where the budget was too short for them."""
    if effort.epochs == 1.0:
        return []
    what = f"the budget is short for these data: every run trains for {effort.epochs:.0%} of its recipe's epochs"
    return [
        Finding(
            "note", f"{what}, with {'folds' if effort.folds > 1 else 'one validation set'}.", "E1", "give it more time."
        )
    ]


def trials_behind(trials: Sequence[Trial]) -> list[Finding]:
    """How many trials ended early because they were worse than the first."""
    behind = sum(trial.outcome == "behind" for trial in trials)
    if not behind:
        return []
    were = "was" if behind == 1 else "were"
    what = f"{behind} of {len(trials)} trials {were} clearly worse than the first and stopped early."
    return [Finding("note", what, "J8")]


def find_in_study(space: Space, trials: Sequence[Trial], said: Advice, notes: Sequence[str]) -> list[Finding]:
    """What a reader should know: nothing left a model, trials failed, what could not be kept."""
    found = []
    verdict = why_all_failed(space, trials) if trials else None
    if verdict is not None:
        next_ = "search again in the suggested range." if verdict.path else ""
        found.append(Finding("error", verdict.sentence, row="E16", next=next_))
    failed = [trial for trial in trials if trial.outcome == "failed"]
    if failed and verdict is None:
        found.append(
            Finding(
                "warning",
                f"{len(failed)} of {len(trials)} trials failed, the first with: {failed[0].reason}",
                row="E16",
                next="see their recipes and reasons in the table of trials.",
            )
        )
    found += [Finding("note", note, row="E16") for note in notes]
    if not said.go_on and verdict is None:
        found.append(Finding("note", said.sentence, row="E10", next="improve the data or the model instead."))
    return found
