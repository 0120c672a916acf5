"""Optuna's samplers as strategies: the map there and back, purity, and better than random where there is structure."""

import importlib.util
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from gradwise import defaults
from gradwise.models.activations import Rectifier, Sigmoid, Tanh
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.records.trial import Trial, best_of
from gradwise.runtime.errors import RequestError
from gradwise.runtime.keys import from_seed
from gradwise.searching.strategies.contract import History
from gradwise.searching.strategies.optuna_sampler import (
    OptunaSampler,
    distributions,
    fits_distributions,
    from_params,
    to_params,
    words,
)
from gradwise.searching.strategies.random_search import Random, chosen_values
from gradwise.specs.priors import Choice, LogInteger, LogUniform, Uniform, ZeroOr
from gradwise.specs.search_space import Space, dimension
from tests.searching.planted_functions import bowl, branched

RATE = "optimiser.optimiser.learning_rate"
KEY = from_seed(0)
Searching = Callable[..., list[Trial]]


@pytest.fixture(scope="module")
def optimisers() -> Space:
    """A choice of parts with a knob inside, another part by label, and a switch of words."""
    recipe = defaults.classification(optimiser=Sgd())
    return Space(
        recipe,
        (
            dimension(recipe, "optimiser", Choice((Sgd(), Adam(), HeavyBall()))),
            dimension(recipe, "optimiser.learning_rate", LogUniform(1e-4, 1e-1)),
            dimension(recipe, "model.activation", Choice((Tanh(), Rectifier(), Sigmoid()), (1.0, 1.0, 0.0))),
            dimension(recipe, "model.dropout", ZeroOr(Uniform(0.1, 0.5), 0.5)),
        ),
    )


def test_each_prior_has_its_distribution(optimisers: Space, conditional: Space) -> None:
    assert distributions(optimisers) == {
        "optimiser": CategoricalDistribution(("Sgd()", "Adam()", "HeavyBall()")),
        "optimiser.learning_rate": FloatDistribution(1e-4, 1e-1, log=True),
        "model.activation": CategoricalDistribution(("Tanh()", "Rectifier()")),
        "model.dropout.on": CategoricalDistribution((False, True)),
        "model.dropout": FloatDistribution(0.1, 0.5),
    }
    assert distributions(conditional)["model.widths.2"] == IntDistribution(16, 256, log=True)


def test_there_and_back_is_the_same_recipe(optimisers: Space, conditional: Space) -> None:
    for space in (optimisers, conditional):
        for proposal in Random().ask(space, History(), 12, key=KEY):
            params = to_params(space, space.values(proposal.recipe))
            assert params == to_params(space, chosen_values(space, proposal.recipe))  # words serve as well as values
            assert fits_distributions(distributions(space), params)
            assert space.recipe_of(from_params(space, params)) == proposal.recipe


def test_what_is_off_or_not_active_has_no_parameter(conditional: Space) -> None:
    values = {RATE: 0.01, "model.widths.count": 2, "model.dropout": 0.0}
    assert to_params(conditional, values) == {RATE: 0.01, "model.widths.count": 2, "model.dropout.on": False}


def test_values_with_one_label_are_told_apart() -> None:
    recipe = defaults.classification()
    prior = Choice((MovingAverage(Adam()), MovingAverage(Sgd())))
    assert list(words(prior)) == ["MovingAverage()", "MovingAverage() #2"]
    space = Space(recipe, (dimension(recipe, "optimiser", prior),))
    for part in prior.values:
        params = to_params(space, {"optimiser": part})
        assert from_params(space, params)["optimiser"] == part
    assert list(words(Choice((1, True, "a")))) == [1, "True #2", "a"]


def test_a_word_that_is_none_of_the_choice_is_refused(optimisers: Space) -> None:
    with pytest.raises(
        RequestError, match=r"'Softsign\(\)' is not one of the values of `model.activation`: Tanh\(\), "
    ):
        to_params(optimisers, {"model.activation": "Softsign()"})
    assert not fits_distributions(distributions(optimisers), {"optimiser.learning_rate": 3.0})


@pytest.mark.parametrize(("name", "planted"), [("space", bowl), ("conditional", branched)])
def test_the_parzen_estimator_beats_random_search(
    name: str, planted: Callable[..., float], request: pytest.FixtureRequest, search: Searching
) -> None:
    space = request.getfixturevalue(name)
    modelled = [best_of(search(OptunaSampler(), space, planted, 28, seed=seed)) for seed in range(6)]
    drawn = [best_of(search(Random(), space, planted, 28, seed=seed)) for seed in range(6)]
    ours, theirs = ([trial.score for trial in trials if trial] for trials in (modelled, drawn))
    assert len(ours) == len(theirs) == 6
    assert np.mean(ours) < 0.6 * np.mean(theirs)
    assert np.mean(np.less(ours, theirs)) > 0.7


