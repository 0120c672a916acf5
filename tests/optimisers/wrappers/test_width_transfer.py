"""Width transfer (row J7): the table of factors, where it applies, and that updates are multiplied by it."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.initial_weights import ZeroWeights
from gradwise.models.mlp import LayerNorm, Mlp
from gradwise.models.padded_mlp import pad
from gradwise.optimisers.adaptive.adam import Adagrad, Adam, AdamW
from gradwise.optimisers.averaging.parameter_average import MovingAverage, PolyakAverage
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.optimisers.wrappers.width_transfer import WidthTransfer
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.paths import named_leaves, trainable
from gradwise.testing.contracts import check_optimiser
from gradwise.testing.spec_contracts import check_round_trip

INPUTS, OUTPUTS, BASE = 7, 3, 8


def parameters(mlp: Mlp):
    return trainable(mlp.build((INPUTS,), OUTPUTS, key=jr.key(0)))[0]


def factors(optimiser: AbstractOptimiser, tree) -> dict[str, float]:
    found = WidthTransfer(optimiser, base_width=BASE).factors(tree)
    return {name: float(factor) for name, factor in named_leaves(found)}


SGD = {
    "layers.0.weight": 16 / 8,
    "layers.0.bias": 16 / 8,
    "layers.0.norm.gain": 16 / 8,
    "layers.0.norm.shift": 16 / 8,
    "layers.1.weight": 1.0,
    "layers.1.bias": 32 / 8,
    "layers.1.norm.gain": 32 / 8,
    "layers.1.norm.shift": 32 / 8,
    "output.weight": 8 / 32,
    "output.bias": 1.0,
}
ADAM = {name: 8 / 16 if name == "layers.1.weight" else 8 / 32 if name == "output.weight" else 1.0 for name in SGD}


@pytest.mark.parametrize(
    ("optimiser", "expected"),
    [
        (Sgd(), SGD),
        (HeavyBall(), SGD),
        (Grouped(Sgd(), groups=(ParameterGroup("*.bias", HeavyBall()),)), SGD),
        (Adam(), ADAM),
        (AdamW(), ADAM),
    ],
    ids=["sgd", "heavy-ball", "grouped", "adam", "adamw"],
)
def test_the_table(optimiser: AbstractOptimiser, expected: dict[str, float]) -> None:
    assert factors(optimiser, parameters(Mlp(widths=(16, 32), normalisation=LayerNorm()))) == expected


@pytest.mark.parametrize("rule", [Sgd(0.1), Adam(0.1)], ids=["sgd", "adam"])
def test_at_the_base_width_nothing_changes(rule: AbstractOptimiser) -> None:
    assert set(factors(rule, parameters(Mlp(widths=(BASE,) * 3))).values()) == {1.0}


def test_without_hidden_layers_there_is_no_width() -> None:
    assert set(factors(Adam(), parameters(Mlp(widths=()))).values()) == {1.0}


def test_a_padded_network_has_the_factors_of_its_own_width() -> None:
    """Units that are not there have weights of exactly 0, also where the output weights start at 0."""
    for mlp in (Mlp(widths=(16, 32)), Mlp(widths=(16, 32), output_initial=ZeroWeights())):
        padded = pad(mlp, (INPUTS,), lambda width: 64)
        for rule in (Sgd(), Adam()):
            assert factors(rule, parameters(padded)) == factors(rule, parameters(mlp))


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Sgd(0.1), Adam(0.01)], ids=["sgd", "adam"])
def test_each_update_is_multiplied(rule: AbstractOptimiser) -> None:
    """Three updates with made-up gradients: the moves are those of the rule alone, times the factors."""
    tree = parameters(Mlp(widths=(16, 32)))
    transfer = WidthTransfer(rule, base_width=BASE)
    plain, scaled = rule.build(), transfer.build()
    states = [plain.init(tree), scaled.init(tree)]
    for number in range(3):
        draws = jr.split(jr.key(number), 100)
        gradient = jax.tree.map(lambda leaf, draws=draws: jr.normal(draws[leaf.size % 100], leaf.shape), tree)
        alone, states[0] = plain.update(gradient, states[0], tree, value=1.0)
        ours, states[1] = scaled.update(gradient, states[1], tree, value=1.0)
        expected = jax.tree.map(jnp.multiply, alone, transfer.factors(tree))
        for (name, move), (_, one) in zip(named_leaves(ours), named_leaves(expected), strict=True):
            np.testing.assert_allclose(move, one, rtol=1e-6, err_msg=name)
    assert float(transfer.rate(states[1])) == pytest.approx(float(rule.rate(states[0])))


@pytest.mark.slow
def test_it_is_a_whole_optimiser() -> None:
    transfer = WidthTransfer(Sgd(0.1), base_width=2)
    check_round_trip(transfer)
    check_optimiser(transfer)
    check_optimiser(MovingAverage(WidthTransfer(Adam(0.1), base_width=2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WidthTransfer(MovingAverage(Adam())), r"Write MovingAverage\(WidthTransfer\(\.\.\.\)\)"),
        (lambda: WidthTransfer(Grouped(PolyakAverage(Sgd()))), "PolyakAverage"),
        (lambda: WidthTransfer(Grouped(Sgd(), groups=(ParameterGroup("*.bias", Adam()),))), "groups of one kind"),
        (lambda: WidthTransfer(Sgd(), base_width=0), "base_width"),
        (lambda: WidthTransfer(Adagrad()), "steps of `Adagrad` grow with the width"),
        (
            lambda: (
                Grouped(WidthTransfer(Adam()), groups=(ParameterGroup("*.bias", Adam()),))
                .build()
                .init(parameters(Mlp(widths=(4,))))
            ),
            "whole network",
        ),
    ],
    ids=["average", "average-in-group", "mixed", "base", "unknown", "in-a-group"],
)
def test_what_makes_no_sense_is_refused_in_one_line(make, message: str) -> None:
    with pytest.raises(RequestError, match=message) as refusal:
        make()
    assert "\n" not in str(refusal.value)
