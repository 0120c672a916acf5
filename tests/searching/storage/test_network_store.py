"""The best networks are kept while a search goes on, in files that outlive it, and no others."""

import dataclasses
import math
from pathlib import Path

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.activations import Rectifier
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.runtime import keys
from gradwise.runtime.errors import WorkError
from gradwise.searching.running.jobs import Done
from gradwise.searching.storage.network_store import Contenders, NetworkStore, keep_trial
from gradwise.specs.recipe import Recipe
from tests.searching.small_study import planted, recipe_at

RECIPE = recipe_at(0.25)
SCORES = np.random.default_rng(0).permutation(20) / 20.0


def _files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "contenders").iterdir()}


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_best_are_kept_and_no_others(tmp_path: Path, on_disk: bool) -> None:
    contenders = Contenders(tmp_path if on_disk else None, most=5)
    for number, score in enumerate(SCORES):
        contenders.offer(planted(number, float(score)), RECIPE)
        so_far = np.argsort(SCORES[: number + 1], kind="stable")[:5]
        assert len(contenders) == len(so_far)
        if on_disk:
            assert _files(tmp_path) == {f"{place}.safetensors" for place in so_far}
    assert [kept.number for kept in contenders.all()] == np.argsort(SCORES)[:5].tolist()
    assert contenders.notes == []


def test_the_loss_breaks_ties(tmp_path: Path) -> None:
    contenders = Contenders(tmp_path, most=2)
    for number, loss in enumerate([0.5, 0.2, math.nan, 0.3]):
        contenders.offer(planted(number, 0.1, loss), RECIPE)
    assert [kept.number for kept in contenders.all()] == [1, 3]


def test_what_left_no_model_is_not_kept() -> None:
    contenders = Contenders(None)
    done = planted(0, 0.1)
    for bad in (
        dataclasses.replace(done, network=None),
        dataclasses.replace(done, scores=None),
        dataclasses.replace(done, score=math.nan),
        dataclasses.replace(done, outcome="diverged"),
        dataclasses.replace(done, outcome="failed"),
    ):
        assert contenders.offer(bad, RECIPE) is False
    assert contenders.all() == []
    assert contenders.offer(done, RECIPE) is True


def test_what_is_kept_always_takes_no_place_and_never_goes(tmp_path: Path) -> None:
    contenders = Contenders(tmp_path, most=2)
    contenders.offer(planted(100, 0.9), RECIPE, always=True)
    for number, score in enumerate([0.3, 0.2, 0.1]):
        contenders.offer(planted(number, score), RECIPE)
    contenders.offer(planted(101, 0.95), RECIPE, always=True)
    assert [kept.number for kept in contenders.all()] == [2, 1, 100, 101]
    assert [kept.always for kept in Contenders(tmp_path, most=2).all()] == [False, False, True, True]


def test_all_is_there_after_a_kill_to_the_bit(tmp_path: Path) -> None:
    """A kill gives no time to say goodbye: what is there is what the folder holds at any moment."""
    first = Contenders(tmp_path)
    folded = dataclasses.replace(planted(3, 0.2), network=(planted(3, 0.2).network, planted(4, 0.2).network))
    first.offer(planted(0, 0.3, 0.7), RECIPE)
    first.offer(folded, RECIPE, (("fold", 0), ("fold", 1)))
    (tmp_path / "contenders" / "5.safetensors.partial").write_bytes(b"half")
    second = Contenders(tmp_path)
    assert "5.safetensors.partial" not in _files(tmp_path)
    two, one = second.all()
    assert (one.number, one.score, one.loss, one.variants) == (0, 0.3, 0.7, (("whole", 0),))
    assert (two.number, two.variants, len(two.networks)) == (3, (("fold", 0), ("fold", 1)), 2)
    assert one.recipe == RECIPE
    example = jax.numpy.arange(4.0)
    for place, kept in ((0, one.networks[0]), (3, two.networks[0]), (4, two.networks[1])):
        original = planted(place, 0.2).network
        np.testing.assert_array_equal(kept(example), original(example))
    np.testing.assert_array_equal(one.scores, planted(0, 0.3).scores)
    # The search goes on: a number that is run again takes the place of what it left.
    second.offer(planted(0, 0.1), RECIPE)
    assert [kept.number for kept in second.all()] == [0, 3]


