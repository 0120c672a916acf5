"""A race of optimisers: planted crossings are found, and on iris L-BFGS overtakes by loss."""

import dataclasses
import math
import re

import numpy as np
import pytest

import gradwise
from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.data.splits import HoldOut
from gradwise.evaluation.break_even import running_minimum
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.second_order.hessian_free import HessianFree
from gradwise.optimisers.second_order.lbfgs import Lbfgs
from gradwise.records.plain_values import from_values, to_values
from gradwise.records.study_analysis import BreakEven, RaceLine
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.comparison.race import find_overtaking, race, runs_of
from gradwise.searching.running.device_runner import train_alone
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.jobs import Job
from gradwise.specs.recipe import Recipe
from gradwise.training.stopping import Off

RECIPE = defaults.classification(
    batches=Reshuffled(8),
    model=Mlp(widths=(8,), activation=Tanh(), dropout=0.0),
    optimiser=Sgd(0.1),
    stopping=Off(epochs=80),
)


def planted(method: str, seed: int, delay: float, decay: float, *, stays: bool = False) -> RaceLine:
    """The loss and the error of exp(-decay (t - delay)), 100 updates a second."""
    updates = np.arange(0, 1001)
    seconds = updates / 100
    values = np.exp(-decay * np.maximum(0.0, seconds - delay))
    line = RaceLine(method, 10, math.nan, seed, (), (), (), (), (), stays)
    return dataclasses.replace(
        line,
        updates=tuple(updates.tolist()),
        examples=tuple((10 * updates).tolist()),
        seconds=tuple(seconds.tolist()),
        loss=tuple(values.tolist()),
        error=tuple(np.maximum(values, 0.3).tolist()),
    )


def test_planted_crossings_are_found_and_their_median_is_told() -> None:
    """A line that begins d later at twice the rate overtakes at t = 2 d; the errors end in the same place."""
    own = [planted("Sgd", seed, 0.0, 1.0) for seed in (1, 2, 3)]
    batch = [planted("Lbfgs", seed, delay, 2.0) for seed, delay in ((1, 0.5), (2, 2.0), (3, 1.0))]
    found = find_overtaking(own, batch, "loss", "seconds")
    assert found.at == pytest.approx(2.0, abs=0.01)
    assert found.level == pytest.approx(np.median([np.exp(-3.0), 1.0, np.exp(-2.0)]), abs=0.01)
    assert found.updates == pytest.approx((200, 200), abs=1)
    assert (found.examples, found.seeds, found.until) == (pytest.approx(2000, abs=10), 3, 10.0)
    assert find_overtaking(own, batch, "loss", "examples").at == pytest.approx(2000, abs=10)
    assert find_overtaking(own, batch, "error", "seconds").at == math.inf
    late = [batch[0], planted("Lbfgs", 2, 9.0, 2.0), planted("Lbfgs", 3, 8.0, 2.0)]
    found = find_overtaking(own, late, "loss", "seconds")
    assert (found.at, found.seeds) == (math.inf, 1)
    assert math.isnan(found.level)


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return EvaluationData.of(gradwise.read("iris"), HoldOut(), metric="error_rate", key=keys.from_seed(3))


@pytest.fixture(scope="module")
def found(data: EvaluationData) -> BreakEven:
    return race(RECIPE, (Lbfgs(),), data, seconds=math.inf, seeds=2)


def test_on_iris_lbfgs_overtakes_by_loss(found: BreakEven) -> None:
    """After as many passes; the loss at the crossing is that of the lines, which a reader may follow."""
    by_loss = next(one for one in found.overtakings if (one.measure, one.clock) == ("loss", "examples"))
    assert by_loss.seeds == 2
    own, batch = ([line for line in found.lines if line.method == name] for name in ("Sgd", "Lbfgs"))
    for one, other in zip(own, batch, strict=True):
        assert one.loss[0] == other.loss[0]  # the same weights at first
        assert other.loss[-1] < one.loss[-1]
        assert one.loss[3] < other.loss[1]  # before one update on all examples there are many on a few
    assert 100 < by_loss.at < 80 * 90
    # The sentence tells seconds, which are those of this machine at this moment.
    words = "by validation error, Lbfgs .*; by training loss, Lbfgs (overtakes|does not overtake) Sgd"
    assert re.match(words, found.sentence)


def test_a_line_is_the_training_that_a_trial_of_a_study_is(found: BreakEven, data: EvaluationData) -> None:
    trial = next(trial for trial in found.trials if trial.phase == "race" and trial.values["optimiser"] == "Sgd")
    (done,) = train_alone(data, [Job(0, trial.recipe, 1)])
    mine = dict(zip(trial.curve["age_examples"], trial.curve["valid_loss"], strict=True))
    theirs = dict(zip(done.curve["age_examples"], done.curve["valid_loss"], strict=True))
    both = sorted(mine.keys() & theirs.keys())
    assert both[-1] == 80 * 90
    assert [mine[age] for age in both] == pytest.approx([theirs[age] for age in both], rel=1e-4)


def test_rates_are_chosen_on_a_seed_that_does_not_race(found: BreakEven, data: EvaluationData) -> None:
    tuning = [trial for trial in found.trials if trial.phase == "tune"]
    rate = next(line.rate for line in found.lines if line.method == "Sgd")
    best = min(tuning, key=lambda trial: (trial.score, float(running_minimum(trial.curve["train_loss"])[-1])))
    assert rate == best.values["optimiser.learning_rate"]
    rates = sorted(trial.values["optimiser.learning_rate"] for trial in tuning)
    assert len(rates) >= 4
    assert rates[0] < rate < rates[-1]
    assert {line.seed for line in found.lines} == {1, 2}
    starts = {trial.curve["valid_loss"][0] for trial in found.trials}
    assert len(starts) == 3  # that of the tuning, and of either seed


def test_a_race_by_examples_is_the_same_again_and_survives_a_file(found: BreakEven, data: EvaluationData) -> None:
    again = race(RECIPE, (Lbfgs(),), data, seconds=math.inf, seeds=2)
    timeless = [[dataclasses.replace(line, seconds=()) for line in one.lines] for one in (found, again)]
    assert timeless[0] == timeless[1]
    plain = to_values(found)
    assert to_values(from_values(BreakEven, plain)) == plain


def test_a_race_that_is_stopped_ends_with_what_it_has(data: EvaluationData) -> None:
    asked = iter([False] * 2)
    cut = race(RECIPE, (Lbfgs(),), data, seconds=math.inf, seeds=3, stop=lambda: next(asked, True))
    assert {line.seed for line in cut.lines} == {1}
    assert cut.sentence.endswith("seeds).") or "within" in cut.sentence


def test_runs_are_counted() -> None:
    assert runs_of(RECIPE, (Lbfgs(), HessianFree()), 3) == 9 + 6
    assert runs_of(RECIPE, (Sgd(),), 2) == 4 + 12


def refused(recipe: Recipe, methods: tuple, data: EvaluationData, **options: int) -> str:
    with pytest.raises(RequestError) as problem:
        race(recipe, methods, data, seconds=1.0, **options)
    return str(problem.value)


def test_what_is_no_race_is_refused(data: EvaluationData) -> None:
    assert "at least one batch method" in refused(RECIPE, (), data)
    assert "Lbfgs is given twice" in refused(RECIPE, (Lbfgs(), Lbfgs()), data)
    assert "at least one seed; got 0" in refused(RECIPE, (Lbfgs(),), data, seeds=0)
    whole = dataclasses.replace(RECIPE, batches=Reshuffled(5000))
    assert "holds all 90 training examples" in refused(whole, (Lbfgs(),), data)
