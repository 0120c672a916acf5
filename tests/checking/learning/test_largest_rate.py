"""The largest learning rate that does not diverge (row B2)."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise import defaults
from gradwise.checking.learning import largest_rate as rate_module
from gradwise.checking.learning.largest_rate import FACTOR, RateFound, Tried, largest_rate, try_rates
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.initial_weights import ZeroWeights
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError, WorkError
from gradwise.specs.recipe import Recipe
from gradwise.training.interval import advance
from gradwise.training.state import init

COMPILED_WELL = True  # see tests/conftest.py

KEY = keys.from_seed(0)


def problem(name: str, rows: int = 100_000, **parts: Any) -> tuple[Recipe, tuple[Examples, Examples], dict[str, Any]]:
    """A recipe and a data set of scikit-learn, standardised, in a random order."""
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    order = np.random.default_rng(0).permutation(len(bunch.data))[:rows]
    inputs = ((bunch.data - bunch.data.mean(0)) / (bunch.data.std(0) + 1e-9)).astype(np.float32)[order]
    numbers = name == "diabetes"
    targets = (bunch.target[:, None] - bunch.target.mean()) / bunch.target.std() if numbers else bunch.target
    targets = targets[order].astype(np.float32 if numbers else np.int32)
    cut = len(inputs) * 4 // 5
    examples = tuple(
        Examples(jnp.asarray(inputs[part]), jnp.asarray(targets[part])) for part in (slice(cut), slice(cut, None))
    )
    outputs = 1 if numbers else int(targets.max()) + 1
    chosen = {"batches": Reshuffled(32), "model": Mlp(widths=(32,), dropout=0.0), "optimiser": Sgd(), **parts}
    recipe = (defaults.regression if numbers else defaults.classification)(**chosen)
    return recipe, examples, {"outputs": outputs, "classes": 0 if numbers else outputs, "key": KEY}


def best_of_a_fine_sweep(recipe: Recipe, examples: tuple[Examples, Examples], sizes: dict[str, Any]) -> float:
    """Twenty rates a decade from 0.001 to 40; the best has the least training loss at the end."""
    rates = 10.0 ** (-3 + 0.05 * np.arange(96)).reshape(6, 16)  # sixteen at a time: the program that exists already
    parts = [try_rates(recipe, some, *examples, **sizes) for some in rates]
    losses = np.concatenate([part.losses for part in parts])
    return float(rates.ravel()[np.argmin(losses)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "breast_cancer", "diabetes"])
def test_within_a_factor_2_of_the_best_of_a_fine_sweep(name: str) -> None:
    recipe, examples, sizes = problem(name)
    found = largest_rate(recipe, *examples, **sizes)
    best = best_of_a_fine_sweep(recipe, examples, sizes)
    assert best / 2 < found.recommended < best * 2, (found, best)
    # The chapter's own claim, for the rectifiers of this recipe: the largest itself is within a factor 2 of the best.
    assert best / 2 < found.largest < best * 2, (found, best)


@pytest.mark.slow
def test_saturating_units_train_far_above_their_best_rate_and_the_recommendation_knows() -> None:
    recipe, examples, sizes = problem("digits", model=Mlp(widths=(32,), activation=Tanh(), dropout=0.0))
    found = largest_rate(recipe, *examples, **sizes)
    best = best_of_a_fine_sweep(recipe, examples, sizes)
    assert best / 2 < found.recommended < best * 2
    assert found.largest > 2 * best
    assert found.calls == 3  # the whole first ladder trained: the border lies above it
    assert found.largest > 9


def test_the_example_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "check.md").read_text()
    exec(guide.partition("## Rates and widths")[2].partition("```python\n")[2].partition("```")[0], shown := {})
    assert 1e-3 < shown["found"].recommended <= shown["found"].largest
    assert shown["found"].applied(shown["recipe"]).optimiser.learning_rate == shown["found"].recommended
    assert shown["check"].slopes.shape == (2,)
    assert f"{shown['found'].recommended}" in capsys.readouterr().out


def test_two_calls_of_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing builds the network once; another value of the learning rate in the recipe compiles nothing."""
    traces = []
    real = rate_module.init
    monkeypatch.setattr(rate_module, "init", lambda *given, **named: traces.append(1) or real(*given, **named))
    recipe, examples, sizes = problem("digits", rows=200, model=Mlp(widths=(17,), dropout=0.0))
    found = largest_rate(recipe, *examples, **sizes, updates=40)
    assert (found.calls, len(traces)) == (2, 1)
    largest_rate(dataclasses.replace(recipe, optimiser=Sgd(0.3)), *examples, **sizes, updates=40)
    assert len(traces) == 1
    assert len(found.tried.rates) == 32
    assert np.all(np.diff(found.tried.rates) >= 0)


