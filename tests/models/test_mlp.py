"""The multi-layer perceptron (rows D1, D6, D8, J3, J4) against NumPy, piece by piece."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.activations import HardTanh, Identity, Parametric, Rectifier, Sigmoid, Tanh
from gradwise.models.initial_weights import FanIn, ZeroWeights
from gradwise.models.mlp import BatchNorm, LayerNorm, Mlp, MlpNetwork
from gradwise.runtime.errors import RequestError
from gradwise.specs.knobs import declarations
from gradwise.specs.networks import apply_batch
from gradwise.specs.paths import Buffer, named_leaves, trainable
from tests import oracles

X = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
ON_DEVICE = jnp.asarray(X)


@eqx.filter_jit
def build(model: Mlp, inputs: tuple[int, ...] = (6,), outputs: int = 3, seed: int = 0) -> MlpNetwork:
    return model.build(inputs, outputs, key=jr.key(seed))


@eqx.filter_jit
def outputs_of(network: MlpNetwork, inputs, key=None):
    return apply_batch(network, inputs, key)


def net(inputs: int = 6, **choices) -> MlpNetwork:
    """A network whose parameters, biases, gains and shifts too, are all away from their first values."""
    choices = {"dropout": 0.0, **choices}
    network = Mlp(initial=ZeroWeights(), output_initial=ZeroWeights(), **choices).build((inputs,), 3, key=jr.key(0))
    parameters, rest = trainable(network)
    leaves, tree = jax.tree.flatten(parameters)
    rng = np.random.default_rng(1)
    leaves = [jnp.asarray(leaf + rng.normal(scale=0.5, size=leaf.shape), jnp.float32) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(tree, leaves), rest)


def arrays(network: MlpNetwork) -> list[dict[str, np.ndarray]]:
    """Each layer's weight, bias, gain and shift in NumPy, the output layer last."""
    layers = []
    for layer in (*network.layers, network.output):
        norm = getattr(layer, "norm", None)
        layers.append({"W": layer.weight, "b": layer.bias})
        if norm is not None:
            layers[-1] |= {"gain": norm.gain, "shift": norm.shift}
    return [{name: np.asarray(value, np.float64) for name, value in layer.items()} for layer in layers]


# --- rows D1 and D8: sizes, shapes and first values


def test_defaults_and_priors_of_the_sizes() -> None:
    """Row D1: the same size in every layer, large, per-layer sizes allowed, never chosen on training error."""
    declared = dict(declarations(Mlp))["widths"]
    assert len(set(Mlp().widths)) == 1
    assert Mlp().widths[0] >= 256
    assert declared.kind == "capacity"
    assert all(len(set(widths)) == 1 for widths in declared.prior.values)
    assert max(widths[0] for widths in declared.prior.values) > 2 * 28 * 28  # overcomplete on images of digits
    assert [layer.weight.shape for layer in net(widths=(5, 2, 7)).layers] == [(5, 6), (2, 5), (7, 2)]
    assert Mlp(widths=8).widths == (8,)


def test_first_values() -> None:
    network = build(Mlp(widths=(5, 4), output_initial=ZeroWeights()))
    assert all(not np.any(layer.bias) for layer in (*network.layers, network.output))
    assert not np.any(network.output.weight)
    assert all(np.all(np.asarray(layer.weight) != 0) for layer in network.layers)
    assert not np.any(outputs_of(network, X))
    other = build(Mlp(widths=(5, 4)), seed=1)
    assert not np.array_equal(network.layers[0].weight, other.layers[0].weight)


def test_a_wider_layer_leaves_the_first_units_and_their_outgoing_weights_as_they_were() -> None:
    narrow, wide = (build(Mlp(widths=(width, 3), initial=FanIn(), output_initial=FanIn())) for width in (4, 9))
    assert np.array_equal(narrow.layers[0].weight, wide.layers[0].weight[:4])
    scale = np.sqrt(9 / 4)  # the true fan-in of the layer above is larger; its draws are the same
    np.testing.assert_allclose(narrow.layers[1].weight, wide.layers[1].weight[:, :4] * scale, rtol=1e-6)
    assert np.array_equal(narrow.output.weight, wide.output.weight)


