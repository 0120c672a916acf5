"""Compares a recommendation with alternatives on the given data, paired over seeds.

    challenge(recipe, "optimiser.learning_rate", (0.01, 0.1), data, executor, seeds=10)              row I1
    compare(space, "model.widths.count", (1, 2, 3), data, executor, trials_each=16, seeds=5)         row E21

A challenge changes one knob and nothing else. A comparison asks more: does depth matter once everything else is
re-optimised for each depth? Each value gets the same search, draw by draw, and its best recipe is retrained with new
seeds. In both, the n-th runs of all values share their randomness (initial weights, orders, noise), so chance affects
them alike, and differences show sooner.

The confidence intervals cover other seeds; the validation examples are the same throughout.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...evaluation.trials.selection_bias import paired_difference
from ...records.score_scale import ScoreScale
from ...records.study_analysis import Challenge, ComparedValue, Difference, PairedResult
from ...records.trial import Trial, best_of
from ...runtime.errors import RequestError
from ...specs.recipe import Recipe
from ...specs.search_space import Space, label, read_at, write_at
from ..running.evaluation_data import EvaluationData
from ..running.executors import AbstractExecutor
from ..selection.knob_kinds import kind_at, refuse_capacity, space_recipes
from ..strategies.contract import AbstractStrategy, History
from ..strategies.random_search import Random, chosen_values
from .seeds import SeedRequest, Stop, run_requests


def _word(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _failed(scores: np.ndarray, value: Any) -> str:
    lost = int(np.isnan(scores).sum())
    return f"; {_word(value)} failed with {lost} of {len(scores)} seeds" if lost else ""


def _against(value: Any, reference: Any, scores: dict[Any, np.ndarray], scale: ScoreScale) -> PairedResult:
    """The verdict on one alternative."""
    mine, theirs = scores[value], scores[reference]
    both = np.isfinite(mine) & np.isfinite(theirs)
    lost = _failed(mine, value) + _failed(theirs, reference)
    if both.sum() < 2:
        nothing = Difference(math.nan, math.nan, math.nan, int(both.sum()))
        said = f"{_word(value)} and {_word(reference)} could not be compared: too few pairs{lost}"
        return PairedResult(value, nothing, said)
    pairs = [scale.on(line[both]) for line in (mine, theirs)]
    found = paired_difference(*pairs)
    if found.low <= 0.0 <= found.high:
        ends = scale.gap(found.low, found.high)
        verdict = (
            f"no significant difference between {_word(value)} and {_word(reference)} (95 % confidence interval {ends}"
        )
    else:
        low, high = sorted((abs(found.low), abs(found.high)))
        word = "better" if found.mean < 0 else "worse"
        verdict = f"{_word(value)} is {word} than {_word(reference)} by {scale.gap(abs(found.mean))}"
        verdict += f" (95 % confidence interval {scale.gap(low, high)}"
    return PairedResult(value, found, f"{verdict}), paired over {found.count} seeds{lost}")


def _judged(
    path: str, reference: Any, runs: dict[Any, Sequence[Trial | None]], scale: ScoreScale, more: str = ""
) -> Challenge:
    """The record of runs by value, the n-th of each with the same randomness."""
    scores = {
        value: np.array([trial.score if trial is not None and trial.ok else math.nan for trial in line])
        for value, line in runs.items()
    }
    against = tuple(_against(value, reference, scores, scale) for value in runs if value != reference)
    sentence = f"`{path}`, {scale.name}: {'; '.join(one.verdict for one in against)}{more}."
    trials = tuple(trial for line in runs.values() for trial in line if trial is not None)
    values = tuple(ComparedValue(value, tuple(line.tolist())) for value, line in scores.items())
    return Challenge(path, reference, values, against, sentence, trials=trials)


def _variants(recipe: Recipe, path: str, values: Sequence[Any]) -> dict[Any, Recipe]:
    """A recipe for each value, by the value's label; refuses a path that leads nowhere and fewer than two values."""
    kind_at(recipe, path)  # names the nearest path where this one leads nowhere
    recipes = {}
    for value in values:
        changed = write_at(recipe, path, value)
        active, there = read_at(changed, path)
        if not active:
            raise RequestError(f"`{path}` does not exist in this recipe, so nothing would change.")
        recipes[label(there)] = changed
    if len(recipes) < 2:
        raise RequestError(
            f"give at least two distinct values of `{path}` to compare; got {', '.join(map(_word, recipes))}."
        )
    return recipes


def _check_seeds(seeds: int) -> None:
    if seeds < 2:
        raise RequestError(f"a paired comparison needs at least 2 seeds; got {seeds}. Use 5 or more.")


def _paired_runs(
    recipes: dict[Any, Recipe],
    path: str,
    data: EvaluationData,
    executor: AbstractExecutor,
    *,
    seeds: int,
    first: int,
    randomness: int,
    phase: str,
    stop: Stop,
) -> dict[Any, Sequence[Trial | None]]:
    """Each recipe with each seed. A seed's runs have neighbouring numbers, so that a cut leaves whole pairs."""
    names = list(recipes)
    requests = [
        SeedRequest(first + seed * len(names) + place, recipes[name], randomness + seed, {path: name})
        for seed in range(seeds)
        for place, name in enumerate(names)
    ]
    found = run_requests(requests, data, executor, phase=phase, stop=stop)
    return {
        name: [found.get(first + seed * len(names) + place) for seed in range(seeds)]
        for place, name in enumerate(names)
    }


