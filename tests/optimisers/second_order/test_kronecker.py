"""The Kronecker-factored natural gradient (row H6) against dense Gauss-Newton matrices in 64 bits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import gradwise
import gradwise.defaults
from gradwise.criteria.losses import GaussianLoss, SigmoidLoss, SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.curvature.products import gauss_newton_map
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Sigmoid as Logistic
from gradwise.models.activations import Tanh
from gradwise.models.mlp import BatchNorm, LayerNorm, Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.second_order import kronecker
from gradwise.optimisers.second_order.kronecker import Kronecker
from gradwise.optimisers.second_order.natural_gradient import DiagonalNatural, Tonga
from gradwise.runtime.errors import RequestError
from gradwise.specs.paths import trainable
from gradwise.testing.contracts import check_part
from gradwise.training.interval import advance
from gradwise.training.state import init
from gradwise.training.stopping import Off

RNG = np.random.default_rng(0)
B, IN, OUT = 12, 3, 2
X = RNG.normal(size=(B, IN))
Y = RNG.normal(size=(B, OUT))
CLASSES = RNG.integers(0, OUT, B)
PLAIN = {"momentum": 0.0, "clip": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize("spec", [Kronecker(curvature="exact", momentum=0.0, clip=0.0, damping=0.3)])
def test_contract(spec) -> None:
    check_part(spec)


def objective(rest, loss, targets, update=0, weights=None) -> Objective:
    weights = None if weights is None else jnp.asarray(weights)
    train = Examples(jnp.asarray(X), jnp.asarray(targets), weights)
    batch = gather(train, jnp.arange(B), jnp.ones(B))
    return Objective(Supervised(loss, penalties=()), Fixed(B), rest, train, jr.key(0), jnp.asarray(update), batch)


def linear():
    """One linear layer, in the precision of the time."""
    return trainable(eqx.nn.Linear(IN, OUT, key=jr.key(1)))


def in_64_bits(model):
    return jax.tree.map(lambda leaf: leaf.astype(np.float64) if eqx.is_inexact_array(leaf) else leaf, model)


def one(optimiser, parameters, state, asked):
    value, gradient = asked.value_and_gradient(parameters)
    return (gradient, *optimiser.build().update(gradient, state, parameters, value=value, objective=asked))


def dense(asked, parameters, loss):
    """The Gauss-Newton matrix of the criterion, a row and a column a parameter."""
    flat, back = ravel_pytree(parameters)
    product = gauss_newton_map(asked.outputs, asked.loss_of, parameters)
    return np.stack([ravel_pytree(product(back(unit)))[0] for unit in jnp.eye(flat.size)])


# --- the factors


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2.0, B)])
def test_exact_factors_of_one_linear_layer_are_its_gauss_newton_matrix(weights) -> None:
    """Squared error: G (x) A with nothing approximated, examples' weights included."""
    with jax.enable_x64(True):
        parameters, rest = linear()
        asked = objective(rest, GaussianLoss(), Y, weights=weights)
        rule = Kronecker(1.0, curvature="exact", **PLAIN)
        _, _, state = one(rule, parameters, rule.build().init(parameters), asked)
        (units, inputs), exact = state.factors[0], dense(asked, parameters, GaussianLoss())
    # The tree has all weights, then all biases; the factors have each unit's weights and its bias.
    order = [number for unit in range(OUT) for number in (*range(unit * IN, unit * IN + IN), OUT * IN + unit)]
    np.testing.assert_allclose(np.kron(units, inputs), exact[np.ix_(order, order)], rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_drawn_slopes_have_the_gauss_newton_matrix_for_their_mean() -> None:
    """A tanh net with softmax outputs: mean over 2000 draws of the examples' d d' (x) x x'; and G's mean is its exact
    one. A fresh draw an example and an update: with a shared one the mean would be another matrix."""
    with jax.enable_x64(True):
        model = Mlp(widths=(3,), activation=Tanh(), dropout=0.0).build((IN,), OUT, key=jr.key(2))
        parameters, rest = trainable(in_64_bits(model))

        asked = objective(rest, SoftmaxLoss(), CLASSES)

        @jax.jit
        def moments(update):
            later = eqx.tree_at(lambda one: one.update, asked, update)
            terms = kronecker._terms(later, parameters, "sampled")
            rows = jax.vmap(lambda tree: ravel_pytree(tree)[0])(terms.written_out())
            layer = kronecker._layers(parameters, 99)[0]
            return rows.T @ rows / B, kronecker._seen(layer, terms, jnp.ones(()))[0], jnp.sum(rows, 0)

        whole, units, sums = jax.lax.map(moments, jnp.arange(2000))
        exact = dense(asked, parameters, SoftmaxLoss())
        terms = kronecker._terms(asked, parameters, "exact")
        exact_units = kronecker._seen(kronecker._layers(parameters, 99)[0], terms, jnp.ones(()))[0]
        sums = np.asarray(sums)
        pairs = [(np.asarray(whole), exact), (np.asarray(units), np.asarray(exact_units))]
    for drawn, true in (*pairs, (sums[:, :, None] * sums[:, None] / B, exact)):
        error = np.abs(drawn.mean(0) - true) / (drawn.std(0) / np.sqrt(2000) + 1e-12)
        assert error.max() < 5.0  # standard errors; measured 3.0, the largest of some 800 numbers


# --- the direction


@pytest.mark.slow
def test_the_direction_is_the_dense_kronecker_solve() -> None:
    """After three updates of a network with two layers, one of them normalised: blocks, gains and all."""
    with jax.enable_x64(True):
        model = Mlp(widths=(4,), activation=Tanh(), dropout=0.0, normalisation=LayerNorm())
        model = model.build((IN,), OUT, key=jr.key(3))
        parameters, rest = trainable(in_64_bits(model))
        rule = Kronecker(0.5, damping=0.04, memory=0.6, every_updates=1.0, **PLAIN)
        state = rule.build().init(parameters)
        before, seen = None, []
        for update in range(3):
            asked = objective(rest, SoftmaxLoss(), CLASSES, update)
            terms = kronecker._terms(asked, parameters, "sampled")
            seen.append([kronecker._seen(layer, terms, jnp.ones(())) for layer in kronecker._layers(parameters, 99)])
            squares = terms.mean_square().layers[0].norm.gain
            before = squares if before is None else before + max(0.4, 1 / (update + 1)) * (squares - before)
            gradient, moves, state = one(rule, parameters, state, asked)
            parameters = optax.apply_updates(parameters, moves)
        seen, gradient, moves, before = jax.tree.map(np.asarray, (seen, gradient, moves, before))
    share = [(1 - 0.4) * 0.5, (1 - 0.4) * 0.5, 0.4]  # a plain mean of two, then the memory
    for number, name in ((0, lambda tree: tree.layers[0]), (1, lambda tree: tree.output)):
        units, inputs = (sum(w * s[number][side] for w, s in zip(share, seen, strict=True)) for side in (0, 1))
        ratio = np.sqrt(np.trace(inputs) / len(inputs) / (np.trace(units) / len(units)))
        block = np.kron(units + 0.2 / ratio * np.eye(len(units)), inputs + 0.2 * ratio * np.eye(len(inputs)))
        together = [np.concatenate([name(tree).weight, name(tree).bias[:, None]], 1) for tree in (gradient, moves)]
        expected = -0.5 * np.linalg.solve(block, together[0].ravel())
        np.testing.assert_allclose(together[1].ravel(), expected, rtol=1e-10)
    gain, slope = moves.layers[0].norm.gain, gradient.layers[0].norm.gain
    np.testing.assert_allclose(gain, -0.5 * slope / (before + 0.04), rtol=1e-12)


@pytest.mark.slow
def test_one_step_of_rate_1_solves_a_linear_regression() -> None:
    with jax.enable_x64(True):
        parameters, rest = linear()
        rule = Kronecker(1.0, damping=1e-20, curvature="exact", **PLAIN)
        _, moves, _ = one(rule, parameters, rule.build().init(parameters), objective(rest, GaussianLoss(), Y))
        parameters = optax.apply_updates(parameters, moves)
    best = np.linalg.lstsq(np.concatenate([X, np.ones((B, 1))], 1), Y, rcond=None)[0].T
    np.testing.assert_allclose(parameters.weight, best[:, :-1], rtol=1e-8)
    np.testing.assert_allclose(parameters.bias, best[:, -1], rtol=1e-8)


class Own(eqx.Module):
    """A user's network with its weights as (in, out), or as (out, in)."""

    weight: jax.Array
    bias: jax.Array | None
    turned: bool = eqx.field(static=True)

    def __call__(self, x):
        a = x @ self.weight if self.turned else self.weight @ x
        return a if self.bias is None else a + self.bias


@pytest.mark.slow
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [2, 3])  # three inputs: the square one tells nothing by its shape
def test_a_weight_may_stand_either_way_round(bias, outputs) -> None:
    targets = RNG.normal(size=(B, outputs))
    weight = RNG.normal(size=(outputs, IN))
    shift = jnp.asarray(RNG.normal(size=outputs)) if bias else None
    found = []
    for turned in (False, True):
        parameters, rest = trainable(Own(jnp.asarray(weight.T if turned else weight, jnp.float32), shift, turned))
        rule = Kronecker(1.0, **PLAIN)
        asked = objective(rest, GaussianLoss(), targets)
        _, moves, state = one(rule, parameters, rule.build().init(parameters), asked)
        assert all(float(jnp.trace(factor)) > 0 for factor in state.factors[0])
        found.append((moves.weight.T if turned else moves.weight, moves.bias if bias else jnp.zeros(outputs)))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=2e-4, atol=1e-5)