def test_the_network_equals_numpy() -> None:
    network = net(widths=(5, 4), activation=Tanh(), output_activation=Sigmoid())
    h = X.astype(np.float64)
    *hidden, output = arrays(network)
    for layer in hidden:
        h = np.tanh(h @ layer["W"].T + layer["b"])
    expected = 1 / (1 + np.exp(-(h @ output["W"].T + output["b"])))
    np.testing.assert_allclose(outputs_of(network, X), expected, atol=1e-6)


def test_weights_of_deviation_one_are_used_over_the_root_of_their_inputs() -> None:
    """The "ntk" parametrisation, with a learned slope for each unit."""
    network = net(widths=(5, 4), activation=Parametric(Tanh()), parametrisation="ntk")
    h = X.astype(np.float64)
    *hidden, output = arrays(network)
    for layer, built in zip(hidden, network.layers, strict=True):
        a = h @ layer["W"].T / np.sqrt(h.shape[1]) + layer["b"]
        h = a + np.asarray(built.activation.slope, np.float64) * (np.tanh(a) - a)
    expected = h @ output["W"].T / np.sqrt(4) + output["b"]
    np.testing.assert_allclose(outputs_of(network, X), expected, atol=1e-5)
    assert not any("scale" in name for name, _ in named_leaves(trainable(network)[0]))


def test_first_values_of_the_ntk_parametrisation() -> None:
    """Weights and biases N(0, 1) in every layer, so that outputs keep their size at any width."""
    network = build(Mlp(widths=(300, 200), activation=Identity(), parametrisation="ntk", dropout=0.0))
    for layer in (*network.layers, network.output):
        assert np.std(layer.weight) == pytest.approx(1.0, rel=0.06)
    assert np.std(network.layers[0].bias) == pytest.approx(1.0, rel=0.15)
    np.testing.assert_allclose([layer.scale.value for layer in network.layers], [6**-0.5, 300**-0.5], rtol=1e-6)
    # Of input, first and second biases, each layer adds a variance of 1.
    hidden = np.asarray(jax.vmap(lambda x: network.layers[1](network.layers[0](x, key=None), key=None))(ON_DEVICE))
    assert np.mean(hidden**2) == pytest.approx(np.mean(X**2) + 2, rel=0.35)


def best_rate(model: Mlp) -> float:
    """Of rates a factor of 2 apart, the one at which 30 updates of gradient descent on a regression go furthest."""
    rates = 2.0 ** jnp.arange(-12, 5)
    target = jnp.tanh(ON_DEVICE[:, :1] + ON_DEVICE[:, 1:2] * ON_DEVICE[:, 2:3])

    @jax.jit
    def losses():
        first, rest = trainable(model.build((6,), 1, key=jr.key(0)))

        def loss(parameters):
            return jnp.mean((apply_batch(eqx.combine(parameters, rest), ON_DEVICE, None) - target) ** 2)

        def end(rate):
            def update(parameters, _):
                return jax.tree.map(lambda p, slope: p - rate * slope, parameters, jax.grad(loss)(parameters)), None

            return loss(jax.lax.scan(update, first, None, length=30)[0])

        return jax.vmap(end)(rates)

    return float(rates[jnp.nanargmin(losses())])


def test_in_the_ntk_parametrisation_one_rate_suits_every_width() -> None:
    """The plain one, whose first weights fall with the root of their inputs too, needs ever smaller rates."""
    same = {"activation": Tanh(), "initial": FanIn(1.0), "output_initial": FanIn(1.0), "dropout": 0.0}
    rates = {
        kind: [best_rate(Mlp(widths=(width,), parametrisation=kind, **same)) for width in (16, 4096)]
        for kind in ("ntk", "standard")
    }
    assert 0.5 <= rates["ntk"][1] / rates["ntk"][0] <= 2.0, rates
    assert rates["standard"][1] / rates["standard"][0] <= 1 / 16, rates


def test_images_are_flattened_and_no_hidden_layer_is_a_linear_model() -> None:
    network = net(widths=())
    expected = X @ np.asarray(network.output.weight).T + np.asarray(network.output.bias)
    np.testing.assert_allclose(outputs_of(network, X.reshape(16, 2, 3)), expected, atol=1e-6)


