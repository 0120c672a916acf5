"""What a run without a target tells of its features, against numbers worked out by hand or by NumPy."""

import base64

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.code_sparsity import KlToTarget, L1Codes, SquaredToTarget
from gradwise.criteria.reconstruction import Reconstruction, SquaredError
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.models.activations import Identity, Rectifier, Sigmoid
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.records.evidence.fit_evidence import FeatureEvidence, Reconstructions, Spectrum, UnitActivity
from gradwise.specs.dataset import Column, Dataset, Inputs
from gradwise.training.final_measurement import (
    _filters,
    _reconstructions,
    _spectrum,
    _units,
    find_features,
    image_shape,
    measure_features,
    measures_of,
    packed,
)
from gradwise.training.predictor import Predictor
from gradwise.training.stopping import Off
from gradwise.training.train import train


@pytest.mark.parametrize(
    ("shape", "kinds", "expected"),
    [
        ((28, 28), (), (28, 28)),
        ((8, 8, 3), (), (8, 8, 3)),
        ((8, 8, 1), (), (8, 8)),
        ((784,), (), (28, 28)),
        ((64,), ("pixel",) * 64, (8, 8)),
        ((64,), ("number",) * 64, ()),  # a table that happens to have 64 columns
        ((63,), (), ()),
        ((49,), (), ()),  # too small to be a picture that somebody laid flat
        ((4, 5, 6), (), ()),
    ],
)
def test_what_counts_as_an_image(shape, kinds, expected):
    assert image_shape(shape, tuple(Column(str(i), kind) for i, kind in enumerate(kinds))) == expected


def test_packed_numbers_come_back_within_half_a_step():
    values = np.random.default_rng(0).uniform(-1, 1, 500)
    back = np.frombuffer(base64.b64decode(packed(values, -1.0, 1.0)), np.uint8) / 255 * 2 - 1
    assert np.abs(back - values).max() <= 1 / 255 + 1e-12


def network(weight, bias, activation=Sigmoid()):
    """An auto-encoder of one tied layer with these parameters."""
    built = MlpAutoEncoder(widths=(len(weight),), activation=activation).build(
        (weight.shape[1],), 0, key=jax.random.key(0)
    )
    where = lambda one: (one.encoder[0].weight, one.encoder[0].bias)  # noqa: E731
    return eqx.tree_at(where, built, (jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32)))


def test_filters_are_ordered_by_norm_and_each_has_its_own_scale():
    weight = np.array([[0.0, 1.0], [3.0, -4.0], [0.2, 0.1], [0.0, 0.0]])
    found = _filters(network(weight, np.zeros(4)), 2)
    assert found.units == (1, 0, 2, 3)
    assert found.norms == pytest.approx([5.0, 1.0, np.hypot(0.2, 0.1), 0.0], abs=1e-5)
    drawn = np.frombuffer(base64.b64decode(found.bytes), np.uint8).reshape(4, 2)
    assert drawn.tolist() == [[223, 0], [128, 255], [255, 191], [128, 128]]  # 0.75, -1; 0, 1; 1, 0.5; nothing


def test_at_most_a_hundred_filters_are_kept():
    assert len(_filters(network(np.ones((130, 3)), np.zeros(130)), 3).units) == 100


def test_dead_and_saturated_units_are_counted():
    codes = np.tile([[0.01, 0.97, 0.5, 0.0]], (20, 1))
    codes[3, 2], codes[4, 0] = 0.9, 0.04
    found = _units(network(np.zeros((4, 2)), np.zeros(4)), codes)
    assert (found.count, found.dead, found.always_on) == (4, 2, 1)
    assert sum(found.histogram) == 4
    assert found.mean == pytest.approx(codes.mean())


def test_the_answer_of_units_without_a_ceiling_is_measured_against_the_others():
    codes = np.random.default_rng(0).exponential(size=(200, 10)) * 50.0
    codes[:, 4] = 0.0
    assert _units(network(np.zeros((10, 2)), np.zeros(10), Rectifier()), codes).dead == 1


def test_the_effective_dimension_is_the_participation_ratio():
    """Codes with planted variances: (9 + 4 + 1)^2 / (81 + 16 + 1) = 2; and d equal ones count as d."""
    draws = np.random.default_rng(0).normal(size=(60, 4))
    basis, _ = np.linalg.qr(draws - draws.mean(0))
    found = _spectrum(basis[:, :3] * np.sqrt([9.0, 4.0, 1.0]) + 7.0)
    assert found.effective == pytest.approx(14**2 / 98)
    assert found.shares == pytest.approx([9 / 14, 4 / 14, 1 / 14], abs=1e-6)
    assert _spectrum(basis).effective == pytest.approx(4.0)
    assert _spectrum(np.ones((5, 3))) == Spectrum()