class Shared(eqx.Module):
    """One weight matrix used twice: no tap."""

    weight: jax.Array

    def __call__(self, x):
        return (self.weight @ jnp.tanh(self.weight @ x))[:OUT]


@pytest.mark.slow
@pytest.mark.parametrize("largest", [1, 4096])
def test_what_has_no_factors_gets_the_diagonal(largest) -> None:
    parameters, rest = trainable(Shared(jnp.asarray(RNG.normal(size=(IN, IN)), jnp.float32)))
    rule = Kronecker(1.0, damping=0.3, curvature="exact", largest=largest, **PLAIN)
    asked = objective(rest, GaussianLoss(), Y)
    gradient, moves, _ = one(rule, parameters, rule.build().init(parameters), asked)
    diagonal = np.diag(dense(asked, parameters, GaussianLoss())).reshape(IN, IN)
    np.testing.assert_allclose(moves.weight, -gradient.weight / (diagonal + 0.3), rtol=1e-4)


@pytest.mark.slow
def test_the_clip_bounds_the_step_and_momentum_adds_them_up() -> None:
    """A step s is cut to s' C s = clip, and for s = -rate C^-1 g that is -rate s . g; then the last ones are added."""
    parameters, rest = linear()
    free, bound = Kronecker(0.5, **PLAIN), Kronecker(0.5, momentum=0.8, clip=1e-3)
    states = [rule.build().init(parameters) for rule in (free, bound)]
    last = jax.tree.map(jnp.zeros_like, parameters)
    for update in range(3):
        asked = objective(rest, GaussianLoss(), Y, update)
        gradient, step, states[0] = one(free, parameters, states[0], asked)
        _, moves, states[1] = one(bound, parameters, states[1], asked)
        squared = -0.5 * float(optax.tree.vdot(step, gradient))
        assert squared > 1e-3
        factor = np.sqrt(1e-3 / squared)
        expected = jax.tree.map(lambda m, s, f=factor: 0.8 * m + f * s, last, step)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), moves, expected)
        last = moves
        parameters = optax.apply_updates(parameters, moves)
    rule = Kronecker(0.5, momentum=0.0, clip=1e6)  # a bound that does not bind changes nothing
    _, moves, _ = one(rule, parameters, states[0]._replace(), asked)
    _, step, _ = one(free, parameters, states[0], asked)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), moves, step)


