"""Which knobs matter (row E13), by two methods that err differently.

    found = relevance_of(space, trials, worst=chance)
    dict(zip(found.paths, found.fanova))         the share of the score's variance that each knob explains alone

- *ARD*: a Gaussian process with kernel Π exp(−((a−b)/l)²) over the knobs' fractions of their priors; a knob along which
  the score changes quickly has a short length l, so 1/l is its relevance. Refitted on random 80 % subsets from random
  lengths in [0.1, 2], since the likelihood has several maxima.
- *fANOVA*: a random forest is fitted and its variance over the whole space decomposed, knob by knob.

A knob that was not active in a trial is taken at its middle there, so that being active is not what counts.
"""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...records.trial import Trial
from ...specs.search_space import Dimension, Space
from .knob_marginals import axis_of, places_of

# Both methods take time that grows faster than the number of trials, and so many settle what matters; the rest of the
# limits keep the whole under a few seconds for twenty knobs.
MOST_TRIALS = 150
LEAST_TRIALS = 10
SHORTEST, LONGEST = 0.05, 100.0  # lengths: at the longest a knob of [0, 1] does nothing


@dataclass(frozen=True, eq=False)
class Relevance:
    """For each knob, in the order of the space.

    `ard` is 1/l, the median over refits, and `ard_spread` half the distance between its quartiles; `fanova` is the
    share of the score's variance that the knob explains by itself. NaN for a knob that did not vary, and for
    all of them where there are fewer than ten trials.
    """

    paths: tuple[str, ...]
    ard: np.ndarray
    ard_spread: np.ndarray
    fanova: np.ndarray
    trials: int  # how many there were to judge by


@dataclass(frozen=True, eq=False)
class _Knob:
    """One knob that varied: places in [0, 1] if its values have an order, names otherwise."""

    path: str
    values: np.ndarray
    ordered: bool

    def columns(self) -> np.ndarray:
        """As inputs of a kernel: one column, or one of 0 and 1 for each of three or more categories."""
        if self.ordered:
            return self.values[:, None]
        names = np.unique(self.values)
        indicators = (self.values[:, None] == names[None, :]).astype(np.float64)
        return indicators if len(names) > 2 else indicators[:, :1]


def _read(dimension: Dimension, trials: Sequence[Trial]) -> _Knob | None:
    """The knob's places or names, the middle or the commonest where it is not active; None if it did not vary."""
    active = [row for row, trial in enumerate(trials) if dimension.path in trial.values]
    values = [trials[row].values[dimension.path] for row in active]
    names = Counter(str(value) for value in values)
    if len(names) < 2:
        return None
    axis = axis_of(dimension, values)
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    if not (numbers or dimension.numeric):
        words = np.full(len(trials), names.most_common(1)[0][0], dtype=object)
        words[active] = [str(value) for value in values]
        return _Knob(dimension.path, words.astype(str), ordered=False)
    found = places_of(dimension, values, axis)
    if not axis.numeric:  # a few numbers: in their order, from one end to the other
        _, order = np.unique(np.array(values, dtype=np.float64), return_inverse=True)
        found = order / order.max()
    places = np.full(len(trials), found.mean())
    places[active] = found
    return _Knob(dimension.path, places, ordered=True)


def _short_climb(objective: Any, start: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, float]:
    """A bounded number of steps: lengths are wanted to a few percent, and flat directions would take hundreds."""
    from scipy.optimize import minimize

    found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": 30})
    return found.x, float(found.fun)


