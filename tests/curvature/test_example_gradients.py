"""Per-example gradients through taps equal vmap(grad), whatever the network does with its weights."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.example_gradients import Terms, example_terms, root_columns
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed
from gradwise.models.mlp import BatchNorm, LayerNorm, Mlp
from gradwise.models.padded_mlp import pad
from gradwise.runtime.errors import RequestError
from gradwise.specs.paths import named_leaves, trainable

KEY = jr.key(0)
SLOTS, INPUTS, CLASSES = 8, 6, 3
X = jr.normal(jr.key(1), (SLOTS, INPUTS))
TRAIN = Examples(X, jr.randint(jr.key(2), (SLOTS,), 0, CLASSES), jnp.linspace(0.5, 1.5, SLOTS))


def draw(number: int, *shape: int) -> Any:
    return jr.normal(jr.fold_in(KEY, number), shape) / 2.0


@jax.jit
def bent(weight: Any, x: Any) -> Any:
    return jnp.tanh(weight @ x)


class Two(eqx.Module):
    """Weights `a` (5, 6) or as the use has it, and `b`, used by the function `how`."""

    a: Any
    b: Any
    how: Callable[[Any, Any, Any], Any] = eqx.field(static=True)

    def __call__(self, x: Any) -> Any:
        return self.how(self.a, self.b, x)


class Convolved(eqx.Module):
    conv: eqx.nn.Conv2d
    output: eqx.nn.Linear

    def __call__(self, x: Any) -> Any:
        return self.output(jnp.tanh(self.conv(x.reshape(1, 2, 3))).ravel())


def handed_back(a: Any, b: Any, x: Any) -> Any:
    h, again = jax.checkpoint(lambda w, z: (jnp.tanh(w @ z), w))(a, x)
    return b @ (h + again @ x)


def scanned(a: Any, b: Any, x: Any) -> Any:
    return b @ jax.lax.fori_loop(0, 2, lambda _, h: jnp.tanh(a @ h), x)


def two(how: Any, a: tuple[int, int], b: tuple[int, int]) -> Two:
    return Two(draw(1, *a), draw(2, *b), how)


@functools.cache
def normalised() -> Any:
    return Mlp(widths=(6, 5), dropout=0.3, normalisation=LayerNorm()).build((INPUTS,), 3, key=KEY)


@functools.cache
def conv() -> Any:
    return Convolved(eqx.nn.Conv2d(1, 2, 2, key=KEY), eqx.nn.Linear(4, 3, key=KEY))


@functools.cache
def padded() -> Any:
    return pad(Mlp(widths=(6, 6), dropout=0.0), (INPUTS,), lambda width: width + 3).build((INPUTS,), 3, key=KEY)


# The network, and the parameters that are taps.
NETWORKS: dict[str, tuple[Callable[[], Any], set[str]]] = {
    "mlp, dropout and layer norm": (
        normalised,
        {"layers.0.weight", "layers.1.weight", "output.weight"},
    ),
    "padded": (padded, {"layers.0.weight", "layers.1.weight", "output.weight"}),
    "x @ W": (lambda: two(lambda a, b, x: jnp.tanh(x @ a) @ b, (6, 5), (5, 3)), {"a", "b"}),
    "x @ W.T": (lambda: two(lambda a, b, x: jnp.tanh(x @ a.T) @ b.T, (5, 6), (3, 5)), {"a", "b"}),
    "W.T @ x": (lambda: two(lambda a, b, x: b.T @ jnp.tanh(a.T @ x), (6, 5), (5, 3)), {"a", "b"}),
    "transposed in a call": (
        lambda: two(lambda a, b, x: b @ (jax.jit(jnp.transpose)(a) @ x), (6, 5), (3, 5)),
        {"a", "b"},
    ),
    "shared": (lambda: two(lambda a, b, x: b @ jnp.tanh(a @ jnp.tanh(a @ x)), (6, 6), (3, 6)), {"b"}),
    "shared through its transpose": (lambda: two(lambda a, b, x: b @ (a.T @ jnp.tanh(a @ x)), (5, 6), (3, 6)), {"b"}),
    "checkpoint": (
        lambda: two(lambda a, b, x: b @ eqx.filter_checkpoint(lambda h: jnp.tanh(a @ h))(x), (5, 6), (3, 5)),
        {"a", "b"},
    ),
    "jit": (lambda: two(lambda a, b, x: b @ bent(a, x), (5, 6), (3, 5)), {"a", "b"}),
    "one jit for two weights": (lambda: two(lambda a, b, x: bent(b, bent(a, x))[:3], (6, 6), (6, 6)), {"a", "b"}),
    "one jit, one scaled": (lambda: two(lambda a, b, x: bent(2.0 * b, bent(a, x))[:3], (6, 6), (6, 6)), {"a"}),
    "one jit, one weight": (lambda: two(lambda a, b, x: b @ bent(a, bent(a, x)), (6, 6), (3, 6)), {"b"}),
    "handed back by a call": (lambda: two(handed_back, (5, 6), (3, 5)), {"b"}),
    "in a loop": (lambda: two(scanned, (6, 6), (3, 6)), {"b"}),
    "scaled": (lambda: two(lambda a, b, x: (b * 3.0) @ jnp.tanh(a @ x), (5, 6), (3, 5)), {"a"}),
    "times one another": (lambda: two(lambda a, b, x: (b @ a) @ x, (5, 6), (3, 5)), set()),
    "times many vectors": (
        lambda: two(lambda a, b, x: b @ jnp.tanh(a @ x.reshape(3, 2)).ravel(), (4, 3), (3, 8)),
        {"b"},
    ),
    "not used": (lambda: two(lambda a, b, x: b @ x, (5, 6), (3, 6)), {"b"}),
    "an output itself": (lambda: two(lambda a, b, x: b, (5, 6), (3,)), set()),
    "convolution": (conv, {"output.weight"}),
}


def objective(network: Any, present: Any = None) -> tuple[Objective, Any]:
    parameters, rest = trainable(network)
    here = jnp.ones(SLOTS).at[SLOTS - 1].set(0.0) if present is None else present
    batch = gather(TRAIN, jnp.arange(SLOTS), here)
    return Objective(Supervised(SoftmaxLoss()), Fixed(SLOTS), rest, TRAIN, KEY, jnp.asarray(3), batch), parameters


def written(asked: Objective, parameters: Any) -> Any:
    """vmap(grad) of each example's loss."""

    def loss(p: Any, x: Any, y: Any, key: Any) -> Any:
        return asked.criterion.of_output(asked.output(p, x, key), y)

    rows = (asked.batch.inputs, asked.batch.targets, asked.example_keys())
    return jax.vmap(jax.grad(loss), (None, 0, 0, 0))(parameters, *rows)


