"""A scikit-learn classifier like any other, with nested parameters in a grid search."""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split

import gradwise as gw

x, y = load_breast_cancer(return_X_y=True, as_frame=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, stratify=y, random_state=0)

search = GridSearchCV(gw.Classifier(random_state=0), {"optimiser__learning_rate": [0.01, 0.025]}, cv=3)
search.fit(x_train, y_train)
print("best:", search.best_params_, f"test accuracy {search.score(x_test, y_test):.3f}")
