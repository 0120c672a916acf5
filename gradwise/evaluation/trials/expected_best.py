"""How good the best of N trials is, and whether more trials are worth it (row E10).

    curve = expected_best(scores_of(trials, chance), chance)      mean and deviation of the best of 1, 2, ..., S
    advice(trials, worst=chance, noise=noise_of(best, 2000)).sentence
    worth_going_on(trials, worst=chance, noise=noise)             the same, as a stop rule

Everything here is in the units of the score, lower is better. A trial that diverged or failed counts as `worst`, the
score of a constant prediction. One- and two-knob pictures are in `knob_marginals.py`, cost and cheap estimates in
`cost.py`, divergences in `failures.py`, which knobs matter in `knob_relevance.py`, honest estimates in
`selection_bias.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...records.score_scale import ScoreScale
from ...records.study_analysis import Advice
from ...records.trial import Trial
from ...runtime.errors import RequestError

# Fewer trials make no curve to judge by.
LEAST_TRIALS = 16
# A step smaller than this share of the standard error of one validation score cannot be seen. Two models are compared
# on the same examples and share most errors, so that a whole standard error would be too strict.
LEAST_STEP = 0.5


@dataclass(frozen=True, eq=False)
class ExpectedBest:
    """The best of `sizes` trials: mean and standard deviation over all subsets of that size.

    The deviation is of the draw of a subset. It falls to 0 for the set of all trials, which does not mean certainty.
    """

    sizes: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


def scores_of(trials: Sequence[Trial], worst: float) -> np.ndarray:
    """The scores in the order given, `worst` for the trials that left no model."""
    return np.array([trial.score if trial.ok else worst for trial in trials], dtype=np.float64)


def best_so_far(scores: np.ndarray) -> np.ndarray:
    """The running minimum; NaN until the first finite score."""
    known = np.where(np.isfinite(scores), scores, np.nan)
    return np.asarray(np.fmin.accumulate(known), dtype=np.float64)


def _with_worst(scores: np.ndarray, worst: float) -> np.ndarray:
    """The scores with `worst` for what is not finite; without a worst either, the worst that was seen."""
    scores = np.asarray(scores, dtype=np.float64)
    finite = np.isfinite(scores)
    if finite.all():
        return scores
    if not math.isfinite(worst):
        if not finite.any():
            raise RequestError("no trial has a score.")
        worst = float(scores[finite].max())
    return np.where(finite, scores, worst)


def _sizes(count: int, asked: Sequence[int]) -> np.ndarray:
    """Every size up to 64, beyond that 128 in equal steps of the logarithm: no picture shows more."""
    if count == 0:
        raise RequestError("no trials: run one first.")
    if len(asked):
        sizes = np.asarray(asked, dtype=np.int64)
        if sizes.min() < 1 or sizes.max() > count:
            raise RequestError(f"a subset of {count} trials must have 1 to {count}; got {asked}.")
        return sizes
    if count <= 64:
        return np.arange(1, count + 1)
    return np.unique(np.concatenate([np.arange(1, 65), np.rint(np.geomspace(64, count, 128)).astype(np.int64)]))


def _chances(count: int, sizes: np.ndarray) -> np.ndarray:
    """P[s, i]: the chance that the trial of rank i (0 the best) wins a random subset of s: C(S−1−i, s−1) / C(S, s)."""
    from scipy.special import gammaln

    table = gammaln(np.arange(count + 1) + 1.0)  # logarithms of factorials
    below = count - 1 - np.arange(count)[None, :]  # how many are worse
    s = sizes[:, None]
    rest = below - (s - 1)
    log = table[below] - table[s - 1] - table[np.maximum(rest, 0)] - (table[count] - table[s] - table[count - s])
    return np.where(rest >= 0, np.exp(np.minimum(log, 0.0)), 0.0)


def expected_of_best(scores: np.ndarray, others: np.ndarray, worst: float, sizes: Sequence[int] = ()) -> ExpectedBest:
    """What the winner of a random subset, chosen by `scores`, shows in `others`, such as on the test set.

    Trials that tie on the score are as likely to be taken, so each tie counts by its average.
    """
    chosen_by, shown = _with_worst(scores, worst), _with_worst(others, worst)
    if chosen_by.shape != shown.shape:
        raise RequestError(f"expected paired scores; got {len(chosen_by)} and {len(shown)}.")
    drawn = _sizes(len(chosen_by), sizes)
    _, tie = np.unique(chosen_by, return_inverse=True)
    count = np.bincount(tie)
    first = (np.bincount(tie, shown) / count)[np.sort(tie)]
    within = np.maximum((np.bincount(tie, shown**2) / count)[np.sort(tie)] - first**2, 0.0)
    mean, variance = np.zeros(len(drawn)), np.zeros(len(drawn))
    rows = max(1, 500_000 // len(chosen_by))
    for start in range(0, len(drawn), rows):
        part = slice(start, start + rows)
        chances = _chances(len(chosen_by), drawn[part])
        mean[part] = chances @ first
        variance[part] = (chances * ((first - mean[part, None]) ** 2 + within)).sum(axis=1)
    return ExpectedBest(drawn, mean, np.sqrt(variance))


def expected_best(scores: np.ndarray, worst: float, sizes: Sequence[int] = ()) -> ExpectedBest:
    """Mean and standard deviation of the best of s trials over all subsets of s, exactly, for s = 1 ... S.

    Only for trials that are independent draws of one prior: for others the order matters and a subset means nothing.
    """
    return expected_of_best(scores, scores, worst, sizes)


def noise_of(score: float, examples: int, kind: str = "error") -> float:
    """The standard error of a validation score on so many examples, from the score alone.

    | kind | the losses of the examples are taken as |
    |---|---|
    | error | right or wrong, with one more of each so that no error seen is not no error |
    | squared | squares of normal errors |
    | absolute | absolute values of normal errors |
    | loss | exponential |
    """
    if kind not in {"error", "squared", "absolute", "loss"}:
        raise RequestError(f"unknown kind of score {kind!r}; choose from error, loss, squared, absolute.")
    if examples < 2 or not math.isfinite(score):
        return math.nan
    if kind == "error":
        rate = (min(max(score, 0.0), 1.0) * examples + 1.0) / (examples + 2.0)
        return math.sqrt(rate * (1.0 - rate) / (examples - 1))
    relative = {"squared": math.sqrt(2.0), "absolute": math.sqrt(math.pi / 2 - 1), "loss": 1.0}[kind]
    return relative * abs(score) / math.sqrt(examples)


def _step(scale: ScoreScale, score: float, gain: float) -> str:
    """A difference, measured from this score."""
    return scale.gap(abs(scale.shown(score + gain) - scale.shown(score)))


def _of_draws(scores: np.ndarray, noise: float, scale: ScoreScale) -> Advice:
    """Judges independent draws by what the last doubling of their number gained on average.

    A curve of expected bests flattens, so the next doubling gains less than the last: the rule errs on going on.
    """
    count, best = len(scores), float(scores.min())
    half = float(expected_best(scores, math.nan, (count // 2,)).mean[0])
    gain = half - best
    go_on = gain > LEAST_STEP * noise
    verdict = "more trials are worth it" if go_on else "more trials are hardly worth it"
    sentence = (
        f"{verdict}: {count // 2} trials reach {scale.say(half)} on average and these {count} reach "
        f"{scale.say(best)}, so doubling their number may gain {_step(scale, best, gain)}, "
        f"{'more' if go_on else 'less'} than half the uncertainty of one validation score "
        f"(±{_step(scale, best, noise)})."
    )
    return Advice(go_on, sentence, gain, noise, count)


def _of_sequence(scores: np.ndarray, noise: float, scale: ScoreScale) -> Advice:
    """Judges trials that look back by how long ago the best last improved by a step that can be seen."""
    count, best = len(scores), best_so_far(scores)
    end = float(best[-1])
    steps = np.flatnonzero(np.diff(best, prepend=np.inf) < 0)
    reference, last = math.inf, 0
    for place in steps:
        if best[place] < reference - LEAST_STEP * noise:
            reference, last = float(best[place]), int(place) + 1
    gain = float(best[count // 2 - 1] - end)
    since = count - last
    go_on = since < max(LEAST_TRIALS, last)
    verdict = "more trials are worth it" if go_on else "more trials are hardly worth it"
    sentence = (
        f"{verdict}: the best of {count} trials, {scale.say(end)}, last improved by more than half the uncertainty "
        f"of one validation score (±{_step(scale, end, noise)}) at trial {last}, {since} trials ago. "
        "These trials are not independent draws, so the best so far is used instead of the expected best of N."
    )
    return Advice(go_on, sentence, gain, noise, count)


def advice(
    trials: Sequence[Trial],
    *,
    worst: float,
    noise: float,
    independent: bool = True,
    scale: ScoreScale = ScoreScale("loss"),
) -> Advice:
    """Whether more trials are worth it: what doubling their number may gain against the noise of one score.

    `noise` is the standard error of one validation score (`noise_of`); `independent` says whether the trials are
    draws of one prior whatever the others showed. Trials of other phases than the search are left out. `scale` says how
    scores are written.
    """
    searched = sorted((trial for trial in trials if trial.phase == "search"), key=lambda trial: trial.number)
    ok = sum(trial.ok for trial in searched)
    count = len(searched)
    if not ok:
        sentence = f"none of the {count} trials produced a model: change the ranges before running more."
        return Advice(count < LEAST_TRIALS, sentence, math.nan, noise, count)
    noise = noise if math.isfinite(noise) else 0.0
    scores = _with_worst(scores_of(searched, math.nan), worst)
    if scores.min() == 0.0:
        sentence = "a trial makes no validation error: more trials cannot improve on that."
        return Advice(False, sentence, 0.0, noise, count)
    if count < LEAST_TRIALS:
        several = "1 trial is" if count == 1 else f"{count} trials are"
        sentence = f"{several} too few to tell whether more are worth it: run {LEAST_TRIALS} or more."
        return Advice(True, sentence, math.nan, noise, count)
    judged = _of_draws if independent and all(trial.continues is None for trial in searched) else _of_sequence
    return judged(scores, noise, scale)


def worth_going_on(trials: Sequence[Trial], *, worst: float, noise: float, independent: bool = True) -> bool:
    """The stop rule of a search without a limit of its own: whether the next trials may be expected to show."""
    return advice(trials, worst=worst, noise=noise, independent=independent).go_on