def assert_close(mine: Any, theirs: Any, what: str = "") -> None:
    pairs = zip(named_leaves(mine), named_leaves(theirs), strict=True)
    for (name, one), (_, other) in pairs:
        np.testing.assert_allclose(one, other, atol=2e-5, rtol=1e-4, err_msg=f"{what} {name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_terms_equal_the_gradients_written_out(name: str) -> None:
    make, expected = NETWORKS[name]
    asked, parameters = objective(make())

    @jax.jit
    def found(p: Any) -> tuple[Terms, dict[str, tuple[Any, Any]]]:
        terms, each = example_terms(asked, p, "Test"), written(asked, p)
        share = asked.batch.weights / asked.batch.weights.sum()
        # The criterion divides by the slots, the mean by the weights; the penalty is no example's.
        scale = asked.batch.weights.sum() / SLOTS
        whole = jax.tree.map(lambda g, extra: scale * g + extra, terms.mean(), jax.grad(asked.penalty)(p))
        return terms, {
            "written out": (terms.written_out(), each),
            "mean": (terms.mean(), jax.tree.map(lambda g: jnp.einsum("b...,b->...", g, share), each)),
            "square": (terms.mean_square(), jax.tree.map(lambda g: jnp.einsum("b...,b->...", g**2, share), each)),
            "outputs": (terms.outputs, asked.outputs(p)),
            "gradient": (whole, jax.grad(asked)(p)),
        }

    assert float(asked.batch.weights[-1]) == 0.0  # the slot that is not there
    terms, pairs = found(parameters)
    names = [path for path, _ in named_leaves(parameters)]
    assert {names[number] for number in terms.inputs} == expected
    assert {names[number] for number in terms.whole} == set(names) - expected
    for what, (mine, theirs) in pairs.items():
        assert_close(mine, theirs, what)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp, dropout and layer norm", "x @ W.T", "one jit for two weights", "convolution"])
def test_columns_of_a_root_give_the_gauss_newton_diagonal(name: str) -> None:
    with jax.enable_x64(True):
        asked, parameters = objective(NETWORKS[name][0]())
        asked, parameters = jax.tree.map(
            lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, (asked, parameters)
        )

        @jax.jit
        def found(p: Any) -> tuple[Any, ...]:
            terms = example_terms(asked, p, "Test", root_columns(asked, "Test"))
            flat, tree = ravel_pytree(p)
            jacobian = jax.jacobian(lambda v: asked.outputs(tree(v)))(flat)
            curvature = jax.vmap(jax.hessian(asked.criterion.of_output))(asked.outputs(p), asked.batch.targets)
            each = jnp.einsum("bki,bkl,bli->bi", jacobian, curvature, jacobian)
            share = asked.batch.weights / asked.batch.weights.sum()
            return ravel_pytree(terms.mean_square())[0], share @ each

        square, diagonal = found(parameters)
        np.testing.assert_allclose(square, diagonal, rtol=1e-9, atol=1e-12)


def test_an_empty_batch_gives_zeros() -> None:
    asked, parameters = objective(NETWORKS["x @ W"][0](), jnp.zeros(SLOTS))

    @jax.jit
    def found(p: Any) -> Any:
        terms = example_terms(asked, p, "Test")
        return terms.mean(), terms.mean_square()

    assert all(np.array_equal(leaf, np.zeros(leaf.shape)) for leaf in jax.tree.leaves(found(parameters)))


def test_padded_units_have_gradients_of_exactly_0() -> None:
    asked, parameters = objective(padded())
    square = jax.jit(lambda p: example_terms(asked, p, "Test").mean_square())(parameters)
    assert np.array_equal(square.layers[0].weight[6:], np.zeros((3, INPUTS)))
    assert np.array_equal(square.layers[1].weight[:, 6:], np.zeros((9, 3)))
    assert np.array_equal(square.output.weight[:, 6:], np.zeros((3, 3)))
    assert np.all(np.asarray(square.output.weight[:, :6]).sum(1) > 0)


def test_half_precision_stays_what_it_is() -> None:
    network = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), NETWORKS["x @ W"][0]())
    asked, parameters = objective(network)
    asked = eqx.tree_at(lambda o: o.batch.inputs, asked, X.astype(jnp.bfloat16))
    terms = jax.eval_shape(lambda p: example_terms(asked, p, "Test"), parameters)
    assert {slope.dtype for slope in terms.slopes.values()} == {jnp.dtype(jnp.bfloat16)}


