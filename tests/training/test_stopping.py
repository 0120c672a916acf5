"""Early stopping on scripted validation curves: exact stop points, what is kept, and what the paired test gates."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gradwise.curvature.objective import Examples
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Scores
from gradwise.specs.dataset import Dataset
from gradwise.specs.recipe import Recipe
from gradwise.training.interval import evaluate, interval, judged_model
from gradwise.training.state import init
from gradwise.training.stopping import LONGEST_EXAMPLES, Off, Patience, Plus, Times, is_better, is_significant
from gradwise.training.train import train as train_network

SPACING = 100


def play(
    stopping: Any, scores: Sequence[float], losses: Sequence[float] | None = None, *, count: int = 50
) -> tuple[int | None, list[int], list[int]]:
    """The age at which the rule stops, the ages it calls better, and its patience after each validation."""
    losses = losses or [0.0] * len(scores)
    state = stopping.init(count, 4)
    better, patience = [], []
    for number, (score, loss) in enumerate(zip(scores, losses, strict=True), start=1):
        age = SPACING * number
        told = Scores(jnp.full(4, score), jnp.full(4, loss))
        state, kept, stop = stopping.step(state, jnp.asarray(age), told)
        better += [age] if kept else []
        patience.append(int(stopping.patience_examples(state)))
        if stop:
            return age, better, patience
    return None, better, patience


def falling_until(age: int, length: int = 100) -> list[float]:
    return [max(1.0 - number / 100, 1.0 - age / SPACING / 100) for number in range(1, length + 1)]


@pytest.mark.parametrize(
    ("growth", "best_age", "stops"),
    [
        (Times(2.0), 300, 1000),  # the patience of the start holds
        (Times(2.0), 500, 1000),
        (Times(2.0), 600, 1200),
        (Times(2.0), 700, 1400),
        (Times(1.5), 700, 1100),  # patience 1050, seen at the next validation
        (Times(1.0), 700, 1000),
        (Times(1.0), 1000, 1000),
        (Plus(500.0), 700, 1200),
        (Plus(450.0), 700, 1200),  # patience 1150
        (Plus(100.0), 300, 1000),
        (Plus(1.0), 1000, 1100),  # patience 1001
    ],
)
def test_the_stop_point_is_exact(growth: Any, best_age: int, stops: int) -> None:
    rule = Patience(initial_examples=1000, initial_epochs=0, growth=growth)
    age, better, patience = play(rule, falling_until(best_age))
    assert age == stops
    assert better == list(range(SPACING, best_age + 1, SPACING))
    assert patience == sorted(patience)


def _oracle(scores: list[float], growth: Any, start: int) -> tuple[int | None, list[int]]:
    patience, best, better = start, math.inf, []
    for number, score in enumerate(scores, start=1):
        age = SPACING * number
        if score < best:
            best = score
            better.append(age)
            patience = max(patience, int(growth(age)))
        if age >= patience:
            return age, better
    return None, better


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]), min_size=1, max_size=12),
    st.sampled_from([(Times(2.0), lambda t: 2 * t), (Times(1.5), lambda t: 1.5 * t), (Plus(250.0), lambda t: t + 250)]),
    st.sampled_from([0, 150, 400]),
)
def test_any_curve_stops_where_the_rule_says(scores: list[float], pair: Any, start: int) -> None:
    rule, growth = pair
    losses = list(range(len(scores)))  # rising, so that a tie is never better
    got = play(Patience(initial_examples=start, initial_epochs=0, growth=rule), scores, losses)
    assert got[:2] == _oracle(scores, growth, start)


def test_patience_at_the_start_is_the_larger_of_examples_and_epochs() -> None:
    for examples, epochs, expected in ((1000, 0, 1000), (1000, 10, 1000), (1000, 30, 1500), (0, 2.5, 125)):
        state = Patience(initial_examples=examples, initial_epochs=epochs).init(50, 4)
        assert int(state.patience) == expected


def test_patience_counts_examples_not_updates_or_epochs() -> None:
    rule = Patience(initial_examples=1000, initial_epochs=0)
    for count in (1, 50, 10_000):
        assert play(rule, falling_until(100), count=count)[0] == 1000


def test_ties_in_the_score_are_broken_by_the_loss() -> None:
    rule = Patience(initial_examples=10_000, initial_epochs=0)
    _, better, _ = play(rule, [0.5, 0.5, 0.5, 0.4, 0.4, 0.5], [3.0, 2.0, 2.0, 9.0, 8.0, 0.0])
    assert better == [100, 200, 400, 500]


@pytest.mark.parametrize("significance", [0.0, 0.05])
def test_patience_never_grows_on_an_equal_score(significance: float) -> None:
    """A lower loss makes the model the best one, and leaves patience where the score put it."""
    rule = Patience(initial_examples=150, initial_epochs=0, growth=Times(3.0), significance=significance)
    stopped, better, patience = play(rule, [0.5] * 9, [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert better == [100, 200, 300]
    assert (stopped, patience) == (300, [300, 300, 300])


def test_not_a_number_is_never_better() -> None:
    rule = Patience(initial_examples=10_000, initial_epochs=0)
    nan, inf = math.nan, math.inf
    assert play(rule, [nan, 0.5, nan, 0.4], [0.0, nan, 0.0, nan])[1] == [200, 400]
    assert play(rule, [inf, inf], [inf, nan])[1] == []
    state = rule.init(50, 4)
    assert not is_better(state, jnp.asarray(nan), jnp.asarray(0.0))


def test_a_run_without_any_improvement_ends_when_the_first_patience_does() -> None:
    assert play(Patience(initial_examples=700, initial_epochs=0), [math.nan] * 20)[0] == 700


@pytest.mark.parametrize("rule", [Patience, Off])
@given(count=st.integers(1, 10**7), validation=st.integers(1, 10**7), spacing=st.floats(1.0, 50.0))
def test_validations_are_never_closer_than_the_validation_set_is_large(
    rule: Any, count: int, validation: int, spacing: float
) -> None:
    examples = rule(spacing=spacing, least_examples=1).interval_examples(count, validation)
    assert examples >= validation
    assert rule(spacing=spacing, least_examples=1234).interval_examples(count, validation) >= 1234


@pytest.mark.parametrize(("rule", "epochs"), [(Patience(epochs=2.5), 2.5), (Off(epochs=3), 3)])
def test_the_longest_run_is_told_in_epochs_and_fits_32_bits(rule: Any, epochs: float) -> None:
    assert rule.limit_examples(40) == int(epochs * 40)
    assert rule.limit_examples(2**31) == LONGEST_EXAMPLES < 2**31


def test_a_very_long_patience_does_not_overflow() -> None:
    rule = Patience(initial_examples=1e30, initial_epochs=1e30, growth=Times(1e30))
    age, _, patience = play(rule, [0.5, 0.4], count=10**6)
    assert age is None
    assert patience == [LONGEST_EXAMPLES] * 2


def test_off_never_stops_and_keeps_the_last() -> None:
    age, better, patience = play(Off(), [0.1, 0.9, math.nan])
    assert (age, better) == (None, [100, 200, 300])
    assert patience == [LONGEST_EXAMPLES] * 3


def test_off_may_keep_the_best_and_still_never_stops() -> None:
    """A lower score, or the same at a lower loss; not-a-number is never better."""
    rule = Off(keep="best")
    scores, losses = [0.5, 0.3, 0.3, 0.4, 0.3, math.nan, 0.2], [1.0, 2.0, 1.5, 0.1, 1.5, 0.0, 9.0]
    age, better, patience = play(rule, scores, losses)
    assert (age, better) == (None, [100, 200, 300, 700])
    assert patience == [LONGEST_EXAMPLES] * 7
    assert play(rule, [math.inf, math.nan], [math.inf, math.nan])[1] == []


@pytest.mark.parametrize(
    ("rule", "count", "validation", "examples"),
    [
        (Off(spacing=1.0, least_examples=1, every_epochs=1.0), 500, 80, 500),
        (Off(spacing=1.0, least_examples=1, every_epochs=2.5), 500, 80, 1250),
        (Off(spacing=1.0, least_examples=1, every_epochs=0.1), 500, 80, 80),  # never fewer than validation reads
        (Off(spacing=10.0, least_examples=1, every_epochs=1.0), 500, 80, 800),
        (Off(every_epochs=1.0), 500, 20, 1000),
    ],
)
def test_validations_may_be_counted_in_epochs(rule: Off, count: int, validation: int, examples: int) -> None:
    assert rule.interval_examples(count, validation) == examples


def test_off_may_keep_the_latest_that_is_not_significantly_worse_than_the_best() -> None:
    """Against the best of all, never against the one before; by the one-sided t-test's normal approximation."""
    rule = Off(keep="best", significance=0.05)
    state, told = rule.init(50, 1000), []
    # k wrong examples more than the best: significant at 5 % once sqrt(k) > 1.645, that is at the third.
    for age, wrong in ((100, 500), (200, 480), (300, 481), (400, 482), (500, 483), (600, 482), (700, 479), (800, 482)):
        state, kept, stop = rule.step(state, jnp.asarray(age), _errors(wrong))
        told.append((bool(kept), round(float(state.best_score) * 1000)))
        assert not stop
    assert told == [(True, 500), *[(True, 480)] * 3, (False, 480), (True, 480), (True, 479), (False, 479)]


