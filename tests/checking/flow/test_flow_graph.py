"""The flow graph of known networks: exact operations, who feeds whom, planted constants, waste and precisions."""

import dataclasses
import itertools
import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise.checking.codes import page
from gradwise.checking.flow.flow_graph import (
    LARGE_CONSTANT,
    CapturedConstant,
    Counts,
    GraphMeasured,
    Stage,
    find_graph,
    measure_graph,
)
from gradwise.checking.flow.program_cost import Compiled
from gradwise.checking.subject import Subject
from gradwise.records.plain_values import from_values, to_values

HERE = Path(__file__).name

COUNT, WIDE, HIDDEN, OUT = 11, 5, 7, 3
TABLE = np.ones((600, 600), np.float32)
BATCH = (np.linspace(-1, 1, COUNT * WIDE, dtype=np.float32).reshape(COUNT, WIDE), np.arange(COUNT) % OUT)


def network():
    return eqx.nn.MLP(WIDE, OUT, HIDDEN, 2, key=jr.key(0))


def cross_entropy(model, batch, key):
    x, y = batch
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), y).mean()


def wasteful(model, batch, key):
    """The same loss, with a product nobody reads and a product with a constant of 1.4 MB."""
    x, _ = batch
    unread = jnp.sin(x) @ jnp.ones((WIDE, 400))
    del unread
    weights = jnp.sum(TABLE @ jnp.ones(600)) / 360000
    return weights * cross_entropy(model, batch, key)


@pytest.fixture(scope="module")
def sound():
    return measure_graph(Subject.of(cross_entropy, network(), BATCH), key=jr.key(1))


@pytest.fixture(scope="module")
def planted():
    return measure_graph(Subject.of(wasteful, network(), BATCH), key=jr.key(1))


def test_products_of_each_layer_are_exact_forward_and_backward(sound):
    layers = {stage.name: stage for stage in sound.stages}
    sizes = {"layers.0": WIDE * HIDDEN, "layers.1": HIDDEN * HIDDEN, "layers.2": HIDDEN * OUT}
    for name, size in sizes.items():
        assert layers[name].products == 2 * COUNT * size
        # One product for the weights and one for the layer below, which the first layer does not have.
        assert layers[name].backward_products == (1 if name == "layers.0" else 2) * 2 * COUNT * size
    assert layers["layers.1"].operations == 2 * COUNT * HIDDEN * HIDDEN + 2 * COUNT * HIDDEN  # bias and rectifier
    assert 1.2 < sound.backward_operations / sound.operations < 2.2
    assert layers["loss"].products == layers["loss"].backward_products == 0
    assert layers["loss"].backward_operations > 0


def test_compiled_operations_agree_with_the_count(sound):
    assert sound.compiled.operations == pytest.approx(sound.operations + sound.backward_operations, rel=0.25)
    assert sound.compiled.instructions >= sound.compiled.kernels > 0


def test_the_backward_pass_keeps_the_hidden_activations(sound):
    kept = {stage.name: stage.kept_bytes for stage in sound.stages}
    # What the layer above multiplies, and where the rectifier was open, a byte each.
    assert kept["layers.0"] == kept["layers.1"] == 5 * COUNT * HIDDEN
    assert kept["layers.2"] == 0


def test_the_graph_runs_from_inputs_to_loss(sound):
    kinds = {box.kind for box in sound.boxes}
    assert kinds == {"input", "parameter", "internal", "output", "loss"}
    place = {(box.stage, box.name): number for number, box in enumerate(sound.boxes)}
    chain = [place["inputs", "inputs"]]
    for name in ("layers.0", "layers.1", "layers.2"):
        chain.append(place[name, "dot_general"])
        chain.append(place[name, "add" if name == "layers.2" else "add, relu"])
        (parameters,) = (i for i, box in enumerate(sound.boxes) if box.kind == "parameter" and box.stage == name)
        assert {(parameters, chain[-2]), (parameters, chain[-1])} <= set(sound.edges)
    chain.append(next(i for i, box in enumerate(sound.boxes) if box.stage == "loss"))
    assert set(itertools.pairwise(chain)) <= set(sound.edges)
    assert (place["inputs", "targets"], chain[-1]) in sound.edges
    order = [stage.name for stage in sound.stages]
    back = {(order[a], order[b]) for a, b in sound.back_edges}
    assert {("loss", "layers.2"), ("layers.2", "layers.1"), ("layers.1", "layers.0")} <= back
    assert not {("layers.0", "layers.1"), ("layers.1", "layers.2")} & back


def test_loss_and_gradient_share_their_forward_pass(sound):
    counts = sound.counts
    assert counts.together < counts.loss + counts.gradient
    assert counts.gradient <= counts.together