# --- memory


def shapes(jaxpr: Any) -> set[tuple[int, ...]]:
    """The shape of every intermediate result, inside calls and loops too."""
    found: set[tuple[int, ...]] = set()
    for equation in jaxpr.eqns:
        found |= {tuple(variable.aval.shape) for variable in equation.outvars}
        for value in jax.tree.leaves(equation.params, is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found |= shapes(inner)
    return found


def test_no_gradient_of_a_tap_is_ever_written_out() -> None:
    """Of a layer of 13 x 6 weights and 8 examples no array of 8 x 13 x 6 numbers or more exists, in any order."""
    network = Two(draw(1, 13, INPUTS), draw(2, 3, 13), lambda a, b, x: b @ jnp.tanh(a @ x))
    asked, parameters = objective(network)

    def squares(p: Any) -> Any:
        terms = example_terms(asked, p, "Test", root_columns(asked, "Test"))
        return terms.mean_square(), terms.mean()

    many = SLOTS * 13 * INPUTS
    assert all(np.prod(shape) < many for shape in shapes(jax.make_jaxpr(squares)(parameters).jaxpr))
    compiled = jax.jit(squares).lower(parameters).compile().as_text()
    assert f"[{SLOTS},13,{INPUTS}]" not in compiled
    # The same search finds them where they are.
    assert any(
        np.prod(shape) >= many for shape in shapes(jax.make_jaxpr(lambda p: written(asked, p))(parameters).jaxpr)
    )
    assert f"[{SLOTS},13,{INPUTS}]" in jax.jit(lambda p: written(asked, p)).lower(parameters).compile().as_text()


# --- in a population, and refused


@pytest.mark.slow
def test_members_of_a_population_have_their_own_terms() -> None:
    asked, parameters = objective(NETWORKS["mlp, dropout and layer norm"][0]())
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), parameters)

    def squares(p: Any) -> Any:
        return example_terms(asked, p, "Test").mean_square()

    together, alone_of = jax.jit(jax.vmap(squares))(many), jax.jit(squares)
    for number, scale in enumerate((1.0, 0.5)):
        alone = alone_of(jax.tree.map(lambda leaf, s=scale: s * leaf, parameters))
        assert_close(jax.tree.map(lambda leaf, n=number: leaf[n], together), alone)


def test_a_network_that_looks_at_the_batch_is_refused_in_the_askers_name() -> None:
    network = Mlp(widths=(4,), normalisation=BatchNorm()).build((INPUTS,), 3, key=KEY)
    asked, parameters = objective(network)
    with pytest.raises(RequestError, match=r"Vsgd needs each example's own gradient.*batch normalisation") as refusal:
        example_terms(asked, parameters, "Vsgd")
    assert "\n" not in str(refusal.value)


def test_a_mistake_in_the_users_network_is_shown_as_it_is() -> None:
    asked, parameters = objective(Two(draw(1, 3, INPUTS), draw(2, 1), lambda a, b, x: undefined @ x))
    with pytest.raises(NameError, match="undefined"):
        example_terms(asked, parameters, "Vsgd")
