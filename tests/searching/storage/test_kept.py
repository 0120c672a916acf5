"""Trainings come back from the shelf as they were put there."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.searching.storage.kept import Kept, Shelf


def test_a_training_comes_back_as_it_was(tmp_path) -> None:
    network = jax.tree.map(np.asarray, MlpAutoEncoder(widths=(3,)).build((4,), 0, key=jr.key(0)))
    kept = Kept(7, "patience", 0.25, 1.5, 300, network=network, scores=np.array([0.0, 1.0], np.float32))
    shelf = Shelf(tmp_path / "shelf")
    shelf.put(kept)
    again = Shelf(tmp_path / "shelf").find(7)
    assert again is not None
    assert (again.outcome, again.score, again.seconds, again.age_examples) == ("patience", 0.25, 1.5, 300)
    assert eqx.tree_equal(again.network, network)
    np.testing.assert_array_equal(again.scores, kept.scores)
    assert shelf.find(8) is None


def test_a_training_without_a_network_is_kept_too(tmp_path) -> None:
    shelf = Shelf(tmp_path)
    shelf.put(Kept(0, "diverged", float("nan"), 0.1, 20, reason="the loss was no number"))
    again = shelf.find(0)
    assert again is not None
    assert again.network is None
    assert np.isnan(again.score)
    assert again.reason == "the loss was no number"


def test_without_a_folder_nothing_is_remembered() -> None:
    shelf = Shelf(None)
    shelf.put(Kept(0, "finished", 0.5, 0.1, 20))
    assert shelf.find(0) is None
