"""The second journey in Python: a search with a space of one's own, its honest error, and its page."""

import dataclasses
import tempfile
from pathlib import Path

import jax

import gradwise
from gradwise.models.mlp import Mlp
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space, dimension

# Seconds rather than minutes: a small set, a small network of a fixed size, and one knob to search.
dataset = gradwise.read("wine")
recipe = gradwise.defaults.classification(model=Mlp(widths=(32,), dropout=0.0))
recipe = dataclasses.replace(recipe, stopping=dataclasses.replace(recipe.stopping, epochs=60))
space = Space(recipe, (dimension(recipe, "optimiser.optimiser.learning_rate", LogUniform(1e-3, 1e-1)),))

plan = gradwise.SearchPlan(folds=1, finalists=2, seeds=3)
study = gradwise.search(space, dataset, budget=gradwise.Budget(trials=6), key=jax.random.key(0), plan=plan)

low, high = study.estimates["test_interval"]
print("best:", study.winner["values"])
print(f"chosen at {study.winner['score']:.1%}, on fresh examples about {study.winner['corrected']:.1%}")
print(f"committee of {study.committee['members']}: test error {study.estimates['test']:.1%} ({low:.1%} to {high:.1%})")
print("more trials?", study.analysis["advice"]["sentence"])

page = Path(tempfile.mkdtemp()) / "report.html"
page.write_text(gradwise.report(study))
print("report:", page)
