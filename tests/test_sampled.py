"""Features of sparse rows by sampled reconstruction (row G3), as people use them."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import dump_svmlight_file

import gradwise
from gradwise import defaults
from gradwise.criteria.corruption import Masking
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.criteria.sparse.sampled_zeros import EveryZero, SampledZeros
from gradwise.data.batches import Reshuffled
from gradwise.data.splits import HoldOut
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.pretraining.layer_recipes import learner
from gradwise.pretraining.stack import fit_pretrained, pretrain
from gradwise.runtime import keys
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.sparse.rows import SparseRows
from gradwise.training.loop import RunOptions
from gradwise.training.population import Population, enter
from gradwise.training.prepare import place_examples
from gradwise.training.stopping import Off
from gradwise.training.train import train

WIDTH = 300
KEY = keys.from_seed(3)


def topics(count: int = 160, seed: int = 0) -> tuple[csr_matrix, np.ndarray]:
    """Rows of about ten words, most of them of the row's topic: topic t has the words 20 t to 20 t + 19."""
    draw = np.random.default_rng(seed)
    topic = draw.integers(0, 4, count)
    own = draw.integers(0, 20, (count, 9)) + 20 * topic[:, None]
    words = np.concatenate([own, draw.integers(80, WIDTH, (count, 2))], axis=1)
    inputs = csr_matrix((np.ones(words.size), (np.repeat(np.arange(count), 11), words.ravel())), (count, WIDTH))
    inputs.sum_duplicates()
    inputs.data[:] = 1.0
    return inputs, topic


def recipe(zeros: Any = SampledZeros(32), epochs: float = 20.0, **parts: Any) -> Any:
    given = {
        "model": MlpAutoEncoder(widths=(8,)),
        "criterion": Reconstruction(corruption=Masking(0.25), zeros=zeros),
        "batches": Reshuffled(10),
        "optimiser": Sgd(0.1),
        "stopping": Off(epochs=epochs),
    }
    return dataclasses.replace(learner("denoising", 8), **{**given, **parts})


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    inputs, topic = topics()
    return Dataset(inputs, topic, Classes(np.arange(4)), name="topics")


@pytest.fixture(scope="module")
def learned(dataset: Dataset) -> Any:
    return train(recipe(), dataset.without_targets(), key=KEY)


def test_it_learns_what_the_dense_auto_encoder_learns(dataset: Dataset, learned: Any) -> None:
    """The exact denoising error of held-out rows, with a tenth of the zeros, comes near that with all of them."""
    assert learned.predictor.network.takes_sparse
    dense = train(recipe(EveryZero()), dataset.without_targets(), key=KEY)
    assert not dense.predictor.network.takes_sparse
    before, after = learned.history["valid_score"][0], learned.metrics["valid"]["denoising_error"]
    wanted = dense.metrics["valid"]["denoising_error"]
    assert after < 0.8 * before
    assert after < 1.05 * wanted
    inputs = dataset.inputs[:7]
    codes = learned.predictor.predict(inputs)
    np.testing.assert_allclose(codes, learned.predictor.predict(inputs.toarray()), atol=1e-5)


@pytest.mark.slow
def test_a_resumed_run_is_the_same_to_the_bit(dataset: Dataset, learned: Any, tmp_path: Path) -> None:
    rows = dataset.without_targets()
    train(recipe(), rows, key=KEY, options=RunOptions(folder=tmp_path, max_seconds=0.0))
    resumed = train(recipe(), rows, key=KEY, options=RunOptions(folder=tmp_path, resume=True))
    for one, other in zip(*(jax.tree.leaves(fit.state.parameters) for fit in (learned, resumed)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_members_of_a_population_become_what_they_would_alone(dataset: Dataset) -> None:
    rows = dataset.without_targets()
    split, units = HoldOut(valid=0.1, test=0.0), (np.zeros(1), np.ones(1))
    parts = split(rows, key=KEY)[:2]
    scaler = recipe().scaler.fit(parts[0].inputs, ())
    examples, judged = (place_examples(part, scaler, units, None, slots=11) for part in parts)
    assert isinstance(examples.inputs, SparseRows)
    recipes = [recipe(optimiser=Sgd(rate)) for rate in (0.1, 0.03)]
    entered = [enter(one, examples, judged, outputs=0, key=KEY) for one in recipes]
    together = Population(*entered[0], examples, judged, slots=2)
    for slot, (member, state) in enumerate(entered):
        together.fill(slot, member, state)
    found = together.interval()
    for slot, one in enumerate(entered):
        alone = Population(*one, examples, judged, slots=1)
        alone.fill(0, *one)
        row = alone.interval()
        np.testing.assert_allclose(found.valid_loss[slot], row.valid_loss[0], rtol=1e-4)


@pytest.mark.slow
def test_stacked_layers_begin_with_sparse_rows(dataset: Dataset) -> None:
    layers = [recipe(epochs=5.0), dataclasses.replace(recipe(epochs=2.0), model=MlpAutoEncoder(widths=(5,)))]
    stack = pretrain(layers, dataset.without_targets(), key=KEY)
    assert [network.takes_sparse for network in stack.networks] == [True, False]
    np.testing.assert_allclose(
        stack.encode(dataset.inputs), stack.encode(dataset.inputs.toarray()), atol=1e-5, err_msg="of dense rows"
    )
    whole = defaults.fine_tuning("classes", (8, 5), stopping=Off(epochs=3.0), batches=Reshuffled(10))
    fit, _ = fit_pretrained(whole, dataset, layers, key=KEY)
    assert fit.predictor.network.takes_sparse
    assert fit.predictor.predict(dataset.inputs[:3]).shape == (3, 4)


@pytest.mark.slow
def test_estimators_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs, topic = topics()
    given = {name: getattr(recipe(), name) for name in ("model", "criterion", "optimiser", "batches", "stopping")}
    features = gradwise.DenoisingAutoEncoder(random_state=0, **given).fit(inputs)
    codes = features.transform(inputs)
    assert codes.shape == (160, 8)
    assert features.record_.predictor.network.takes_sparse
    assert np.isfinite(features.score(inputs))
    assert features.inverse_transform(codes[:3]).shape == (3, WIDTH)
    dump_svmlight_file(inputs, topic, "topics.svm")
    model = gradwise.fit("topics.svm", unsupervised=True, seed=1, **given)
    assert model.record.predictor.network.takes_sparse
    assert model.predict(inputs[:3]).shape == (3, 8)
