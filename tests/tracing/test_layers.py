"""The layers of a program, found in networks of every kind: names, axes and non-linearities as they were written."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.activations import HardTanh, Sigmoid, Tanh
from gradwise.models.mlp import BatchNorm, LayerNorm, Mlp
from gradwise.specs.networks import apply_batch
from gradwise.specs.paths import trainable
from gradwise.tracing.layers import TracedLayer, maps, trace_layers

KEY = jr.key(0)
INPUTS = jr.normal(KEY, (8, 8))  # as many examples as units: sizes alone do not tell the axes
TARGETS = jnp.arange(8) % 3


def cross_entropy(outputs, targets):
    return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(len(targets)), targets])


def found(loss, parameters, batch=(INPUTS, TARGETS)) -> tuple[TracedLayer, ...]:
    return trace_layers(loss, parameters, batch, KEY)[1]


def told(layers):
    return [(layer.name, layer.kind) for layer in layers]


def of_mlp(mlp: Mlp):
    parameters, rest = trainable(mlp.build((8,), 3, key=KEY))

    def loss(there, batch, key):
        return cross_entropy(apply_batch(eqx.combine(there, rest), batch[0], key), batch[1])

    return trace_layers(loss, parameters, (INPUTS, TARGETS), KEY)


@pytest.mark.parametrize(
    ("mlp", "expected"),
    [
        (Mlp(widths=(8, 8), activation=Tanh()), [("layers.0", "tanh"), ("layers.1", "tanh"), ("output", "linear")]),
        (Mlp(widths=(8,), activation=HardTanh()), [("layers.0", "hard"), ("output", "linear")]),
        (
            Mlp(widths=(8,), activation=Sigmoid(), normalisation=BatchNorm()),
            [("layers.0", "linear"), ("layers.0.norm", "logistic"), ("output", "linear")],
        ),
    ],
)
def test_gradwise_networks_have_the_layers_they_were_built_with(mlp: Mlp, expected: list[tuple[str, str]]) -> None:
    program, layers = of_mlp(mlp)  # with dropout, which is no non-linearity
    assert told(layers) == expected
    assert all((layer.examples, layer.units) == (0, 1) for layer in layers)
    assert [layer.above for layer in layers] == [tuple(range(n + 1, len(layers))) for n in range(len(layers))]
    sums = [number for number, layer in enumerate(layers) if layer.matrix]
    assert maps(program, layers) == list(itertools.pairwise(sums))


def test_in_a_residual_network_layers_are_no_functions_of_one_before() -> None:
    program, layers = of_mlp(Mlp(widths=(8, 8, 8), residual=True, normalisation=LayerNorm()))
    assert [layer.name for layer in layers if layer.kind == "other"] == [f"layers.{n}.norm" for n in range(3)]
    assert maps(program, layers) == [(0, 2)]  # the second sum hangs on the first alone, all others on several


@pytest.mark.parametrize(
    ("activation", "kind"),
    [
        (jax.nn.gelu, "other"),  # x times a bend
        (jax.nn.silu, "other"),
        (jax.nn.elu, "other"),
        (jax.nn.leaky_relu, "other"),
        (jax.nn.hard_tanh, "hard"),
        (jax.nn.relu6, "hard"),
        (lambda a: 1.7159 * jnp.tanh(2.0 / 3.0 * a), "tanh"),
        (lambda a: a + jax.lax.stop_gradient(jnp.round(a) - a), "step"),  # straight through
    ],
)
def test_the_non_linearity_is_taken_as_a_whole(activation, kind: str) -> None:
    model = eqx.nn.MLP(8, 3, 8, 1, activation=activation, key=KEY)
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)

    def loss(there, batch, key):
        return cross_entropy(jax.vmap(eqx.combine(there, rest))(batch[0]), batch[1])

    program, layers = trace_layers(loss, parameters, (INPUTS, TARGETS), KEY)
    assert told(layers) == [("layers.0", kind), ("layers.1", "linear")]
    _, kept = program.run(parameters, (INPUTS, TARGETS), KEY, keep=[layers[0].input, layers[0].output])
    sums = INPUTS @ model.layers[0].weight.T + model.layers[0].bias
    np.testing.assert_allclose(kept[layers[0].input], sums, atol=1e-5)
    np.testing.assert_allclose(kept[layers[0].output], activation(sums), atol=1e-5)


def test_a_hand_written_net_with_weight_decay_and_a_sigmoid_in_its_loss() -> None:
    shapes = {"W1": (8, 8), "b1": (8,), "W2": (8, 1)}
    parameters = {name: jnp.ones(shape) for name, shape in shapes.items()}

    def loss(there, batch, key):
        hidden = jnp.maximum(batch[0] @ there["W1"] + there["b1"], 0.0)
        chance = jax.nn.sigmoid((hidden @ there["W2"])[:, 0])
        return -jnp.mean(jnp.log(chance)) + 0.1 * jnp.sum(there["W1"] ** 2)

    assert told(found(loss, parameters)) == [("W1", "other"), ("W2", "linear")]


def test_convolutions_have_channels_as_units() -> None:
    images = jr.normal(KEY, (6, 1, 6, 6))
    model = [eqx.nn.Conv2d(1, 4, 3, key=KEY), eqx.nn.Linear(64, 3, key=KEY)]
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)

    def loss(there, batch, key):
        convolution, linear = eqx.combine(there, rest)
        outputs = jax.vmap(lambda x: linear(jnp.ravel(jax.nn.relu(convolution(x)))))(batch[0])
        return cross_entropy(outputs, batch[1])

    program, layers = trace_layers(loss, parameters, (images, TARGETS[:6]), KEY)
    assert told(layers) == [("0", "other"), ("1", "linear")]
    shape = program.sites[layers[0].input].shape
    assert layers[0].units is not None
    assert (shape[layers[0].examples], shape[layers[0].units]) == (6, 4)


def test_the_softmax_of_attention_is_no_non_linearity_of_units() -> None:
    model = eqx.nn.MultiheadAttention(2, 8, key=KEY)
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)
    batch = jr.normal(KEY, (5, 7, 8))

    def loss(there, batch, key):
        attention = eqx.combine(there, rest)
        return jnp.mean(jax.vmap(lambda x: attention(x, x, x))(batch) ** 2)

    layers = found(loss, parameters, batch)
    assert [layer.kind for layer in layers] == ["linear"] * 4


def test_flax_nnx_with_batch_normalisation_and_dropout() -> None:
    nnx = pytest.importorskip("flax.nnx")
    from gradwise.checking.subject import Subject

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first, self.norm = nnx.Linear(8, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
            self.drop, self.last = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, x):
            return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))

    subject = Subject.of(lambda m, x, y: cross_entropy(m(x), y), Net(nnx.Rngs(0)), (INPUTS, TARGETS))
    expected = [("first", "linear"), ("norm", "other"), ("last", "linear")]
    assert told(found(subject.value, subject.parameters)) == expected


def test_sums_that_are_added_are_one_layer_and_one_that_is_read_elsewhere_too_is_lost_to_nobody() -> None:
    model = {"a": jnp.ones((3, 4)), "b": jnp.ones((3, 4)), "bias": jnp.ones(4), "top": jnp.ones((4, 2))}
    x = np.ones((5, 3), np.float32)

    def added(model, x, key):  # type: ignore[no-untyped-def]
        return jnp.sum(jnp.tanh(x @ model["a"] + x @ model["b"] + model["bias"]) @ model["top"])

    def twice(model, x, key):  # type: ignore[no-untyped-def]
        first = x @ model["a"]
        both = (first.reshape(5, 2, 2) + (x @ model["b"]).reshape(5, 2, 2)).reshape(5, 4)
        return jnp.sum((jnp.tanh(both) + jax.nn.relu(first) + jnp.tanh(first + model["bias"])) @ model["top"])

    assert [layer.title for layer in trace_layers(added, model, x, jax.random.key(0))[1]] == ["b", "top"]
    titles = [layer.title for layer in trace_layers(twice, model, x, jax.random.key(0))[1]]
    assert len(set(titles)) == len(titles)
    assert {"b", "top"} <= set(titles)