def test_a_model_that_is_no_number_is_not_kept_for_want_of_a_test() -> None:
    rule = Off(keep="best", significance=0.05)
    assert play(rule, [math.nan, 0.5, math.nan, math.inf, 0.5])[1] == [200, 500]


@pytest.mark.parametrize("significance", [0.0, 0.4])
def test_a_run_of_fixed_length_ends_with_the_latest_epoch_that_is_not_worse(
    mixed: Dataset, table_recipe: Recipe, significance: float
) -> None:
    """The rule replayed in NumPy on all examples' scores: the same epochs are kept, the last of them is measured."""
    key, stopping = keys.from_seed(1), dataclasses.replace(table_recipe.stopping, significance=significance)
    recipe = dataclasses.replace(table_recipe, stopping=stopping)
    record = train_network(recipe, mixed, key=key)
    train, valid, _ = recipe.split(mixed, key=keys.named(key, "split"))
    scaler = recipe.scaler.fit(train.inputs, train.columns)
    parts = [scaler.apply(part.inputs) for part in (train, valid)]
    layout = scaler.layout(parts[0].shape[1:])
    examples = [
        Examples(jnp.asarray(rows), jnp.asarray(part.targets.astype(np.int32)), layout=layout)
        for rows, part in zip(parts, (train, valid), strict=True)
    ]
    problem, state = init(recipe, *examples, outputs=2, classes=2, key=key)
    kept, best, reference = [], (math.inf, math.inf), np.full(len(valid), math.inf)
    for _ in range(12):
        state, _ = interval(problem, state, problem.interval_updates)
        told = evaluate(problem, judged_model(problem, state))
        score = np.asarray(told.score, np.float64)
        pair = float(jnp.mean(told.score)), float(jnp.mean(told.loss))
        better, rise = pair < best, score - reference
        test = significance and not better
        kept.append(better or bool(test and rise.mean() <= stats.norm.isf(significance) * stats.sem(rise)))
        best, reference = (pair, score) if better else (best, reference)
    history = record.history
    assert history["best"] == kept
    assert not all(kept)  # otherwise nothing is shown
    last = max(epoch for epoch in range(12) if kept[epoch])
    assert record.metrics["valid"]["error_rate"] == pytest.approx(history["valid_score"][last], abs=1e-6)
    assert history["age_examples"] == [len(train) * epoch for epoch in range(1, 13)]
    assert record.outcome.name == "finished"


