"""Search a space of your own, measure the test error of the result once, and write a report."""

import tempfile
from pathlib import Path

import gradwise as gw

# This runs in seconds: a small data set, a small network of fixed size, and one knob to search.
recipe = gw.defaults.classification(model=gw.Mlp(widths=(32,), dropout=0.0), stopping=gw.Patience(epochs=60))
rate = gw.dimension(recipe, "optimiser.optimiser.learning_rate", gw.LogUniform(1e-3, 1e-1))
space = gw.Space(recipe, (rate,))
plan = gw.SearchPlan(folds=3)  # each trial trains three networks; its score covers all rows
model = gw.search("wine", trials=6, space=space, plan=plan)

low, high = model.test_interval
study = model.record
print("best:", study.winner.values)
print(f"validation {study.winner.score:.1%}; expected on new data {study.winner.corrected.score:.1%}")
print(f"ensemble of {study.committee.members}: test error {model.test:.1%} ({low:.1%} to {high:.1%})")
print("more trials?", study.analysis.advice.sentence)
print(model.trials[["number", "score", "seconds"]])
print("report:", model.report(Path(tempfile.mkdtemp()) / "report.html"))
