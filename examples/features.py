"""Learn features without labels; pre-train layers, then fine-tune the whole network."""

import dataclasses

import jax

import gradwise as gw

dataset = gw.read("digits")
key = jax.random.key(0)
short = gw.Patience(epochs=20.0)

# No labels are used: the score is how well the network restores corrupted digits.
learned = gw.fit(gw.defaults.features("denoising", 100, stopping=short), dataset, key=key)
low, high = learned.test_interval
print(f"{learned.metric} of 100 features: {learned.test:.1f} [{low:.1f}, {high:.1f}] on test digits")

# Two such layers, each trained on the codes of the one below; then the whole network, with the labels.
layers = [dataclasses.replace(gw.learner("denoising", units), stopping=short) for units in (100, 100)]
record, stack = gw.fit_pretrained(gw.defaults.fine_tuning("classes", (100, 100)), dataset, layers, key=key)
print(f"pre-trained and fine-tuned: test error {record.test:.1%}; features {stack.encode(dataset.inputs).shape}")