def test_knobs_of_stopping_are_traced_and_switches_are_not() -> None:
    def stopped(initial: Any, factor: Any) -> Any:
        rule = Patience(initial_examples=initial, initial_epochs=0.0, growth=Times(factor))
        state = rule.init(50, 4)
        state, *_ = rule.step(state, jnp.asarray(700), Scores(jnp.ones(4), jnp.ones(4)))
        return state.patience

    # A population of stopping rules is one traced rule.
    got = jax.vmap(stopped)(jnp.array([1000.0, 2000.0, 100.0]), jnp.array([2.0, 2.0, 3.0]))
    np.testing.assert_array_equal(got, [1400, 2000, 2100])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Patience(growth=Times(0.9)),
        lambda: Patience(growth=Plus(0)),
        lambda: Patience(significance=0.5),
        lambda: Patience(spacing=0.5),
        lambda: Patience(initial_examples=-1),
        lambda: Off(epochs=0),
    ],
)
def test_a_rule_that_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(RequestError):
        make()


@pytest.mark.parametrize("level", [0.01, 0.05, 0.2])
def test_the_paired_test_agrees_with_scipys_t_test(level: float) -> None:
    draw = np.random.default_rng(3)
    agreed = []
    for _ in range(200):
        reference = draw.random(2000).astype(np.float32)
        scores = (reference + draw.normal(draw.normal(0, 0.03), 1.0, 2000)).astype(np.float32)
        p = stats.ttest_rel(reference, scores, alternative="greater").pvalue
        if abs(p - level) > 0.02 * level:  # the normal and the t distribution differ a little at the border
            agreed.append(bool(is_significant(jnp.asarray(reference), jnp.asarray(scores), level)) == (p < level))
    assert len(agreed) > 150
    assert all(agreed)


