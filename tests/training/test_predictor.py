"""A saved network reads raw rows anywhere, one row at a time or many, and refuses files that are not its own."""

import dataclasses
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.special import log_softmax

import gradwise
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.models.activations import Rectifier
from gradwise.models.input_stage import Embedded, PiecewiseLinear
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.models.shared_weights import SharedWeights
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.records.fit import Fit
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Column, Dataset, Numbers
from gradwise.specs.recipe import Recipe
from gradwise.training.model_files import load_predictor, save_predictor
from gradwise.training.predictor import Predictor, fit_temperature, outputs_of
from gradwise.training.stopping import Off
from gradwise.training.train import train

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def fitted(iris: Dataset, recipe: Recipe) -> Fit:
    return train(recipe, iris, key=KEY)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(4.0, 2.0, (700, 4))


@pytest.fixture
def path(fitted: Fit, tmp_path: Path) -> Path:
    save_predictor(fitted.predictor, tmp_path / "model.safetensors", about={"metric": "error_rate"})
    return tmp_path / "model.safetensors"


@pytest.mark.slow
def test_a_saved_predictor_predicts_the_same_to_the_bit(fitted: Fit, path: Path, rows: np.ndarray) -> None:
    again, about = load_predictor(path)
    assert about == {"metric": "error_rate"}
    np.testing.assert_array_equal(again.predict(rows), fitted.predictor.predict(rows))
    assert again.task.labels.tolist() == ["setosa", "versicolor", "virginica"]
    assert again.task.labels.dtype == fitted.predictor.task.labels.dtype
    assert (again.columns, again.shape, again.temperature) == (
        fitted.predictor.columns,
        fitted.predictor.shape,
        fitted.predictor.temperature,
    )


@pytest.mark.parametrize("members", [0, 3], ids=["one network", "shared weights"])
def test_a_saved_network_for_tables_predicts_the_same_to_the_bit(
    table_fit: Fit, table_recipe: Recipe, mixed: Dataset, tmp_path: Path, members: int
) -> None:
    """Embeddings, tables of categories, learned slopes, scales and bins travel with it."""
    result = table_fit
    if members:
        mlp = dataclasses.replace(table_recipe.model, inputs=Embedded(PiecewiseLinear(bins=4, size=2)))
        shorter = Off(epochs=2.0, keep="best", spacing=1.0, least_examples=1)
        model = SharedWeights(mlp, members=members)
        result = train(dataclasses.replace(table_recipe, model=model, stopping=shorter), mixed, key=KEY)
    save_predictor(result.predictor, tmp_path / "model.safetensors", about={})
    again, _ = load_predictor(tmp_path / "model.safetensors")
    strange = mixed.inputs[:40].copy()
    strange[::3, 3], strange[1::3, 2], strange[::2, 0] = 24.0, np.nan, np.nan  # unseen, missing, missing
    for rows in (mixed.inputs, strange):
        found = again.predict(rows)
        np.testing.assert_array_equal(found, result.predictor.predict(rows))
        assert np.all(np.isfinite(found))
    leaves = [jax.tree.leaves(eqx.filter(one.network, eqx.is_array)) for one in (again, result.predictor)]
    assert all(np.shape(a) == np.shape(b) and np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


def test_a_saved_predictor_saved_again_is_the_same_file(fitted: Fit, path: Path, tmp_path: Path) -> None:
    again, about = load_predictor(path)
    save_predictor(again, tmp_path / "again", about=about)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


OTHER = """
import pathlib, sys
sys.path[:0] = sys.argv[3].split(chr(10))
import numpy as np
from gradwise.training.model_files import load_predictor
predictor, _ = load_predictor(pathlib.Path(sys.argv[1]))
np.save(sys.argv[2], predictor.predict(np.load(sys.argv[2])))
"""


@pytest.mark.slow
def test_a_saved_predictor_works_in_another_process_without_the_data(
    fitted: Fit, path: Path, rows: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "rows.npy", rows)
    paths = "\n".join(one for one in sys.path if one)
    subprocess.run([sys.executable, "-c", OTHER, str(path), str(tmp_path / "rows.npy"), paths], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), fitted.predictor.predict(rows))


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["x", "yy", "zzz"]),
        np.array([3, 5, 9]),
        np.array([3, 5, 9], np.int8),
        np.array([0.5, 1.5, 2.5]),
        np.array([0.5, 1.5, 2.5], np.float32),
        np.array([False, True, False]),
        np.array(["x", "y", "z"], object),
        np.array([1, 2, 3], object),
    ],
)
def test_labels_come_back_as_they_came(fitted: Fit, tmp_path: Path, labels: np.ndarray) -> None:
    changed = dataclasses.replace(fitted.predictor, task=Classes(labels, "kind"))
    save_predictor(changed, tmp_path / "model", about={})
    task = load_predictor(tmp_path / "model")[0].task
    assert task.labels.dtype == labels.dtype
    assert [(type(one), one) for one in task.labels.tolist()] == [(type(one), one) for one in labels.tolist()]
    assert task.name == "kind"