def challenge(
    recipe: Recipe,
    path: str,
    values: Sequence[Any],
    data: EvaluationData,
    executor: AbstractExecutor,
    seeds: int = 10,
    *,
    first: int = 0,
    stop: Stop = lambda: False,
) -> Challenge:
    """The recipe's own value at this path against others, everything else as it is, paired over seeds.

    The recipe's value is the recommendation and takes part whether it is named or not. It takes `seeds` trials for each
    value, with numbers from `first` on.
    """
    _check_seeds(seeds)
    active, own = read_at(recipe, path)
    recipes = _variants(recipe, path, (*((own,) if active else ()), *values))
    refuse_capacity(data.judged_on, recipes.values())
    options: Any = {"seeds": seeds, "first": first, "randomness": first, "phase": "challenge", "stop": stop}
    runs = _paired_runs(recipes, path, data, executor, **options)
    return _judged(path, next(iter(recipes)), runs, data.scale(recipe))


@dataclass
class _Search:
    """The search for one value. To its strategy it is a study of its own, whose numbers are those of the others too:
    so draws and seeds are paired. Its jobs lie `offset` further on."""

    name: Any
    space: Space
    offset: int
    trials: list[Trial] = field(default_factory=list)

    def ask(
        self, strategy: AbstractStrategy, path: str, first: int, most: int, count: int, data: EvaluationData
    ) -> list[SeedRequest]:
        if count < 1:
            return []
        start = first + len(self.trials)
        requests = []
        history = History(tuple(self.trials), (), start, most)
        for number, proposal in enumerate(strategy.ask(self.space, history, count, key=data.key), start):
            seed = number if proposal.continues is None else proposal.continues
            values = {path: self.name, **chosen_values(self.space, proposal.recipe)}
            asked = (proposal.examples, proposal.continues)
            requests.append(SeedRequest(number + self.offset, proposal.recipe, seed, values, *asked))
        return requests

    def take(self, requests: list[SeedRequest], done: dict[int, Trial]) -> None:
        for one in requests:
            if one.number in done:
                self.trials.append(replace(done[one.number], number=one.number - self.offset, phase="search"))

    def told(self) -> list[Trial]:
        """Its trials as the rest of the study may see them: numbers of their own, and no independent draws."""
        return [replace(trial, number=trial.number + self.offset, phase="comparison") for trial in self.trials]


def _run_searches(
    searches: list[_Search],
    path: str,
    data: EvaluationData,
    executor: AbstractExecutor,
    strategy: AbstractStrategy,
    trials_each: int,
    first: int,
    stop: Stop,
) -> None:
    """All searches side by side: at once where the strategy does not look back, else a few trials at a time."""
    while not stop():
        room = max(1, executor.room(looks_back=True)) if strategy.looks_back else trials_each
        asked = [
            s.ask(strategy, path, first, trials_each, min(room, trials_each - len(s.trials)), data) for s in searches
        ]
        if not any(asked):
            break
        requests = [one for several in asked for one in several]
        done = run_requests(requests, data, executor, phase="search", stop=stop)
        for search, several in zip(searches, asked, strict=True):
            search.take(several, done)


def compare(
    space: Space,
    path: str,
    values: Sequence[Any],
    data: EvaluationData,
    executor: AbstractExecutor,
    trials_each: int = 16,
    strategy: AbstractStrategy | None = None,
    seeds: int = 5,
    *,
    first: int = 0,
    stop: Stop = lambda: False,
) -> Challenge:
    """For each value of one knob all others of the space re-optimised by the same search, then paired over new seeds.

    The reference is the value that the space's recipe has, or else the first. It takes (`trials_each` + `seeds`) trials
    for each value, with numbers from `first` on.
    """
    _check_seeds(seeds)
    if trials_each < 1:
        raise RequestError(f"each value needs at least one trial; got {trials_each}.")
    recipes = _variants(space.recipe, path, values)
    refuse_capacity(data.judged_on, (*recipes.values(), *space_recipes(space)))
    strategy = strategy or Random()
    others = [other for other in space.paths if other != path]
    searches = [
        _Search(name, space.only(others, recipe), place * trials_each)
        for place, (name, recipe) in enumerate(recipes.items())
    ]
    _run_searches(searches, path, data, executor, strategy, trials_each, first, stop)
    best = {s.name: found for s in searches if (found := best_of(s.trials)) is not None}
    again: dict[str, Any] = {
        "seeds": seeds,
        "first": first + len(searches) * trials_each,
        "randomness": first + trials_each,  # seeds that no trial of the searches had
        "phase": "comparison",
        "stop": stop,
    }
    runs = _paired_runs({name: trial.recipe for name, trial in best.items()}, path, data, executor, **again)
    runs = {s.name: runs.get(s.name, [None] * seeds) for s in searches}
    own = label(read_at(space.recipe, path)[1])
    reference = own if own in recipes else next(iter(recipes))
    more = f"; each is the best of {trials_each} trials, retrained"
    result = _judged(path, reference, runs, data.scale(space.recipe), more)
    searched = [trial for search in searches for trial in search.told()]
    values = tuple(
        replace(one, best=dict(best[one.value].values)) if one.value in best else one for one in result.values
    )
    return replace(result, values=values, trials_each=trials_each, trials=(*searched, *result.trials))
