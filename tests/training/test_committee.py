"""A committee is the mean of its members, never worse than they are on average, and one file like any predictor."""

import csv
import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors import safe_open
from scipy.special import log_softmax, softmax

import gradwise
from gradwise.evaluation.metrics import measure
from gradwise.journeys.predict import run_predict
from gradwise.journeys.requests.training_requests import PredictRequest
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Column, Dataset, Labels, Numbers
from gradwise.specs.fitted_scaler import FittedScaler
from gradwise.specs.recipe import Recipe
from gradwise.training.committee import Committee, committee_of, mean_prediction
from gradwise.training.model_files import load_predictor, save_predictor
from gradwise.training.predictor import Predictor, predict_each
from gradwise.training.train import train


@pytest.fixture(scope="module")
def members(iris: Dataset, recipe: Recipe) -> tuple[Predictor, ...]:
    return tuple(train(recipe, iris, key=jax.random.key(seed)).predictor for seed in range(4))


@pytest.fixture
def committee(members: tuple[Predictor, ...]) -> Committee:
    return Committee(members, 0.7)


def test_a_committee_is_the_mean_of_its_members(members: tuple[Predictor, ...], iris: Dataset) -> None:
    each = np.stack([member.predict(iris.inputs) for member in members])
    np.testing.assert_allclose(Committee(members).predict(iris.inputs), each.mean(0), rtol=1e-12)
    np.testing.assert_allclose(
        Committee(members, 0.5).predict(iris.inputs), softmax(np.log(each.mean(0)) / 0.5, axis=1), rtol=1e-9
    )


def test_weights_say_how_much_each_member_counts(members: tuple[Predictor, ...], tmp_path: Path, iris: Dataset) -> None:
    each = np.stack([member.predict(iris.inputs) for member in members])
    weights = (0.5, 0.25, 0.25, 0.0)
    committee = Committee(members, weights=weights)
    np.testing.assert_allclose(committee.predict(iris.inputs), np.tensordot(weights, each, 1), rtol=1e-12)
    save_predictor(committee, tmp_path / "model.safetensors", about={})
    again, _ = load_predictor(tmp_path / "model.safetensors")
    assert again.weights == weights
    for wrong in ((0.5, 0.5), (0.5, 0.5, 0.5, 0.5), (1.5, -0.5, 0.0, 0.0)):
        with pytest.raises(RequestError, match="with sum 1"):
            Committee(members, weights=wrong)


def test_a_committee_beats_its_mean_member(members: tuple[Predictor, ...], iris: Dataset) -> None:
    """The log-loss is convex, so this holds on any examples whatever; here the members do disagree."""
    together = measure(iris.task, Committee(members).predict(iris.inputs), iris.targets, None)["log_loss"]
    alone = [measure(iris.task, m.predict(iris.inputs), iris.targets, None)["log_loss"] for m in members]
    assert together < np.mean(alone) - 1e-3


def test_the_temperature_makes_validation_most_likely(members: tuple[Predictor, ...]) -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(4000, 3)) * 2
    targets = np.array([draw.choice(3, p=np.exp(log_softmax(row))) for row in logits])
    mean = softmax(logits / 2.0, axis=1)  # twice as soft as the truth
    committee = committee_of(members, mean, targets)
    assert committee.temperature == pytest.approx(0.5, rel=0.1)
    np.testing.assert_allclose(committee.tempered(mean), softmax(logits / 2.0 / committee.temperature, axis=1))
    assert committee_of(members[:1], mean, targets).temperature == 1.0