def test_a_prediction_does_not_depend_on_the_other_rows(fitted: Fit, rows: np.ndarray) -> None:
    predictor = fitted.predictor
    together = predictor.predict(rows)
    order = np.random.default_rng(1).permutation(len(rows))
    np.testing.assert_array_equal(predictor.predict(rows[order]), together[order])
    for number in (0, 3, 511, 512, 699):
        np.testing.assert_array_equal(predictor.predict(rows[number : number + 1])[0], together[number])
    np.testing.assert_array_equal(predictor.predict(rows[510:513]), together[510:513])
    hostile = rows.copy()
    hostile[1:] = 1e30
    np.testing.assert_array_equal(predictor.predict(hostile)[0], together[0])
    assert predictor.predict(rows[:0]).shape == (0, 3)
    np.testing.assert_allclose(together.sum(1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_any_number_of_rows_shares_the_compiled_programs(
    fitted: Fit, rows: np.ndarray, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.predictor.predict(rows[:7])
    traced = []
    link = SoftmaxLoss.link
    monkeypatch.setattr(SoftmaxLoss, "link", lambda self, output: traced.append(0) or link(self, output))
    fitted.predictor.predict(rows[:count])
    assert traced == []  # a program for each number of rows would cost a second each


def test_rows_of_another_shape_are_refused(fitted: Fit) -> None:
    with pytest.raises(RequestError, match=r"each row must have shape \(4,\); got \(5,\)"):
        fitted.predictor.predict(np.zeros((2, 5)))


def _with_notes(content: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    head = json.loads(header["__metadata__"]["gradwise"])
    replaced = change(head)
    head = head if replaced is None else replaced
    header["__metadata__"]["gradwise"] = head if isinstance(head, str) else json.dumps(head)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "a pickle": lambda content: b"\x80\x04\x95" + b"\x00" * 100,
    "enormous header": lambda content: struct.pack("<Q", 2**62) + content[8:],
    "no notes": lambda content: struct.pack("<Q", 2) + b"{}",
    "another format": lambda content: _with_notes(content, lambda head: head.update(format=2)),
    "notes that are a list": lambda content: _with_notes(content, lambda head: []),
    "deep notes": lambda content: _with_notes(content, lambda head: "[" * 100_000),
    "no network": lambda content: _with_notes(content, lambda head: head.pop("network") and None),
    "network of another class": lambda content: _with_notes(
        content, lambda head: head["network"].update({"class": "os:system"})
    ),
    "network that is no network": lambda content: _with_notes(
        content, lambda head: head.update(network={"class": "gradwise:Sgd"})
    ),
    "network that is a number": lambda content: _with_notes(content, lambda head: head.update(network=3)),
    "network with a layer gone": lambda content: _with_notes(content, lambda head: head["network"].update(layers=[])),
    "network with odd layers": lambda content: _with_notes(content, lambda head: head["network"].update(layers=[3])),
    "scaler that is none": lambda content: _with_notes(content, lambda head: head.update(scaler=None)),
    "scaler and criterion exchanged": lambda content: _with_notes(
        content, lambda head: head.update(scaler=head["criterion"], criterion=head["scaler"])
    ),
    "scaler with an array gone": lambda content: _with_notes(
        content,
        lambda head: head.update(scaler=json.loads(json.dumps(head["scaler"]).replace('"array": "', '"array": "x'))),
    ),
    "shape of another width": lambda content: _with_notes(content, lambda head: head.update(shape=[5])),
    "shape beyond measure": lambda content: _with_notes(content, lambda head: head.update(shape=[10**12])),
    "shape that is none": lambda content: _with_notes(content, lambda head: head.update(shape=["4"])),
    "shift of another form": lambda content: _with_notes(content, lambda head: head.update(shift=None)),
    "temperature of 0": lambda content: _with_notes(content, lambda head: head.update(temperature=0)),
    "temperature that is none": lambda content: _with_notes(content, lambda head: head.update(temperature=None)),
    "temperature not a number": lambda content: _with_notes(
        content, lambda head: head.update(temperature=float("nan"))
    ),
    "task of another kind": lambda content: _with_notes(content, lambda head: head["task"].update(kind="riddles")),
    "more labels than outputs": lambda content: _with_notes(
        content, lambda head: head["task"].update(labels=["a", "b", "c", "d"])
    ),
    "labels of a hostile type": lambda content: _with_notes(
        content, lambda head: head["task"].update(dtype="<U2000000000")
    ),
    "labels of records": lambda content: _with_notes(content, lambda head: head["task"].update(dtype="V8")),
    "columns of another form": lambda content: _with_notes(content, lambda head: head.update(columns=[["a"]])),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_is_no_model_is_refused_in_one_line(path: Path, name: str) -> None:
    path.write_bytes(DAMAGE[name](path.read_bytes()))
    with pytest.raises(RequestError, match=r"model\.safetensors") as caught:
        load_predictor(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no model at"):
        load_predictor(tmp_path / "nothing")
    with pytest.raises(RequestError, match="no model at"):
        load_predictor(tmp_path)


class Mine(eqx.Module):
    """A network from outside gradwise, with a written form."""

    weight: jax.Array
    activation: Rectifier

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.activation(self.weight @ x)


def test_a_network_of_ones_own_needs_its_class_passed_in(fitted: Fit, tmp_path: Path, rows: np.ndarray) -> None:
    network = Mine(jax.random.normal(KEY, (3, 4)), Rectifier())
    predictor = dataclasses.replace(fitted.predictor, network=network)
    save_predictor(predictor, tmp_path / "mine", about={})
    with pytest.raises(RequestError, match=r"Mine` is not part of gradwise"):
        load_predictor(tmp_path / "mine")
    again, _ = load_predictor(tmp_path / "mine", classes=(Mine,))
    np.testing.assert_array_equal(again.predict(rows), predictor.predict(rows))


def test_a_network_without_a_written_form_keeps_its_arrays(fitted: Fit, tmp_path: Path, rows: np.ndarray) -> None:
    """Whoever loads it passes a network like it, which is filled with them."""
    predictor = dataclasses.replace(fitted.predictor, network=eqx.nn.MLP(4, 3, 5, 1, key=KEY))
    save_predictor(predictor, tmp_path / "own", about={})
    with pytest.raises(RequestError, match=r"arrays of a `MLP`, but not its code"):
        load_predictor(tmp_path / "own")
    again, _ = load_predictor(tmp_path / "own", classes=(eqx.nn.MLP(4, 3, 5, 1, key=jax.random.key(9)),))
    np.testing.assert_array_equal(again.predict(rows), predictor.predict(rows))


@pytest.mark.slow
def test_numbers_come_back_in_their_own_units(tmp_path: Path, recipe: Recipe) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(150, 4))
    y = np.stack([1e6 + 1e5 * x[:, 0], 1e-3 * x[:, 1]], axis=1)
    columns = tuple(Column(name) for name in "abcd")
    chosen = gradwise.defaults.regression(
        batches=recipe.batches,
        model=Mlp(widths=(8,), normalisation=BatchNorm()),
        optimiser=Adam(learning_rate=0.01),
        stopping=Off(epochs=60, spacing=1.0),
    )
    result = train(chosen, Dataset(x, y, Numbers(("u", "v")), columns), key=KEY)
    predictions = result.predictor.predict(x)
    assert np.corrcoef(predictions[:, 0], y[:, 0])[0, 1] > 0.9
    np.testing.assert_allclose(predictions.mean(0), y.mean(0), atol=0.5 * y.std(0).max(), rtol=0.05)
    assert 0.3 < predictions[:, 1].std() / y[:, 1].std() < 1.5
    save_predictor(result.predictor, tmp_path / "model", about={})
    again, _ = load_predictor(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(x), predictions)
    assert again.task == Numbers(("u", "v"))


def test_the_temperature_makes_validation_most_likely() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(4000, 3)) * 2
    targets = np.array([draw.choice(3, p=np.exp(log_softmax(row))) for row in logits])
    criterion = Supervised(SoftmaxLoss())
    # Logits three times too large: the temperature that repairs them is 3.
    assert fit_temperature(criterion, 3.0 * logits, targets) == pytest.approx(3.0, rel=0.1)

    def loss(temperature: float) -> float:
        return float(-log_softmax(3.0 * logits / temperature, axis=1)[np.arange(4000), targets].mean())

    found = fit_temperature(criterion, 3.0 * logits, targets)
    assert loss(found) < loss(1.0)
    assert loss(found) <= min(loss(found * 1.02), loss(found / 1.02))


def test_the_temperature_is_one_where_there_is_no_optimum() -> None:
    outputs = np.array([[5.0, 0.0], [0.0, 5.0]])
    assert (
        fit_temperature(Supervised(SoftmaxLoss()), outputs, np.array([0, 1])) == 1.0
    )  # no error: ever sharper is better
    assert fit_temperature(Supervised(SoftmaxLoss()), np.zeros((4, 2)), np.array([0, 1, 0, 1])) == 1.0


def test_outputs_are_those_of_the_network(fitted: Fit) -> None:
    inputs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = jax.vmap(fitted.predictor.network)(inputs)
    np.testing.assert_allclose(outputs_of(fitted.predictor.network, inputs), expected, rtol=1e-5, atol=1e-6)


def test_the_temperature_never_changes_the_choice(fitted: Fit, rows: np.ndarray) -> None:
    choices = [
        dataclasses.replace(fitted.predictor, temperature=temperature).predict(rows).argmax(1)
        for temperature in (0.1, 1.0, 7.0)
    ]
    assert all((one == choices[0]).all() for one in choices)
    assert isinstance(fitted.predictor, Predictor)
