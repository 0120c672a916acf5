"""Greedy ensemble selection: what it must choose, what it must not be fooled by, and that its estimate is honest."""

import itertools

import numpy as np
import pytest

from gradwise.searching.selection.ensemble import (
    _log_losses,
    _squared_errors,
    gain_of,
    held_out,
    select_weights,
    weighted_mean,
)


def softmax(outputs: np.ndarray) -> np.ndarray:
    powers = np.exp(outputs - outputs.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def classifiers(noises: list[float], rows: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Candidates that see the truth through noise of their own."""
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=(rows, 3))
    targets = np.array([draw.choice(3, p=p) for p in softmax(2.0 * truth)])
    outputs = [2.0 * truth + noise * draw.normal(size=truth.shape) for noise in noises]
    return softmax(np.stack(outputs)), targets


def log_loss(probabilities: np.ndarray, targets: np.ndarray) -> float:
    return float(-np.log(probabilities[np.arange(len(targets)), targets]).mean())


def test_the_ensemble_is_better_than_its_best_member_and_close_to_the_best_weights():
    predictions, targets = classifiers([0.8, 1.0, 1.2, 3.0])
    weights = select_weights(predictions[:, :2000], targets[:2000], kind="classes", seed=0)
    fresh, right = predictions[:, 2000:], targets[2000:]
    together = log_loss(weighted_mean(fresh, weights), right)
    assert together < min(log_loss(one, right) for one in fresh) - 0.02
    grid = [np.array(w) / 10 for w in itertools.product(range(11), repeat=4) if sum(w) == 10]
    best = min(log_loss(weighted_mean(fresh, w), right) for w in grid)
    assert together < best + 0.01
    assert weights.sum() == pytest.approx(1.0)
    assert weights[3] < 0.05  # it is hardly more than noise


def test_numbers_are_averaged_by_their_squared_error():
    draw = np.random.default_rng(0)
    targets = draw.normal(size=(3000, 2)) * [1.0, 100.0]
    noise = np.array([0.5, 0.5, 2.0])[:, None, None] * draw.normal(size=(3, 3000, 2)) * [1.0, 100.0]
    weights = select_weights(targets + noise, targets, kind="numbers", seed=0)
    assert weights[:2] == pytest.approx([0.5, 0.5], abs=0.12)
    assert weights[2] < 0.1


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_candidates_enter_as_if_every_mean_were_written_out(kind: str):
    if kind == "classes":
        predictions, targets = classifiers([0.8, 0.9, 1.0, 1.3], rows=500)
        read, wanted = predictions[:, np.arange(500), targets, None], None
    else:
        draw = np.random.default_rng(1)
        wanted = targets = draw.normal(size=(500, 2))
        read = predictions = targets + 0.7 * draw.normal(size=(4, 500, 2))
    counted = np.linspace(1.0, 2.0, 500)
    select = _log_losses(read, counted) if wanted is None else _squared_errors(read, wanted, counted)

    def loss(mean: np.ndarray) -> float:
        each = -np.log(mean) if wanted is None else (mean - wanted) ** 2 / wanted.var(axis=0)
        return float(np.average(each.mean(axis=-1), weights=counted))

    taken: list[int] = []
    for choice, told in select(np.arange(4)):
        losses = [loss((sum(read[n] for n in taken) + read[one]) / (len(taken) + 1)) for one in range(4)]
        assert told == pytest.approx(min(losses), abs=1e-5)
        assert losses[choice] == pytest.approx(min(losses), abs=1e-5)
        taken.append(choice)
    assert len(set(taken)) > 1


def test_labels_count_each_label():
    draw = np.random.default_rng(0)
    targets = (draw.random((2000, 4)) < 0.3).astype(float)
    good = np.where(targets > 0.5, 0.8, 0.1)
    weights = select_weights(np.stack([good, np.full_like(good, 0.5)]), targets, kind="labels", seed=0)
    assert weights[0] > 0.9


def test_few_rows_lean_towards_equal_weights():
    predictions, targets = classifiers([1.0, 1.0, 1.0, 1.0, 1.0], rows=60)
    assert select_weights(predictions, targets, kind="classes", seed=0) == pytest.approx(np.full(5, 0.2), abs=0.04)


def test_a_candidate_that_is_clearly_worse_gets_nothing_even_from_few_rows():
    predictions, targets = classifiers([0.5, 0.5, 8.0], rows=300)
    assert select_weights(predictions, targets, kind="classes", seed=0)[2] == 0.0


def test_rows_that_do_not_count_change_nothing():
    predictions, targets = classifiers([0.8, 1.0, 1.2], rows=400)
    counted = np.ones(400)
    counted[200:] = 0.0
    wrong = targets.copy()
    wrong[200:] = (wrong[200:] + 1) % 3
    one, other = (select_weights(predictions, y, kind="classes", seed=0, counted=counted) for y in (targets, wrong))
    # The spread of all rows decides who is alike; the greedy part sees the counted rows alone.
    assert np.argmax(one) == np.argmax(other)


def test_the_selection_s_own_estimate_is_honest_where_choosing_is_all_luck():
    """Two hundred candidates that know nothing: the chosen weights look better than chance, the estimate does not."""
    draw = np.random.default_rng(0)
    targets = draw.normal(size=(80, 1))
    predictions = 0.7 * draw.normal(size=(200, 80, 1))
    seen = weighted_mean(predictions, select_weights(predictions, targets, kind="numbers", seed=0))
    honest = held_out(predictions, targets, kind="numbers", seed=0)
    chance = float((targets**2).mean())
    assert float(((seen - targets) ** 2).mean()) < 0.9 * chance
    assert float(((honest - targets) ** 2).mean()) > 0.97 * chance


def test_the_same_seed_gives_the_same_weights_and_one_candidate_all_of_it():
    predictions, targets = classifiers([0.8, 1.0, 1.2], rows=300)
    one, other = (select_weights(predictions, targets, kind="classes", seed=7) for _ in range(2))
    assert np.array_equal(one, other)
    assert select_weights(predictions[:1], targets, kind="classes", seed=0).tolist() == [1.0]
    assert np.array_equal(held_out(predictions[:1], targets, kind="classes", seed=0), predictions[0])


def test_a_gain_is_told_with_its_standard_error():
    predictions, targets = classifiers([0.5, 2.0], rows=500)
    gain, error = gain_of(predictions[0], predictions[1], targets, kind="classes")
    assert gain == pytest.approx(log_loss(predictions[1], targets) - log_loss(predictions[0], targets), abs=1e-6)
    assert gain > 3 * error > 0
    assert gain_of(predictions[0], predictions[0], targets, kind="classes") == (0.0, 0.0)
