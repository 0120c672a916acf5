"""Search by a model of the scores (row E14): a random forest in the manner of SMAC, or a Gaussian process.

    ModelBased()                     a random forest: any mixture of numbers, categories and conditional knobs
    ModelBased("gp", startup=8)      a Gaussian process: a few numeric knobs, and scores that vary smoothly

After `startup` draws of the priors every question fits the model anew to all trials and proposes the point of the
largest expected improvement. The two models share everything else:

| what | how |
|---|---|
| a logarithmic range, a whole number | a column in [0, 1], on the prior's own scale |
| a choice | a column for each of its values |
| a knob that may be off | its value and whether it is on |
| a knob of a part that was not drawn | its value in the middle of the range and whether it is there |
| a trial that diverged or failed | the worst score of those that did not |
| a trial that still runs | the median score, so that nothing near it is proposed again |
| candidates | draws of the priors, and neighbours of the best in several rounds |

One proposal in five is a draw of the prior, as SMAC interleaves them (Hutter, Hoos and Leyton-Brown 2011): no model is
right everywhere. A proposal is a function of the study's key, its number and the trials, and of nothing else.
"""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from ...records.trial import Proposal
from ...runtime.keys import generator, named
from ...specs.knobs import switch
from ...specs.priors import Choice, LogInteger, ZeroOr
from ...specs.search_space import Dimension, Space, read_at
from .contract import AbstractStrategy, History
from .random_search import LEARNED_FROM, learned_from, sobol_points
from .recommended import is_within

Rows = Float[np.ndarray, "points columns"]
Predict = Callable[[Rows], tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]]

_TREES = 100
_FITTED = 200  # rows that the kernel's length scales are fitted to: the cost grows with the cube
_KEPT = 10  # candidates that go on to the next round of neighbours
_ROUNDS = 6
_NEIGHBOURS = 10  # of each of them, in a round
_WIDEST = 0.3  # deviation of a neighbour's step, as a fraction of the prior; the narrowest is a hundredth of it


def _decides_structure(dimension: Dimension) -> bool:
    """Whether its value decides which other knobs there are."""
    scale = dimension.scale
    parts = isinstance(scale, Choice) and not all(isinstance(value, (int, float, str)) for value in scale.values)
    return parts or dimension.path.endswith(".count")


