"""Language models trained by the ordinary loop reach the entropy of a planted source."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

import gradwise as gw
from gradwise import language
from gradwise.runtime.errors import RequestError

from .planted import SOURCES, TEST, TRAIN, VALID, trained


@pytest.mark.parametrize("kind", ["feed-forward", "recurrent"])
def test_the_perplexity_is_that_of_the_source(kind: str) -> None:
    model = trained(kind)
    assert model.test_perplexity == pytest.approx(SOURCES[kind].perplexity(), rel=0.04)
    assert model.valid_perplexity == pytest.approx(np.exp(min(model.record.history["valid_loss"])), rel=0.01)
    assert model.record.metrics["test"]["nats_per_word"] == pytest.approx(np.log(model.test_perplexity), rel=0.01)
    assert model.test_perplexity == pytest.approx(model.perplexity(SOURCES[kind].draw(6000, 3)), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "given"),
    [
        ({}, {"criterion": gw.SampledNextWord(samples=4)}),
        ({"output": gw.TwoLevelSoftmax()}, {}),
        ({"tied": True, "size": 16}, {}),
        ({"direct": True, "dropout": 0.02}, {}),
    ],
    ids=["sampled", "two levels", "tied", "direct"],
)
def test_every_kind_of_output_learns_the_source(part: dict[str, object], given: dict[str, object]) -> None:
    spec = gw.FeedForwardLanguageModel(**{"context": 2, "size": 6, "units": (24,), **part})
    rate = gw.Adam(0.01, schedule=gw.OneCycle())
    model = language.fit(TRAIN, valid=VALID, test=TEST, model=spec, epochs=8, batch=4, optimiser=rate, **given)
    assert model.test_perplexity == pytest.approx(SOURCES["feed-forward"].perplexity(), rel=0.07)


def leaves(model: language.LanguageModel) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.record.state)]


def test_what_is_held_out_changes_nothing_that_is_learned() -> None:
    """Neither words, nor the vocabulary, nor the states of the validation and test texts reach the network.

    Without a validation text the last tenth of the text is held out.
    """
    spec = gw.RecurrentLanguageModel(cell=gw.SimpleCell(), size=3, units=(4,))
    # The last network is kept, which validation does not choose.
    given = {"model": spec, "batch": 4, "stopping": gw.Off(epochs=2)}
    one = language.fit([*TRAIN[:540], *VALID[:59], "new"], **given)
    other = language.fit(TRAIN[:540], valid=TEST[:60], test=["x"] * 50, **given)
    assert one.vocabulary == other.vocabulary
    assert "new" not in one.vocabulary.words
    assert np.isnan(one.test_perplexity)
    for left, right in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(left, right)


class Stop(Exception):
    pass


@pytest.mark.slow
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    spec = gw.RecurrentLanguageModel(cell=gw.Lstm(), size=3, units=(4,), dropout=0.2)

    def run(**options: object) -> language.LanguageModel:
        options = gw.RunOptions(checkpoint_seconds=0.0, **options)
        return language.fit(TRAIN[:600], model=spec, batch=4, epochs=6, options=options)

    rows = []

    def watch(row: dict[str, object]) -> None:
        rows.append(row)
        if len(rows) == 3:
            raise Stop

    with pytest.raises(Stop):
        run(folder=tmp_path, watch=watch)
    whole, resumed = run(), run(folder=tmp_path, resume=True)
    assert whole.perplexities == resumed.perplexities
    for left, right in zip(leaves(whole), leaves(resumed), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_recipe_has_parts_that_fit_together() -> None:
    forward, recurrent = language.recipe("feed-forward", batch=8), language.recipe("recurrent", batch=8, epochs=0.5)
    assert (forward.batches, forward.criterion) == (gw.Reshuffled(8), gw.NextWord())
    assert (recurrent.batches, recurrent.criterion) == (gw.Streams(8), gw.NextWord(streams=8))
    assert recurrent.stopping.every_epochs == 0.5
    other = dataclasses.replace(forward, optimiser=gw.Sgd(0.1))
    assert language.recipe("feed-forward", batch=8, optimiser=gw.Sgd(0.1)) == other


@pytest.mark.parametrize(("kind", "batch"), [("feed-forward", 3), ("recurrent", 2)])
def test_a_small_text_has_small_updates(kind: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred updates of 16 or 20 words for each window in 5000 words; nothing is trained here."""
    made: list[gw.Recipe] = []

    def train(recipe: gw.Recipe, *_: object, **__: object) -> None:
        made.append(recipe)
        raise Stop

    monkeypatch.setattr("gradwise.language.fitting.train", train)
    with pytest.raises(Stop):
        language.fit(TRAIN[:5000], valid=VALID, model=kind)
    assert made[0].batches.size == batch
    assert made[0].criterion.streams == (batch if kind == "recurrent" else 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "transformer"}, "unknown language model `transformer`; choose from feed-forward, recurrent"),
        ({"model": gw.Mlp()}, r"such as `RecurrentLanguageModel\(\)`; got Mlp"),
        ({"criterion": gw.Reconstruction()}, r"such as `NextWord\(\)`; got Reconstruction"),
        ({"text": ["a"] * 5}, "the text has 5 words: give at least 20"),
    ],
)
def test_what_is_no_language_model_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        language.fit(**{"text": TRAIN[:100], **given})