def test_no_change_and_a_rise_are_not_significant() -> None:
    scores = jnp.asarray(np.random.default_rng(0).random(50), jnp.float32)
    assert not is_significant(scores, scores, 0.05)
    assert not is_significant(scores, scores + 1.0, 0.05)
    assert is_significant(scores, scores - 1.0, 0.05)


def _errors(wrong: int, count: int = 1000) -> Scores:
    """A validation on which the first `wrong` examples are wrong."""
    score = (jnp.arange(count) < wrong).astype(jnp.float32)
    return Scores(score, score)


def test_the_paired_test_gates_patience_and_not_what_is_kept() -> None:
    rule = Patience(initial_examples=100, initial_epochs=0, growth=Times(2.0), significance=0.05)
    state = rule.init(50, 1000)
    told = []
    for age, wrong in ((200, 500), (300, 499), (400, 498), (500, 400), (600, 399)):
        state, better, _ = rule.step(state, jnp.asarray(age), _errors(wrong))
        told.append((bool(better), int(state.patience), round(float(state.best_score) * 1000)))
    assert told == [
        (True, 400, 500),  # the first always counts
        (True, 400, 499),  # kept, though one example in a thousand proves nothing
        (True, 400, 498),
        (True, 1000, 400),  # a hundred do
        (True, 1000, 399),
    ]


def test_the_reference_is_the_last_minimum_that_was_significant() -> None:
    """Many small steps, none significant against the one before, add up against the reference."""
    rule = Patience(initial_examples=100, initial_epochs=0, growth=Times(2.0), significance=0.05)
    state = rule.init(50, 1000)
    grown = []
    for number, wrong in enumerate(range(500, 488, -1), start=2):
        before = int(state.patience)
        state, _, _ = rule.step(state, jnp.asarray(100 * number), _errors(wrong))
        grown.append(int(state.patience) > before)
    # The fall from the reference: k wrong examples fewer, mean k/1000, standard error about sqrt(k)/1000, so
    # significant at 5 % once sqrt(k) > 1.645, that is at the third example.
    assert grown == [True, *[False, False, True] * 3, False, False]


def test_the_paired_test_at_work_stops_sooner() -> None:
    ages = {}
    for significance in (0.0, 0.05):
        rule = Patience(initial_examples=1000, initial_epochs=0, growth=Times(2.0), significance=significance)
        state, stop, age = rule.init(50, 1000), False, 0
        while not stop:
            age += 100
            state, _, stop = rule.step(state, jnp.asarray(age), _errors(max(480, 500 - age // 500)))
        ages[significance] = age
    assert ages[0.05] < ages[0.0] == 20_000  # the last new minimum stands at 10 000