class SpaceColumns:
    """A space as a table: each point one fraction of the prior for each dimension, NaN where that is not active."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.structural = [place for place, d in enumerate(space.dimensions) if _decides_structure(d)]
        owners = [f"{space.paths[place].removesuffix('.count')}." for place in self.structural]
        self.optional = [any(path.startswith(owner) for owner in owners) for path in space.paths]
        self._active: dict[tuple[float, ...], list[bool]] = {}

    def _is_active(self, row: Float[np.ndarray, " dimensions"]) -> list[bool]:
        """Which dimensions exist at a point. Making a recipe is slow, and few of them differ in structure."""
        known = tuple(float(row[place]) for place in self.structural)
        if known not in self._active:
            fractions = {self.space.paths[place]: float(row[place]) for place in self.structural}
            recipe = self.space.recipe_at(fractions)
            self._active[known] = [read_at(recipe, path)[0] for path in self.space.paths]
        return self._active[known]

    def settle(self, rows: Rows) -> Rows:
        """The points as a recipe would have them: whole numbers and choices rounded, what is not active NaN."""
        found = np.clip(rows, 0.0, 1.0)
        for place, dimension in enumerate(self.space.dimensions):
            prior = dimension.prior
            if isinstance(dimension.scale, (Choice, LogInteger)):
                found[:, place] = [prior.fraction(prior.quantile(fraction)) for fraction in found[:, place]]
            elif isinstance(prior, ZeroOr):
                found[:, place] = np.where(found[:, place] < prior.zero, prior.zero / 2, found[:, place])
        if self.structural:
            found[~np.array([self._is_active(row) for row in found])] = np.nan
        return found

    def place_of(self, recipe: Any) -> Float[np.ndarray, " dimensions"] | None:
        """Where a recipe lies; nowhere if it lies outside the space as it now is."""
        values = self.space.values(recipe)
        if not all(is_within(self.space[path].prior, value) for path, value in values.items()):
            return None
        fractions = {path: self.space[path].prior.fraction(value) for path, value in values.items()}
        return np.array([fractions.get(path, np.nan) for path in self.space.paths])

    def encode(self, rows: Rows) -> Rows:
        """The columns that a model reads."""
        found = []
        for place, dimension in enumerate(self.space.dimensions):
            fractions, prior = rows[:, place], dimension.prior
            there = ~np.isnan(fractions)
            if isinstance(prior, Choice):
                ways = [prior.fraction(value) for value in prior.values]
                found += [np.isclose(fractions, way) for way in ways]
                continue
            if isinstance(prior, ZeroOr):
                on = fractions >= prior.zero
                found += [on]
                fractions = np.where(there & ~on, 0.0, (fractions - prior.zero) / (1.0 - prior.zero))
            found += [np.where(there, fractions, 0.5)]
            if self.optional[place]:
                found += [there]
        return np.stack(found, axis=1).astype(float)


def _fit_forest(rows: Rows, scores: Float[np.ndarray, " points"], seed: int) -> Predict:
    """Mean and deviation over the trees."""
    from sklearn.ensemble import ExtraTreesRegressor

    # Split points drawn at random, as in SMAC's forest: the mean passes between two trials in many small steps and the
    # trees differ there, where those of `RandomForestRegressor` all step in the middle. Five sixths of the columns at
    # each split, and no split of fewer than three trials, are SMAC's too.
    forest = ExtraTreesRegressor(_TREES, max_features=5 / 6, min_samples_split=3, random_state=seed)
    forest.fit(rows, scores)

    def predict(points: Rows) -> tuple[Any, Any]:
        narrow = np.ascontiguousarray(points, dtype=np.float32)
        each = np.stack([tree.tree_.predict(narrow)[:, 0] for tree in forest.estimators_])
        return each.mean(axis=0), each.std(axis=0)

    return predict


def _fit_process(rows: Rows, scores: Float[np.ndarray, " points"], seed: int) -> Predict:
    """Posterior mean and deviation of the score without its noise: a Matérn 5/2 kernel, a length scale a column."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    scales = Matern(np.full(rows.shape[1], 0.5), (0.05, 10.0), nu=2.5)
    kernel = ConstantKernel(1.0, (0.1, 20.0)) * scales + WhiteKernel(1e-2, (1e-5, 1.0))
    some = np.random.default_rng(seed).permutation(len(rows))[:_FITTED]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length scale at its bound is a column that does not matter
        process = GaussianProcessRegressor(kernel, random_state=seed).fit(rows[some], scores[some])
        if len(some) < len(rows):
            process = GaussianProcessRegressor(process.kernel_, optimizer=None).fit(rows, scores)

    def predict(points: Rows) -> tuple[Any, Any]:
        mean, deviation = process.predict(points, return_std=True)
        return mean, np.sqrt(np.maximum(deviation**2 - process.kernel_.k2.noise_level, 1e-12))

    return predict


_MODELS = {"forest": _fit_forest, "gp": _fit_process}


def expected_improvement(
    mean: Float[np.ndarray, " points"], deviation: Float[np.ndarray, " points"], best: float
) -> Float[np.ndarray, " points"]:
    """How far below `best` a normal score is expected to lie, counting nothing where it lies above."""
    from scipy.special import ndtr

    deviation = np.maximum(deviation, 1e-9)
    lead = (best - mean) / deviation
    return deviation * (lead * ndtr(lead) + np.exp(-0.5 * lead**2) / np.sqrt(2 * np.pi))


@dataclasses.dataclass(frozen=True)
class _Told:
    """What the model learns from: points, and their scores on a scale of deviation 1."""

    rows: Rows
    scores: Float[np.ndarray, " points"]


