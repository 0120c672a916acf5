"""The rows that a mini-batch reads: NumPy's `unique` is the oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.models.auto_encoder import AutoEncoderNetwork, MlpAutoEncoder
from gradwise.models.mlp import Mlp
from gradwise.specs.dataset import InputLayout
from gradwise.specs.sparse.touched import TouchedRows

WIDTH = 12


@pytest.mark.parametrize("occurring", [[[3, 3, 12], [0, 11, 3]], [[12, 12, 12]], [[5, 4, 3, 2, 1, 0] * 4]])
def test_each_column_has_one_place(occurring: list[list[int]]) -> None:
    given = [jnp.asarray(each, jnp.int32) for each in occurring]
    found = jax.jit(lambda *each: TouchedRows.of(each, WIDTH))(*given)
    every = np.concatenate(occurring)
    wanted = np.unique(every[every < WIDTH])
    columns = np.asarray(found.columns)
    np.testing.assert_array_equal(np.sort(columns[columns < WIDTH]), wanted)
    assert len(columns) == min(len(every), WIDTH)
    places = np.asarray(found.place_of(jnp.asarray(every)))
    np.testing.assert_array_equal(columns[places[every < WIDTH]], every[every < WIDTH])
    np.testing.assert_array_equal(places[every == WIDTH], len(columns))


@pytest.mark.parametrize("tied", [True, False])
def test_tables_are_narrowed_and_widened_wherever_they_stand(tied: bool) -> None:
    network = MlpAutoEncoder(widths=(3, 2), tied=tied, turned=True).build((WIDTH,), 0, key=jax.random.key(0))
    touched = TouchedRows.of((jnp.asarray([7, 2, 12, 7], jnp.int32),), WIDTH)
    tree = {"memory": network, "count": jnp.ones(())}
    few = touched.narrow(tree, AutoEncoderNetwork)
    assert [table.shape[0] for table in few["memory"].column_tables] == [4] * (2 if tied else 3)
    assert few["memory"].encoder[1].weight is network.encoder[1].weight
    after = jax.tree.map(lambda leaf: leaf + 1.0 if hasattr(leaf, "shape") else leaf, few)
    whole = touched.widen(tree, after, AutoEncoderNetwork)
    np.testing.assert_array_equal(whole["memory"].encoder[1].weight, network.encoder[1].weight + 1.0)
    assert float(whole["count"]) == 2.0
    for new, old in zip(whole["memory"].column_tables, network.column_tables, strict=True):
        moved = np.isin(np.arange(WIDTH), [2, 7])
        np.testing.assert_array_equal(new[moved], old[moved] + 1.0)
        np.testing.assert_array_equal(new[~moved], old[~moved])


def test_a_network_that_reads_whole_inputs_has_no_tables() -> None:
    sparse = InputLayout(WIDTH, sparse=True)

    def tables(model: Mlp, layout: InputLayout) -> int:
        return len(model.for_inputs(layout).build((WIDTH,), 2, key=jax.random.key(0)).column_tables)

    assert tables(Mlp(widths=(3,)), sparse) == tables(Mlp(widths=()), sparse) == 1
    assert tables(Mlp(widths=(3,)), InputLayout(WIDTH)) == 0
    assert tables(Mlp(widths=(WIDTH,), residual=True), sparse) == 0
