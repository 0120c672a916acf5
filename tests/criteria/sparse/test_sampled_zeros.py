"""Sampled reconstruction (row G3): the dense loss is the oracle, in the mean over all samples, and term by term."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from gradwise.criteria.code_sparsity import KlToTarget
from gradwise.criteria.contraction import Contraction
from gradwise.criteria.corruption import Clean, GaussianNoise, Masking
from gradwise.criteria.penalties import L2
from gradwise.criteria.reconstruction import CrossEntropy, Reconstruction, SquaredError, SquaredSigmoid
from gradwise.criteria.sparse import sampled_zeros
from gradwise.criteria.sparse.sampled_zeros import (
    EveryZero,
    SampledZeros,
    drawn,
    lottery,
    sampled_losses,
    scored_columns,
)
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.specs.contracts import Batch
from gradwise.specs.sparse.rows import SparseRows

WIDTH = 9


def a_matrix() -> csr_matrix:
    """Rows of 0 to 9 non-zeros: the first is empty, the second full, column 4 is frequent."""
    draw = np.random.default_rng(0)
    dense = np.where(draw.random((6, WIDTH)) < 0.25, draw.uniform(0.2, 1.0, (6, WIDTH)), 0.0)
    dense[2:, 4], dense[0], dense[1] = 1.0, 0.0, 0.5
    return csr_matrix(dense.astype(np.float32))


ROWS = jax.device_put(SparseRows.of(a_matrix()))
DENSE = jnp.asarray(a_matrix().toarray())


def a_network(*, tied: bool = True, widths: tuple[int, ...] = (3,)) -> Any:
    model = MlpAutoEncoder(widths=widths, tied=tied, turned=True)
    built = model.build((WIDTH,), 0, key=jr.key(1))
    return jax.tree.map(lambda leaf: 1.5 * leaf + 0.1 if eqx.is_inexact_array(leaf) else leaf, built)


def a_batch(inputs: Any, memory: Any = None) -> Batch:
    weights = jnp.asarray([1.0, 1.0, 2.0, 0.5, 1.0, 0.0])
    return Batch(inputs, jnp.zeros((6, 0)), weights, (weights > 0).astype(jnp.float32), jnp.asarray(50.0), None, memory)


def every_draw(shares: Any, count: int) -> tuple[Any, Any, Any]:
    """Columns and weights of each outcome, and its probability: between breaks of tickets the same are drawn."""
    tickets = sampled_zeros._tickets(count)
    breaks = np.unique(np.concatenate([[0], np.asarray(shares, np.int64) % tickets]))
    outcomes = jax.vmap(lambda first: drawn(shares, count, first))(jnp.asarray(breaks))
    return *outcomes, np.diff(np.append(breaks, tickets)) / tickets


@pytest.mark.parametrize("count", [1, 3, 8])
def test_each_column_is_drawn_as_often_as_its_weight_says(count: int) -> None:
    weights = jnp.asarray([1.0, 1.0, 8.0, 1.5, 1.0, 1.0, 2.0, 1.0, 1.0])
    shares = lottery(weights, count)
    mean, drawn_in_all = np.zeros(WIDTH), 0.0
    for columns, inverse, chance in zip(*map(np.asarray, every_draw(shares, count)), strict=True):
        there = columns[columns < WIDTH]
        assert len(set(there)) == len(there), "no column twice"
        np.add.at(mean, there, chance * inverse[columns < WIDTH])
        drawn_in_all += chance * len(there)
    np.testing.assert_allclose(mean, 1.0, rtol=1e-5)
    np.testing.assert_allclose(drawn_in_all, count, rtol=1e-3)
    own = np.diff(np.asarray(shares), prepend=0) / sampled_zeros._tickets(count)
    free = own < 1.0
    np.testing.assert_allclose(own[free] / own[free][0], weights[free] / weights[free][0], rtol=1e-3)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError(), SquaredSigmoid()], ids=lambda one: type(one).__name__)
def test_loss_and_gradient_are_unbiased_by_enumeration(loss: Any, tied: bool) -> None:
    """Over every sample of zeros; the rows without non-zeros and without zeros are among them."""
    network = a_network(tied=tied)
    columns, weights, chances = every_draw(SampledZeros(2).shares(ROWS), 2)
    assert len(chances) > 3

    def mean(network: Any) -> Any:
        def one(columns: Any, weights: Any) -> Any:
            return sampled_losses(loss.elements, network, jax.vmap(network)(ROWS), ROWS, columns, weights)

        losses = jnp.asarray(chances, jnp.float32) @ jax.vmap(one)(columns, weights)
        return jnp.sum(jnp.arange(1.0, 7.0) * losses), losses

    def dense(network: Any) -> Any:
        outputs = jax.vmap(lambda x: network.decode(network(x)))(DENSE)
        losses = jnp.sum(jax.vmap(loss.elements)(outputs, DENSE), axis=1)
        return jnp.sum(jnp.arange(1.0, 7.0) * losses), losses

    found, expected = (eqx.filter_jit(eqx.filter_value_and_grad(each, has_aux=True))(network) for each in (mean, dense))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("widths", [(3,), (4, 3)])
@pytest.mark.parametrize("tied", [True, False])
def test_with_all_zeros_it_equals_the_dense_criterion(widths: tuple[int, ...], tied: bool) -> None:
    """Value, gradient and scores, penalties included; the dense network has its table the other way round."""
    criterion = Reconstruction(on_codes=(KlToTarget(0.3),), penalties=(L2(0.1),), zeros=SampledZeros(WIDTH))
    network = a_network(tied=tied, widths=widths)
    first = network.encoder[0]
    plain = dataclasses.replace(
        network, encoder=(dataclasses.replace(first, weight=first.weight.T, turned=False), *network.encoder[1:])
    )
    assert network.takes_sparse
    assert not plain.takes_sparse
    np.testing.assert_array_equal(network.filters, plain.filters)

    def slope(network: Any, inputs: Any) -> Any:
        return eqx.filter_jit(
            eqx.filter_value_and_grad(lambda n: criterion(n, a_batch(inputs), key=jr.key(2)), has_aux=True)
        )(network)

    (value, terms), steep = slope(network, ROWS)
    (wanted, other), expected = slope(plain, DENSE)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    np.testing.assert_allclose(terms["loss"], other["loss"], rtol=1e-5)
    expected = eqx.tree_at(lambda n: n.encoder[0].weight, expected, expected.encoder[0].weight.T)
    for one, two in zip(jax.tree.leaves(steep), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    clean = dataclasses.replace(criterion, judged_by=Clean())
    found, asked = clean.measures(network, ROWS), clean.measures(plain, DENSE)
    for name in asked:
        np.testing.assert_allclose(found[name], asked[name], rtol=1e-5)


def test_masking_acts_on_the_non_zeros_alone_and_the_target_stays_clean() -> None:
    """The loss of spoilt rows, by hand: codes of what the mask left, all terms of the clean rows."""
    criterion = Reconstruction(corruption=Masking(0.5), zeros=SampledZeros(WIDTH))
    network = a_network()
    _, terms = criterion(network, a_batch(ROWS), key=jr.key(2))
    corrupt, _ = jr.split(jr.split(jr.key(2), 3)[0])
    values, touched = Masking(0.5)(jnp.asarray(ROWS.values), key=corrupt)
    assert 0.2 < float(jnp.mean(touched)) < 0.8
    given = dataclasses.replace(ROWS, values=values).dense()
    outputs = jax.vmap(lambda x: network.decode(network(x)))(given)
    np.testing.assert_allclose(
        terms["loss"], jnp.sum(jax.vmap(CrossEntropy().elements)(outputs, DENSE), axis=1), rtol=1e-5
    )


def test_scores_of_very_wide_rows_are_those_of_a_fixed_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_zeros, "_SCORED", 5)
    columns, weights = scored_columns(WIDTH)
    np.testing.assert_array_equal(columns, scored_columns(WIDTH)[0])
    criterion, network = Reconstruction(judged_by=Clean()), a_network()
    found = criterion.measures(network, ROWS)["denoising_error"]
    outputs = jax.vmap(lambda x: network.decode(network(x)))(DENSE)
    elements = np.asarray(jax.vmap(CrossEntropy().elements)(outputs, DENSE))
    counted = np.where(DENSE != 0, 1.0, 0.0)
    counted[:, columns] += np.where(DENSE[:, columns] == 0, weights, 0.0)
    np.testing.assert_allclose(found, (counted * elements).sum(1), rtol=1e-5)


def test_rows_are_sparse_only_where_every_term_reads_them_so() -> None:
    assert Reconstruction(corruption=Masking(0.1), on_codes=(KlToTarget(0.1), Contraction(0.0))).takes_sparse()
    for criterion in (
        Reconstruction(zeros=EveryZero()),
        Reconstruction(corruption=GaussianNoise(0.1)),
        Reconstruction(judged_by=GaussianNoise(0.1)),
        Reconstruction(on_codes=(Contraction(0.1),)),
        Reconstruction(corruption=Masking(0.1), on_clean=0.5),
        Reconstruction(penalties=(KlToTarget(0.1, where="*"),)),
    ):
        assert not criterion.takes_sparse()
