"""The border rule: an optimum outside the first interval is found, and no knob leaves what it allows."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from gradwise import defaults
from gradwise.models.activations import Rectifier, Tanh
from gradwise.optimisers.first_order.sgd import HeavyBall
from gradwise.records.finding import Finding
from gradwise.records.trial import Trial, best_of
from gradwise.runtime.keys import from_seed
from gradwise.searching.strategies.coarse_to_fine import CoarseToFine
from gradwise.searching.strategies.contract import AbstractStrategy, History
from gradwise.searching.strategies.random_search import Random
from gradwise.searching.strategies.range_borders import extend_ranges, too_few_values
from gradwise.specs.priors import Choice, LogInteger, LogUniform, Uniform, ZeroOr
from gradwise.specs.search_space import Space, dimension

RATE = "optimiser.optimiser.learning_rate"


def _tried(space: Space, path: str, values: list[Any], best: Any) -> list[Trial]:
    """Trials with these values at one path, of which one is best."""
    recipe = space.recipe
    return [Trial(n, recipe, {path: v}, "finished", 0.0 if v == best else 1.0, 0.0) for n, v in enumerate(values)]


def _one(path: str, prior: Any, **parts: Any) -> Space:
    recipe = defaults.classification(**parts)
    return Space(recipe, (dimension(recipe, path, prior),))


def _ends(space: Space) -> tuple[float, float]:
    scale: Any = space.dimensions[0].scale
    return scale.low, scale.high


CASES = [
    # path, prior, best value, the ends afterwards
    (RATE, LogUniform(1e-4, 1e-1), 0.09, (1e-4, 1.0)),
    (RATE, LogUniform(1e-4, 1e-1), 1.2e-4, (1e-5, 1e-1)),
    (RATE, LogUniform(1e-3, 3e-3), 3e-3, (1e-3, 9e-3)),  # less than a decade wide: by its own width
    (RATE, LogUniform(1e-4, 1e-1), 0.05, (1e-4, 1e-1)),  # 10 % from the end: left as it is
    ("criterion.mixup", Uniform(0.1, 0.2), 0.199, (0.1, 0.3)),
    ("criterion.mixup", Uniform(0.1, 0.5), 0.1, (0.0, 0.5)),  # no further than 0, which is allowed
    ("criterion.mixup", Uniform(0.0, 0.5), 0.0, (0.0, 0.5)),
    ("model.dropout", ZeroOr(Uniform(0.1, 0.5)), 0.5, (0.1, 0.9)),
    ("model.dropout", ZeroOr(Uniform(0.1, 0.8)), 0.8, (0.1, 0.98)),  # 1 is not allowed: nine tenths of the way
    ("model.dropout", ZeroOr(Uniform(0.1, 0.98)), 0.97, (0.1, 0.98)),  # what is left is not worth it
    ("model.dropout", ZeroOr(Uniform(0.1, 0.5)), 0.0, (0.1, 0.5)),  # off is no border
    ("model.widths.each", LogInteger(16, 256), 256, (16, 512)),
    ("model.widths.each", LogInteger(16, 256), 16, (8, 256)),
    ("model.widths.count", LogInteger(1, 4), 1, (1, 4)),  # fewer than one layer there is not
    ("model.widths.count", LogInteger(1, 4), 4, (1, 8)),
    ("model.widths.count", LogInteger(1, 4), 3, (1, 4)),
]


@pytest.mark.parametrize(("path", "prior", "best", "ends"), CASES)
def test_where_each_end_goes(path: str, prior: Any, best: Any, ends: tuple[float, float]) -> None:
    space = _one(path, prior)
    others = [space.dimensions[0].scale.quantile(f) for f in (0.3, 0.4, 0.5, 0.6, 0.7)]
    if path == "model.widths.count":
        others = [1, 2, 3, 4]
    wider, findings = extend_ranges(space, _tried(space, path, [*others, best], best))
    assert _ends(wider) == pytest.approx(ends)
    moved = _ends(space) != pytest.approx(ends)
    assert len(findings) == moved
    assert (wider is space) == (not moved)
    assert type(wider.dimensions[0].prior) is type(prior)
    wider.recipe_at({path: 0.0})  # the very ends are allowed values
    wider.recipe_at({path: 1.0})


def test_the_finding_says_what_where_and_what_happens_next() -> None:
    space = _one(RATE, LogUniform(1e-4, 1e-1))
    _, findings = extend_ranges(space, _tried(space, RATE, [1e-3, 2e-3, 3e-3, 0.1], 0.1))
    assert findings == [
        Finding(
            "note",
            f"the best value of `{RATE}`, 0.1, is at the high end of its range [0.0001, 0.1]: better values may lie "
            "beyond.",
            "E4",
            "The search continues in [0.0001, 1]; start there if you search again.",
            code="GW707",
            where=RATE,
        )
    ]


def test_momentum_never_reaches_one() -> None:
    path = "optimiser.momentum"
    space = _one(path, Uniform(0.0, 0.9), optimiser=HeavyBall())
    for _ in range(5):
        high = _ends(space)[1]
        space, _ = extend_ranges(space, _tried(space, path, [0.1, 0.2, 0.3, 0.4, high], high))
    assert 0.98 < _ends(space)[1] < 1.0


def test_nothing_moves_before_four_values_and_without_a_best() -> None:
    space = _one(RATE, LogUniform(1e-4, 1e-1))
    trials = _tried(space, RATE, [1e-3, 1e-2, 0.1], 0.1)
    assert extend_ranges(space, trials) == (space, [])
    assert extend_ranges(space, []) == (space, [])
    diverged = [Trial(n, space.recipe, {RATE: 0.1 - n * 0.01}, "diverged") for n in range(6)]
    assert extend_ranges(space, diverged) == (space, [])


def test_a_knob_the_best_did_not_have_stays(conditional: Space) -> None:
    trials = [
        Trial(n, conditional.recipe, {RATE: 1e-3 * (n + 1), "model.widths.2": 16 + n}, "finished", 1.0, 0.0)
        for n in range(5)
    ]
    best = Trial(5, conditional.recipe, {RATE: 1e-2}, "finished", 0.0, 0.0)
    assert extend_ranges(conditional, [*trials, best]) == (conditional, [])


def test_three_values_are_too_few_even_if_the_middle_one_wins() -> None:
    space = _one(RATE, LogUniform(1e-4, 1e-1))
    [finding] = too_few_values(space, _tried(space, RATE, [1e-4, 1e-2, 1e-2, 1e-1], 1e-2))
    assert (finding.level, finding.row) == ("warning", "E4")
    assert finding.what.startswith(f"only 3 values of `{RATE}` tried: too few")
    assert finding.next == "Try at least 4, over [0.0001, 0.1]."
    assert too_few_values(space, _tried(space, RATE, [1e-4, 1e-3, 1e-2, 1e-1], 1e-2)) == []
    assert too_few_values(space, []) == []


def test_all_of_three_possible_values_are_enough_and_words_are_not_counted() -> None:
    layers = _one("model.widths.count", LogInteger(1, 3))
    assert too_few_values(layers, _tried(layers, "model.widths.count", [1, 2, 3], 2)) == []
    assert len(too_few_values(layers, _tried(layers, "model.widths.count", [1, 3], 3))) == 1
    words = _one("model.activation", Choice((Tanh(), Rectifier())))
    assert too_few_values(words, _tried(words, "model.activation", ["Tanh()"], "Tanh()")) == []


BEST_RATE = 0.3  # thirty times beyond the first interval


def _planted(values: dict[str, Any]) -> float:
    """A bowl in the log domain that diverges ten times above its best, as training does."""
    return abs(math.log10(values[RATE] / BEST_RATE)) if values[RATE] < 10 * BEST_RATE else math.nan


# Of independent draws one in twenty lies on a given border, so they need many; boxes go where the best is.
@pytest.mark.parametrize(("strategy", "most"), [(Random(), 160), (CoarseToFine(), 60)])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("at_once", [1, 6])
def test_an_optimum_thirty_times_outside_is_found_unattended(
    strategy: AbstractStrategy, most: int, seed: int, at_once: int, plant: Callable[..., list[Trial]]
) -> None:
    space = _one(RATE, LogUniform(1e-4, 1e-2))
    trials: list[Trial] = []
    said: list[Finding] = []
    while len(trials) < most:
        history = History(tuple(trials), (), len(trials))
        proposals = strategy.ask(space, history, at_once, key=from_seed(seed))
        if not proposals:
            break
        trials += plant(space, _planted, proposals, len(trials))
        space, findings = extend_ranges(space, trials)
        said += findings
    best = best_of(trials)
    assert best is not None
    assert BEST_RATE / 2 <= best.values[RATE] <= BEST_RATE * 2
    assert 2 <= len(said) <= 4
    assert _ends(space)[1] >= BEST_RATE
    # What was tried in the narrower spaces remains: every trial has its place in the last one.
    assert all(0.0 <= space.fractions(trial.recipe)[RATE] <= 1.0 for trial in trials)
