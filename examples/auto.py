"""The budget is the only knob: a search tries many settings, and an ensemble of their networks predicts."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gradwise as gw

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, stratify=y, random_state=0)

# `space` only keeps the example short: without it the networks are larger, and more of their knobs vary.
space = {"model": gw.Mlp(widths=(64,), dropout=0.0), "optimiser.learning_rate": "log(1e-4, 1e-2)"}
auto = gw.AutoClassifier("4 trials", space=space, random_state=0)
auto.fit(x_train, y_train)

study = auto.study_
print("best:", study.winner.values)
print("more trials?", study.analysis.advice.sentence)
print(f"ensemble of {study.committee.members} networks: test accuracy {auto.score(x_test, y_test):.3f}")