def test_the_share_of_variance_kept_is_numpy_s_own():
    """A linear code of one direction: what it keeps of each input follows from the projection."""
    rows = np.random.default_rng(1).normal(size=(300, 3)).astype(np.float32)
    rows[:, 2] = 2.0  # constant: there is nothing to keep
    direction = np.array([[0.6, 0.8, 0.0]])
    criterion = Reconstruction(SquaredError())
    found = _reconstructions(criterion, network(direction, np.zeros(1), Identity()), rows)
    made = rows @ direction.T @ direction
    left = ((made - rows) ** 2).mean(0)
    assert found.kept[:2] == pytest.approx(1 - left[:2] / rows.var(0)[:2], abs=1e-4)
    assert np.isnan(found.kept[2])
    assert found.kept_of_all == pytest.approx(1 - left.sum() / rows.var(0).sum(), abs=1e-5)
    assert found.count == 12


def test_measures_do_not_depend_on_the_chunks():
    """700 rows are two chunks, the second filled up; the reconstruction error of each row is its own."""
    rows = np.random.default_rng(2).uniform(size=(700, 3)).astype(np.float32)
    one = network(np.array([[0.6, 0.8, 0.0]]), np.zeros(1), Identity())
    found = measures_of(Reconstruction(SquaredError()), one, rows)["reconstruction_error"]
    direction = np.array([[0.6, 0.8, 0.0]])
    assert found == pytest.approx(((rows @ direction.T @ direction - rows) ** 2).sum(1), abs=1e-5)


def test_the_score_has_the_interval_of_a_mean_and_of_the_bootstrap():
    """Row E20: linear codes of one direction, so that the error of each row is known."""
    draw = np.random.default_rng(4)
    rows = draw.exponential(size=(400, 3))
    direction = np.array([[0.6, 0.8, 0.0]])
    dataset = Dataset(rows, np.zeros((400, 0)), Inputs())
    one = network(direction, np.zeros(1), Identity())
    scaler = NoScaling().fit(rows, ())
    criterion = Reconstruction(SquaredError())
    nothing = np.zeros(0)
    predictor = Predictor(scaler, one, criterion, 1.0, nothing, nothing, dataset.task, (), (3,))
    parts = {"valid": dataset.take(np.arange(50)), "test": dataset}
    metrics, _, (low, high), _ = measure_features(predictor, {}, parts, "reconstruction_error")
    errors = ((rows - rows @ direction.T @ direction) ** 2).sum(1)
    assert metrics["test"]["reconstruction_error"] == pytest.approx(errors.mean(), rel=1e-5)
    half = 1.959964 * errors.std(ddof=1) / 20
    assert (low, high) == pytest.approx((errors.mean() - half, errors.mean() + half), rel=1e-4)
    means = errors[draw.integers(0, 400, (4000, 400))].mean(1)
    assert (low, high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.15 * half)


@pytest.mark.parametrize(
    ("dead", "on", "rows"), [(20, 20, []), (21, 0, ["A4"]), (0, 21, ["E20"]), (50, 50, ["A4", "E20"])]
)
def test_a_fifth_of_the_units_may_be_idle(dead, on, rows):
    found = find_features(FeatureEvidence(9, UnitActivity(100, dead, on)))
    assert [finding.row for finding in found] == rows
    assert find_features(None) == ()


@pytest.mark.parametrize(("kept", "told"), [(0.01, 0), (0.0, 1), (-1.4, 1)])
def test_a_reconstruction_is_compared_with_the_mean(kept, told):
    made = Reconstructions(1, 0.0, 1.0, "", "", (kept,), kept)
    found = find_features(FeatureEvidence(9, UnitActivity(100), reconstructions=made))
    assert ["no better than the mean" in finding.what for finding in found] == [True] * told


@pytest.mark.parametrize(
    ("penalty", "mean", "step"),
    [
        (KlToTarget(3.0, target=0.05), 0.11, "increase"),
        (KlToTarget(3.0, target=0.05), 0.09, ""),
        (SquaredToTarget(3.0, target=0.2), 0.09, "reduce"),
        (SquaredToTarget(0.0, target=0.2), 0.01, ""),
        (L1Codes(), 0.4, ""),
    ],
)
def test_a_sparsity_that_was_not_reached_is_told(penalty, mean, step):
    found = find_features(FeatureEvidence(9, UnitActivity(100, mean=mean)), Reconstruction(on_codes=(penalty,)))
    assert [type(penalty).__name__ in one.what and one.next.startswith(step) for one in found] == [True] * bool(step)


def test_a_run_of_dead_units_says_so():
    """Biases that hold every unit down, and a rate that leaves them there."""
    rows = np.random.default_rng(3).uniform(size=(60, 9))
    dataset = Dataset(rows, np.zeros((60, 0)), Inputs(), tuple(Column(f"c{i}") for i in range(9)))
    recipe = defaults.features("plain", 5, batches=Reshuffled(20), stopping=Off(epochs=1.0))
    model = network(np.zeros((5, 9)), np.full(5, -9.0))
    record = train(eqx.tree_at(lambda r: r.model, recipe, model), dataset, key=jax.random.key(0))
    features = record.evidence.features
    assert features.units.dead == 5
    assert (features.names, features.image, features.width) == (tuple(f"c{i}" for i in range(9)), (), 9)
    assert [finding.row for finding in record.findings if "dead" in finding.what] == ["A4"]
    assert record.metrics["test"]["reconstruction_error"] > 0
    assert record.test_interval[0] < record.test < record.test_interval[1]
