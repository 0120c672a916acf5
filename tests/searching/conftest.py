"""A search without training: trials made from a planted function of what they chose."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gradwise import defaults
from gradwise.records.trial import Proposal, Trial
from gradwise.runtime.keys import from_seed
from gradwise.searching.strategies.contract import AbstractStrategy, History
from gradwise.searching.strategies.random_search import chosen_values
from gradwise.specs.priors import LogInteger, LogUniform, Uniform
from gradwise.specs.search_space import Space, dimension

Planted = Callable[[dict[str, Any]], float]


def _plant(space: Space, function: Planted, proposals: Sequence[Proposal], start: int = 0) -> list[Trial]:
    """The trials that these proposals would have become; what is not a number diverged."""
    trials = []
    for number, proposal in enumerate(proposals, start):
        values = chosen_values(space, proposal.recipe)
        score = function(values)
        outcome = "finished" if math.isfinite(score) else "diverged"
        asked: dict[str, Any] = {name: getattr(proposal, name) for name in ("examples", "continues", "phase")}
        trials.append(Trial(number, proposal.recipe, values, outcome, score, loss=score, **asked))
    return trials


def _search(
    strategy: AbstractStrategy, space: Space, function: Planted, most: int, at_once: int = 1, seed: int = 0
) -> list[Trial]:
    """A whole search, so many proposals at a time, until there are `most` trials or the strategy ends."""
    done: list[Trial] = []
    while len(done) < most:
        history = History(tuple(done), (), len(done))
        proposals = strategy.ask(space, history, min(at_once, most - len(done)), key=from_seed(seed))
        if not proposals:
            break
        done += _plant(space, function, proposals, len(done))
    return done


@pytest.fixture(scope="session")
def plant() -> Callable[..., list[Trial]]:
    return _plant


@pytest.fixture(scope="session")
def search() -> Callable[..., list[Trial]]:
    return _search


@pytest.fixture(scope="session")
def space() -> Space:
    """Three numeric knobs that are always active."""
    recipe = defaults.classification()
    return Space(
        recipe,
        (
            dimension(recipe, "optimiser.optimiser.learning_rate", LogUniform(1e-4, 1e-1)),
            dimension(recipe, "criterion.mixup", Uniform(0.0, 0.5)),
            dimension(recipe, "model.widths.each", LogInteger(16, 256)),
        ),
    )


@pytest.fixture(scope="session")
def conditional() -> Space:
    """A third layer's width, which exists with three layers only, and a knob that may be off."""
    recipe = defaults.classification()
    return Space(
        recipe,
        (
            dimension(recipe, "optimiser.optimiser.learning_rate", LogUniform(1e-4, 1e-1)),
            dimension(recipe, "model.widths.count", LogInteger(1, 3)),
            dimension(recipe, "model.widths.2", LogInteger(16, 256)),
            dimension(recipe, "model.dropout"),
        ),
    )