def test_a_saved_committee_predicts_the_same_to_the_bit(committee: Committee, tmp_path: Path, iris: Dataset) -> None:
    save_predictor(committee, tmp_path / "model", about={"metric": "error_rate"})
    again, about = load_predictor(tmp_path / "model")
    assert isinstance(again, Committee)
    assert about == {"metric": "error_rate"}
    np.testing.assert_array_equal(again.predict(iris.inputs), committee.predict(iris.inputs))
    assert (again.columns, again.shape, again.temperature) == (committee.columns, committee.shape, 0.7)
    assert again.task.labels.tolist() == ["setosa", "versicolor", "virginica"]
    save_predictor(again, tmp_path / "again", about=about)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_a_file_of_one_network_keeps_its_format(members: tuple[Predictor, ...], tmp_path: Path) -> None:
    """What was written before there were committees is read, and read by those who know of none."""
    save_predictor(members[0], tmp_path / "model", about={})
    with safe_open(tmp_path / "model", framework="numpy") as file:
        head = json.loads(file.metadata()["gradwise"])
    assert head["format"] == 1
    assert "members" not in head
    assert isinstance(load_predictor(tmp_path / "model")[0], Predictor)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda head: head.update(members=[]), "invalid committee of 0"),
        (lambda head: head.update(members=head["members"][:2]), "damaged"),
        (lambda head: head.update(temperature=-1.0), "must be positive"),
        (lambda head: head["members"][1].pop("network"), "damaged"),
        (lambda head: head.update(format=3), "format 3"),
    ],
)
def test_a_damaged_committee_is_refused_in_one_line(
    committee: Committee, tmp_path: Path, change: object, said: str
) -> None:
    from safetensors.numpy import load, save

    path = tmp_path / "model.safetensors"
    save_predictor(committee, path, about={})
    with safe_open(path, framework="numpy") as file:
        head = json.loads(file.metadata()["gradwise"])
    change(head)  # type: ignore[operator]
    path.write_bytes(save(load(path.read_bytes()), {"gradwise": json.dumps(head)}))
    with pytest.raises(RequestError, match=said) as caught:
        load_predictor(path)
    assert "\n" not in str(caught.value)
    assert "model.safetensors" in str(caught.value)


def test_the_command_predicts_by_a_committee(committee: Committee, tmp_path: Path, iris: Dataset) -> None:
    save_predictor(committee, tmp_path / "model.safetensors", about={})
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in iris.columns])
        writer.writerows(iris.inputs.tolist())
    out = tmp_path / "out.csv"
    run_predict(PredictRequest(str(tmp_path), str(tmp_path / "rows.csv"), out=str(out), probabilities=True))
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    expected = committee.predict(iris.inputs)
    found = np.array([[float(row[f"probability_{name}"]) for name in committee.task.labels] for row in rows])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert [row["prediction"] for row in rows] == committee.task.labels[expected.argmax(1)].tolist()


def test_members_must_belong_together(members: tuple[Predictor, ...]) -> None:
    with pytest.raises(RequestError, match="needs at least one member"):
        Committee(())
    with pytest.raises(RequestError, match="same inputs"):
        Committee((members[0], dataclasses.replace(members[1], shape=(5,))))
    with pytest.raises(RequestError, match="must be positive"):
        Committee(members, float("nan"))


@pytest.mark.slow
def test_numbers_and_labels_are_averaged_as_they_are(recipe: Recipe, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 4))
    columns = tuple(Column(name) for name in "abcd")
    shared = {name: getattr(recipe, name) for name in ("batches", "model", "optimiser", "stopping")}
    numbers = Dataset(x, np.stack([1e4 + 1e3 * x[:, 0], x[:, 1]], axis=1), Numbers(("u", "v")), columns)
    labels = Dataset(x, (x[:, :2] > 0).astype(float), Labels(("p", "q")), columns)
    for dataset in (numbers, labels):
        chosen = gradwise.defaults.for_task(dataset.task, **shared)
        several = tuple(train(chosen, dataset, key=jax.random.key(seed)).predictor for seed in range(2))
        each = [one.predict(x) for one in several]
        committee = committee_of(several, mean_prediction(each), dataset.targets)
        assert committee.temperature == 1.0
        np.testing.assert_array_equal(committee.predict(x), (each[0] + each[1]) / 2)
        save_predictor(committee, tmp_path / "model", about={})
        np.testing.assert_array_equal(load_predictor(tmp_path / "model")[0].predict(x), committee.predict(x))
        assert committee.predict(x[:0]).shape == (0, 2)


def test_rows_are_scaled_once_for_all_members_with_one_scaler(
    members: tuple[Predictor, ...], tmp_path: Path, iris: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike = tuple(dataclasses.replace(member, scaler=members[0].scaler) for member in members[:3])
    save_predictor(Committee((*alike, members[3])), tmp_path / "model.safetensors", about={})
    again, _ = load_predictor(tmp_path / "model.safetensors")
    scaled: list[int] = []
    apply = FittedScaler.apply
    monkeypatch.setattr(FittedScaler, "apply", lambda self, rows: scaled.append(len(rows)) or apply(self, rows))
    expected = [member.predict(iris.inputs) for member in (*alike, members[3])]
    assert len(scaled) == 4
    found = again.predict(iris.inputs)
    assert len(scaled) == 4 + 2  # both scalers once
    np.testing.assert_allclose(found, np.mean(expected, axis=0), rtol=1e-12)
    assert predict_each(again.members, iris.inputs[:0])[0].shape == (0, 3)
