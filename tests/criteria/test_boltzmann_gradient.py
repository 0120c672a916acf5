"""The gradient of a machine whose visible units have precisions, against differentiated likelihoods and energies."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.criteria.boltzmann_gradient import (
    Phases,
    boltzmann_parameters,
    phase_gradient,
    with_parameters,
    with_precisions,
)
from gradwise.criteria.contrastive_divergence import ContrastiveDivergence, FastPersistentDivergence
from gradwise.evaluation.generative.likelihood import log_likelihood, log_partition
from gradwise.models.restricted_boltzmann import RbmNetwork
from gradwise.models.visible_units import BinaryVisible, LabelledVisible
from tests.criteria.test_contrastive_divergence import batch_of, gradient_of
from tests.models.test_gaussian_visible import line, machine


@pytest.fixture
def wide():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("enhanced", [False, True])
def test_exact_statistics_give_the_gradient_of_the_likelihood(wide, enhanced):
    """The machine's own states are a fine grid with its exact density; the likelihood is differentiated."""
    network = machine()
    points, area = line()
    own, v, weights = jnp.asarray(points), jnp.asarray([[0.3, -1.0], [2.0, 0.4]]), jnp.asarray([0.7, 0.3])
    shares = jnp.exp(log_likelihood(network, own, log_partition(network))) * area
    phases = Phases(network.hidden_activation(v), own, network.hidden_activation(own), shares)

    @jax.grad
    def slope(parameters):
        one = with_parameters(network, parameters)
        return -weights @ log_likelihood(one, v, log_partition(one))

    found = with_precisions(network, phase_gradient(v, weights, phases), v, weights, phases)
    expected = slope(boltzmann_parameters(network))
    for name in found._fields:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-7, atol=1e-9, err_msg=name)
    if enhanced:  # the enhanced gradient leaves the precisions' alone
        criterion = ContrastiveDivergence(enhanced=True, penalties=())
        plain = dataclasses.replace(criterion, enhanced=False)
        one, other = (gradient_of(each, network, batch_of(v), jax.random.key(0))[2] for each in (criterion, plain))
        np.testing.assert_allclose(one.visible.log_precision, other.visible.log_precision, rtol=1e-12)
        assert np.abs(np.asarray(one.weight) - np.asarray(other.weight)).max() > 1e-3


def test_the_criterions_gradient_is_that_of_the_free_energies_of_its_phases(wide):
    """Of inputs and of inputs with a class: the derivative of mean F(v) - mean F(v') in every parameter."""
    joint = LabelledVisible(machine(3).visible, 2)
    draw = np.random.default_rng(1)
    arrays = (draw.normal(size=shape) for shape in ((3, 5), 3, 5))
    labelled = RbmNetwork(*(jnp.asarray(each) for each in arrays), joint)
    for network, size in ((machine(4), 4), (labelled, 5)):
        v = jnp.asarray(draw.normal(size=(6, size)))
        batch, criterion = batch_of(v), ContrastiveDivergence(penalties=())
        _, _, found = gradient_of(criterion, network, batch, jax.random.key(3))
        _, phases, _ = criterion.estimate(network, v, batch, key=jax.random.key(3))

        def gap(one, phases=phases, v=v):
            energy = jax.vmap(one.free_energy)
            return jnp.mean(energy(v)) - phases.weights @ energy(phases.own)

        expected = eqx.filter_grad(gap)(network)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("criterion", [ContrastiveDivergence(), FastPersistentDivergence()], ids=["cd", "fpcd"])
def test_every_divergence_moves_them(criterion):
    network = machine(3)
    v = jnp.asarray(np.random.default_rng(4).normal(size=(8, 3)), jnp.float32)
    memory = criterion.begin(network, v, key=jax.random.key(0))
    _, terms, gradient = gradient_of(criterion, network, batch_of(v, memory), jax.random.key(1))
    assert np.abs(np.asarray(gradient.visible.log_precision)).min() > 0
    if terms["memory"] is not None:
        assert np.all(np.asarray(terms["memory"][1].log_precision) == 0)
        assert np.abs(np.asarray(terms["memory"][1].weight)).max() > 0
    assert BinaryVisible().log_precisions is None