@pytest.mark.parametrize("widths", [(0,), (5, -1), (2.5,), ("8",), True, None], ids=str)
def test_odd_widths_are_refused_in_one_line(widths) -> None:
    with pytest.raises(RequestError, match=r"`Mlp.widths` must be whole numbers of at least 1.*got") as refusal:
        Mlp(widths=widths)
    assert "\n" not in str(refusal.value)


# --- row D6


def test_findings() -> None:
    assert Mlp().findings() == ()
    assert Mlp(widths=(9,), activation=Sigmoid()).findings() == ()
    (deep,) = Mlp(widths=(9, 9, 9), activation=Sigmoid()).findings()
    assert (deep.level, deep.row) == ("warning", "D6")
    assert "sigmoid units in 3 hidden layers" in deep.what
    for hard in (Rectifier(), HardTanh()):
        (flat,) = Mlp(output_activation=hard).findings()
        assert (flat.level, flat.row) == ("warning", "D6")
        assert "outputs" in flat.what
    assert Mlp(output_activation=Tanh()).findings() == ()
    assert len(Mlp(activation=Sigmoid(), output_activation=Rectifier()).findings()) == 2


# --- row J3


def test_dropout_keeps_the_mean_and_is_deterministic_without_a_key() -> None:
    network = net(widths=(40,), activation=Identity(), dropout=0.3)
    plain = net(widths=(40,), activation=Identity())
    np.testing.assert_array_equal(outputs_of(network, X), outputs_of(plain, X))

    same = jnp.broadcast_to(X[0], (4000, 6))
    noisy = np.asarray(outputs_of(network, same, jr.key(0)))
    error = noisy.std(0) / np.sqrt(len(noisy))
    assert np.all(noisy.std(0) > 0.1)
    assert np.all(np.abs(noisy.mean(0) - np.asarray(outputs_of(plain, same[:1]))[0]) < 4 * error)
    np.testing.assert_array_equal(outputs_of(network, X, jr.key(3)), outputs_of(network, X, jr.key(3)))
    assert not np.array_equal(outputs_of(network, X, jr.key(3)), outputs_of(network, X, jr.key(4)))


def test_dropout_drops_the_stated_share_and_scales_the_rest() -> None:
    layer = net(widths=(2000,), activation=Identity(), dropout=0.3).layers[0]
    whole = np.asarray(layer(ON_DEVICE[0], key=None))
    dropped = np.asarray(layer(ON_DEVICE[0], key=jr.key(0)))
    gone = dropped == 0
    assert abs(gone.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 2000)
    np.testing.assert_allclose(dropped[~gone], whole[~gone] / 0.7, rtol=1e-5)


def test_the_dropout_rate_is_never_trained_and_stays_a_knob() -> None:
    network = net(widths=(5,), dropout=0.3)
    assert isinstance(network.layers[0].dropout, Buffer)
    names = [name for name, _ in named_leaves(trainable(network)[0])]
    assert names == ["layers.0.weight", "layers.0.bias", "output.weight", "output.bias"]
    assert float(net(widths=(5,), dropout=0.4).layers[0].dropout.value) == pytest.approx(0.4)


def test_without_dropout_the_program_draws_no_random_numbers() -> None:
    def program(dropout: float) -> str:
        network = net(widths=(5,), dropout=dropout)
        parameters, rest = trainable(network)

        def criterion(parameters, key):
            return jnp.sum(apply_batch(eqx.combine(parameters, rest), X, key) ** 2)

        return jax.jit(jax.grad(criterion)).lower(parameters, jr.key(0)).compile().as_text()

    assert "shift-right-logical" in program(0.3)  # the generator's own operations
    assert "shift-right-logical" not in program(0.0)
    assert "xor" not in program(0.0)


# --- row J4


def test_layer_norm_equals_numpy() -> None:
    network = net(widths=(5,), activation=Tanh(), normalisation=LayerNorm())
    hidden, output = arrays(network)
    a = oracles.layer_norm(X @ hidden["W"].T + hidden["b"], hidden["gain"], hidden["shift"])
    expected = np.tanh(a) @ output["W"].T + output["b"]
    np.testing.assert_allclose(outputs_of(network, X), expected, atol=1e-5)
    np.testing.assert_allclose(outputs_of(network, X, jr.key(0)), expected, atol=1e-5)


