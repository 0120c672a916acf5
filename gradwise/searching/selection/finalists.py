"""The conclusion of a study: finalists with other seeds, a committee, and unbiased estimates (rows D9, E2).

    finalist_proposals(trials, data.variants)       the best few settings again, with other seeds
    choose(trials)                                    the setting that is best on average over its seeds
    conclude(data, trials, contenders.all(), metric="error_rate")

Everything is decided on validation examples: `decide` receives the data without a test set. Then `measured` evaluates
on the test set once, and decides nothing.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from ...evaluation.metrics import measure, metric_interval
from ...evaluation.prediction_figure_data import gather_evidence
from ...evaluation.trials.selection_bias import contenders as likely_best
from ...evaluation.trials.selection_bias import corrected_for_selection, mean_and_variance, weighted_estimate
from ...records.finding import Finding
from ...records.study_conclusions import CommitteeSummary, CorrectedScore, Estimates, Finalist, WeightedEstimate, Winner
from ...records.trial import Proposal, Trial
from ...runtime.errors import RequestError
from ...specs.adapters import as_criterion
from ...specs.dataset import Dataset
from ...training.committee import Committee, mean_prediction
from ...training.predictor import AbstractPredictor, outputs_of_each
from ..running.evaluation_data import WHOLE, EvaluationData, Variant
from ..running.jobs import Job
from ..storage.network_store import TrainedTrial
from .committee_members import (
    ANSWERS,
    Scalers,
    check_kind,
    choose_cheapest,
    indistinct,
    make_ensemble,
    member_scores,
    on_device,
    setting_of,
    together,
)

# What a setting may be chosen from: trials of other phases repeat, with other seeds, what was found.
CHOSEN_FROM = ("search", "border", "refine", "batch", "cut")
_VARIANTS = {"bagging": "bag", "inputs": "inputs"}


# Finalists.


def chosen_from(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that a setting is chosen from, best first; those that time cut short come after all others."""
    able = (trial for trial in trials if trial.ok and trial.phase in CHOSEN_FROM)
    return sorted(able, key=lambda trial: (trial.phase == "cut", trial.score, trial.loss, trial.number))


def best_settings(trials: Iterable[Trial], count: int) -> list[Trial]:
    """The best trials of so many different settings, best first."""
    found: dict[str, Trial] = {}
    for trial in chosen_from(trials):
        found.setdefault(setting_of(trial.recipe), trial)
        if len(found) == count:
            break
    return list(found.values())


def _plan(trials: Iterable[Trial], settings: int, seeds: int, kind: str) -> list[tuple[Trial, int]]:
    """Each setting with the number of its seed, one seed of all settings after another: were time to run out, the
    settings would still have been compared alike."""
    if kind not in {"seeds", *_VARIANTS}:
        raise RequestError(f"unknown kind of finalists {kind!r}; choose from seeds, bagging, inputs.")
    best = best_settings(trials, settings)
    return [(trial, seed) for seed in range(seeds) for trial in best]


def _variants(kind: str, seed: int, whole: tuple[Variant, ...]) -> tuple[Variant, ...]:
    return ((_VARIANTS[kind], seed),) if kind in _VARIANTS else whole


def finalist_jobs(
    trials: Iterable[Trial], *, settings: int = 3, seeds: int = 5, kind: str = "seeds", start: int
) -> list[tuple[Job, Trial]]:
    """The best few settings again, each with so many seeds of its own; beside each job the trial that it repeats.

    A job's randomness is its own number, from `start` on; those whose number is taken have been run already.
    """
    trials = list(trials)
    taken = {trial.number for trial in trials}
    jobs = []
    for number, (trial, seed) in enumerate(_plan(trials, settings, seeds, kind), start):
        if number not in taken:
            (variant,) = _variants(kind, seed, (WHOLE,))
            jobs.append((Job(number, trial.recipe, number, trial.examples, variant), trial))
    return jobs


def finalist_proposals(
    trials: Iterable[Trial],
    whole: tuple[Variant, ...] = (WHOLE,),
    *,
    settings: int = 3,
    seeds: int = 5,
    kind: str = "seeds",
) -> list[tuple[Proposal, tuple[Variant, ...]]]:
    """The same as proposals with their variants; `whole` are those of a trial of the study. Seeds that were run
    already are not run again."""
    trials = list(trials)
    run: dict[str, int] = {}
    for trial in trials:
        if trial.phase == "finalist" and trial.outcome != "out_of_time":
            mark = setting_of(trial.recipe)
            run[mark] = run.get(mark, 0) + 1
    found = []
    for trial, seed in _plan(trials, settings, seeds, kind):
        if seed >= run.get(setting_of(trial.recipe), 0):
            proposal = Proposal(trial.recipe, trial.examples, phase="finalist")
            found.append((proposal, _variants(kind, seed, whole)))
    return found