@pytest.mark.slow
def test_covariance_adaptation_beats_random_search(search: Searching, space: Space) -> None:
    numbers = space.only([RATE, "model.widths.each"])  # it works on numbers alone
    ours = [best_of(search(OptunaSampler("cmaes"), numbers, bowl, 80, seed=seed)).score for seed in range(3)]
    theirs = [best_of(search(Random(), numbers, bowl, 80, seed=seed)).score for seed in range(3)]
    assert np.mean(ours) < 0.6 * np.mean(theirs)


@pytest.mark.parametrize("sampler", ["tpe", "nsgaii"])
def test_the_same_history_gives_the_same_answer(conditional: Space, plant: Searching, sampler: str) -> None:
    bridge = OptunaSampler(sampler, startup=5)
    trials = tuple(plant(conditional, branched, Random().ask(conditional, History(), 8, key=KEY)))
    assert [p.recipe for p in bridge.ask(conditional, History(), 8, key=KEY)] == [t.recipe for t in trials]
    several = bridge.ask(conditional, History(trials, (), 8), 3, key=KEY)
    assert bridge.ask(conditional, History(trials, (), 8), 3, key=KEY) == several
    assert bridge.ask(conditional, History(trials[::-1], (), 8), 3, key=KEY) == several
    assert len({str(chosen_values(conditional, p.recipe)) for p in several}) == 3
    # Three at once are three asked one by one while the others run.
    running = History(trials, ((8, several[0]), (9, several[1])), 10)
    assert bridge.ask(conditional, running, 1, key=KEY) == several[2:]


def test_a_model_keeps_away_from_where_it_diverges_and_forgets_what_failed(space: Space, search: Searching) -> None:
    def cliff(values: dict[str, Any]) -> float:
        return -math.log10(values[RATE]) if values[RATE] < 0.01 else math.nan

    trials = search(OptunaSampler(), space, cliff, 50)
    later = [trial.outcome == "diverged" for trial in trials[25:]]
    assert np.mean(later) < 0.5  # the best lies at the very edge
    assert best_of(trials).values[RATE] > 0.007
    failed = tuple(Trial(t.number, t.recipe, t.values, "failed", reason="lost") for t in trials[:20])
    history = History(failed, (), 20)
    assert OptunaSampler().ask(space, history, 2, key=KEY) == Random().ask(space, history, 2, key=KEY)
    both = History((*trials[:15], *failed[15:]), (), 20)
    assert len(OptunaSampler().ask(space, both, 2, key=KEY)) == 2


def test_trials_of_another_space_do_not_disturb(space: Space, search: Searching) -> None:
    trials = tuple(search(Random(), space, bowl, 15))
    wider = space.with_priors({RATE: LogUniform(1e-5, 1.0)})
    narrower = space.with_priors({RATE: LogUniform(1e-3, 1e-2), "model.widths.each": LogInteger(16, 64)})
    for changed in (wider, narrower):
        [proposal] = OptunaSampler().ask(changed, History(trials, (), 15), 1, key=KEY)
        assert fits_distributions(distributions(changed), to_params(changed, changed.values(proposal.recipe)))


def test_optuna_keeps_quiet_and_as_it_was(
    conditional: Space, search: Searching, capfd: pytest.CaptureFixture[str]
) -> None:
    before = optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search(OptunaSampler(startup=2), conditional, branched, 5)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")


def test_a_sampler_that_cannot_be_had_is_one_line(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match=r"unknown Optuna sampler 'tpee'. Did you mean 'tpe'\?"):
        OptunaSampler("tpee").ask(space, History(), 1, key=KEY)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match="'GPSampler' needs the package `torch`"):
        OptunaSampler("GPSampler").ask(space, History(), 1, key=KEY)
    with pytest.raises(RequestError, match=r"'cmaes' needs the package `cmaes`: install it, or use the sampler 'tpe'"):
        OptunaSampler("cmaes").ask(space, History(), 1, key=KEY)


def test_options_reach_the_sampler(space: Space, search: Searching) -> None:
    trials = tuple(search(Random(), space, bowl, 12))
    with pytest.raises(RequestError, match=r"the sampler 'tpe' cannot be created: .*'wings'"):
        OptunaSampler(options=(("wings", 2),)).ask(space, History(trials, (), 12), 1, key=KEY)
    few = OptunaSampler(options=(("n_ei_candidates", 1),)).ask(space, History(trials, (), 12), 1, key=KEY)
    assert few != OptunaSampler().ask(space, History(trials, (), 12), 1, key=KEY)


def test_any_class_of_optuna_is_a_sampler(space: Space, search: Searching) -> None:
    assert len(search(OptunaSampler("RandomSampler", startup=2), space, bowl, 5)) == 5
