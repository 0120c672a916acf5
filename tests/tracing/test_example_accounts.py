"""Accounts of examples: counts, order, duplicates and resumption, against a plain loop."""

import numpy as np
import pytest
from jax import numpy as jnp

from gradwise.tracing.example_accounts import Account, Accounts

COUNT, SLOTS = 7, 3
PER_EPOCH = 3  # 7 examples in batches of 3: two slots of the last update are empty


def by_hand(visits: list[tuple[int, float, float]]) -> dict[int, dict[str, float]]:
    """What a dictionary and a loop make of (example, loss, margin)."""
    found: dict[int, dict[str, float]] = {}
    losses: dict[int, list[float]] = {}
    margins: dict[int, list[float]] = {}
    for example, loss, margin in visits:
        one = found.setdefault(example, {"visits": 0, "forgotten": 0, "learned": 0, "right": 0})
        losses.setdefault(example, []).append(loss)
        margins.setdefault(example, []).append(margin)
        one["visits"] += 1
        if one["right"] and margin <= 0:
            one["forgotten"] += 1
        if margin > 0 and not one["learned"]:
            one["learned"] = one["visits"]
        one["right"] = float(margin > 0)
    for example, one in found.items():
        mean = np.mean(losses[example])
        one |= {"first_loss": losses[example][0], "last_loss": losses[example][-1], "mean_loss": float(mean)}
        one |= {"squares": float(np.sum((losses[example] - mean) ** 2)), "margin": float(np.mean(margins[example]))}
        one["confidence"] = float(np.mean(np.tanh(np.array(margins[example]) / 2)))
    return found


def drawn(updates: int) -> tuple[np.ndarray, ...]:
    """Rows, presence, losses and margins of updates that visit each example once an epoch."""
    random = np.random.default_rng(3)
    rows, present = [], []
    for _ in range(-(-updates // PER_EPOCH)):
        order = random.permutation(COUNT)
        for start in range(0, PER_EPOCH * SLOTS, SLOTS):
            places = np.arange(start, start + SLOTS)
            rows.append(order[places % COUNT])
            present.append((places < COUNT).astype(np.float32))
    shape = (updates, SLOTS)
    return (
        np.array(rows[:updates], np.int32),
        np.array(present[:updates]),
        random.random(shape).astype(np.float32),
        random.normal(size=shape).astype(np.float32),
    )


def entered(arrays: tuple[np.ndarray, ...], lengths: list[int]) -> Accounts:
    """The accounts after intervals of these lengths."""
    accounts, first = Accounts.begin(COUNT, 2), 0
    for length in lengths:
        part = [jnp.asarray(one[first : first + length]) for one in arrays]
        accounts = accounts.after_updates(*part, first=jnp.asarray(first), per_epoch=PER_EPOCH)
        first += length
    return accounts


@pytest.mark.parametrize("lengths", [[11], [1] * 11, [2, 5, 4], [3, 3, 3, 2]])
def test_the_counts_are_those_of_a_plain_loop(lengths: list[int]) -> None:
    arrays = drawn(11)
    rows, present, losses, margins = arrays
    told = [
        (int(rows[n, k]), float(losses[n, k]), float(margins[n, k]))
        for n in range(11)
        for k in range(SLOTS)
        if present[n, k]
    ]
    found, _ = entered(arrays, lengths).on_host()
    expected = by_hand(told)
    assert max(one["forgotten"] for one in expected.values()) >= 1
    for example, one in expected.items():
        for name, value in one.items():
            assert getattr(found, name)[example] == pytest.approx(value, abs=1e-6), (example, name)


def test_an_example_drawn_twice_in_an_epoch_counts_once_with_its_last_visit() -> None:
    rows = jnp.asarray([[4, 4, 1], [4, 2, 2]], jnp.int32)
    losses = jnp.asarray([[9.0, 8.0, 1.0], [0.5, 7.0, 3.0]])
    accounts = Accounts.begin(COUNT, 2).after_updates(
        rows, jnp.ones((2, 3)), losses, losses - 1.0, first=jnp.asarray(0), per_epoch=PER_EPOCH
    )
    found, _ = accounts.on_host()
    np.testing.assert_array_equal(found.visits, [0, 1, 1, 0, 1, 0, 0])
    np.testing.assert_array_equal(found.last_loss, [0, 1.0, 3.0, 0, 0.5, 0, 0])


def test_validations_are_entered_and_what_is_kept_stops_at_the_best_network() -> None:
    accounts = Accounts.begin(1, 2)
    accounts = accounts._replace(training=accounts.training.at[0, Account._fields.index("confidence")].set(0.25))
    for losses, better in (([1.0, 4.0], True), ([3.0, 2.0], True), ([5.0, 0.0], False)):
        accounts = accounts.after_validation(jnp.asarray(losses), jnp.asarray(better))
    _, found = accounts.on_host()
    np.testing.assert_array_equal(found.visits, [3, 3])
    np.testing.assert_allclose(found.mean_loss, [3.0, 2.0])
    np.testing.assert_allclose(found.squares, [8.0, 8.0])
    np.testing.assert_array_equal(found.first_loss, [1.0, 4.0])
    np.testing.assert_array_equal(found.last_loss, [5.0, 0.0])
    np.testing.assert_allclose(accounts.held_out_loss, [2.0, 3.0])  # the third network was no better
    np.testing.assert_allclose(accounts.confidence, [0.25])