@dataclasses.dataclass(frozen=True)
class ChosenSetting:
    """The setting that was chosen, its runs with other seeds, and every setting that was compared, best first."""

    setting: Trial
    members: tuple[Trial, ...]
    finalists: tuple[Finalist, ...]


def _finalist(setting: Trial, runs: Sequence[Trial]) -> Finalist:
    scores = tuple(trial.score for trial in runs)
    deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else math.nan
    return Finalist(setting.number, dict(setting.values), scores, float(np.mean(scores)), deviation)


def choose_setting(trials: Iterable[Trial]) -> ChosenSetting | None:
    """The setting with the best mean validation score over its seeds, ties by the mean loss; None without finalists.

    Runs that were cut short say little of their setting. Settings with fewer than half as many runs as the most are
    not compared: most of their seeds diverged, or time ran out first, and the mean of a few is too easily lucky.
    """
    trials = list(trials)
    runs: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.phase == "finalist" and trial.ok and trial.outcome != "out_of_time":
            runs.setdefault(setting_of(trial.recipe), []).append(trial)
    settings: dict[str, Trial] = {}
    for trial in chosen_from(trials):
        if len(settings) == len(runs):
            break
        if (mark := setting_of(trial.recipe)) in runs:
            settings.setdefault(mark, trial)
    if not settings:
        return None
    most = max(len(runs[mark]) for mark in settings)
    fair = [mark for mark in settings if 2 * len(runs[mark]) >= most]

    def order(mark: str) -> tuple[float, float, int]:
        own = runs[mark]
        return float(np.mean([t.score for t in own])), float(np.mean([t.loss for t in own])), settings[mark].number

    fair.sort(key=order)
    finalists = tuple(_finalist(settings[mark], runs[mark]) for mark in fair)
    return ChosenSetting(settings[fair[0]], tuple(runs[fair[0]]), finalists)


# What is decided, on validation examples alone.


@dataclasses.dataclass(frozen=True)
class Decided:
    """All decisions of a study, made without the test set."""

    winner: Winner | None
    findings: tuple[Finding, ...]
    committee: Committee | None = None
    about: CommitteeSummary | None = None
    valid: dict[str, float] = dataclasses.field(default_factory=dict)
    rows: tuple[TrainedTrial, ...] = ()  # the contenders that the test pass weighs


def corrected_winner(setting: Trial, rows: Sequence[TrainedTrial], can_estimate: bool = True) -> Winner:
    """The winner's score, and what it is worth: the bootstrap of the choice among all contenders.

    Where finalists preferred another setting than the search did, the same optimism is added to its score. That is on
    the safe side: it was not chosen for being the luckiest.
    """
    winner = Winner(setting.number, setting.score, dict(setting.values))
    if not rows or len(rows[0].scores) < 2 or not can_estimate:
        return winner  # rows that were trained on do not tell how lucky the choice was, and a few hardly do
    found = corrected_for_selection(np.stack([kept.scores for kept in rows]))
    moved = setting.score - found.naive
    least = 0.0 if found.naive >= 0 else -math.inf  # an error is not below 0; other scores may be
    ends = max(least, found.interval[0] + moved), found.interval[1] + moved
    corrected = CorrectedScore(setting.score + found.optimism, found.optimism, ends)
    return dataclasses.replace(winner, corrected=corrected)


def comparable_contenders(trials: dict[int, Trial], kept: Sequence[TrainedTrial]) -> tuple[TrainedTrial, ...]:
    """The contenders that a setting was chosen from, with scores of the same examples."""
    able = [one for one in kept if one.number in trials and trials[one.number].phase in CHOSEN_FROM]
    return tuple(one for one in able if np.isfinite(one.scores).all() and len(one.scores) == len(able[0].scores))


