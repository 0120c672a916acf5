"""Driving the loop: `init`, then `interval` as often as you like. Between two intervals everything is yours."""

import jax
import jax.numpy as jnp

import gradwise
from gradwise.runtime import keys

recipe = gradwise.defaults.classification()
dataset = gradwise.read("wine")
key = keys.from_seed(0)

train, valid, test = recipe.split(dataset, key=keys.named(key, "split"))
scaler = recipe.scaler.fit(train.inputs, train.columns)
on_device = [
    gradwise.Examples(jnp.asarray(scaler.apply(part.inputs)), jnp.asarray(part.targets)) for part in (train, valid)
]

problem, state = gradwise.init(recipe, *on_device, outputs=3, classes=3, key=key)
for _ in range(40):
    state, row = gradwise.interval(problem, state, problem.interval_updates)  # the old state is used up
    if row.best:
        print(f"age {int(row.age_examples):6,}  loss {row.train_loss:.4f}  validation error {row.valid_score:.3f}")
    if row.stop:
        break

network = problem.model(state.parameters)
outputs = jax.vmap(network)(jnp.asarray(scaler.apply(test.inputs)))
print("test error of the last network:", float((outputs.argmax(1) != jnp.asarray(test.targets)).mean()))
