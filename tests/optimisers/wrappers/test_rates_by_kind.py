"""Rates by kind of parameter (row C10) against NumPy: each kind moves by its own factor, and nothing else changes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise.models.activations import Parametric
from gradwise.models.input_stage import Embedded, PiecewiseLinear
from gradwise.models.mlp import Mlp
from gradwise.models.shared_weights import SharedWeights
from gradwise.optimisers.adaptive.adam import AdamW
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.schedules import RepeatedCosine
from gradwise.optimisers.wrappers.rates_by_kind import RatesByKind, kind_of
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import InputLayout
from gradwise.specs.paths import named_leaves, trainable
from gradwise.testing.contracts import check_part

LAYOUT = InputLayout(numbers=2, flags=1, categories=(4,))
FACTORS = {"bias": 0.1, "embedding": 0.25, "input_factor": 6.0, "activation": 0.5, "weight": 1.0}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("layers.0.weight", "weight"),
        ("layers.2.bias", "bias"),
        ("output.bias", "bias"),
        ("layers.1.activation.slope", "activation"),
        ("inputs.factor", "input_factor"),
        ("inputs.numbers.frequency", "embedding"),
        ("inputs.numbers.maps.shift", "embedding"),
        ("inputs.tables.3", "embedding"),
        ("layers.0.input_factors", "weight"),
        ("0.weight", "weight"),
        ("bias", "bias"),
    ],
)
def test_a_path_has_one_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_every_parameter_of_a_network_for_tables_has_the_kind_it_should() -> None:
    mlp = Mlp(widths=(3,), activation=Parametric(), inputs=Embedded(PiecewiseLinear()))
    kinds = {}
    for model in (mlp, SharedWeights(mlp, members=2)):
        network = eqx.filter_jit(lambda m: m.for_inputs(LAYOUT).build((4,), 2, key=jr.key(0)))(model)
        kinds |= {name: kind_of(name) for name, _ in named_leaves(trainable(network)[0])}
    assert {name for name, kind in kinds.items() if kind == "embedding"} == {
        "inputs.numbers.maps.projection",
        "inputs.numbers.maps.shift",
        "inputs.tables.0",
    }
    assert {name.rpartition(".")[2] for name, kind in kinds.items() if kind == "weight"} == {
        "weight",
        "input_factors",
        "output_factors",
    }


def tree_of(values: np.ndarray) -> dict[str, Any]:
    """Two numbers of each kind."""
    pair = jnp.asarray(values, jnp.float32).reshape(5, 2)
    layer = {"weight": pair[0], "bias": pair[1], "activation": {"slope": pair[2]}}
    return {"layers": (layer,), "inputs": {"factor": pair[3], "tables": (pair[4],)}}


def flat(tree: dict[str, Any]) -> Any:
    layer, inputs = tree["layers"][0], tree["inputs"]
    pieces = [layer["weight"], layer["bias"], layer["activation"]["slope"], inputs["factor"], inputs["tables"][0]]
    return jnp.concatenate(pieces)


EACH = np.repeat([FACTORS[kind] for kind in ("weight", "bias", "activation", "input_factor", "embedding")], 2)
WEIGHTS = np.asarray([1.0] * 2 + [0.0] * 8)
SCALES = np.tile([1.0, 30.0], 5)
START = np.linspace(-1.0, 1.0, 10)


@pytest.mark.parametrize("decay", [0.0, 0.4])
def test_twelve_updates_equal_the_recursion(decay: float) -> None:
    """Adam's direction, and the decay with it, times the rate, times the factor of the kind."""
    first, second, rate = float(np.float32(0.9)), 0.75, 0.03
    here, mean, squares, expected = START, np.zeros(10), np.zeros(10), []
    for t in range(12):
        slope = SCALES * here
        mean, squares = first * mean + (1 - first) * slope, second * squares + (1 - second) * slope**2
        move = mean / (1 - first ** (t + 1)) / (np.sqrt(squares / (1 - second ** (t + 1))) + 1e-8)
        scheduled = rate * (0.5 - 0.5 * np.cos(2 * np.pi * np.log2(1 + 3 * t / 12)))
        here = here - EACH * scheduled * (move + decay * WEIGHTS * here)
        expected.append(here)
    adam = AdamW(rate, decay=decay, second_moment=second, schedule=RepeatedCosine(12.0, cycles=2))
    optimiser = RatesByKind(adam, **{kind: factor for kind, factor in FACTORS.items() if kind != "weight"})

    @eqx.filter_jit
    def points(optimiser: RatesByKind) -> Any:
        def body(carry: Any, _: Any) -> Any:
            here, state = carry
            slope = tree_of(jnp.asarray(SCALES, jnp.float32) * flat(here))
            moves, state = optimiser.build().update(slope, state, here, value=jnp.zeros(()))
            here = optax.apply_updates(here, moves)
            return (here, state), (flat(here), optimiser.rate(state))

        start = tree_of(START)
        return jax.lax.scan(body, (start, optimiser.build().init(start)), None, length=12)[1]

    found, rates = points(optimiser)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    waves = 0.5 - 0.5 * np.cos(2 * np.pi * np.log2(1 + 3 * np.arange(12) / 12))
    np.testing.assert_allclose(rates, rate * waves, atol=1e-7)  # the record tells the rate of the weights


def test_a_factor_of_zero_holds_a_kind_still() -> None:
    rule = RatesByKind(AdamW(0.1), bias=0.0).build()
    start = tree_of(START)
    moves, _ = rule.update(start, rule.init(start), start, value=jnp.zeros(()))
    assert not np.any(moves["layers"][0]["bias"])
    assert np.all(np.asarray(moves["layers"][0]["weight"]) != 0)


@pytest.mark.slow
def test_the_contract_holds_around_an_average() -> None:
    optimiser = RatesByKind(MovingAverage(AdamW(0.1), decay=0.5))
    check_part(optimiser)


def test_a_negative_factor_is_refused() -> None:
    with pytest.raises(RequestError, match=r"RatesByKind\.bias"):
        RatesByKind(AdamW(), bias=-1.0)
