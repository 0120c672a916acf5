"""The coordinate check of width transfer (row J7), and what it promises: the rate tuned narrow serves wide."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from gradwise import defaults
from gradwise.checking.flow.coordinate_check import CoordinateCheck, coordinate_check, find_widths
from gradwise.checking.learning.largest_rate import try_rates
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.initial_weights import AbstractInitial, FanIn
from gradwise.models.mlp import Mlp
from gradwise.models.shared_weights import SharedWeights
from gradwise.models.width_scaled_weights import OutputScaled
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.width_transfer import WidthTransfer
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.recipe import Recipe
from gradwise.training.interval import advance
from gradwise.training.state import init

BASE, SCALE = 32, 1.7
SIZES = {"outputs": 10, "classes": 10, "key": keys.from_seed(0)}


def digits(rows: slice) -> Examples:
    inputs, targets = load_digits(return_X_y=True)
    scaled = (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-9)
    return Examples(jnp.asarray(scaled[rows], jnp.float32), jnp.asarray(targets[rows], jnp.int32))


TRAIN, VALID = digits(slice(512)), digits(slice(512, 640))


def of_width(optimiser: AbstractOptimiser, output: AbstractInitial) -> Callable[[int], Recipe]:
    def make(width: int) -> Recipe:
        model = Mlp(widths=(width, width), activation=Tanh(), initial=FanIn(SCALE), output_initial=output, dropout=0.0)
        return defaults.classification(batches=Reshuffled(64), model=model, optimiser=optimiser)

    return make


def transferred(optimiser: AbstractOptimiser) -> Callable[[int], Recipe]:
    return of_width(WidthTransfer(optimiser, base_width=BASE), OutputScaled(SCALE, base_width=BASE))


def check(recipe_for_width: Callable[[int], Recipe], *widths: int) -> CoordinateCheck:
    return coordinate_check(recipe_for_width, widths, TRAIN, VALID, **SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Sgd(0.1), Adam(0.003)], ids=["sgd", "adam"])
def test_activations_move_alike_at_all_widths_with_transfer_alone(rule: AbstractOptimiser) -> None:
    """Theory for one update without it: -1/2, 0 and +1 for Sgd, 0, +1/2 to 1 and +1 for Adam, layer by layer."""
    ours = check(transferred(rule), 32, 128, 512)
    assert ours.layers == ("layers.0", "layers.1", "output")
    assert ours.changes.shape == (3, 3)
    assert np.all(np.abs(ours.slopes) < 0.15), ours.slopes
    assert ours.steady
    plain = check(of_width(rule, FanIn(SCALE)), 32, 512)
    assert not plain.steady
    assert plain.slopes[-1] > 0.4, plain.slopes  # the outputs move further in a wide network
    if isinstance(rule, Sgd):
        assert plain.slopes[0] < -0.3, plain.slopes  # and the first layer hardly learns
    else:
        assert plain.slopes[1] > 0.3, plain.slopes
    # At the base width both are the same network, trained the same way.
    np.testing.assert_allclose(ours.changes[:, 0], plain.changes[:, 0], rtol=1e-4)


@pytest.mark.slow
def test_the_best_rate_of_a_narrow_network_is_that_of_a_wide_one_with_transfer_alone() -> None:
    rates = 2.0 ** np.arange(-11, 0)

    def best(recipe: Recipe) -> float:
        tried = try_rates(recipe, rates, TRAIN, VALID, updates=20, **SIZES)
        return float(tried.rates[np.argmin(tried.losses)])

    narrow, wide = (best(transferred(Adam())(width)) for width in (32, 512))
    assert 1 / 3 < wide / narrow < 3, (narrow, wide)
    plain = best(of_width(Adam(), FanIn(SCALE))(512))  # at width 32 there is no difference to transfer
    assert plain / narrow < 1 / 5, (narrow, plain)


@pytest.mark.slow
def test_the_slope_is_that_of_the_changes() -> None:
    """Two widths give the exponent in closed form; the outputs' change is that of networks trained by hand."""
    make = transferred(Sgd(0.1))
    found = coordinate_check(make, (8, 16), TRAIN, VALID, updates=1, seeds=2, **SIZES)
    np.testing.assert_allclose(found.slopes, np.log2(found.changes[:, 1] / found.changes[:, 0]), rtol=1e-6)
    moved = []
    for key in jax.random.split(SIZES["key"], 2):
        problem, state = init(make(8), TRAIN, VALID, outputs=10, classes=10, key=key)
        outputs = jax.jit(lambda p, problem=problem: jax.vmap(problem.model(p))(TRAIN.inputs[:256]))
        after, _ = eqx.filter_jit(advance)(problem, state, 1)
        moved.append(jnp.mean(jnp.abs(outputs(after.parameters) - outputs(state.parameters))))
    np.testing.assert_allclose(found.changes[-1, 0], np.mean(moved), rtol=1e-4)


def test_any_network_is_compared_layer_by_layer() -> None:
    """Members that share their weights, and a network of somebody else's."""

    def shared(width: int) -> Recipe:
        model = SharedWeights(Mlp(widths=(width,), dropout=0.0), members=2)
        return defaults.classification(model=model, optimiser=Sgd(0.1), batches=Reshuffled(64))

    found = coordinate_check(shared, (8, 32), TRAIN, VALID, seeds=1, **SIZES)
    assert found.layers == ("layers.0 (3)", "output")
    assert np.all(found.changes > 0)


def test_what_is_found_says_which_layer_and_what_to_do() -> None:
    steady = CoordinateCheck((16, 64), ("layers.0", "output"), np.ones((2, 2)), np.asarray([0.1, -0.2]))
    (finding,) = find_widths(steady)
    assert finding.what.startswith("from 16 to 64 units, output changes in an update as the -0.20th power of the width")
    assert finding.next == ""
    (finding,) = find_widths(dataclasses.replace(steady, slopes=np.asarray([0.1, 0.9])))
    assert "does not serve another" in finding.what
    assert "--set optimiser=WidthTransfer" in finding.next


class _Bare(eqx.Module):
    weight: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.weight @ x


def test_what_cannot_be_compared_is_said_in_one_line() -> None:
    with pytest.raises(RequestError, match="at least two widths"):
        coordinate_check(transferred(Sgd()), (32, 32), TRAIN, VALID, **SIZES)
    bare = defaults.classification(model=_Bare(jnp.ones((10, 64))), optimiser=Sgd())
    with pytest.raises(RequestError, match="needs a network with hidden layers"):
        coordinate_check(lambda width: bare, (32, 64), TRAIN, VALID, **SIZES)
