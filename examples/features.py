"""Features learned without labels, and layers that are pre-trained before the whole network is."""

import dataclasses

import jax

import gradwise
from gradwise import defaults
from gradwise.pretraining.layer_learners import learner
from gradwise.pretraining.stack import fit_pretrained
from gradwise.training.stopping import Patience

dataset = gradwise.read("digits")
key = jax.random.key(0)
short = Patience(epochs=20.0)

# No label is looked at: the score is how well spoilt digits are repaired.
learned = gradwise.fit(defaults.features("denoising", 100, stopping=short), dataset, key=key)
low, high = learned.test_interval
print(f"{learned.metric} of 100 features: {learned.test:.1f} [{low:.1f}, {high:.1f}] on test digits")

# Two such layers, each on the codes of the one below, then the whole network with the labels.
layers = [dataclasses.replace(learner("denoising", units), stopping=short) for units in (100, 100)]
record, stack = fit_pretrained(defaults.fine_tuning("classes", (100, 100)), dataset, layers, key=key)
print(f"pre-trained and fine-tuned: test error {record.test:.1%}; features {stack.encode(dataset.inputs).shape}")
