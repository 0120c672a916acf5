"""Layers learned one after another: what each sees, that lower ones stay, and what fine-tuning begins with."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.code_sparsity import L1Codes
from gradwise.criteria.reconstruction import Reconstruction, SquaredError
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling, UnitRange
from gradwise.data.splits import GivenParts, HoldOut
from gradwise.models.activations import Sigmoid, Tanh
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.convolution.auto_encoder import ConvolutionalAutoEncoder
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.pretraining.layer_recipes import learner
from gradwise.pretraining.stack import Pretrained, check_layer_memory, code_shape, fit_pretrained, pretrain
from gradwise.records.data_read import SetSizes
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import UNLABELLED, Classes, Column, Dataset, Inputs
from gradwise.specs.serialisation import from_json, to_json
from gradwise.training.loop import RunOptions
from gradwise.training.prepare import split_labelled
from gradwise.training.stopping import Off, Patience
from gradwise.training.train import train

KEY = jax.random.key(0)
SHORT = {"batches": Reshuffled(10), "stopping": Off(epochs=3.0, spacing=1.0, least_examples=20)}
LAYERS = tuple(dataclasses.replace(learner(kind, units), **SHORT) for kind, units in (("denoising", 5), ("plain", 3)))
RECIPE = defaults.fine_tuning("classes", (5, 3), **SHORT)


def blobs(count=60):
    draw = np.random.default_rng(0)
    targets = draw.integers(0, 3, count)
    inputs = np.random.default_rng(1).normal(size=(3, 4))[targets] + draw.normal(size=(count, 4))
    return Dataset(inputs, targets, Classes(np.arange(3)), tuple(Column(name) for name in "abcd"))


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def codes_by_hand(layers, inputs):
    for layer in layers:
        inputs = sigmoid(inputs @ np.asarray(layer.weight).T + np.asarray(layer.bias))
    return inputs


@pytest.fixture(scope="module")
def stack():
    return pretrain(LAYERS, blobs(), key=KEY)


@pytest.mark.slow
def test_features_are_the_layers_one_after_the_other(stack):
    dataset = blobs()
    expected = codes_by_hand(stack.layers, stack.scaler.apply(dataset.inputs))
    assert stack.encode(dataset.inputs) == pytest.approx(expected, abs=1e-6)
    assert stack.encode(dataset.inputs).shape == (60, 3)
    assert [record.task for record in stack.records] == ["inputs", "inputs"]


def test_a_lower_layer_is_that_of_a_lower_stack(stack):
    """The layers above change nothing below, and the second learns from the codes of the first."""
    alone = pretrain(LAYERS[:1], blobs(), key=KEY)
    for one, other in zip(jax.tree.leaves(alone.networks[0]), jax.tree.leaves(stack.networks[0]), strict=True):
        assert np.array_equal(one, other)
    assert stack.networks[1].encoder[0].weight.shape == (3, 5)
    below = codes_by_hand(stack.layers[:1], stack.scaler.apply(blobs().inputs))
    criterion = LAYERS[1].criterion
    kept = np.asarray(
        criterion.measures(stack.networks[1], jax.numpy.asarray(below, "float32"))["reconstruction_error"]
    )
    told = stack.records[1].metrics
    assert told["train"]["reconstruction_error"] * 54 + told["valid"]["reconstruction_error"] * 6 == pytest.approx(
        kept.sum(), rel=1e-5
    )


def test_fine_tuning_begins_with_the_layers_and_a_new_output(stack):
    network = stack.network(3, Mlp(widths=(5, 3), activation=Sigmoid(), dropout=0.5), key=KEY)
    for layer, learned in zip(network.layers, stack.layers, strict=True):
        assert np.array_equal(layer.weight, learned.weight)
        assert np.array_equal(layer.bias, learned.bias)
        assert float(layer.dropout.value) == 0.5
    assert network.output.weight.shape == (3, 3)


def test_fine_tuning_moves_every_layer_down_the_loss():
    record, stack = fit_pretrained(RECIPE, blobs(), LAYERS, key=KEY)
    tuned = record.predictor.network
    begun = dataclasses.replace(tuned, layers=stack.layers, output=stack.network(3, RECIPE.model, key=KEY).output)
    for layer, learned in zip(tuned.layers, stack.layers, strict=True):
        assert not np.allclose(layer.weight, learned.weight, atol=1e-3)
        assert not np.allclose(layer.bias, learned.bias, atol=1e-3)
    dataset = blobs()
    before, after = (
        dataclasses.replace(record.predictor, network=network, temperature=1.0).predict(dataset.inputs)
        for network in (begun, tuned)
    )
    own = np.arange(60), dataset.targets
    assert -np.log(after[own]).mean() < -np.log(before[own]).mean()


def alone(recipe, dataset, level):
    """The hidden layer of one learner, trained by itself on inputs that are scaled already."""
    key = jax.random.fold_in(keys.named(KEY, "pretraining"), level)
    return train(dataclasses.replace(recipe, scaler=NoScaling()), dataset, key=key).predictor.network.hidden_layers[0]


def assert_same_layer(found, expected):
    np.testing.assert_allclose(found.weight, expected.weight, atol=1e-5)
    np.testing.assert_allclose(found.bias, expected.bias, atol=1e-5)


def test_a_labelled_layer_is_that_of_a_network_trained_alone_on_the_codes_below():
    """Row A1's other half, greedily: other labels, other layers; the layer above never moves the one below."""
    dataset = blobs()
    parts = SHORT | {"split": HoldOut(valid=0.1, test=0.0), "optimiser": Sgd(0.5)}
    layers = [
        defaults.classification(model=Mlp(widths=(units,), activation=Sigmoid(), dropout=0.0), **parts)
        for units in (5, 3)
    ]
    learned = pretrain(layers, dataset, key=KEY)
    scaled = learned.scaler.apply(dataset.inputs)
    for level, inputs in enumerate((scaled, codes_by_hand(learned.layers[:1], scaled))):
        below = dataclasses.replace(dataset, inputs=inputs.astype("float32"), columns=())
        assert_same_layer(learned.layers[level], alone(layers[level], below, level))
        others = alone(layers[level], dataclasses.replace(below, targets=np.roll(dataset.targets, 1)), level)
        assert np.abs(learned.layers[level].weight - others.weight).max() > 1e-3