def _tell(columns: SpaceColumns, history: History, proposed: Sequence[Proposal]) -> _Told:
    """The trials that ended, in their order, then those that run."""
    trials = learned_from(history)
    good = [trial.score for trial in trials if trial.ok]
    worst, middle = max(good), float(np.median(good))
    told = [(trial.recipe, trial.score if trial.ok else worst) for trial in trials]
    running = sorted(history.running, key=lambda one: one[0])
    told += [(one.recipe, middle) for _, one in running if one.phase in LEARNED_FROM]
    told += [(one.recipe, middle) for one in proposed]
    places = [(columns.place_of(recipe), score) for recipe, score in told]
    inside = [(place, score) for place, score in places if place is not None]
    scores = np.array([score for _, score in inside])
    # Of bad scores only that they are bad matters: a model of all of them would have little left for the good ones.
    centre = np.median(scores)
    scores = np.minimum(scores, 2 * centre - scores.min())
    return _Told(np.array([place for place, _ in inside]), (scores - scores.mean()) / (scores.std() or 1.0))


class ModelBased(AbstractStrategy):
    """The next trials where a model of the scores expects the largest improvement."""

    model: str = switch("forest", allowed=("forest", "gp"), row="E14", about="a random forest, or a Gaussian process")
    startup: int = switch(8, allowed="[2, inf)", row="E14", about="trials drawn from the priors before the model")
    interleave: float = switch(0.2, allowed="[0, 1]", row="E14", about="the share of random draws after that")
    candidates: int = switch(1000, allowed="[1, inf)", row="E14", about="random candidates that the model ranks")

    def _neighbours(self, space: Space, rows: Rows, draw: np.random.Generator) -> Rows:
        """Points near these: one or a few knobs moved, numbers by a step of any size, choices to any value."""
        rows = np.repeat(rows, _NEIGHBOURS, axis=0)
        rows = np.where(np.isnan(rows), draw.random(rows.shape), rows)
        moved = draw.random(rows.shape) < 1.0 / rows.shape[1]
        moved[np.arange(len(rows)), draw.integers(rows.shape[1], size=len(rows))] = True
        steps = _WIDEST * 10.0 ** (-2.0 * draw.random((len(rows), 1))) * draw.standard_normal(rows.shape)
        chosen = np.array([isinstance(d.scale, Choice) for d in space.dimensions])
        other = np.where(chosen, draw.random(rows.shape), np.clip(rows + steps, 0.0, 1.0))
        return np.where(moved, other, rows)

    def _best_point(
        self, columns: SpaceColumns, told: _Told, draw: np.random.Generator
    ) -> Float[np.ndarray, " dimensions"]:
        """The point of the largest expected improvement that was not tried; of equal ones the first drawn."""
        predict = _MODELS[self.model](columns.encode(told.rows), told.scores, int(draw.integers(2**31)))
        best = float(predict(columns.encode(told.rows))[0].min())

        def ranked(rows: Rows) -> Rows:
            gain = expected_improvement(*predict(columns.encode(rows)), best)
            return rows[np.argsort(-gain, kind="stable")]

        drawn = columns.settle(draw.random((self.candidates, len(columns.space.dimensions))))
        tried = {tuple(np.round(row, 9)) for row in np.nan_to_num(told.rows, nan=-1.0)}
        near = told.rows[np.argsort(told.scores, kind="stable")[:_KEPT]]
        pool = ranked(drawn)[:_KEPT]
        for _ in range(_ROUNDS):
            around = columns.settle(self._neighbours(columns.space, np.concatenate([pool, near]), draw))
            fresh = np.array([tuple(np.round(row, 9)) not in tried for row in np.nan_to_num(around, nan=-1.0)])
            pool = ranked(np.concatenate([around[fresh], pool]))[:_KEPT]
        found: Float[np.ndarray, " dimensions"] = pool[0]
        return found

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        columns = SpaceColumns(space)
        enough = sum(t.ok and columns.place_of(t.recipe) is not None for t in learned_from(history)) >= self.startup
        proposals: list[Proposal] = []
        for number in range(history.next, history.next + count):
            draw = generator(jr.fold_in(named(key, "model-based search"), number))
            if draw.random() < self.interleave or not enough or not space.dimensions:
                proposals.append(Proposal(space.recipe_at(sobol_points(space, number, 1, key)[0])))
                continue
            row = self._best_point(columns, _tell(columns, history, proposals), draw)
            active = {p: float(f) for p, f in zip(space.paths, row, strict=True) if not np.isnan(f)}
            proposals.append(Proposal(space.recipe_at(active)))
        return proposals
