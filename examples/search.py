"""Search a space of your own, measure the test error of the result once, and write a report."""

import dataclasses
import tempfile
from pathlib import Path

import jax

import gradwise as gw

# This runs in seconds: a small data set, a small network of fixed size, and one knob to search.
dataset = gw.read("wine")
recipe = gw.defaults.classification(model=gw.Mlp(widths=(32,), dropout=0.0))
recipe = dataclasses.replace(recipe, stopping=dataclasses.replace(recipe.stopping, epochs=60))
rate = gw.dimension(recipe, "optimiser.optimiser.learning_rate", gw.LogUniform(1e-3, 1e-1))
space = gw.Space(recipe, (rate,))

plan = gw.SearchPlan(folds=3)  # each trial trains three networks; its score covers all rows
study = gw.search(space, dataset, budget=gw.Budget(trials=6), key=jax.random.key(0), plan=plan)

low, high = study.estimates.test_interval
print("best:", study.winner.values)
print(f"validation {study.winner.score:.1%}; expected on new data {study.winner.corrected.score:.1%}")
print(f"ensemble of {study.committee.members}: test error {study.estimates.test:.1%} ({low:.1%} to {high:.1%})")
print("more trials?", study.analysis.advice.sentence)

page = Path(tempfile.mkdtemp()) / "report.html"
page.write_text(gw.report(study))
print("report:", page)
