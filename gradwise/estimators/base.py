"""What the estimators share: scikit-learn's contract around one call of `fit`.

    Classifier(model=Mlp(widths=(500,)), optimiser__...)     no: nested names are for `set_params` and grids
    Classifier(optimiser=Sgd(learning_rate=0.03)).fit(X, y).predict(X)
    GridSearchCV(Classifier(), {"optimiser__learning_rate": [1e-3, 3e-3]})

A part that is `None` is the recommended one (`gradwise.defaults`).
"""
