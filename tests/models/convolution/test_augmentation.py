"""Augmentation: how examples change, and how often."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from gradwise.models.convolution.augmentation import Augmentations, Crop, Flip, NoAugmentation, Shift
from gradwise.runtime.errors import RequestError

PICTURE = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5, 2)), jnp.float32)
MANY = jr.split(jr.key(0), 2000)


def drawn(augmentation: Any, x: Any = PICTURE, keys: Any = MANY) -> np.ndarray:
    return np.asarray(jax.vmap(lambda key: augmentation(x, key=key))(keys))


@pytest.mark.parametrize(("augmentation", "mode"), [(Shift(2), "edge"), (Crop(2), "reflect")])
def test_all_shifts_are_equally_likely(augmentation: Any, mode: str) -> None:
    """Each result is one of the 25 parts of the picture with its border, and all are seen as often."""
    wide = np.pad(np.asarray(PICTURE), ((2, 2), (2, 2), (0, 0)), mode=mode)
    parts = {wide[i : i + 6, j : j + 5].tobytes(): 5 * i + j for i in range(5) for j in range(5)}
    found = [parts[one.tobytes()] for one in drawn(augmentation)]
    assert scipy.stats.chisquare(np.bincount(found, minlength=25)).pvalue > 0.01


def test_series_move_in_time() -> None:
    series = jnp.arange(8.0)[:, None]
    found = {tuple(one[:, 0].tolist()) for one in drawn(Shift(1), series, MANY[:50])}
    assert found == {tuple(np.clip(np.arange(8.0) + step, 0, 7).tolist()) for step in (-1, 0, 1)}


def test_half_are_flipped_left_to_right() -> None:
    found = drawn(Flip())
    flipped = np.array([np.array_equal(one, np.asarray(PICTURE)[:, ::-1]) for one in found])
    assert all(np.array_equal(one, PICTURE) for one in found[~flipped])
    assert scipy.stats.binomtest(int(flipped.sum()), len(found)).pvalue > 0.01
    series = jnp.arange(4.0)[:, None]
    assert {tuple(one[:, 0].tolist()) for one in drawn(Flip(), series, MANY[:20])} == {(0, 1, 2, 3), (3, 2, 1, 0)}


def test_several_act_in_turn_each_with_randomness_of_its_own() -> None:
    both = Augmentations((Shift(1), Flip()))
    for key in MANY[:8]:
        wanted = Flip()(Shift(1)(PICTURE, key=jr.fold_in(key, 0)), key=jr.fold_in(key, 1))
        assert np.array_equal(both(PICTURE, key=key), wanted)
    assert np.array_equal(NoAugmentation()(PICTURE, key=MANY[0]), PICTURE)


def test_pictures_too_small_are_refused() -> None:
    for augmentation in (Shift(5), Crop(5), Augmentations((Flip(), Crop(5)))):
        with pytest.raises(RequestError, match=r"smaller than each side of the pictures \(6 x 5\); got 5. At most 4"):
            augmentation.check_sides((6, 5))
    Augmentations((Flip(), Crop(4))).check_sides((6, 5))