def test_a_torn_or_missing_file_costs_its_trial_alone(tmp_path: Path) -> None:
    first = Contenders(tmp_path)
    for number in range(4):
        first.offer(planted(number, 0.1 * number), RECIPE)
    folder = tmp_path / "contenders"
    whole = (folder / "1.safetensors").read_bytes()
    (folder / "1.safetensors").write_bytes(whole[: len(whole) // 2])
    (folder / "9.safetensors").write_bytes((folder / "2.safetensors").read_bytes())
    second = Contenders(tmp_path)
    (folder / "3.safetensors").unlink()
    assert [kept.number for kept in second.all()] == [0, 2]
    assert len(second.notes) == 3
    for number, note in zip((1, 9, 3), second.notes, strict=True):
        assert f"trial {number} " in note
        assert "\n" not in note
    assert "the file is missing" in second.notes[2]
    second.all()
    assert len(second.notes) == 3


class Mine(eqx.Module):
    """A model from outside gradwise."""

    weight: jax.Array
    activation: Rectifier

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.activation(self.weight @ x)


def test_parts_from_outside_are_kept_in_memory_and_said(tmp_path: Path) -> None:
    mine = Mine(jax.random.normal(keys.from_seed(0), (3, 4)), Rectifier())
    recipe: Recipe = dataclasses.replace(RECIPE, model=mine)
    done = dataclasses.replace(planted(0, 0.1), network=mine)
    contenders = Contenders(tmp_path, most=1)
    contenders.offer(done, recipe)
    assert _files(tmp_path) == set()
    assert len(contenders.notes) == 1
    assert "Mine` is not part of gradwise" in contenders.notes[0]
    assert contenders.all()[0].networks[0] is mine
    contenders.offer(dataclasses.replace(done, number=1, score=0.05), recipe)
    assert [kept.number for kept in contenders.all()] == [1]
    assert len(contenders.notes) == 1  # said once
    # Passed in, it has a file like any other.
    named = Contenders(tmp_path, classes=(Mine,))
    named.offer(done, recipe)
    assert _files(tmp_path) == {"0.safetensors"}
    again = Contenders(tmp_path, classes=(Mine,)).all()[0]
    np.testing.assert_array_equal(again.networks[0].weight, mine.weight)
    np.testing.assert_array_equal(again.recipe.model.weight, mine.weight)


def test_a_folder_that_cannot_be_written_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "contenders").write_text("a file")
    with pytest.raises(WorkError, match="could not create"):
        Contenders(tmp_path)
    (tmp_path / "contenders").unlink()
    contenders = Contenders(tmp_path)
    (tmp_path / "contenders").rmdir()
    with pytest.raises(WorkError, match="could not write"):
        contenders.offer(planted(0, 0.1), RECIPE)
    assert contenders.all() == []


def test_a_linked_folder_is_refused_in_a_line(tmp_path: Path) -> None:
    """Its files are removed when better networks come: files that are somebody else's."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "3.safetensors.partial").touch()
    (tmp_path / "contenders").symlink_to(tmp_path / "theirs")
    with pytest.raises(WorkError, match="contenders is a symbolic link"):
        Contenders(tmp_path)
    assert (tmp_path / "theirs" / "3.safetensors.partial").exists()


def test_networks_are_one_for_each_variant() -> None:
    assert keep_trial(planted(0, 0.1), RECIPE, (("whole", 0),)).networks[0] is not None  # type: ignore[union-attr]
    several = dataclasses.replace(planted(0, 0.1), network=("a", "b"))
    assert keep_trial(several, RECIPE, (("fold", 0), ("fold", 1))).networks == ("a", "b")  # type: ignore[union-attr]


def test_a_training_comes_back_as_it_was(tmp_path: Path) -> None:
    network = jax.tree.map(np.asarray, MlpAutoEncoder(widths=(3,)).build((4,), 0, key=jr.key(0)))
    done = Done(7, "patience", 0.25, seconds=1.5, age_examples=300, network=network, scores=np.arange(2.0))
    store = NetworkStore(tmp_path / "trainings")
    store.put(done)
    again = NetworkStore(tmp_path / "trainings").find(7)
    assert again is not None
    assert (again.outcome, again.score, again.seconds, again.age_examples) == ("patience", 0.25, 1.5, 300)
    assert eqx.tree_equal(again.network, network)
    np.testing.assert_array_equal(again.scores, done.scores)
    assert store.find(8) is None


def test_a_training_without_a_network_is_kept_too(tmp_path: Path) -> None:
    store = NetworkStore(tmp_path)
    store.put(Done(0, "diverged", reason="the loss was no number"))
    again = store.find(0)
    assert again is not None
    assert again.network is None
    assert np.isnan(again.score)
    assert again.reason == "the loss was no number"


def test_without_a_folder_nothing_is_remembered() -> None:
    store = NetworkStore(None)
    store.put(Done(0, "finished", 0.5))
    assert store.find(0) is None