def test_factors_of_3_then_finer_ladders_at_the_border_and_at_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tried] = []

    def watched(*given: Any, **named: Any) -> Tried:
        seen.append(try_rates(*given, **named))
        return seen[-1]

    monkeypatch.setattr(rate_module, "try_rates", watched)
    recipe, examples, sizes = problem("digits", rows=200, model=Mlp(widths=(17,), dropout=0.0))
    found = largest_rate(recipe, *examples, **sizes, updates=40)
    coarse, fine = seen
    np.testing.assert_allclose(coarse.rates[1:] / coarse.rates[:-1], 3.0, rtol=1e-5)
    border = int(np.argmax(coarse.diverged))
    assert not coarse.diverged[:border].any()
    assert 0 < border < 15
    best = int(np.argmin(coarse.losses[:border]))
    bisected = coarse.rates[border - 1] * 3.0 ** (np.arange(1, 9) / 9)
    low, high = coarse.rates[best - 1], coarse.rates[best + 1]
    around = low * (high / low) ** (np.arange(1, 9) / 9)
    np.testing.assert_allclose(fine.rates, np.sort([*bisected, *around]), rtol=1e-5)
    assert coarse.rates[border - 1] <= found.largest < coarse.rates[border]
    above = found.tried.rates > found.largest
    assert found.tried.diverged[above][0]
    assert found.tried.rates[above][0] / found.largest < 3.0 ** (1 / 9) * 1.001


@pytest.mark.slow
def test_the_border_is_where_runs_alone_begin_to_diverge() -> None:
    """Each verdict equals that of a plain run at this rate alone, without a population; the border is narrow."""
    recipe, examples, sizes = problem("breast_cancer")
    found = largest_rate(recipe, *examples, **sizes)
    above = found.tried.rates[found.tried.rates > found.largest]
    assert above[0] / found.largest < 1.15

    @jax.jit
    def alone(rate: jax.Array) -> jax.Array:
        single, state = init(dataclasses.replace(recipe, optimiser=Sgd(rate)), *examples, **sizes)
        told = []
        for _ in range(4):
            state, seen = advance(single, state, 50)
            told.append(seen["train_loss"])
        return jnp.stack(told)

    for rate, diverges in ((found.largest, False), (above[0], True), (9.0, True)):
        losses = np.asarray(alone(jnp.float32(rate)))
        assert (not np.all(losses < FACTOR * found.tried.start)) == diverges, (rate, losses)
    place = np.flatnonzero(found.tried.rates == found.recommended)[0]
    np.testing.assert_allclose(alone(jnp.float32(found.recommended))[-1], found.tried.losses[place], rtol=0.05)
    # The loss of the initial weights is that of a run that stands still.
    np.testing.assert_allclose(alone(jnp.float32(1e-12))[0], found.tried.start, rtol=1e-4)


