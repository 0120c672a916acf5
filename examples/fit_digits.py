"""Train one network, measure its test error once, and write a report that shows how training went."""

import tempfile
from pathlib import Path

import jax

import gradwise as gw

dataset = gw.read("digits")
recipe = gw.defaults.classification()
result = gw.fit(recipe, dataset, key=jax.random.key(0))

low, high = result.test_interval
print(f"test error {result.test:.1%} (95 % confidence interval {low:.1%} to {high:.1%}), {result.outcome}")
print("probabilities of the first digit:", result.predictor.predict(dataset.inputs[:1]).round(3))

page = Path(tempfile.mkdtemp()) / "report.html"
page.write_text(gw.report(result))
print("report:", page)
