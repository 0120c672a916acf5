"""Weight decay as a prior (row D2): which parameters, how much, and against SciPy's densities."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from gradwise.criteria.penalties import L1, L2, AbstractPenalty
from gradwise.models.centred_mlp import CentredMlp
from gradwise.models.initial_weights import GaussianWeights
from gradwise.models.mlp import BatchNorm, LayerNorm, Mlp, MlpNetwork
from gradwise.runtime.errors import RequestError
from gradwise.specs.knobs import is_off
from gradwise.specs.paths import named_leaves, trainable
from tests.marks import parametrize_one_quick

WIDE = GaussianWeights(deviation=0.5)


@pytest.fixture(scope="module")
def network() -> MlpNetwork:
    """Two layers with layer normalisation, biases away from 0."""
    model = Mlp(widths=(4, 5), initial=WIDE, output_initial=WIDE, normalisation=LayerNorm(), dropout=0.3)
    network = eqx.filter_jit(model.build)((3,), 2, key=jr.key(0))
    return jax.tree.map(lambda leaf: leaf + 0.25 if eqx.is_array(leaf) else leaf, network)


def slopes(penalty: AbstractPenalty, network: MlpNetwork) -> dict[str, np.ndarray]:
    """The penalty's gradient by parameter path."""
    parameters, rest = trainable(network)
    gradient = jax.grad(lambda moved: penalty(eqx.combine(moved, rest)))(parameters)
    return {name: np.asarray(leaf) for name, leaf in named_leaves(gradient)}


def values(network: MlpNetwork) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in named_leaves(trainable(network)[0])}


WEIGHTS = {"layers.0.weight", "layers.1.weight", "output.weight"}


@parametrize_one_quick(
    ("penalty", "value", "slope"),
    [(L2(), np.square, lambda w: 2 * w), (L1(), np.abs, np.sign)],
    ids=["L2", "L1"],
)
def test_value_and_slope_on_weights_only_by_default(penalty, value, slope, network: MlpNetwork) -> None:
    """Neither biases nor the gains and shifts of a normalisation are weights."""
    parameters = values(network)
    assert {"layers.0.norm.gain", "layers.0.norm.shift", "layers.0.bias", "output.bias"} <= set(parameters)
    assert float(penalty(network)) == pytest.approx(sum(value(parameters[n]).sum() for n in WEIGHTS), rel=1e-5)
    for name, found in slopes(penalty, network).items():
        expected = slope(parameters[name]) if name in WEIGHTS else np.zeros_like(parameters[name])
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("where", "touched"),
    [
        ("output.weight", {"output.weight"}),
        ("layers.0.weight", {"layers.0.weight"}),
        ("layers.0.*", {"layers.0.weight", "layers.0.bias", "layers.0.norm.gain", "layers.0.norm.shift"}),
        ("*.bias", {"layers.0.bias", "layers.1.bias", "output.bias"}),
        ("output.weight|output.bias", {"output.weight", "output.bias"}),
    ],
)
def test_where(where: str, touched: set[str], network: MlpNetwork) -> None:
    found = slopes(L2(1.0, where=where), network)
    assert {name for name, slope in found.items() if np.any(slope)} == touched


def test_shortcuts_and_a_weight_at_the_top_are_weights_too() -> None:
    centred = CentredMlp(widths=(4, 5)).build((3,), 2, key=jr.key(0))
    shaken = jax.tree.map(lambda leaf: leaf + 0.25 if eqx.is_array(leaf) else leaf, centred)
    touched = {name for name, slope in slopes(L2(), shaken).items() if np.any(slope)}
    own = {f"layers.{layer}.weights.{place}" for layer in range(2) for place in range(layer + 1)}
    assert touched == own | {f"output.weights.{place}" for place in range(3)}
    linear = eqx.nn.Linear(3, 2, key=jr.key(0))
    assert float(L2()(linear)) == pytest.approx(float((linear.weight**2).sum()))


def test_measured_statistics_are_never_penalised() -> None:
    network = Mlp(widths=(4,), initial=WIDE, normalisation=BatchNorm(), dropout=0.5).build((3,), 2, key=jr.key(0))
    everything = float(L2(1.0, where="*")(network))
    assert everything == pytest.approx(sum(np.square(value).sum() for value in values(network).values()), rel=1e-5)


def test_a_pattern_that_matches_nothing_names_the_nearest_path(network: MlpNetwork) -> None:
    with pytest.raises(RequestError, match=r"no parameter matches.*'ouput.weight'.*Did you mean 'output.weight'\?"):
        L2(1.0, where="ouput.weight")(network)


def test_off_by_default_since_early_stopping_does_its_work() -> None:
    for penalty in (L2(), L1()):
        assert penalty.coefficient == 0.0
        assert is_off(penalty.coefficient)
    assert not is_off(L2(1e-3).coefficient)
    with pytest.raises(RequestError, match=r"`L2.coefficient` must lie in \[0, inf\); got -1\.0\. Default: 0\.0\."):
        L2(-1.0)


def test_the_prior_it_stands_for() -> None:
    """lambda w^2 is minus the log of a Gaussian of variance 1/(2 lambda), lambda |w| of a Laplace of scale 1/lambda."""
    weight = np.asarray([[0.3, -1.7, 2.5]], np.float32)
    tree = {"output": {"weight": weight}}
    still = {"output": {"weight": np.zeros_like(weight)}}
    tree, still = jax.tree.map(jax.numpy.asarray, (tree, still))
    for strength in (0.5, 4.0):
        for penalty, density in (
            (L2(strength), stats.norm(scale=np.sqrt(1 / (2 * strength)))),
            (L1(strength), stats.laplace(scale=1 / strength)),
        ):
            rise = strength * float(penalty(tree) - penalty(still))
            assert rise == pytest.approx(density.logpdf(0.0) * 3 - density.logpdf(weight).sum(), rel=1e-5)
