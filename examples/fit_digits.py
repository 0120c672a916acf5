"""The first journey in Python: one well-trained network, an honest test error, and a page that shows how it went."""

import tempfile
from pathlib import Path

import jax

import gradwise

dataset = gradwise.read("digits")
recipe = gradwise.defaults.classification()
result = gradwise.fit(recipe, dataset, key=jax.random.key(0))

low, high = result.test_interval
print(f"test error {result.test:.1%} (95 % interval {low:.1%} to {high:.1%}), {result.outcome}")
print("probabilities of the first digit:", result.predictor.predict(dataset.inputs[:1]).round(3))

page = Path(tempfile.mkdtemp()) / "report.html"
page.write_text(gradwise.report(result))
print("report:", page)
