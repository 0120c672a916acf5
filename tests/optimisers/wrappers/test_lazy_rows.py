"""Updates that see only the rows a mini-batch reads (row G2): updates of whole tables are the oracle."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from gradwise import defaults
from gradwise.criteria.corruption import Masking
from gradwise.criteria.penalties import L2
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.criteria.sparse.sampled_zeros import SampledZeros
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adagrad, Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.lazy_rows import LazyRows
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import InputLayout
from gradwise.specs.sparse.rows import SparseRows
from gradwise.training import update
from gradwise.training.state import init
from gradwise.training.update import gather_batch, rows_read, step

WIDTH, ROWS, BATCH = 60, 24, 4


def examples(seen: int) -> Examples:
    """Rows of three ones among the first `seen` columns."""
    draw = np.random.default_rng(0)
    columns = np.stack([draw.choice(seen, 3, replace=False) for _ in range(ROWS)])
    matrix = csr_matrix((np.ones(3 * ROWS), (np.repeat(np.arange(ROWS), 3), columns.ravel())), (ROWS, WIDTH))
    classes = jnp.asarray((columns.sum(1) > columns.sum(1).mean()).astype(np.int32))
    return Examples(jax.device_put(SparseRows.of(matrix)), classes, None, InputLayout(WIDTH, sparse=True))


def run(criterion: Any, optimiser: Any, *, seen: int = WIDTH, updates: int = 8, tied: bool = True) -> Any:
    """The network after a few updates, and whether they were lazy."""
    features = criterion.learns_from == "inputs"
    model = MlpAutoEncoder(widths=(4,), tied=tied) if features else Mlp(widths=(4,), dropout=0.2)
    given = defaults.classification(model=model, criterion=criterion, optimiser=optimiser, batches=Reshuffled(BATCH))
    data = examples(seen)
    problem, state = init(given, data, data, outputs=0 if features else 2, key=jax.random.key(1))
    numbers = jnp.arange(updates, dtype=jnp.int32)
    rows, present, _ = problem.recipe.batches.indices(numbers, ROWS, key=problem.key)
    lazy = []

    @eqx.filter_jit
    def one(state: Any, rows: Any, present: Any) -> Any:
        batch = gather_batch(problem, rows, present)
        whole = problem.objective(dataclasses.replace(batch, memory=state.memory), state.update)
        lazy.append(rows_read(problem, whole, state) is not None)
        return step(problem, state, batch)[0]

    for number in range(updates):
        state = one(state, rows[number], present[number])
    return state.parameters, lazy[0]


def sampled(**parts: Any) -> Any:
    return Reconstruction(corruption=Masking(0.3), zeros=SampledZeros(6), **parts)


SUPERVISED = defaults.classification().criterion


@pytest.mark.parametrize(
    ("criterion", "optimiser", "tied"),
    [
        pytest.param(sampled(), Sgd(0.3), True, id="sampled-sgd"),
        pytest.param(sampled(), Adagrad(0.1), False, id="sampled-adagrad-untied"),
        pytest.param(SUPERVISED, Adagrad(0.1), True, id="supervised-adagrad"),
    ],
)
def test_it_is_the_update_of_whole_tables_where_zeros_move_nothing(
    criterion: Any, optimiser: Any, tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, lazy = run(criterion, optimiser, tied=tied)
    monkeypatch.setattr(update, "rows_read", lambda *_: None)
    monkeypatch.setitem(globals(), "rows_read", lambda *_: None)
    theirs, whole = run(criterion, optimiser, tied=tied)
    assert lazy
    assert not whole
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_what_is_not_read_stays_and_what_is_read_moves_as_alone() -> None:
    """Three columns that are in every row: Adam moves them as it does with the whole table, and no others."""
    lazily, lazy = run(SUPERVISED, LazyRows(Adam(0.01)), seen=3)
    wholly, whole = run(SUPERVISED, Adam(0.01), seen=3)
    begun, _ = run(SUPERVISED, Adam(0.01), seen=3, updates=1)
    assert lazy
    assert not whole
    for one, other in zip(jax.tree.leaves(lazily), jax.tree.leaves(wholly), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(lazily.layers[0].weight[3:], begun.layers[0].weight[3:])


def test_momentum_goes_on_in_whole_tables_alone() -> None:
    """A column that only the first row holds: heavy ball moves it ever after, lazily only when it is read."""
    lazily, _ = run(SUPERVISED, LazyRows(HeavyBall(0.1)))
    wholly, _ = run(SUPERVISED, HeavyBall(0.1))
    assert float(jnp.abs(lazily.layers[0].weight - wholly.layers[0].weight).max()) > 1e-4


def test_what_moves_every_row_is_not_lazy() -> None:
    for criterion, optimiser in (
        (SUPERVISED, Adam(0.01)),
        (SUPERVISED, Sgd(0.1, smoothing=0.5)),
        (Supervised(SUPERVISED.loss, penalties=(L2(0.1),)), Sgd(0.1)),
        (sampled(penalties=(L2(0.1),)), Sgd(0.1)),
        (Reconstruction(zeros=SampledZeros(50)), Sgd(0.1)),
    ):
        assert not run(criterion, optimiser, updates=1)[1]


def test_an_optimiser_of_all_parameters_together_is_refused() -> None:
    with pytest.raises(RequestError, match="moves each weight by itself; MovingAverage does not"):
        LazyRows(MovingAverage(Adam()))
