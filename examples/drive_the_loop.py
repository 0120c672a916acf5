"""Drive the loop yourself: call `init`, then `interval` as often as you like, with any code of yours in between."""

import jax
import jax.numpy as jnp

import gradwise as gw

recipe = gw.defaults.classification()
dataset = gw.read("wine")
key, split_key = jax.random.split(jax.random.key(0))

train, valid, test = recipe.split(dataset, key=split_key)
scaler = recipe.scaler.fit(train.inputs, train.columns)
on_device = [gw.Examples(jnp.asarray(scaler.apply(part.inputs)), jnp.asarray(part.targets)) for part in (train, valid)]

problem, state = gw.init(recipe, *on_device, outputs=3, classes=3, key=key)
for _ in range(40):
    state, row = gw.interval(problem, state, problem.interval_updates)  # the old state is consumed
    if row.best:
        print(f"age {int(row.age_examples):6,}  loss {row.train_loss:.4f}  validation error {row.valid_score:.3f}")
    if row.stop:
        break

network = problem.model(state.parameters)
outputs = jax.vmap(network)(jnp.asarray(scaler.apply(test.inputs)))
print("test error of the last network:", float((outputs.argmax(1) != jnp.asarray(test.targets)).mean()))
