"""Whatever library a model is written with, and however its loss takes its arguments, it is checked in one form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.checking.batch_access import count_of, inputs_of, take, targets_of, with_inputs
from gradwise.checking.subject import Subject, in_64_bits
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch

X = np.asarray(jr.normal(jr.key(0), (6, 3)))
Y = np.asarray(jr.normal(jr.key(1), (6, 2)))
WEIGHTS = {"w": jr.normal(jr.key(2), (3, 2)), "steps": 3}


def _apply(model: Any, x: Any) -> Any:
    return x @ model["w"]


def _mean(model: Any, x: Any, y: Any) -> Any:
    return jnp.mean((_apply(model, x) - y) ** 2)


EXPECTED = float(np.mean((X @ np.asarray(WEIGHTS["w"]) - Y) ** 2))


@pytest.mark.parametrize(
    ("loss", "batch"),
    [
        (lambda model, batch: _mean(model, *batch), (X, Y)),
        (lambda model, batch, key: _mean(model, *batch), (X, Y)),
        (lambda model, batch, *, key: _mean(model, *batch) + 0.0 * jr.uniform(key), (X, Y)),
        (lambda model, batch, rng: _mean(model, *batch) + 0.0 * jr.uniform(rng), (X, Y)),
        (lambda model, x, y: _mean(model, x, y), (X, Y)),
        (lambda model, x, y, key: _mean(model, x, y), (X, Y)),
        (lambda model, batch, k: _mean(model, *batch) + 0.0 * jr.uniform(k), (X, Y)),
        (lambda model, batch, train=True: _mean(model, *batch) if train else None, (X, Y)),
        (lambda model, batch, train=True, key=None: _mean(model, *batch) + 0.0 * jr.uniform(key), (X, Y)),
        (lambda model, x, y=None: _mean(model, x, y), (X, Y)),
        (lambda model, x, y, scale=1.0: scale * _mean(model, x, y), (X, Y)),
        (lambda model, batch: (_mean(model, *batch), {"aux": 1}), (X, Y)),
        (lambda model, batch: _mean(model, batch["x"], batch["label"]), {"x": X, "label": Y}),
    ],
)
def test_a_loss_may_take_its_arguments_as_it_likes(loss: Any, batch: Any) -> None:
    subject = Subject.of(loss, WEIGHTS, batch, apply=_apply)
    assert float(subject.value(subject.parameters, subject.batch, jr.key(0))) == pytest.approx(EXPECTED, rel=1e-6)
    assert subject.names == ("w",)
    assert subject.count == 6
    assert subject.task == "numbers"
    np.testing.assert_array_equal(inputs_of(batch), X)
    np.testing.assert_array_equal(targets_of(batch), Y)


def test_an_equinox_module_is_called_on_each_example_and_judged_without_noise() -> None:
    class Net(eqx.Module):
        linear: eqx.nn.Linear
        dropout: eqx.nn.Dropout

        def __call__(self, x: Any, key: Any = None) -> Any:
            return self.dropout(self.linear(x), key=key)

    net = Net(eqx.nn.Linear(3, 2, key=jr.key(3)), eqx.nn.Dropout(0.5))
    subject = Subject.of(lambda model, batch, key: jnp.mean(jax.vmap(model.linear)(batch[0])), net, (X, Y))
    assert subject.outputs is not None
    assert subject.evaluated is not None
    quiet = np.asarray(subject.evaluated(subject.parameters, X))
    np.testing.assert_allclose(quiet, X @ np.asarray(net.linear.weight).T + np.asarray(net.linear.bias), rtol=1e-5)
    noisy = np.asarray(subject.outputs(subject.parameters, X, jr.key(4)))
    assert set(np.round(noisy / quiet, 4).ravel()) == {0.0, 2.0}


def test_a_flax_module_is_split_and_never_written_into() -> None:
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: Any):
            self.linear = nnx.Linear(3, 2, rngs=rngs)
            self.norm = nnx.BatchNorm(2, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.norm(self.linear(x))

    net = Net(nnx.Rngs(0))
    before = np.asarray(net.norm.mean[...]).copy()
    subject = Subject.of(lambda model, x, y: jnp.mean((model(x) - y) ** 2), net, (X, Y))
    assert subject.names == ("linear.bias", "linear.kernel", "norm.bias", "norm.scale")
    gradient = jax.jit(subject.gradient)(subject.parameters, subject.batch, jr.key(0))
    assert float(jnp.abs(gradient["norm"]["scale"]).max()) > 0
    assert subject.evaluated is not None
    assert subject.evaluated(subject.parameters, X).shape == (6, 2)
    np.testing.assert_array_equal(np.asarray(net.norm.mean[...]), before)


def test_examples_are_taken_and_inputs_exchanged_in_every_form_of_batch() -> None:
    ones = jnp.ones(6)
    whole = Batch(jnp.asarray(X), jnp.asarray(Y), ones, ones, jnp.asarray(6.0))
    for batch in (whole, (X, Y), {"inputs": X, "targets": Y}):
        part = take(batch, [4, 1])
        assert count_of(part) == 2
        np.testing.assert_array_equal(inputs_of(part), X[[4, 1]])
        np.testing.assert_array_equal(targets_of(part), Y[[4, 1]])
        assert float(jnp.sum(inputs_of(with_inputs(batch, 0 * X)))) == 0
    assert float(take(whole, [0]).total) == 6.0  # what is not of one example each stays


def test_frozen_parameters_are_named_by_a_pattern() -> None:
    model = {"encoder": {"w": jnp.ones((3, 2))}, "head": jnp.ones(2)}
    subject = Subject.of(
        lambda m, x, y: jnp.mean((x @ m["encoder"]["w"] * m["head"] - y) ** 2), model, (X, Y), frozen="encoder.*"
    )
    assert subject.frozen_names == {"encoder.w"}


def test_what_cannot_be_checked_is_refused_in_a_line() -> None:
    with pytest.raises(RequestError, match=r"`loss` must be a function loss\(model, batch, key\); got a int"):
        Subject.of(3, WEIGHTS, (X, Y))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"must be a real scalar; got float32 of shape \(6, 2\)"):
        Subject.of(lambda m, x, y: _apply(m, x) - y, WEIGHTS, (X, Y))
    with pytest.raises(RequestError, match="cannot be computed on this batch: KeyError: 'v'"):
        Subject.of(lambda m, x, y: m["v"], WEIGHTS, (X, Y))
    with pytest.raises(RequestError, match="has no trainable array"):
        Subject.of(lambda m, x, y: 0.0, {"n": 3}, (X, Y))
    with pytest.raises(RequestError, match=r"KeyError: 'v' \(test_subject.py:\d+ in <lambda>\)"):
        Subject.of(lambda m, x, y: m["v"], WEIGHTS, (X, Y))
    with pytest.raises(RequestError, match=r"It may be loss\(model, batch\), loss\(model, batch, key\)"):
        Subject.of(lambda m, b, key, alpha, beta: 0.0, WEIGHTS, (X, Y))
    with pytest.raises(RequestError, match=r"its arrays are integers; convert them to `jnp.float32`"):
        Subject.of(lambda m, x, y: 0.0, {"n": np.arange(3)}, (X, Y))
    with pytest.raises(RequestError, match="the batch is empty"):
        Subject.of(_mean, WEIGHTS, (X[:0], Y[:0]))
    with pytest.raises(RequestError, match=r"`optimiser` must be an Optax transformation like .*; got a float"):
        Subject.of(_mean, WEIGHTS, (X, Y), optimiser=0.1)
    with pytest.raises(RequestError, match=r"frozen='encoder.*' matches no parameter of w"):
        Subject.of(_mean, WEIGHTS, (X, Y), frozen="encoder.*")
    with pytest.raises(
        RequestError, match=r"`evaluate` cannot be called on the inputs: ZeroDivisionError.* in <lambda>"
    ):
        Subject.of(_mean, WEIGHTS, (X, Y), evaluate=lambda m, x: 1 / 0)
    with pytest.raises(RequestError, match="no array with the examples along its first axis"):
        Subject.of(lambda m, b: 0.0, WEIGHTS, {"a": 1.0})


def test_an_evaluation_need_not_be_a_program_of_jax() -> None:
    subject = Subject.of(_mean, WEIGHTS, (X, Y), evaluate=lambda m, x: np.asarray(x) @ np.asarray(m["w"]))
    assert subject.own_evaluation


def test_numbers_become_64_bits_and_whole_numbers_stay() -> None:
    with jax.enable_x64(True):
        wide = in_64_bits({"x": jnp.ones(2, jnp.float32), "n": jnp.arange(2, dtype=jnp.int32)})
        assert wide["x"].dtype == jnp.float64
        assert wide["n"].dtype == jnp.int32
