"""Your own model and loss: any Equinox module, and any function of (model, batch, key) that returns a scalar."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import gradwise as gw

draw = np.random.default_rng(0)
x = draw.uniform(-3, 3, (600, 1))
y = np.sin(2 * x) + 0.1 * draw.standard_normal((600, 1))
model = eqx.nn.MLP(in_size=1, out_size=1, width_size=64, depth=2, activation=jax.nn.tanh, key=jax.random.key(0))


def loss(model, batch, key):
    """The Huber loss, averaged over the batch; rows that pad the last batch of an epoch have weight 0."""
    error = jnp.abs(jax.vmap(model)(batch.inputs) - batch.targets).sum(1)
    return jnp.mean(batch.weights * jnp.where(error < 1, 0.5 * error**2, error - 0.5))


stopping = gw.Patience(initial_epochs=50.0)
trained = gw.fit(x, y, model=model, criterion=loss, optimiser=gw.Nesterov(0.05), stopping=stopping)
print(f"R² on the test set: {trained.record.metrics['test']['r2']:.3f}, {trained.record.outcome}")
print("sin(2) is about", trained.predict([[1.0]])[0])
