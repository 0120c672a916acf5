"""Training on sparse rows (row G2): the same networks as on dense rows, in the memory of the non-zeros."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import dump_svmlight_file

import gradwise
from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.data.batches import Reshuffled
from gradwise.data.count_scaling import TfIdf
from gradwise.data.scaling import Automatic, MaxAbs, Standardise
from gradwise.models.activations import Tanh
from gradwise.models.input_stage import Embedded
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.models.padded_mlp import pad, trimmed
from gradwise.models.shared_weights import SharedWeights
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.first_order.sag import Sag
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.effective_decay import EffectiveDecay
from gradwise.runtime import keys
from gradwise.specs.dataset import Classes, Dataset, InputLayout
from gradwise.specs.networks import apply_batch
from gradwise.specs.recipe import Recipe
from gradwise.specs.sparse.rows import SparseRows
from gradwise.training.interval import interval
from gradwise.training.loop import RunOptions
from gradwise.training.model_files import load_predictor, save_predictor
from gradwise.training.population import Population, enter
from gradwise.training.prepare import place_examples, sparse_slots
from gradwise.training.state import init
from gradwise.training.stopping import Patience
from gradwise.training.train import train

WIDTH = 400
KEY = keys.from_seed(3)
UNITS = (np.zeros(1), np.ones(1))


def texts(count: int = 120, seed: int = 0, width: int = WIDTH) -> tuple[csr_matrix, np.ndarray]:
    """Rows of some ten counts; the class is which half of the first twenty words a row's first two come from."""
    draw = np.random.default_rng(seed)
    classes = draw.integers(0, 2, count)
    own = draw.integers(0, 10, (count, 2)) + 10 * classes[:, None]
    words = np.concatenate([own, draw.integers(20, width, (count, 8))], axis=1)
    return csr_matrix((np.ones(words.size), (np.repeat(np.arange(count), 10), words.ravel())), (count, width)), classes


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    inputs, classes = texts()
    return Dataset(inputs, classes, Classes(np.array(["no", "yes"])), name="texts")


def recipe(**parts: Any) -> Recipe:
    given = {
        "batches": Reshuffled(8),
        "model": Mlp(widths=(6,), activation=Tanh(), dropout=0.0),
        "optimiser": Sgd(0.3),
        "stopping": Patience(initial_examples=600, initial_epochs=0, spacing=1.0, least_examples=1, epochs=10),
    }
    return defaults.classification(**{**given, **parts})


def built(model: Mlp, inputs: Any, *, sparse: bool) -> Any:
    layout = InputLayout(numbers=inputs.shape[1], sparse=sparse)
    return model.for_inputs(layout).build(inputs.shape[1:], 3, key=jax.random.key(1))


# --- one network


MODELS = {
    "one layer": Mlp(widths=(5,), dropout=0.2),
    "none": Mlp(widths=()),
    "ntk": Mlp(widths=(5, 4), parametrisation="ntk", dropout=0.0),
    "batch norm": Mlp(widths=(5, 4), normalisation=BatchNorm()),
    "residual": Mlp(widths=(WIDTH,), residual=True, activation=Tanh()),
}


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "model", [pytest.param(m, id=n, marks=[] if n in ("one layer", "none") else SLOW) for n, m in MODELS.items()]
)
def test_a_network_equals_the_one_of_dense_rows(model: Mlp) -> None:
    """Outputs, and gradients in every parameter, with the noise of training; the table lies the other way round."""
    matrix, _ = texts(16)
    rows, dense = SparseRows.of(matrix), jnp.asarray(matrix.toarray(), jnp.float32)
    ours, theirs = built(model, rows, sparse=True), built(model, dense, sparse=False)
    assert ours.takes_sparse
    assert not theirs.takes_sparse

    def value(network: Any, inputs: Any) -> Any:
        return jnp.sum(jnp.sin(apply_batch(network, inputs, jax.random.key(2))))

    outputs, slopes = eqx.filter_jit(apply_batch), eqx.filter_jit(eqx.filter_grad(value))
    expected, steep = outputs(theirs, dense, None), jax.tree.leaves(slopes(theirs, dense))
    for inputs in (rows, dense):  # the turned network reads dense rows too
        np.testing.assert_allclose(outputs(ours, inputs, None), expected, atol=1e-5)
        first, *others = jax.tree.leaves(slopes(ours, inputs))
        for found, wanted in zip((first.T, *others), steep, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-5)
    if ours.needs_calibration:
        found = apply_batch(ours.calibrate(rows), rows, None)
        np.testing.assert_allclose(found, apply_batch(theirs.calibrate(dense), dense, None), atol=1e-5)


