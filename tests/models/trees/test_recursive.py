"""Recursive networks (row G11) against plain recursion in NumPy, whatever the shapes of the trees."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise as gw
from gradwise.curvature.objective import Examples
from gradwise.models.recurrence.cells import Gru, Lstm, SimpleCell
from gradwise.models.recurrence.recurrent import Recurrent
from gradwise.models.trees.cells import SimpleTreeCell, TreeGru, TreeLstm
from gradwise.models.trees.recursive import Recursive
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import InputLayout
from gradwise.specs.trees.container import LEFT, RIGHT, SYMBOL, Trees
from gradwise.training.interval import interval
from gradwise.training.population import Population, enter
from gradwise.training.state import init

SYMBOLS = ("a", "b", "c")
CELLS = (SimpleTreeCell(), TreeGru(), TreeLstm())


def random_tree(draw: np.random.Generator, leaves: int) -> Any:
    """Nested tuples of so many leaves, with one-child nodes here and there."""
    if leaves == 1:
        return str(draw.choice(SYMBOLS))
    split = int(draw.integers(1, leaves))
    pair = random_tree(draw, split), random_tree(draw, leaves - split)
    whole = pair if draw.random() < 0.5 else (str(draw.choice(SYMBOLS)), *pair)
    return (str(draw.choice(SYMBOLS)), whole, None) if draw.random() < 0.2 else whole


def forest(count: int = 6, seed: int = 0, most: int = 9) -> Trees:
    draw = np.random.default_rng(seed)
    return Trees.from_list([random_tree(draw, int(draw.integers(1, most))) for _ in range(count)], SYMBOLS)


def network_of(cell: Any, channels: int = 3, **given: Any) -> Any:
    model = Recursive(cell=cell, units=4, width=3, dropout=0.0, **given).for_inputs(InputLayout(0, 0, (len(SYMBOLS),)))
    network = model.build((1, channels), 2, key=jr.key(0))
    biases = 0.3 * jr.normal(jr.key(1), network.bias.shape)
    return eqx.tree_at(lambda one: one.bias, network, network.bias + biases)


def sigmoid(a: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-a))


def by_recursion(network: Any, rows: np.ndarray, place: int) -> tuple[np.ndarray, np.ndarray]:
    """h and m of a node of a tree, in 64 bits, by the equations and nothing else."""
    one = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), eqx.filter(network, eqx.is_array))
    units, row = network.bias.shape[1], rows[place]
    x = np.zeros(one.symbols.shape[1]) if row[SYMBOL] < 0 else one.symbols[int(row[SYMBOL])]
    is_leaf = row[LEFT] < 0 and row[RIGHT] < 0
    x = np.concatenate([x, row[3:] if is_leaf else np.zeros(len(row) - 3)])
    a = (one.weights.input @ x).reshape(-1, units) + one.bias
    pairs = [(one.weights.left, int(row[LEFT])), (one.weights.right, int(row[RIGHT]))]
    found = [(w, *by_recursion(network, rows, child)) for w, child in pairs if child >= 0]
    absent = [(w, np.zeros(units), np.zeros(units)) for w, child in pairs[len(found) :]]
    (c_l, h_l, m_l), (c_r, h_r, m_r) = (((w @ h).reshape(-1, units), h, m) for w, h, m in (*found, *absent))
    if isinstance(network.cell, SimpleTreeCell):
        return np.tanh(a + c_l + c_r)[0], np.zeros(units)
    if isinstance(network.cell, TreeGru):
        keep = sigmoid(a[1] + c_l[1] + c_r[1])
        new = np.tanh(a[2] + sigmoid(a[0] + c_l[0]) * c_l[2] + sigmoid(a[0] + c_r[0]) * c_r[2])
        return (1 - keep) * new + keep * (h_l + h_r) / max(1, len(found)), np.zeros(units)
    gates = a + c_l + c_r
    enter, left, right, leave = sigmoid(gates[:4])
    memory = enter * np.tanh(gates[4]) + left * m_l + right * m_r
    return leave * np.tanh(memory), memory


def output_by_recursion(network: Any, rows: np.ndarray) -> np.ndarray:
    root, _ = by_recursion(network, rows, len(rows) - 1)
    return np.asarray(network.output.weight, np.float64) @ root + np.asarray(network.output.bias)


@pytest.fixture(scope="module")
def run() -> Any:
    return eqx.filter_jit(lambda network, rows: jax.vmap(network)(rows))


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: type(cell).__name__)
def test_the_network_is_plain_recursion(cell: Any, run: Any) -> None:
    network, trees = network_of(cell), forest(8)
    found = run(network, jnp.asarray(np.asarray(trees, np.float32)))
    expected = [output_by_recursion(network, trees[number]) for number in range(len(trees))]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_leaves_may_be_vectors(run: Any) -> None:
    draw = np.random.default_rng(0)
    one, two, three = draw.normal(size=(3, 2)).astype(np.float32)
    trees = Trees.from_list([(one, two), ("b", (one, two), three), ((three, "a"), two)], SYMBOLS)
    network = network_of(TreeLstm(), channels=5)
    found = run(network, jnp.asarray(np.asarray(trees)))
    np.testing.assert_allclose(found, [output_by_recursion(network, trees[number]) for number in range(3)], atol=2e-6)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: type(cell).__name__)
def test_gradients_agree_with_finite_differences_of_the_recursion_in_64_bits(cell: Any) -> None:
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), eqx.filter(network_of(cell), eqx.is_array))
        network = eqx.combine(wide, network_of(cell))
        trees = forest(2, seed=3, most=6)
        rows = jnp.asarray(np.asarray(trees, np.float64))
        _, slope = eqx.filter_jit(eqx.filter_value_and_grad(lambda n: jnp.sum(jax.vmap(n)(rows) ** 2)))(network)

        def value(one: Any) -> float:
            return float(sum((output_by_recursion(one, trees[number]) ** 2).sum() for number in range(2)))

        leaves, form = jax.tree.flatten(eqx.filter(network, eqx.is_array))
        rest = eqx.filter(network, eqx.is_array, inverse=True)
        draw = np.random.default_rng(0)
        for number, told in enumerate(jax.tree.leaves(eqx.filter(slope, eqx.is_array))):
            way = draw.normal(size=told.shape)

            def moved(step: float, number: int = number, way: np.ndarray = way) -> float:
                several = [leaf + step * way if n == number else leaf for n, leaf in enumerate(leaves)]
                return value(eqx.combine(jax.tree.unflatten(form, several), rest))

            rise = (moved(1e-5) - moved(-1e-5)) / 2e-5
            assert float(np.sum(np.asarray(told) * way)) == pytest.approx(rise, rel=1e-6, abs=1e-9)


def test_neither_room_nor_company_changes_a_prediction_or_a_gradient(run: Any) -> None:
    """What lies beyond the end is NaN: if it were read, all would be."""
    network, trees = network_of(TreeLstm()), forest(4, seed=1)

    def slopes(rows: Any) -> Any:
        return eqx.filter_jit(eqx.filter_grad(lambda n: jnp.sum(jax.vmap(n)(rows)[0])))(network)

    rows = jnp.asarray(np.asarray(trees, np.float32))
    roomy = jnp.asarray(np.asarray(trees.with_longest(40), np.float32))
    assert np.isnan(roomy[:, -1]).all()
    together = run(network, rows)
    np.testing.assert_array_equal(run(network, roomy), together)
    for number in range(len(trees)):
        np.testing.assert_allclose(run(network, rows[number : number + 1])[0], together[number], atol=1e-6)
    for one, other in zip(jax.tree.leaves(slopes(rows)), jax.tree.leaves(slopes(roomy[:1])), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("cell", "gates", "chain"),
    [(SimpleTreeCell(), [0], SimpleCell()), (TreeGru(), [0, 1, 2], Gru()), (TreeLstm(), [0, 1, 3, 4], Lstm())],
    ids=["simple", "gru", "lstm"],
)
def test_a_chain_is_what_a_recurrent_network_does(cell: Any, gates: list[int], chain: Any, run: Any) -> None:
    """Nodes with one child each: the recurrence over their symbols from the leaf to the root."""
    word = "cabbac"
    tree: Any = word[0]
    for symbol in word[1:]:
        tree = (symbol, tree, None)
    network = network_of(cell)
    recurrent = Recurrent(cell=chain, units=(4,), dropout=0.0).build((len(word), 3), 2, key=jr.key(0))
    picked = np.concatenate([np.arange(4) + 4 * gate for gate in gates])
    direction = recurrent.layers[0].directions[0]
    same = eqx.tree_at(
        lambda one: (one.weights.input, one.weights.recurrent, one.bias),
        direction,
        (network.weights.input[picked], network.weights.left[picked], network.bias[np.array(gates)]),
    )
    recurrent = eqx.tree_at(lambda one: (one.layers[0].directions[0], one.output), recurrent, (same, network.output))
    steps = network.symbols[np.array([SYMBOLS.index(symbol) for symbol in word])]
    found = run(network, jnp.asarray(np.asarray(Trees.from_list([tree], SYMBOLS), np.float32)))[0]
    np.testing.assert_allclose(found, recurrent(steps), atol=1e-6)


def test_the_shape_of_a_tree_counts(run: Any) -> None:
    """The same leaves in the same order, balanced and one after the other."""
    trees = Trees.from_list([(("a", "b"), ("c", "a")), ((("a", "b"), "c"), "a")], SYMBOLS)
    balanced, leaning = run(network_of(TreeLstm()), jnp.asarray(np.asarray(trees)))
    assert np.abs(balanced - leaning).max() > 1e-3


@pytest.mark.slow
def test_a_population_trains_as_each_network_would_alone() -> None:
    trees = forest(8, seed=2)
    rows = jnp.asarray(np.asarray(trees, np.float32))
    examples = Examples(rows, jnp.asarray(np.arange(8) % 2))

    def recipe(rate: float) -> Any:
        return gw.defaults.classification(
            batches=gw.Fixed(4),
            model=Recursive(units=3, width=2, symbols=3, dropout=0.2),
            criterion=gw.Supervised(gw.SoftmaxLoss(), penalties=()),
            optimiser=gw.Adam(rate),
            stopping=gw.Off(epochs=4, spacing=1.0, least_examples=16),
        )

    rates, alone = (0.03, 0.001), []
    for rate in rates:
        problem, state = init(recipe(rate), examples, examples, outputs=2, key=keys.from_seed(1))
        values = []
        for _ in range(2):
            state, row = interval(problem, state, 4)
            values.append(float(row.valid_loss))
        alone.append(values)
    entries = [enter(recipe(rate), examples, examples, outputs=2, key=keys.from_seed(1)) for rate in rates]
    population = Population(*entries[0], examples, examples, slots=2)
    for slot, entry in enumerate(entries):
        population.fill(slot, *entry)
    together = np.stack([np.asarray(population.interval().valid_loss) for _ in range(2)], axis=1)
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_other_inputs_are_refused_in_one_line() -> None:
    with pytest.raises(RequestError, match=r"`Recursive` needs trees; got examples of shape \(5,\)"):
        Recursive().build((5,), 2, key=jr.key(0))
