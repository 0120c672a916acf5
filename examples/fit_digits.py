"""Train one network, measure its test error once, and write a report that shows how training went."""

import tempfile
from pathlib import Path

from sklearn.datasets import load_digits

import gradwise as gw

x, y = load_digits(return_X_y=True)
model = gw.fit(x, y, seed=0)
print(model)

low, high = model.test_interval
print(f"test error {model.test:.1%} (95 % confidence interval {low:.1%} to {high:.1%}), {model.record.outcome}")
print("probabilities of the first digit:", model.predict_proba(x[:1]).round(3))

folder = Path(tempfile.mkdtemp())
print("report:", model.report(folder / "report.html"))
print("the same after loading:", (gw.load(model.save(folder / "run")).predict(x) == model.predict(x)).all())