def test_a_padded_network_is_trimmed_to_its_own_size() -> None:
    rows = SparseRows.of(texts(16)[0])
    model = Mlp(widths=(5, 4), dropout=0.0).for_inputs(InputLayout(WIDTH, sparse=True))
    padded = pad(model, (WIDTH,), lambda width: 8).build((WIDTH,), 3, key=KEY)
    own = trimmed(padded)
    assert (padded.layers[0].weight.shape, own.layers[0].weight.shape) == ((WIDTH, 8), (WIDTH, 5))
    np.testing.assert_allclose(apply_batch(own, rows, None), apply_batch(padded, rows, None), atol=1e-6)


# --- which data are sparse rows


def test_sparse_rows_are_where_every_part_reads_them(dataset: Dataset) -> None:
    assert sparse_slots(recipe(), (dataset, None)) == 10
    unable = [
        recipe(model=Mlp(widths=(6,), inputs=Embedded())),
        recipe(model=SharedWeights(Mlp(widths=(6,)), members=2)),
        recipe(model=eqx.nn.MLP(WIDTH, 2, 4, 1, key=KEY)),
        recipe(criterion=Supervised(SoftmaxLoss(), mixup=0.2)),
        recipe(optimiser=Sag()),
    ]
    assert [sparse_slots(one, (dataset,)) for one in unable] == [0] * len(unable)
    full, _ = texts(width=25)
    assert sparse_slots(recipe(), (dataclasses.replace(dataset, inputs=full),)) == 0, "dense rows are smaller"
    dense = dataclasses.replace(dataset, inputs=dataset.inputs.toarray())
    assert sparse_slots(recipe(), (dense,)) == 0


def test_a_scaler_that_moves_zeros_gives_dense_rows(dataset: Dataset) -> None:
    for scaler, sparse in ((MaxAbs(), True), (TfIdf(), True), (Standardise(), False)):
        placed = place_examples(dataset, scaler.fit(dataset.inputs, ()), UNITS, None, slots=10)
        assert isinstance(placed.inputs, SparseRows) == sparse
        assert placed.layout is not None
        assert placed.layout.sparse == sparse
        np.testing.assert_allclose(
            placed.inputs.dense() if isinstance(placed.inputs, SparseRows) else placed.inputs,
            scaler.fit(dataset.inputs, ()).apply(dataset.inputs),
            rtol=1e-6,
        )


# --- training


@pytest.mark.parametrize(
    "optimiser",
    [
        Sgd(0.3),
        pytest.param(Adam(0.01), marks=SLOW),
        pytest.param(EffectiveDecay(Sgd(0.3), where="layers.0.weight"), marks=SLOW),
    ],
    ids=["sgd", "adam", "effective decay"],
)
def test_training_equals_that_on_dense_rows(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, optimiser: Any, tmp_path: Path
) -> None:
    given = recipe(optimiser=optimiser)
    ours = train(given, dataset, key=KEY)
    assert ours.predictor.network.takes_sparse
    monkeypatch.setattr("gradwise.training.train.sparse_slots", lambda *_: 0)
    theirs = train(given, dataset, key=KEY)
    assert not theirs.predictor.network.takes_sparse
    for name in ("train_loss", "valid_loss", "valid_score"):
        np.testing.assert_allclose(ours.history[name], theirs.history[name], atol=2e-4)
    assert ours.metrics["test"]["error_rate"] == theirs.metrics["test"]["error_rate"] < 0.3
    inputs = dataset.inputs
    sparse, dense = ours.predictor.predict(inputs), ours.predictor.predict(inputs.toarray())
    np.testing.assert_allclose(sparse, dense, atol=1e-5)
    np.testing.assert_allclose(sparse, theirs.predictor.predict(inputs), atol=2e-3)
    np.testing.assert_array_equal(sparse[5:6], ours.predictor.predict(inputs[5:6]))
    save_predictor(ours.predictor, tmp_path / "model.safetensors", about={})
    again, _ = load_predictor(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(inputs), sparse)