def _members(
    kept: Sequence[TrainedTrial], rows: Sequence[TrainedTrial], choice: ChosenSetting | None, kind: str
) -> tuple[list[TrainedTrial], str]:
    """Who sits in the committee, and of what kind it is then: contenders where no finalist has a network."""
    if kind != "contenders" and choice is not None:
        numbers = {trial.number for trial in choice.members}
        members = [one for one in kept if one.number in numbers]
        if members:
            return sorted(members, key=lambda one: one.number), kind
    return (indistinct(rows) if rows else []), "contenders"


def findings_of_choice(
    winner: Winner, best: Trial, tried: int, data: EvaluationData, how: str = "the best of"
) -> list[Finding]:
    """What a reader should know of the choice."""
    found = []
    scale = data.scale(best.recipe)
    if data.judged_on == "train":
        what = "trials were scored on their own training rows, so their scores are optimistic"
        found.append(Finding("warning", f"{what}.", "E2", "hold out validation rows; 20 rows are enough."))
    if winner.number != best.number:
        what = f"averaged over seeds, trial {winner.number} is better than trial {best.number}, which was best with"
        found.append(Finding("note", f"{what} one seed.", "D9"))
    if winner.corrected is not None:
        fresh = winner.corrected.score
        what = (
            f"the winner's {scale.name}, {scale.say(winner.score)}, is {how} {tried}; expect about {scale.say(fresh)}"
        )
        found.append(Finding("note", f"{what} on new data.", "E2", evidence={"corrected": fresh}))
    return found


def _answer(data: EvaluationData, able: Sequence[Trial], rows: tuple[TrainedTrial, ...], kind: str) -> Decided:
    """Trials as they are: all of them by weight, the networks of the best or of the cheapest, or one of the best."""
    best = next(trial for trial in able if trial.number in {one.number for one in rows})
    best, saved = choose_cheapest(able, rows) if kind == "cheapest" else (best, [])
    how = "the cheapest near the best of" if saved else "the best of"
    own = next(one for one in rows if one.number == best.number)
    winner = corrected_winner(best, rows, data.can_estimate)
    about = CommitteeSummary(kind, best.number, (own.number,), 1, len(rows))
    if kind == "ensemble":
        found = make_ensemble(rows, data, data.metric, best=best.number)
        committee, judged, part = found.committee, found.judged, found.part
        about = dataclasses.replace(
            about, numbers=tuple(sorted(found.weights)), weights=found.weights, last_gain=found.last_gain
        )
        if data.can_estimate:  # else no row is left that neither trained nor weighed it, or too few are
            about = dataclasses.replace(about, honest=found.honest, best_trial=found.best)
    else:
        committee, judged, part = together([own], data, Scalers(data))
        committee = dataclasses.replace(committee, members=committee.members[:1]) if kind == "none" else committee
    about = dataclasses.replace(about, members=len(committee.members))
    valid = measure(part.task, judged, part.targets, part.weights)
    said = findings_of_choice(winner, best, len(able), data, how)
    return Decided(winner, (*saved, *said), committee, about, valid, rows)


def decide(
    data: EvaluationData, trials: Iterable[Trial], kept: Sequence[TrainedTrial], *, kind: str = "seeds"
) -> Decided:
    """The winner with its corrected score, and the committee."""
    data = dataclasses.replace(data, test=None)  # whatever happens below, it cannot look
    by_number = {trial.number: trial for trial in trials}
    able = chosen_from(by_number.values())
    choice = None if kind in ("contenders", *ANSWERS) else choose_setting(by_number.values())
    if not able:
        return Decided(None, (Finding("warning", "no trial produced a model, so there is no winner.", "E2"),))
    best, rows = able[0], comparable_contenders(by_number, kept)
    if check_kind(kind) in ANSWERS and rows:
        return _answer(data, able, rows, kind)
    members, made = _members(kept, rows, choice, kind)
    setting = choice.setting if choice is not None else best
    winner = corrected_winner(setting, rows, data.can_estimate)
    findings = findings_of_choice(winner, best, len(able), data)
    if not members:
        findings.append(Finding("warning", "no trial's network was saved, so the study cannot predict.", "D9"))
        return Decided(winner, tuple(findings), rows=rows)
    if made != kind:
        what = "no setting was retrained with other seeds"
        findings.append(Finding("note", f"{what}: the committee consists of the best trials.", "D9"))
    committee, judged, part = together(members, data, Scalers(data))
    about = CommitteeSummary(
        made,
        setting.number if made != "contenders" else members[0].number,
        tuple(one.number for one in members),
        len(committee.members),
        len(rows),
        choice.finalists if choice is not None else (),
    )
    valid = measure(part.task, judged, part.targets, part.weights)
    return Decided(winner, tuple(findings), committee, about, valid, rows)