@pytest.mark.slow
def test_every_learning_rate_of_the_recipe_keeps_its_ratio() -> None:
    optimiser = MovingAverage(Grouped(Sgd(0.2), groups=(ParameterGroup("*.bias", Sgd(0.05)),)))
    recipe, examples, sizes = problem("digits", rows=200, optimiser=optimiser)
    found = largest_rate(recipe, *examples, **sizes, updates=40)
    assert [path for path, _ in found.paths] == [
        "optimiser.optimiser.base.learning_rate",
        "optimiser.optimiser.groups.0.optimiser.learning_rate",
    ]
    applied: Any = found.applied(recipe).optimiser
    base, bias = applied.optimiser.base.learning_rate, applied.optimiser.groups[0].optimiser.learning_rate
    assert base == found.recommended
    assert bias == pytest.approx(base / 4)
    only = largest_rate(recipe, *examples, **sizes, updates=40, path=found.paths[1][0])
    kept: Any = only.applied(recipe).optimiser
    assert kept.optimiser.base.learning_rate == 0.2
    assert kept.optimiser.groups[0].optimiser.learning_rate == only.recommended


@pytest.mark.slow
def test_a_border_beyond_the_ladder_is_looked_for() -> None:
    """For a linear model the largest rate is 2 over the largest curvature: for large inputs below all of the prior."""
    linear = Mlp(widths=(), output_initial=ZeroWeights(), dropout=0.0)
    recipe, (train, valid), sizes = problem("diabetes", model=linear, batches=Reshuffled(1000))

    def scaled(by: float) -> RateFound:
        told = tuple(Examples(part.inputs * by, part.targets) for part in (train, valid))
        return largest_rate(recipe, *told, **sizes, updates=200, path="optimiser.learning_rate")

    usual, large = scaled(1.0), scaled(1e4)
    inputs = np.column_stack([np.asarray(train.inputs, np.float64), np.ones(len(train))])
    curvature = np.linalg.eigvalsh(inputs.T @ inputs / len(train))[-1]
    assert usual.calls == 2
    assert large.calls == 3
    assert 0.85 * 2 / curvature < usual.largest < 1.02 * 2 / curvature  # to one rung, seen from below
    assert 0.85 * 2e-8 / curvature < large.largest < 1.05 * 2e-8 / curvature


@pytest.mark.slow
def test_what_cannot_be_done_is_said_in_one_line() -> None:
    recipe, examples, sizes = problem("digits", rows=200)
    with pytest.raises(RequestError, match=r"unknown knob `optimiser.learning_rat`.*Did you mean"):
        largest_rate(recipe, *examples, **sizes, path="optimiser.learning_rat")
    with pytest.raises(RequestError, match="at least 4; got 3"):
        largest_rate(recipe, *examples, **sizes, updates=3)
    with pytest.raises(RequestError, match="the recipe has no knob called `learning_rate`"):
        largest_rate(dataclasses.replace(recipe, optimiser=_Nameless()), *examples, **sizes)
    broken = (Examples(examples[0].inputs * jnp.nan, examples[0].targets), examples[1])
    with pytest.raises(WorkError, match="diverges at every learning rate") as refusal:
        largest_rate(recipe, *broken, **sizes, updates=40)
    assert "\n" not in str(refusal.value)


class _Nameless(Sgd):
    """An optimiser whose rate has another name."""

    learning_rate: Any = None  # a plain attribute, no knob


@pytest.mark.slow
def test_adam_has_its_own_ladder() -> None:
    recipe, examples, sizes = problem("digits", rows=400, optimiser=Adam())
    found = largest_rate(recipe, *examples, **sizes, updates=100)
    assert found.tried.rates[0] <= 1e-5
    assert 1e-3 < found.recommended <= found.largest


def test_the_border_is_seen_from_below() -> None:
    def tried(diverged: list[bool]) -> Tried:
        return Tried(np.arange(1.0, 5.0), np.ones(4), np.asarray(diverged), 1.0)

    assert tried([False, False, True, True]).last_good() == 1
    assert tried([False, True, False, True]).last_good() == 0  # the lucky third does not count
    assert tried([True, False, False, True]).last_good() == 2
    assert tried([False] * 4).last_good() == 3
    assert tried([True] * 4).last_good() == -1