@pytest.mark.slow
def test_inverses_are_renewed_when_due_and_not_before() -> None:
    parameters, rest = linear()
    rule = Kronecker(every_updates=3.0)
    state, changed = rule.build().init(parameters), []
    for update in range(8):
        before = np.asarray(state.inverses[0][0])
        _, _, state = one(rule, parameters, state, objective(rest, GaussianLoss(), Y, update))
        changed.append(bool(np.any(before != state.inverses[0][0])))
    assert changed == [True, True, True, True, False, False, True, False]  # the first three, then every third


# --- numbers at their limits


def test_a_singular_factor_in_32_bits_has_a_finite_inverse() -> None:
    """Rank 3 of 200, next to no damping: more is added until it can be inverted, and it is still the inverse, about."""
    thin = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)
    matrix, before = jnp.asarray(thin @ thin.T), jnp.eye(200)
    inverse = jax.jit(kronecker._inverse)(matrix, jnp.asarray(1e-30), before)
    assert np.all(np.isfinite(inverse))
    np.testing.assert_allclose(thin.T @ np.asarray(inverse, float) @ thin, np.eye(3), atol=0.3)  # measured 0.1
    broken = kronecker._inverse(matrix.at[0, 0].set(jnp.nan), jnp.asarray(1.0), before)
    np.testing.assert_array_equal(broken, before)