def test_a_layer_with_a_rate_of_its_own_is_the_one_trained_alone_at_it(stack):
    """Row C10: the other layer keeps its knobs, and learns from other codes."""
    rates = (0.02, 0.005)
    layers = [
        dataclasses.replace(layer, optimiser=Adam(learning_rate=rate))
        for layer, rate in zip(LAYERS, rates, strict=True)
    ]
    learned = pretrain(layers, blobs(), key=KEY)
    codes = learned.scaler.apply(blobs().inputs)
    for level, layer in enumerate(learned.layers):
        below = Dataset(np.asarray(codes, "float32"), np.zeros((60, 0)), Inputs())
        assert_same_layer(layer, alone(layers[level], below, level))
        assert np.abs(np.asarray(layer.weight) - np.asarray(stack.layers[level].weight)).max() > 0.01
        codes = codes_by_hand((layer,), codes)


@pytest.mark.slow
def test_nothing_is_learned_from_the_validation_and_test_parts():
    """Other inputs there, the same layers."""
    dataset = blobs()
    train, _, _ = split_labelled(RECIPE.split, RECIPE.criterion, dataset, key=keys.named(KEY, "split"))
    inputs = dataset.inputs.copy()
    unseen = np.setdiff1d(np.arange(60), train.rows)
    assert len(unseen) == 24
    inputs[unseen] += 100.0
    _, one = fit_pretrained(RECIPE, dataset, LAYERS, key=KEY)
    _, other = fit_pretrained(RECIPE, dataclasses.replace(dataset, inputs=inputs), LAYERS, key=KEY)
    for a, b in zip(jax.tree.leaves(one.networks), jax.tree.leaves(other.networks), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.slow
def test_rows_without_a_label_and_others_serve_pre_training(stack):
    dataset = blobs()
    targets = dataset.targets.copy()
    targets[::2] = UNLABELLED
    half = dataclasses.replace(dataset, targets=targets)
    begun: list[tuple[int, int]] = []
    record, _ = fit_pretrained(
        RECIPE, half, LAYERS, key=KEY, unlabelled=blobs(40), begin=lambda level, rows: begun.append((level, rows))
    )
    assert record.data.rows == SetSizes(18, 6, 6)
    assert begun == [(0, 18 + 30 + 40), (1, 18 + 30 + 40), (2, 18)]


def test_what_is_found_in_a_layer_is_told_under_its_name():
    """What training a layer alone tells, the stack and the record of the whole tell too; knobs by their place there."""
    sparse = dataclasses.replace(learner("sparse", 5), **SHORT)
    bent = MlpAutoEncoder(widths=(3,), code_activation=Tanh())
    unfit = dataclasses.replace(sparse, model=bent, criterion=Reconstruction(SquaredError(), on_codes=(L1Codes(),)))
    record, stack = fit_pretrained(RECIPE, blobs(), (sparse, unfit), key=KEY)
    alone = [finding for one in stack.records for finding in one.findings]
    assert [one.what.partition(": ")[2] for one in stack.findings] == [one.what for one in alone]
    assert record.findings[-len(alone) :] == stack.findings
    first, second = (
        [one for one in stack.findings if one.what.startswith(f"layer {number} (sparse, {units} units): ")]
        for number, units in ((1, 5), (2, 3))
    )
    assert len(first) + len(second) == len(alone)
    assert any("KlToTarget asks for a mean activation of 0.05" in one.what for one in first)
    (misfit,) = [one for one in second if one.code == "GW704"]
    assert "L1Codes on units of range [-1, 1]" in misfit.what
    assert misfit.where == "model.layers.1"


def test_the_steps_of_a_layers_finding_name_the_knobs_of_that_layer():
    """GW706 of a layer alone names --resume and `stopping.epochs`; resuming would not train the layer further."""
    eager = dataclasses.replace(LAYERS[0], stopping=Patience(epochs=2.0, spacing=1.0, least_examples=20))
    (told,) = [one for one in pretrain((eager,), blobs(), key=KEY).findings if one.code == "GW706"]
    assert "`model.layers.0.stopping.epochs`" in told.next
    assert "--resume" not in told.next


SUPERVISED = tuple(dataclasses.replace(learner("supervised", units, task="classes"), **SHORT) for units in (5, 3))


def same(one, other):
    pairs = zip(jax.tree.leaves(one.networks), jax.tree.leaves(other.networks), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_supervised_layers_see_neither_targets_nor_inputs_of_validation_and_test_rows():
    """Other classes and other inputs there, the same layers; another class of one training row, other layers."""
    recipe = dataclasses.replace(RECIPE, split=GivenParts(train=36, valid=12))
    dataset = blobs()
    record, stack = fit_pretrained(recipe, dataset, SUPERVISED, key=KEY)
    assert record.data.rows == SetSizes(36, 12, 12)
    assert [layer.task for layer in stack.records] == ["classes", "classes"]
    targets, inputs = dataset.targets.copy(), dataset.inputs.copy()
    targets[36:] = (targets[36:] + 1) % 3
    inputs[36:] += 100.0
    changed = dataclasses.replace(dataset, targets=targets, inputs=inputs)
    _, unseen = fit_pretrained(recipe, changed, SUPERVISED, key=KEY)
    assert same(stack, unseen)
    targets = dataset.targets.copy()
    targets[0] = (targets[0] + 1) % 3
    _, seen = fit_pretrained(recipe, dataclasses.replace(dataset, targets=targets), SUPERVISED, key=KEY)
    assert not same(stack, seen)


def told(record):
    return [one.what for one in record.findings if "without a target" in one.what]


def test_supervised_layers_learn_from_the_rows_with_a_target_alone():
    """Rows without one: above them the network is bit for bit that of the labelled rows, and one line says so."""
    dataset = blobs()
    targets = dataset.targets.copy()
    targets[::2] = UNLABELLED
    half = dataclasses.replace(dataset, targets=targets)
    begun: list[int] = []
    record, stack = fit_pretrained(RECIPE, half, SUPERVISED, key=KEY, begin=lambda level, rows: begun.append(rows))
    alone, expected = fit_pretrained(RECIPE, dataset.take(np.arange(1, 60, 2)), SUPERVISED, key=KEY)
    assert begun == [18, 18, 18]
    assert same(stack, expected)
    assert record.metrics == alone.metrics
    assert told(record) == ["30 rows without a target are not used: supervised layers learn from the target."]
    assert told(alone) == []
    mixed, stack = fit_pretrained(RECIPE, half, (LAYERS[0], SUPERVISED[1]), key=KEY)
    assert [one.data.rows.total for one in stack.records] == [48, 18]
    assert told(mixed) == [
        "30 rows without a target served the pre-training alone, not of layer 2, which learns from the target."
    ]
    with pytest.raises(RequestError, match="layer 1 is supervised, but no row has a target"):
        pretrain(SUPERVISED, dataclasses.replace(dataset, targets=np.full(60, UNLABELLED)), key=KEY)


@pytest.mark.parametrize("weights", [None, {0: 5.0}])
def test_a_supervised_layer_is_the_network_trained_alone(weights):
    """The oracle: `train` on the scaled rows, with the key of the layer and the same weights of classes."""
    dataset = blobs()
    learned_from, _, _ = split_labelled(RECIPE.split, RECIPE.criterion, dataset, key=keys.named(KEY, "split"))
    _, stack = fit_pretrained(RECIPE, dataset, SUPERVISED[:1], key=KEY, class_weight=weights)
    scaled = dataclasses.replace(learned_from, inputs=np.asarray(stack.scaler.apply(learned_from.inputs)))
    alone = train(
        dataclasses.replace(SUPERVISED[0], scaler=NoScaling()),
        scaled,
        key=jax.random.fold_in(keys.named(KEY, "pretraining"), 0),
        class_weight=weights,
    )
    learned, expected = stack.layers[0], alone.predictor.network.layers[0]
    assert np.array_equal(learned.weight, expected.weight)
    assert np.array_equal(learned.bias, expected.bias)


def test_a_recipe_of_a_pretrained_network_says_how_to_train_one():
    with pytest.raises(RequestError, match=r"`gw.fit_pretrained\(recipe, dataset, layers, key=key\)`"):
        Pretrained(LAYERS, RECIPE.model).build((4,), 3, key=KEY)


@pytest.mark.slow
def test_the_record_says_how_the_layers_were_learned():
    record, stack = fit_pretrained(RECIPE, blobs(), LAYERS, key=KEY)
    assert record.recipe.model == Pretrained(LAYERS, RECIPE.model)
    assert from_json(to_json(record.recipe)) == record.recipe
    json.dumps(record.summary())
    assert record.seconds >= sum(one.seconds for one in stack.records)


def test_time_is_shared_and_a_layer_that_ran_out_of_it_is_settled(tmp_path):
    """Going on with more time trains the whole network on, not the layers below it, on which it stands."""
    hurried = RunOptions(folder=tmp_path, max_seconds=1e-6)
    record, stack = fit_pretrained(RECIPE, blobs(), LAYERS, key=KEY, options=hurried)
    assert [one.outcome.name for one in (*stack.records, record)] == ["out_of_time"] * 3
    before = {path: path.read_bytes() for path in Path(tmp_path).glob("layer-*/*")}
    assert len(before) == 2
    later, again = fit_pretrained(RECIPE, blobs(), LAYERS, key=KEY, options=RunOptions(folder=tmp_path, resume=True))
    assert {path: path.read_bytes() for path in Path(tmp_path).glob("layer-*/*")} == before
    assert later.outcome.name == "finished"
    for a, b in zip(jax.tree.leaves(stack.networks), jax.tree.leaves(again.networks), strict=True):
        assert np.array_equal(a, b)


def test_what_cannot_be_stacked_is_refused(monkeypatch):
    with pytest.raises(RequestError, match="at least one layer to pre-train"):
        pretrain((), blobs(), key=KEY)
    with pytest.raises(RequestError, match="Mlp"):
        fit_pretrained(dataclasses.replace(RECIPE, model=LAYERS[0].model), blobs(), LAYERS, key=KEY)
    monkeypatch.setattr("gradwise.runtime.memory.available_bytes", lambda: 4 * (8 * 4 * 5 + 60 * 5) - 1)
    with pytest.raises(RequestError, match="fewer units"):
        check_layer_memory(LAYERS[0], (4,), 60)
    monkeypatch.setattr("gradwise.runtime.memory.available_bytes", lambda: 4 * (8 * 4 * 5 + 60 * 5))
    check_layer_memory(LAYERS[0], (4,), 60)


@pytest.mark.slow
def test_layers_can_be_learned_greedily_with_the_labels():
    """Row A1's other half: each layer is the hidden one of a network trained on the targets, its output thrown away."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    data = Dataset(digits.data[:200], digits.target[:200], Classes(np.arange(10)))
    parts = {"split": HoldOut(valid=0.1, test=0.0), "scaler": UnitRange(together=True), "stopping": Off(epochs=3.0)}
    mlps = [Mlp(widths=(units,), activation=Sigmoid(), dropout=0.0) for units in (6, 4)]
    layers = [defaults.classification(model=mlp, **parts) for mlp in mlps]
    learned = pretrain(layers, data, key=jax.random.key(0))
    assert [record.task for record in learned.records] == ["classes", "classes"]
    scaled = learned.scaler.apply(data.inputs)
    for network in learned.networks:
        layer = network.layers[0]
        scaled = 1.0 / (1.0 + np.exp(-(scaled @ np.asarray(layer.weight).T + np.asarray(layer.bias))))
    np.testing.assert_allclose(learned.encode(data.inputs), scaled, atol=1e-5)
    assert [layer.weight.shape for layer in learned.layers] == [(6, 64), (4, 6)]


FILTERS = tuple(
    dataclasses.replace(
        learner("convolutional", units, inputs=np.full(1, low)),
        model=ConvolutionalAutoEncoder(units=units, kernel=3),
        **SHORT,
    )
    for units, low in ((2, 0.5), (3, 2.0))
)
STAGES = (*FILTERS, dataclasses.replace(learner("plain", 4, inputs=np.full(1, 2.0)), **SHORT))


def pictures():
    draw = np.random.default_rng(0)
    return Dataset(draw.uniform(size=(60, 6, 6)).astype(np.float32), draw.integers(0, 3, 60), Classes(np.arange(3)))


@pytest.fixture(scope="module")
def filter_stack():
    return pretrain([dataclasses.replace(STAGES[0], scaler=NoScaling()), *STAGES[1:]], pictures(), key=KEY)


def pooled_by_hand(layer, maps):
    """A rectified layer of 3 x 3 filters with zeros around, then the largest of each 2 x 2 places, in NumPy."""
    rows, columns = maps.shape[1:3]
    wide = np.pad(maps, ((0, 0), (1, 1), (1, 1), (0, 0)))
    seen = np.stack([wide[:, r : r + rows, c : c + columns] for r in range(3) for c in range(3)], axis=3)
    found = seen.reshape(*maps.shape[:3], -1) @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    found = np.maximum(found, 0.0)[:, : rows // 2 * 2, : columns // 2 * 2]
    return found.reshape(len(maps), rows // 2, 2, columns // 2, 2, -1).max(axis=(2, 4))


def test_each_stage_of_filters_learns_from_the_pooled_maps_below(filter_stack):
    below = pictures().inputs
    maps = pooled_by_hand(filter_stack.networks[0].layer, below[..., None])
    second = filter_stack.networks[1]
    assert (second.shape, second.layer.weight.shape) == ((3, 3, 2), (3, 18))
    top = pooled_by_hand(second.layer, maps)
    dense = filter_stack.networks[2].encoder[0]
    assert dense.weight.shape == (4, 3)
    expected = sigmoid(top.reshape(60, -1) @ np.asarray(dense.weight).T + np.asarray(dense.bias))
    np.testing.assert_allclose(filter_stack.encode(below), expected, atol=1e-5)
    told = filter_stack.records[1].metrics
    error = STAGES[1].criterion.measures(second, jax.numpy.asarray(maps, "float32"))["reconstruction_error"]
    whole = told["train"]["reconstruction_error"] * 54 + told["valid"]["reconstruction_error"] * 6
    assert whole == pytest.approx(float(error.sum()), rel=1e-5)


def test_the_first_stage_is_the_auto_encoder_trained_alone(filter_stack):
    key = jax.random.fold_in(keys.named(KEY, "pretraining"), 0)
    recipe = dataclasses.replace(STAGES[0], scaler=NoScaling())
    record = train(recipe, pictures().without_targets(), key=key)
    assert np.array_equal(record.predictor.network.layer.weight, filter_stack.layers[0].weight)


def test_fine_tuning_begins_with_the_stages_and_a_new_output(filter_stack):
    network = filter_stack.network(3, Mlp(widths=(4,), activation=Sigmoid(), dropout=0.5), key=KEY)
    layers = (*network.convolutions, *network.layers)
    for layer, learned in zip(layers, filter_stack.layers, strict=True):
        assert np.array_equal(layer.weight, learned.weight)
    assert [layer.dropout is None for layer in layers] == [True, False, False]
    x = pictures().inputs
    np.testing.assert_allclose(jax.vmap(network.features)(jax.numpy.asarray(x)), filter_stack.encode(x), atol=1e-6)
    assert network.output.weight.shape == (3, 4)
    assert [code_shape(STAGES[0], (6, 6)), code_shape(STAGES[1], (3, 3, 2))] == [(3, 3, 2), (1, 1, 3)]