def test_waste_is_counted_and_compilation_drops_it(sound, planted):
    assert planted.counts.unused >= sound.counts.unused + 2  # the sine and the product
    assert "sine" not in planted.compiled.kinds
    assert planted.operations - sound.operations < 2 * COUNT * WIDE * 400 + 2 * 600 * 600  # nobody pays for it
    (constant,) = planted.constants
    assert (constant.shape, constant.bytes) == ((600, 600), 4 * 600 * 600)
    assert constant.line.startswith(f"{HERE}:")


def test_the_constant_is_told_and_the_sound_twin_is_silent(sound, planted):
    assert find_graph(sound) == ()
    (finding,) = (f for f in find_graph(planted) if f.code == "GW901")
    assert finding.level == "warning"
    assert finding.where.endswith("in wasteful")
    assert "(600, 600)" in finding.what
    assert "1.4 MB" in finding.what


def test_a_models_own_buffer_is_no_constant():
    class Buffered(eqx.Module):
        layer: eqx.nn.Linear
        table: jax.Array

        def __call__(self, x):
            return self.layer(x) + self.table[:OUT, 0].astype(jnp.float32)

    model = Buffered(eqx.nn.Linear(WIDE, OUT, key=jr.key(0)), jnp.ones((600, 600), jnp.int32))
    measured = measure_graph(Subject.of(cross_entropy, model, BATCH), key=jr.key(1), compile=False)
    assert measured.constants == ()


def test_an_unused_parameter_and_a_frozen_path_do_no_harm():
    def loss(p, batch):
        return jnp.mean((batch[0] @ jax.lax.stop_gradient(p["used"])) ** 2)

    parameters = {"used": jnp.ones(WIDE), "unused": jnp.ones(4)}
    measured = measure_graph(Subject.of(loss, parameters, BATCH), key=jr.key(1), compile=False)
    assert measured.operations > 2 * COUNT * WIDE
    assert find_graph(measured) == ()


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_an_island_of_another_precision_is_named_by_its_line(narrow):
    def loss(model, batch):
        x, y = batch
        hidden = jax.vmap(model.layers[0])(x)
        hidden = jnp.tanh(hidden.astype(narrow)).astype(jnp.float32)
        for layer in model.layers[1:]:
            hidden = jax.vmap(layer)(hidden)
        return jnp.mean((hidden[:, 0] - y) ** 2)

    measured = measure_graph(Subject.of(loss, network(), BATCH), key=jr.key(1), compile=False)
    (finding,) = (f for f in find_graph(measured) if f.code == "GW903")
    assert finding.level == "note"
    assert narrow in finding.what
    assert finding.where.startswith(f"{HERE}:")
    assert finding.evidence["steps"] == 2


def made_up(**changes):
    stages = (
        Stage("layers.0", "internal", operations=100.0),
        Stage("layers.1", "output", operations=60.0),
        Stage("loss", "loss", operations=10.0),
    )
    measured = GraphMeasured(stages, (), (), (), Counts(3, 5, 6, 0, 0), Compiled(), (), {"float32": (3, 160.0, "")})
    return dataclasses.replace(measured, **changes)


def lopsided(operations):
    return (Stage("layers.0", "internal", operations=operations), Stage("layers.1", "output", operations=20.0))


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({"constants": (CapturedConstant((9,), "float32", LARGE_CONSTANT + 1, "a.py:3 in f"),)}, ["GW901"]),
        ({"constants": (CapturedConstant((9,), "float32", LARGE_CONSTANT - 1, ""),)}, []),
        ({"stages": lopsided(90.0)}, ["GW902"]),
        ({"stages": lopsided(79.0)}, []),
        ({"stages": (Stage("only", "output", operations=99.0), Stage("loss", "loss", operations=1.0))}, []),
        ({"precisions": {"float32": (9, 90.0, ""), "float64": (1, 3.0, "b.py:4 in g")}}, ["GW903"]),
        ({"precisions": {"bfloat16": (9, 90.0, ""), "float32": (4, 8.0, "")}}, []),  # mixed precision as it should be
        ({"precisions": {"bfloat16": (9, 90.0, ""), "float64": (4, 8.0, "")}}, ["GW903"]),
        ({"precisions": {}}, []),
    ],
)
def test_findings_from_numbers_alone(changes, codes):
    findings = find_graph(made_up(**changes))
    assert [finding.code for finding in findings] == codes
    assert all(finding.next for finding in findings)


@pytest.mark.parametrize("code", ["GW901", "GW902", "GW903"])
def test_each_code_has_a_page(code):
    text = page(code)
    assert text.startswith(f"# {code}: ")
    assert text.rstrip().splitlines()[-1].startswith("Chapter: row ")


def test_the_graph_comes_back_from_json(planted):
    assert from_values(GraphMeasured, json.loads(json.dumps(to_values(planted)))) == planted