def batch_normed(network: MlpNetwork, inputs: np.ndarray) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """By hand: the mean and variance before each normalisation, measured layer by layer, and the outputs."""
    h = inputs.astype(np.float64)
    moments = []
    *hidden, output = arrays(network)
    for layer in hidden:
        a = h @ layer["W"].T + layer["b"]
        moments.append((a.mean(0), a.var(0)))
        h = np.tanh(oracles.batch_norm(a, layer["gain"], layer["shift"]))
    return moments, h @ output["W"].T + output["b"]


def test_batch_norm_uses_the_batch_while_training_and_measured_statistics_after() -> None:
    network = net(widths=(5, 4), activation=Tanh(), normalisation=BatchNorm())
    moments, expected = batch_normed(network, X)
    assert network.needs_calibration
    np.testing.assert_allclose(outputs_of(network, X, jr.key(0)), expected, atol=1e-4)

    calibrated = eqx.filter_jit(MlpNetwork.calibrate)(network, ON_DEVICE)
    for layer, (mean, variance) in zip(calibrated.layers, moments, strict=True):
        np.testing.assert_allclose(layer.norm.moments.value[0], mean, atol=1e-5)
        np.testing.assert_allclose(layer.norm.moments.value[1], variance, rtol=1e-4)
    after = np.asarray(outputs_of(calibrated, X))
    np.testing.assert_allclose(after, expected, atol=1e-4)
    # Inference is one example at a time: company changes nothing.
    for row in (0, 7):
        np.testing.assert_allclose(calibrated(ON_DEVICE[row]), after[row], atol=1e-6)
    # The parameters are untouched, and the statistics are no parameters.
    assert eqx.tree_equal(trainable(calibrated)[0], trainable(network)[0])
    assert not any("moments" in name for name, _ in named_leaves(trainable(network)[0]))


def test_an_uncalibrated_network_is_found_out_by_its_outputs() -> None:
    network = net(widths=(5, 4), activation=Tanh(), normalisation=BatchNorm())
    assert not np.allclose(outputs_of(network, X), batch_normed(network, X)[1], atol=1e-2)
    assert not net(widths=(5,)).needs_calibration


def test_gradients_pass_through_the_statistics_of_the_batch() -> None:
    """With batch statistics, scaling the weights below a normalisation changes nothing: w . dL/dw is 0."""
    network = net(widths=(5,), activation=Tanh(), normalisation=BatchNorm())
    targets = np.random.default_rng(5).normal(size=(16, 3)).astype(np.float32)

    @eqx.filter_grad
    def slope(network):
        return jnp.sum((apply_batch(network, X, jr.key(0)) - targets) ** 2)

    layer = slope(network).layers[0]
    along = np.sum(np.asarray(layer.weight) * np.asarray(network.layers[0].weight))
    assert abs(along) < 1e-3 * np.linalg.norm(layer.weight) * np.linalg.norm(network.layers[0].weight)
    assert np.linalg.norm(layer.weight) > 1.0
    np.testing.assert_allclose(layer.bias, 0.0, atol=1e-3)


def test_residual_layers_add_their_input_where_the_widths_agree() -> None:
    network = net(widths=(4, 4, 5), activation=Tanh(), residual=True)
    h = X.astype(np.float64)
    *hidden, output = arrays(network)
    for layer, added in zip(hidden, (False, True, False), strict=True):
        f = np.tanh(h @ layer["W"].T + layer["b"])
        h = h + f if added else f
    np.testing.assert_allclose(outputs_of(network, X), h @ output["W"].T + output["b"], atol=1e-5)


def test_residual_connections_carry_gradients_through_twenty_layers() -> None:
    """Weights at a tenth of their scale: without the connections the first layer's gradient is lost."""

    def first_gradient(residual: bool) -> float:
        network = net(widths=(6,) * 20, activation=Tanh(), residual=residual)
        network = jax.tree.map(lambda leaf: leaf / 10 if eqx.is_array(leaf) else leaf, network)
        slope = eqx.filter_jit(eqx.filter_grad(lambda net: jnp.sum(apply_batch(net, X, None) ** 2)))(network)
        return float(jnp.linalg.norm(slope.layers[0].weight))

    assert first_gradient(False) < 1e-10
    assert first_gradient(True) > 0.1