# What is measured: one pass over the test set, after which nothing is decided.


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """The conclusions of a study, and the predictor to use."""

    winner: Winner | None
    findings: tuple[Finding, ...]
    committee: CommitteeSummary | None = None
    estimates: Estimates = Estimates()
    predictor: AbstractPredictor | None = None


def _weighted(rows: Sequence[TrainedTrial], data: EvaluationData, scalers: Scalers) -> WeightedEstimate | None:
    """Bergstra and Bengio's estimate over the contenders. A trial with folds scores as its networks do on average."""
    assert data.test is not None
    if not rows or len(rows[0].scores) < 2 or len(data.test) < 2:
        return None
    means, variances = mean_and_variance(np.stack([kept.scores for kept in rows]))
    chosen = likely_best(means, variances)
    tests = []
    for kept in (rows[row] for row in chosen):
        criterion = on_device(as_criterion(kept.recipe.criterion))
        pairs = zip(kept.networks, kept.variants, strict=True)
        several = [member_scores(criterion, on_device(n), scalers.test(kept.recipe, v)) for n, v in pairs]
        tests.append(np.mean(several, axis=0))
    return weighted_estimate(means[chosen], variances[chosen], *mean_and_variance(np.stack(tests)))


def _tested(committee: Committee, test: Dataset, metric: str) -> tuple[tuple[float, ...], Estimates]:
    """On the test set: the metric of each member, and the estimates of the committee."""

    def value(predictions: np.ndarray, *names: str) -> dict[str, float]:
        return measure(test.task, predictions, test.targets, test.weights, names or None)

    outputs = outputs_of_each(committee.members, test.inputs)
    each = [member.from_outputs(one) for member, one in zip(committee.members, outputs, strict=True)]
    together = committee.tempered(mean_prediction(each, committee.weights))
    metrics = value(together)
    alone = tuple(value(predictions, metric)[metric] for predictions in each)
    untempered = [dataclasses.replace(member, temperature=1.0) for member in committee.members]
    several = [member.from_outputs(one) for member, one in zip(untempered, outputs, strict=True)]
    raw = mean_prediction(several, committee.weights)
    temperature = committee.members[0].temperature if len(committee.members) == 1 else committee.temperature
    evidence = gather_evidence(test.task, raw, together, test.targets, test.rows, temperature, test.weights)
    ends = metric_interval(metric, test.task, together, test.targets, test.weights)
    return alone, Estimates({"test": metrics}, metrics[metric], ends, evidence=evidence)


def measured(decided: Decided, data: EvaluationData, *, metric: str) -> Conclusion:
    """The decisions with their test error: the only pass over the test set."""
    committee, about, findings = decided.committee, decided.about, list(decided.findings)
    if committee is None or about is None:
        return Conclusion(decided.winner, decided.findings)
    learned = data.pool if data.folds > 1 else data.told
    train = measure(learned.task, committee.predict(learned.inputs), learned.targets, learned.weights)
    metrics, estimates = {"train": train, "valid": decided.valid}, Estimates()
    if data.test is None:
        best = "the corrected validation score is the best available estimate"
        what = f"there is no test set: {best if data.can_estimate else 'the error on new data is unknown'}."
        findings.append(Finding("note", what, "E2", "hold out a test set, or cross-validate."))
    else:
        alone, estimates = _tested(committee, data.test, metric)
        about = dataclasses.replace(about, member_tests=alone)
        # An ensemble is no choice of one trial, so how likely each is to be the best says nothing of it.
        told = about.kind != "ensemble" and data.can_estimate
        weighted = None if not told else _weighted(decided.rows, data, Scalers(data))
        estimates = dataclasses.replace(estimates, weighted=weighted)
    estimates = dataclasses.replace(estimates, metrics=metrics | estimates.metrics)
    predictor: AbstractPredictor = committee if len(committee.members) > 1 else committee.members[0]
    return Conclusion(decided.winner, tuple(findings), about, estimates, predictor)


def conclude(
    data: EvaluationData,
    trials: Iterable[Trial],
    kept: Sequence[TrainedTrial],
    *,
    metric: str,
    kind: str = "seeds",
) -> Conclusion:
    """The winner, the committee and the estimates. Finalists are identified by their trial's phase."""
    return measured(decide(data, trials, kept, kind=kind), data, metric=metric)