@pytest.mark.slow
def test_dead_inputs_and_units_do_not_move_and_do_not_count() -> None:
    """The same network in larger arrays, as a padded one is: the moves of what is there are the same."""
    small = [RNG.normal(size=(4, IN)), RNG.normal(size=4), RNG.normal(size=(OUT, 4)), RNG.normal(size=OUT)]
    shapes = [(6, IN + 2), (6,), (OUT, 6), (OUT,)]
    large = [
        np.pad(a, [(0, n - m) for n, m in zip(s, a.shape, strict=True)]) for a, s in zip(small, shapes, strict=True)
    ]
    found = []
    for arrays in (small, large):
        parameters = [jnp.asarray(array, jnp.float32) for array in arrays]
        there = jnp.arange(parameters[1].size) < 4

        class Net(eqx.Module):
            first: eqx.nn.Linear
            output: eqx.nn.Linear

            def __call__(self, x, there=there):
                wide = jnp.pad(x, (0, self.first.weight.shape[1] - IN))
                return self.output(jnp.where(there, jnp.tanh(self.first(wide)), 0.0))

        layers = [eqx.nn.Linear(*w.shape[::-1], key=jr.key(0)) for w in parameters[::2]]
        net = eqx.tree_at(
            lambda n: (n.first.weight, n.first.bias, n.output.weight, n.output.bias), Net(*layers), tuple(parameters)
        )
        moving, rest = trainable(net)
        rule = Kronecker()
        _, moves, _ = one(rule, moving, rule.build().init(moving), objective(rest, SoftmaxLoss(), CLASSES))
        found.append([moves.first.weight, moves.first.bias, moves.output.weight, moves.output.bias])
    for alone, padded in zip(*found, strict=True):
        expected = np.zeros(padded.shape)
        expected[tuple(slice(n) for n in alone.shape)] = alone
        np.testing.assert_allclose(padded, expected, rtol=1e-3, atol=1e-7)
        np.testing.assert_array_equal(np.asarray(padded)[expected == 0], 0.0)


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"model": Mlp(widths=(5,), normalisation=BatchNorm())}, "Kronecker needs each example's own gradient"),
        ({"criterion": lambda model, batch, key: jnp.mean(batch.inputs)}, "Kronecker needs a loss of each"),
    ],
)
def test_what_cannot_be_taken_apart_is_refused_before_training(parts, line) -> None:
    with pytest.raises(RequestError, match=line):
        coder(Kronecker(), **parts)


# --- on real digits


def digits():
    from sklearn.datasets import load_digits

    inputs, classes = load_digits(return_X_y=True)
    return (inputs[:1400] / 16).astype(np.float32), classes[:1400]


def coder(optimiser, **parts):
    """A sigmoid auto-encoder 64-32-6-32-64."""
    chosen = {
        "model": Mlp(widths=(32, 6, 32), activation=Logistic(), dropout=0.0),
        "criterion": Supervised(SigmoidLoss(), penalties=()),
        "batches": Reshuffled(size=350),
    }
    recipe = gradwise.defaults.multilabel(**{**chosen, **parts}, optimiser=optimiser)
    examples = Examples(*[jnp.asarray(digits()[0])] * 2)
    return init(recipe, examples, examples, outputs=64, key=jr.key(0))


@eqx.filter_jit
def losses(task, state):
    """The training loss of each of 70 epochs of four updates."""

    def epoch(state, _):
        state, told = advance(task, state, 4)
        return state, told["train_loss"]

    return jax.lax.scan(epoch, state, None, length=70)[1]


@pytest.mark.slow
def test_far_fewer_updates_than_plain_descent_at_its_best_rate() -> None:
    """A loss of 20.2 a digit, with the default knobs: measured after 31 epochs of 4 updates. Plain descent at its best
    rate, which is 1 (10 is too large), has not seen it after 70: 20.6."""
    ours = np.asarray(losses(*coder(Kronecker())))
    theirs = np.stack([losses(*coder(Sgd(rate))) for rate in (0.3, 1.0, 3.0)])
    assert np.all(np.isfinite(ours))
    assert ours[34] < 20.2
    assert theirs.min() > 20.2


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Kronecker(), Tonga(), DiagonalNatural()])
def test_fit_runs_with_each_of_the_natural_gradients(rule) -> None:
    """Iris, twenty epochs with the default knobs: at most 12 of 150 wrong (measured 5 to 7)."""
    recipe = gradwise.defaults.classification(
        model=Mlp(widths=(8,), dropout=0.0), optimiser=rule, batches=Reshuffled(size=16), stopping=Off(epochs=20.0)
    )
    dataset = gradwise.read("iris")
    result = gradwise.train(recipe, dataset, key=jr.key(0))
    assert result.outcome.name == "finished", result.outcome
    assert np.sum(np.argmax(result.predictor.predict(dataset.inputs), 1) != dataset.targets) <= 12