def _inverse_lengths(inputs: np.ndarray, scores: np.ndarray, start: np.ndarray) -> np.ndarray:
    """1/l of each column, the likelihood climbed from these lengths."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    # scikit-learn's kernel is exp(−d²/2l²): its length is ours over √2.
    lengths = RBF(start / np.sqrt(2), (SHORTEST / np.sqrt(2), LONGEST / np.sqrt(2)))
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * lengths + WhiteKernel(0.1, (1e-5, 2.0))
    process = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=_short_climb)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound is what irrelevance looks like
        process.fit(inputs, scores)
    found = np.atleast_1d(process.kernel_.k1.k2.length_scale)
    return np.asarray(1.0 / (np.sqrt(2) * found))


def _by_knob(inverse: np.ndarray, owner: np.ndarray, count: int) -> np.ndarray:
    """One relevance for each knob: for categories the distance between two of them, on average."""
    found = np.zeros(count)
    for knob in range(count):
        own = inverse[owner == knob]
        found[knob] = own[0] if len(own) == 1 else np.sqrt(2.0 * np.mean(own**2))
    return found


def _ard(knobs: list[_Knob], scores: np.ndarray, refits: int, seed: int) -> np.ndarray:
    """1/l of each knob in each refit."""
    from threadpoolctl import threadpool_limits

    blocks = [knob.columns() for knob in knobs]
    inputs = np.concatenate(blocks, axis=1)
    owner = np.repeat(np.arange(len(blocks)), [block.shape[1] for block in blocks])
    # Two categories are at distance 1 whatever they are: from a shorter length the likelihood is flat.
    shortest = np.repeat([0.1 if knob.ordered else 0.7 for knob in knobs], [block.shape[1] for block in blocks])
    draw = np.random.default_rng(seed)
    used = min(round(0.8 * min(len(scores), MOST_TRIALS)), round(math.sqrt(200_000 / inputs.shape[1])))
    found = []
    with threadpool_limits(1):  # the matrices are small: threads would only wait for one another
        for _ in range(refits):
            rows = draw.permutation(len(scores))[:used]
            start = draw.uniform(shortest, 2.0)
            found.append(_by_knob(_inverse_lengths(inputs[rows], scores[rows], start), owner, len(knobs)))
    return np.array(found)


def _fanova(knobs: list[_Knob], scores: np.ndarray, seed: int) -> np.ndarray:
    """Each knob's share of the variance, by Optuna's evaluator on a study in memory."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
    from optuna.importance import FanovaImportanceEvaluator

    rows = np.random.default_rng(seed).permutation(len(scores))[:MOST_TRIALS]
    ranges: dict[str, BaseDistribution] = {
        knob.path: FloatDistribution(0.0, 1.0)
        if knob.ordered
        else CategoricalDistribution(np.unique(knob.values).tolist())
        for knob in knobs
    }
    loud = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study()
        study.add_trials(
            [
                optuna.trial.create_trial(
                    params={knob.path: knob.values[row].item() for knob in knobs},
                    distributions=ranges,
                    value=float(scores[row]),
                )
                for row in rows
            ]
        )
        found = FanovaImportanceEvaluator(n_trees=24, max_depth=32, seed=seed).evaluate(study)
    finally:
        optuna.logging.set_verbosity(loud)
    return np.array([float(found.get(knob.path, 0.0)) for knob in knobs])


def relevance_of(space: Space, trials: Sequence[Trial], *, worst: float, seed: int = 0, refits: int = 10) -> Relevance:
    """The relevance of each knob to the validation score; trials that diverged count as `worst`, failed ones not."""
    judged = [trial for trial in trials if trial.ok or trial.outcome == "diverged"]
    total, paths, count = len(judged), space.paths, len(space.dimensions)
    if total > 4 * MOST_TRIALS:
        rows = np.random.default_rng(seed).choice(total, 4 * MOST_TRIALS, replace=False)
        judged = [judged[row] for row in rows]
    ard, spread, fanova = (np.full(count, np.nan) for _ in range(3))
    known = [trial.score for trial in judged if trial.ok]
    if len(judged) < LEAST_TRIALS or not known:
        return Relevance(paths, ard, spread, fanova, total)
    floor = worst if np.isfinite(worst) else max(known)
    scores = np.array([trial.score if trial.ok else floor for trial in judged], dtype=np.float64)
    found = {place: _read(dimension, judged) for place, dimension in enumerate(space.dimensions)}
    varied = {place: knob for place, knob in found.items() if knob is not None}
    places, knobs = list(varied), list(varied.values())
    if not knobs:
        return Relevance(paths, ard, spread, fanova, total)
    if np.ptp(scores) == 0:  # nothing mattered
        ard[places] = spread[places] = fanova[places] = 0.0
        return Relevance(paths, ard, spread, fanova, total)
    fits = _ard(knobs, scores, refits, seed)
    ard[places], spread[places] = np.median(fits, axis=0), np.subtract(*np.quantile(fits, [0.75, 0.25], axis=0)) / 2
    fanova[places] = _fanova(knobs, scores, seed)
    return Relevance(paths, ard, spread, fanova, total)
