"""The natural gradient, diagonal and of low rank (row H6), against dense covariances in 64 bits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise.defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.optimisers.second_order.natural_gradient import DiagonalNatural, Tonga, by_leaf, incoming, rows_by_unit
from gradwise.runtime.errors import RequestError
from gradwise.specs.knobs import declarations
from gradwise.testing.contracts import check_part
from gradwise.training.interval import advance
from gradwise.training.state import init
from tests import oracles

RNG = np.random.default_rng(0)
T = 20
X = RNG.normal(size=(T, 4)).astype(np.float32)
CLASSES = RNG.integers(0, 3, T)


@pytest.mark.parametrize("spec", [Tonga(rank=2, block=3), Tonga(rank=2, block=3, smoothing=0.3)])
def test_contract(spec) -> None:
    check_part(spec)


def problem(optimiser, inputs=X, targets=CLASSES, outputs=3, **parts):
    recipe = gradwise.defaults.classification(
        **{
            "model": Mlp(widths=(5,), activation=Tanh(), dropout=0.0),
            "criterion": Supervised(SoftmaxLoss(), penalties=()),
            "batches": Reshuffled(size=7),
            "optimiser": optimiser,
            **parts,
        }
    )
    examples = Examples(jnp.asarray(inputs), jnp.asarray(targets))
    return init(recipe, examples, examples, outputs=outputs, classes=outputs, key=jr.key(1))


# --- the diagonal


def by_letter(parameters) -> oracles.Parameters:
    layer, output = parameters.layers[0], parameters.output
    named = {"V": layer.weight, "b": layer.bias, "W": output.weight, "c": output.bias}
    return {name: np.asarray(value, np.float64) for name, value in named.items()}


@eqx.filter_jit
def two_epochs(task, state):
    rows, present, _ = task.recipe.batches.indices(jnp.arange(6), T, key=task.key)
    return advance(task, state, 6)[0], rows, present


def test_the_diagonal_is_the_mean_of_squares_taken_example_by_example() -> None:
    """Two epochs with a short last batch; the reference differentiates each example by hand."""
    task, state = problem(DiagonalNatural(0.05, memory=0.7, damping=0.02))
    here = by_letter(state.parameters)
    state, rows, present = two_epochs(task, state)
    square = dict.fromkeys(here, 0.0)
    for update in range(6):
        batch = np.asarray(rows)[update][np.asarray(present)[update] == 1]
        each = [oracles.net_gradient(here, X[[row]].astype(float), CLASSES[[row]])[1] for row in batch]
        share = max(0.3, 1 / (update + 1))
        for name in here:
            slopes = np.stack([one[name] for one in each])
            square[name] = (1 - share) * square[name] + share * np.mean(slopes**2, 0)
            here[name] = here[name] - 0.05 * (slopes.sum(0) / 7) / (square[name] + 0.02)
    for name, value in here.items():
        np.testing.assert_allclose(by_letter(state.parameters)[name], value, atol=2e-5, err_msg=name)  # measured 1e-7


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"model": Mlp(widths=(5,), normalisation=BatchNorm())}, "DiagonalNatural needs each example's own gradient"),
        ({"criterion": lambda model, batch, key: jnp.mean(batch.inputs)}, "DiagonalNatural needs a loss of each"),
    ],
)
def test_what_has_no_gradient_an_example_is_refused_before_training(parts, line) -> None:
    with pytest.raises(RequestError, match=line):
        problem(DiagonalNatural(), **parts)


# --- the low rank

UPDATES = 23  # with blocks of 4: five computations of the principal axes


def stream(seed=2, units=3, inputs=4):
    """Gradients whose covariance is far from round, with a mean."""
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(units, inputs + 1, inputs + 1)) * np.geomspace(3.0, 0.1, inputs + 1)
    return np.einsum("uij,tuj->tui", mix, rng.normal(size=(UPDATES, units, inputs + 1))) + 0.3


def directions(optimiser, gradients):
    """The moves that the rule answers to these gradients of a layer, unit by unit."""
    like = {"weight": jnp.asarray(gradients[0, :, :-1]), "bias": jnp.asarray(gradients[0, :, -1])}
    rule = optimiser.build()

    def body(state, g):
        moves, state = rule.update({"weight": g[:, :-1], "bias": g[:, -1]}, state, like, value=jnp.zeros(()))
        return state, jnp.concatenate([moves["weight"], moves["bias"][:, None]], 1)

    return np.asarray(jax.jit(lambda g: jax.lax.scan(body, rule.init(like), g)[1])(jnp.asarray(gradients)))


def reference(gradients, *, discount, damping, rank, block, smoothing=1.0):
    """The same with whole matrices: discounted at every update, cut to its largest eigenvalues after each block."""
    found = np.zeros_like(gradients)
    for unit in range(gradients.shape[1]):
        size = gradients.shape[2]
        covariance, weight, mean = np.zeros((size, size)), 0.0, np.zeros(size)
        for update, g in enumerate(gradients[:, unit]):
            if update and update % block == 0:
                values, vectors = np.linalg.eigh(covariance)
                values[: max(0, size - rank)] = 0.0
                covariance = vectors * values @ vectors.T
            covariance, weight = discount * covariance + np.outer(g, g), discount * weight + 1.0
            mean = (1 - smoothing) * mean + smoothing * g
            found[update, unit] = -np.linalg.solve(covariance / weight + damping * np.eye(size), mean)
    return found


@pytest.mark.parametrize(("rank", "smoothing"), [(5, 1.0), (7, 1.0), (5, 0.25), (2, 1.0), (2, 0.25)])
def test_tonga_is_the_dense_solve_with_the_discounted_covariance(rank, smoothing) -> None:
    """Exact at full rank (5 parameters a unit), and the cut matrix's own solve below it, also for a mean gradient
    outside the span (Woodbury). The discount is strong so that a discount a block, or none, would not pass."""
    with jax.enable_x64(True):
        found = directions(Tonga(1.0, rank=rank, block=4, discount=0.8, damping=0.01, smoothing=smoothing), stream())
    exact = reference(stream(), discount=0.8, damping=0.01, rank=rank, block=4, smoothing=smoothing)
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-9)  # measured 1e-10
    other = reference(stream(), discount=0.8, damping=0.01, rank=5 if rank == 2 else 2, block=4, smoothing=smoothing)
    assert np.abs(found - other).max() > 0.1  # the rank matters


def test_32_bits_and_little_damping_stay_finite_and_close() -> None:
    """Damped by less than a ten-thousandth of the largest eigenvalue, then by nothing but what 32 bits resolve."""
    found = directions(Tonga(1.0, rank=5, block=4, discount=0.9, damping=1e-3), stream().astype(np.float32))
    exact = reference(stream(), discount=0.9, damping=1e-3, rank=5, block=4)
    assert np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)  # measured 0.008
    assert np.all(np.isfinite(directions(Tonga(1.0, damping=1e-30), 1e3 * stream().astype(np.float32))))


def test_units_without_a_gradient_do_not_move() -> None:
    gradients = stream().astype(np.float32)
    gradients[:, 1] = 0.0
    found = directions(Tonga(1.0, rank=2, block=4), gradients)
    np.testing.assert_array_equal(found[:, 1], 0.0)
    assert np.all(np.abs(found[:, 0]).max(1) > 0)


def test_layers_of_any_model_are_told_by_path() -> None:
    """Equinox's own (weight, bias), a weight whose units are columns, a convolution, and what is left over."""
    tree = {
        "conv": {"weight": jnp.arange(24.0).reshape(2, 3, 2, 2), "bias": jnp.arange(2.0).reshape(2, 1, 1)},
        "gain": jnp.arange(3.0),
        "linear": eqx.nn.Linear(3, 2, key=jr.key(0)),
        "turned": {"weight": jnp.arange(6.0).reshape(3, 2), "bias": jnp.arange(2.0)},
        "other": {"weight": jnp.ones((2, 2)), "bias": jnp.ones(5)},
    }
    tree = eqx.filter(tree, eqx.is_inexact_array)
    layers = incoming(tree)
    rows = rows_by_unit(layers, tree)
    assert sorted(matrix.shape for matrix in rows) == sorted([(2, 13), (2, 4), (2, 4), (2, 2), (1, 5), (1, 3)])
    conv = next(matrix for matrix in rows if matrix.shape == (2, 13))
    np.testing.assert_array_equal(conv[1], [*range(12, 24), 1.0])
    turned = next(matrix for matrix in rows if matrix.shape == (2, 4) and matrix[0, 1] == 2.0)
    np.testing.assert_array_equal(turned, [[0.0, 2.0, 4.0, 0.0], [1.0, 3.0, 5.0, 1.0]])
    assert eqx.tree_equal(by_leaf(layers, rows, jax.tree.map(jnp.zeros_like, tree)), tree)


def test_rank_and_block_shape_the_program_and_the_rest_does_not() -> None:
    assert [name for name, declared in declarations(Tonga) if declared.static] == ["rank", "block"]


# --- both on real digits


@pytest.mark.parametrize("optimiser", [DiagonalNatural(), Tonga()])
def test_digits_are_learned_with_the_default_knobs_in_two_epochs(optimiser) -> None:
    """88 updates of 32, on a network that is Equinox's own: the second epoch's training loss was measured as 0.10."""
    from sklearn.datasets import load_digits

    inputs, targets = load_digits(return_X_y=True)
    inputs = ((inputs - inputs.mean(0)) / (inputs.std(0) + 1e-3)).astype(np.float32)[:1400]
    task, state = problem(
        optimiser,
        inputs,
        targets[:1400],
        outputs=10,
        model=eqx.nn.MLP(64, 10, 64, 1, activation=jnp.tanh, key=jr.key(0)),
        batches=Reshuffled(size=32),
    )
    run = eqx.filter_jit(lambda state: advance(task, state, 44))
    state, _ = run(state)
    state, told = run(state)
    assert float(told["train_loss"]) < 0.2
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(state.parameters))
