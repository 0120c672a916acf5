"""No knob left but the budget: a search that trains many networks, and a committee of the best setting's."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gradwise

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, stratify=y, random_state=0)

search = gradwise.AutoClassifier("6 trials", finalists=1, seeds=3, random_state=0).fit(x_train, y_train)
study = search.study_
print(study.analysis["advice"]["sentence"])
print("best:", {path: study.best.values[path] for path in study.space.paths if path in study.best.values})
print(f"committee of {study.committee['members']}: test accuracy {search.score(x_test, y_test):.3f}")