def test_a_resumed_run_is_the_same_to_the_bit(dataset: Dataset, tmp_path: Path) -> None:
    whole = train(recipe(), dataset, key=KEY)
    for number in range(3):
        options = RunOptions(folder=tmp_path, resume=number > 0, max_seconds=0.0)
        cut = train(recipe(), dataset, key=KEY, options=options)
        assert cut.outcome.name == "out_of_time"
    resumed = train(recipe(), dataset, key=KEY, options=RunOptions(folder=tmp_path, resume=True))
    assert list(resumed.history["valid_loss"]) == list(whole.history["valid_loss"])
    for one, other in zip(*(jax.tree.leaves(fit.state.parameters) for fit in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_members_of_a_population_become_what_they_would_alone(dataset: Dataset) -> None:
    scaler = MaxAbs().fit(dataset.inputs, ())
    examples = place_examples(dataset, scaler, UNITS, None, slots=10)
    judged = jax.tree.map(lambda leaf: leaf[:40], examples)
    recipes = [recipe(optimiser=Sgd(rate)) for rate in (0.3, 0.05)]
    entered = [enter(one, examples, judged, outputs=2, key=KEY) for one in recipes]
    together = Population(*entered[0], examples, judged, slots=2)
    for slot, (member, state) in enumerate(entered):
        together.fill(slot, member, state)
    rows = together.interval()
    for slot, one in enumerate(recipes):
        problem, state = init(one, examples, judged, outputs=2, key=KEY)
        _, row = interval(problem, state, problem.interval_updates)
        np.testing.assert_allclose(rows.valid_loss[slot], row.valid_loss, rtol=1e-5)
        np.testing.assert_allclose(rows.train_loss[slot], row.train_loss, rtol=1e-5)


def test_a_million_columns_take_the_memory_of_their_non_zeros() -> None:
    """2,000 x 1,000,000 with 10 non-zeros a row: dense rows would be 8 GB. What the compiled interval holds at once:

    the examples, and of the table of 4 MB a unit the parameters, the best ones, the gradient and a copy.
    """
    inputs, classes = texts(2000, width=1_000_000)
    whole = Dataset(inputs, classes, Classes(np.array([0, 1])))
    given = recipe(model=Mlp(widths=(2,), dropout=0.0))
    examples = place_examples(whole, MaxAbs().fit(inputs, ()), UNITS, None, sparse_slots(given, (whole,)))
    assert isinstance(examples.inputs, SparseRows)
    assert examples.inputs.nbytes == 2000 * 10 * 8
    judged = jax.tree.map(lambda leaf: leaf[:64], examples)
    problem, state = init(given, examples, judged, outputs=2, key=KEY)
    program = eqx.filter_jit(interval)
    needed = program.lower(problem, state, 4).compile().compiled.memory_analysis()
    table = 4 * 2 * 1_000_000
    held = needed.argument_size_in_bytes + needed.output_size_in_bytes + needed.temp_size_in_bytes
    assert held < 10 * table < 100e6
    _, row = interval(problem, state, 4)
    assert np.isfinite(float(row.train_loss))


# --- as people use it


def test_fit_takes_a_matrix_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs, classes = texts(200)
    parts = {name: getattr(recipe(), name) for name in ("model", "optimiser", "batches", "stopping")}
    model = gradwise.fit((inputs, classes), seed=1, **parts)
    assert model.record.predictor.network.takes_sparse
    new, answers = texts(100, seed=5)
    assert np.mean(model.predict(new) == answers) > 0.75
    dump_svmlight_file(inputs, classes, "texts.svm")
    read = gradwise.fit("texts.svm", seed=1, **parts)
    assert read.record.predictor.network.takes_sparse
    assert np.mean(read.predict(new) == answers) > 0.75
    model.save("model.safetensors")
    np.testing.assert_array_equal(gradwise.load("model.safetensors").predict(new), model.predict(new))


@pytest.mark.slow
def test_estimators_take_a_matrix_and_go_on_from_it() -> None:
    inputs, classes = texts(200)
    given = recipe()
    parts = {name: getattr(given, name) for name in ("model", "optimiser", "batches", "stopping")}
    found = gradwise.Classifier(random_state=0, **parts).fit(inputs, classes)
    assert found.score(*texts(100, seed=5)) > 0.75
    stream = gradwise.Classifier(random_state=0, **parts)
    for part in range(4):
        rows = slice(50 * part, 50 * part + 50)
        stream.partial_fit(inputs[rows], classes[rows], classes=[0, 1])
    first = stream.predict_proba(inputs)
    stream.partial_fit(inputs.toarray(), classes)  # dense rows now: the same network goes on
    assert np.abs(stream.predict_proba(inputs) - first).max() > 0


@pytest.mark.slow
def test_a_search_and_its_committee_read_sparse_rows() -> None:
    inputs, classes = texts(300)
    model = gradwise.search((inputs, classes), budget="2 trials", seed=1, model=Mlp(widths=(8,)))
    networks = [predictor.network for predictor in getattr(model.predictor, "members", (model.predictor,))]
    assert all(network.takes_sparse for network in networks)
    new, answers = texts(100, seed=5)
    assert np.mean(model.predict(new) == answers) > 0.75


def test_the_recommended_scaler_of_sparse_data_keeps_zeros(dataset: Dataset) -> None:
    assert Automatic().fit(dataset.inputs, ()).keeps_zeros()
