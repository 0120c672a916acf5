"""Dictionaries and what they encode: atoms in the ball, actual zeros, a layer that predicts, and odd data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.activations import Sigmoid
from gradwise.models.sparse_coding import (
    PredictiveSparse,
    PredictiveSparseNetwork,
    SparseDictionary,
    in_unit_ball,
)
from gradwise.runtime.errors import RequestError
from gradwise.specs.paths import trainable
from gradwise.testing.contracts import check_part


def test_contract() -> None:
    check_part(PredictiveSparse(units=3, activation=Sigmoid()))


def _rows(count: int = 40, size: int = 16) -> np.ndarray:
    """Each row is two of eight hidden directions, and a little noise."""
    draw = np.random.default_rng(0)
    atoms = draw.normal(size=(8, size))
    used = np.zeros((count, 8))
    for row in used:
        row[draw.choice(8, 2, replace=False)] = draw.normal(size=2) + np.sign(draw.normal(size=2))
    return used @ atoms / 4.0 + 0.01 * draw.normal(size=(count, size))


@eqx.filter_jit
def _built(spec: SparseDictionary | PredictiveSparse, inputs: jax.Array) -> Any:
    return spec.started(spec.build(inputs.shape[1:], 0, key=jr.key(0)), inputs)


def test_atoms_are_the_nearest_points_of_the_ball_and_their_slope_is_right() -> None:
    with jax.enable_x64(True):
        draw = np.random.default_rng(1)
        vectors = draw.normal(size=(4, 3)) * np.array([[0.2], [3.0], [1.5], [0.0]])
        atoms = np.asarray(in_unit_ball(jnp.asarray(vectors)))
        for vector, atom in zip(vectors, atoms, strict=True):
            np.testing.assert_allclose(atom, vector / max(1.0, np.linalg.norm(vector)), rtol=1e-12)
        probe = jnp.asarray(draw.normal(size=(4, 3)))
        value = jax.jit(lambda v: jnp.sum(probe * in_unit_ball(v) ** 2))
        slope = np.asarray(jax.grad(value)(jnp.asarray(vectors)))
        for place in np.ndindex(4, 3):
            step = np.zeros((4, 3))
            step[place] = 1e-6
            central = (value(vectors + step) - value(vectors - step)) / 2e-6
            assert slope[place] == pytest.approx(float(central), abs=1e-8)


def test_a_code_has_actual_zeros_and_satisfies_the_lassos_conditions() -> None:
    """At the least energy D'(x - Dz) is lambda sign(z) where z is not 0, and no larger than lambda elsewhere."""
    with jax.enable_x64(True):
        inputs = jnp.asarray(_rows())
        network = _built(SparseDictionary(units=24, penalty=0.1, iterations=5000), inputs)
        codes = np.asarray(eqx.filter_jit(eqx.filter_vmap(network))(inputs.reshape(40, 4, 4)))  # images are unrolled
        np.testing.assert_allclose(codes, eqx.filter_jit(network.codes)(inputs), atol=1e-9)
        residual = np.asarray(inputs) - np.asarray(network.decode(jnp.asarray(codes)))
        match = residual @ np.asarray(network.atoms).T
        active = codes != 0
        assert 0.02 < active.mean() < 0.5
        np.testing.assert_allclose(match[active], 0.1 * np.sign(codes[active]), atol=1e-6)
        assert np.abs(match[~active]).max() <= 0.1 + 1e-6
        energy = 0.5 * (residual**2).sum(1) + 0.1 * np.abs(codes).sum(1)
        np.testing.assert_allclose(network.energy(inputs, jnp.asarray(codes)), energy, rtol=1e-12)


def test_a_prediction_is_a_layer_and_its_codes_are_least() -> None:
    with jax.enable_x64(True):
        inputs = jnp.asarray(_rows())
        spec = PredictiveSparse(units=24, penalty=0.1, pull=0.5, iterations=1000)
        network = _built(spec, inputs)
        network = eqx.tree_at(lambda one: one.gain, network, jnp.linspace(0.5, 2.0, 24))
        features = jax.vmap(network)(inputs)
        (layer,) = network.hidden_layers
        np.testing.assert_array_equal(features, jax.vmap(lambda x: layer(x, key=None))(inputs))
        weight, bias = np.asarray(layer.weight), np.asarray(layer.bias)
        predicted = np.linspace(0.5, 2.0, 24) * np.tanh(np.asarray(inputs) @ weight.T + bias)
        np.testing.assert_allclose(network.predicted(inputs), predicted, rtol=1e-10)
        np.testing.assert_allclose(network.decode(features), predicted @ np.asarray(network.atoms), atol=1e-12)
        codes = np.asarray(eqx.filter_jit(network.codes)(inputs))
        slope = (np.asarray(inputs) - codes @ np.asarray(network.atoms)) @ np.asarray(network.atoms).T
        slope += 0.5 * (predicted - codes)
        active = codes != 0
        assert 0.05 < active.mean() < 0.95
        np.testing.assert_allclose(slope[active], 0.1 * np.sign(codes[active]), atol=1e-9)
        assert np.abs(slope[~active]).max() <= 0.1 + 1e-9


@pytest.mark.slow
def test_atoms_begin_as_examples_and_differ_even_where_the_examples_do_not() -> None:
    inputs = jnp.asarray(_rows(), jnp.float32)
    network = _built(SparseDictionary(units=10), inputs)
    cosines = np.sum(np.asarray(network.atoms) * inputs[::4], axis=1) / np.linalg.norm(inputs[::4], axis=1)
    assert cosines.min() > 0.98
    for few in (inputs[:5], jnp.ones((5, 16)), jnp.zeros((5, 16))):  # more atoms than examples, constant, nothing
        for spec in (SparseDictionary(units=24), PredictiveSparse(units=24)):
            atoms = np.asarray(_built(spec, few).atoms)
            np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1.0, atol=1e-5)
            gaps = np.linalg.norm(atoms[:, None] - atoms[None], axis=2) + 2.0 * np.eye(24)
            assert gaps.min() > 0.05


def test_penalties_of_a_population_are_each_their_own() -> None:
    inputs = jnp.asarray(_rows(6), jnp.float32)

    @eqx.filter_jit
    def codes(penalty: jax.Array) -> jax.Array:
        spec = SparseDictionary(units=10, penalty=penalty)
        return spec.build((16,), 0, key=jr.key(0)).codes(inputs)

    penalties = jnp.asarray([0.05, 0.5])
    many = jax.vmap(codes)(penalties)
    for member, penalty in zip(many, penalties, strict=True):
        np.testing.assert_allclose(member, codes(penalty), atol=1e-5)
    assert np.mean(np.asarray(many[1]) == 0) > np.mean(np.asarray(many[0]) == 0)


def test_the_penalty_is_no_parameter_and_too_many_atoms_are_refused() -> None:
    network = PredictiveSparse(units=4).build((6,), 0, key=jr.key(0))
    assert isinstance(network, PredictiveSparseNetwork)
    assert sum(leaf.size for leaf in jax.tree.leaves(trainable(network)[0])) == 4 * 6 + 4 + 4 + 4 * 6
    for spec in (SparseDictionary(units=10**10), PredictiveSparse(units=10**10)):
        with pytest.raises(
            RequestError, match=r"10000000000 atoms over 784 inputs needs about .* GiB .* Use fewer `units`"
        ):
            spec.build((28, 28), 0, key=jr.key(0))
