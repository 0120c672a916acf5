"""Slower lower layers (rows A9, C10) against the plain optimiser: each layer's step is its share of the plain one."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise.models.convolution.convolutional import Convolutional
from gradwise.models.input_stage import Embedded
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import AdamW
from gradwise.optimisers.averaging.parameter_average import MovingAverage, PolyakAverage
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.second_order.lbfgs import Lbfgs
from gradwise.optimisers.wrappers.slower_below import (
    SlowerBelow,
    all_alike,
    count_filter_layers,
    depth_of,
    within_averages,
)
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import InputLayout
from gradwise.specs.paths import named_leaves, trainable
from gradwise.testing.contracts import check_part


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("layers.0.weight", 0),
        ("layers.12.bias", 12),
        ("layers.1.activation.slope", 1),
        ("inputs.tables.0", 0),
        ("output.weight", None),
        ("encoder.layers.0.weight", None),
    ],
)
def test_the_layer_of_a_parameter(name: str, depth: int | None) -> None:
    assert depth_of(name) == depth


def test_layers_of_filters_come_below_the_dense_ones() -> None:
    model = Convolutional(channels=(2, 3), widths=(4,), dropout=0.0)
    parameters = trainable(model.build((8, 8), 2, key=jr.key(0)))[0]
    assert count_filter_layers(parameters) == 2
    assert count_filter_layers(a_network()) == 0
    assert [depth_of(name, 2) for name in ("convolutions.1.weight", "layers.0.bias", "output.bias")] == [1, 2, None]
    rule = SlowerBelow(Sgd(1.0), layers=3, frozen=1, factor=0.25).build()
    ones = jax.tree.map(jnp.ones_like, parameters)
    moves, _ = rule.update(ones, rule.init(parameters), parameters)
    shares = {"convolutions.0": 0.0, "convolutions.1": -0.25, "layers.0": -0.25, "output": -1.0}
    for name, move in named_leaves(moves):
        assert (move == shares[name.rpartition(".")[0]]).all(), name


def a_network() -> Any:
    mlp = Mlp(widths=(4, 3, 2), inputs=Embedded(), dropout=0.0)
    return trainable(eqx.filter_jit(lambda: mlp.for_inputs(InputLayout(2, 0, (3,))).build((3,), 2, key=jr.key(0)))())[0]


def test_steps_are_shares_of_the_plain_ones() -> None:
    parameters = a_network()
    gradient = jax.tree.map(lambda leaf: jnp.cos(7.0 * leaf) + 0.5, parameters)

    def steps(optimiser: Any) -> dict[str, np.ndarray]:
        rule = optimiser.build()
        moves, _ = rule.update(gradient, rule.init(parameters), parameters)
        return {name: np.asarray(leaf) for name, leaf in named_leaves(moves)}

    for plain in (Sgd(0.1), AdamW(0.01, decay=0.3)):  # a decay moves slower layers less, and frozen ones not at all
        whole = steps(plain)
        for name, move in steps(SlowerBelow(plain, layers=2, frozen=1, factor=0.25)).items():
            share = {0: 0.0, 1: 0.25}.get(depth_of(name), 1.0)  # type: ignore[arg-type]
            np.testing.assert_allclose(move, share * whole[name], rtol=1e-6, err_msg=name)


def test_what_is_frozen_stays_to_the_bit_under_an_average_too() -> None:
    rule = MovingAverage(SlowerBelow(HeavyBall(0.1), layers=3, frozen=2), decay=0.9)
    build, parameters = rule.build(), a_network()
    state, here = build.init(parameters), parameters
    for number in range(20):
        gradient = jax.tree.map(lambda leaf, n=number: jnp.sin(leaf + n), here)
        moves, state = build.update(gradient, state, here)
        here = optax.apply_updates(here, moves)
    begun = dict(named_leaves(parameters))
    for (name, now), (_, judged) in zip(named_leaves(here), named_leaves(rule.judged(here, state)), strict=True):
        held = depth_of(name) in (0, 1)
        assert np.array_equal(now, begun[name]) == held, name
        assert np.array_equal(judged, begun[name]) == held, name


def test_nothing_is_propagated_back_into_frozen_layers() -> None:
    mlp = Mlp(widths=(5, 5, 5), dropout=0.0)
    network = mlp.build((5,), 5, key=jr.key(0))
    parameters, rest = trainable(network)

    def products(frozen: int) -> int:
        rule = SlowerBelow(Sgd(0.1), layers=3, frozen=frozen).build()

        def update(parameters: Any, x: Any) -> Any:
            gradient = jax.grad(lambda p: jnp.sum(eqx.combine(p, rest)(x) ** 2))(parameters)
            moves, _ = rule.update(gradient, rule.init(parameters), parameters)
            return optax.apply_updates(parameters, moves)

        text = jax.jit(update).lower(parameters, jnp.ones(5)).compile().as_text()
        return text.count(" dot(")

    # A layer's backward pass is two products: with the transposed weights, and of its gradient with its input.
    assert products(3) < products(2) < products(0)


def test_averages_go_around_and_batch_methods_are_refused() -> None:
    given = {"layers": 2, "frozen": 1}
    wrapped = within_averages(PolyakAverage(MovingAverage(Sgd(0.2))), **given)
    assert wrapped == PolyakAverage(MovingAverage(SlowerBelow(Sgd(0.2), **given)))
    assert all_alike(wrapped) == PolyakAverage(MovingAverage(Sgd(0.2)))
    assert all_alike(Sgd(0.3)) == Sgd(0.3)
    with pytest.raises(RequestError, match=r"Write MovingAverage\(SlowerBelow\(\.\.\.\)\)"):
        SlowerBelow(MovingAverage(Sgd(0.1)))
    with pytest.raises(RequestError, match="cannot slow Lbfgs"):
        SlowerBelow(Lbfgs())


def test_it_keeps_the_contract() -> None:
    check_part(SlowerBelow(HeavyBall(0.1), layers=1, factor=0.5))
