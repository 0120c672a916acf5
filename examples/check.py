"""A loss of your own, with a bug: `gradwise.check` names the bug and its line.

    python examples/check.py

The hidden layer uses a hand-written activation whose backward pass lost its factor 1/2.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from sklearn.datasets import load_iris

import gradwise as gw


def make_swish(factor: float):
    """x times the logistic function of x / 2, with a backward pass written by hand."""

    @jax.custom_vjp
    def swish(x):
        return x * jax.nn.sigmoid(x / 2)

    def forward(x):
        return swish(x), x

    def backward(x, slope):
        s = jax.nn.sigmoid(x / 2)
        return (slope * (s + factor * x * s * (1 - s)),)

    swish.defvjp(forward, backward)
    return swish


class Net(eqx.Module):
    hidden: eqx.nn.Linear
    output: eqx.nn.Linear
    factor: float = eqx.field(static=True)

    def __call__(self, x):
        return self.output(make_swish(self.factor)(self.hidden(x)))


def loss(model, batch, key):
    x, y = batch
    outputs = jax.vmap(model)(x)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, y))


def make_problem(factor: float = 1.0) -> dict:
    """The arguments of `gradwise.check`, as `gradwise check examples/check.py:make_problem` expects them."""
    flowers = load_iris()
    x = jnp.asarray((flowers.data - flowers.data.mean(0)) / flowers.data.std(0), jnp.float32)
    y = jnp.asarray(flowers.target, jnp.int32)
    order = jr.permutation(jr.key(1), len(x))
    x, y = x[order], y[order]
    first, second = jr.split(jr.key(0))
    net = Net(eqx.nn.Linear(4, 16, key=first), eqx.nn.Linear(16, 3, key=second), factor)
    return {
        "loss": loss,
        "model": net,
        "batch": (x[:32], y[:32]),
        "train": (x[:100], y[:100]),
        "valid": (x[100:], y[100:]),
        "optimiser": optax.adam(1e-2),
    }


def main() -> None:
    for name, factor in (("with the bug", 1.0), ("corrected", 0.5)):
        problem = make_problem(factor)
        result = gw.check(**problem)
        print(f"--- {name}\n{result}\n")
        assert result.passed == (name == "corrected")


if __name__ == "__main__":
    main()
