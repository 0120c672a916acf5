"""scikit-learn's own checks of all estimators. Two of them are excused, and why is said.

Each is fitted hundreds of times, so `Classifier` and `Regressor` are less patient than by default, and the two that
search have little to search: what they do with rows, targets and parameters does not depend on it. That the defaults
learn what scikit-learn asks of a classifier and a regressor is checked apart.
"""

from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import (
    check_classifier_multioutput,
    check_classifiers_train,
    check_regressors_train,
    parametrize_with_checks,
)

from gradwise.estimators import AutoClassifier, AutoRegressor, Classifier, Regressor
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.specs.priors import Choice
from gradwise.training.stopping import Off, Patience

_WHY = "which rows are held out, and 32-bit rounding, differ between a row of weight 2 and the same row twice"
EXCUSED = {
    "check_sample_weight_equivalence_on_dense_data": _WHY,
    "check_sample_weight_equivalence_on_sparse_data": _WHY,
}
INAPPLICABLE = (
    "SCIPY_ARRAY_API is not set: not checking array_api input",
    "Classifier does not have a decision_function method.",
    "AutoClassifier does not have a decision_function method.",
)
LITTLE = {
    "budget": "2 trials",
    "space": {
        "model.widths": (16,),
        "model.dropout": 0.0,
        "stopping": Off(epochs=30),
        "optimiser": Sgd(),
        "optimiser.learning_rate": Choice((0.05, 0.1)),
    },
    "finalists": 1,
    "seeds": 1,
}
HASTY = Patience(initial_examples=10_000.0, initial_epochs=5.0)
ESTIMATORS = [
    Classifier(stopping=HASTY),
    Regressor(stopping=HASTY),
    AutoClassifier(**LITTLE),
    AutoRegressor(**LITTLE),
]


@pytest.mark.slow
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXCUSED)
def test_scikit_learns_contract_holds(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        if str(reason) not in INAPPLICABLE:  # no other check may say that it does not apply
            raise


@pytest.mark.slow
def test_the_defaults_learn_what_is_asked_of_them():
    check_classifiers_train("Classifier", Classifier())
    check_regressors_train("Regressor", Regressor())


@pytest.mark.slow
def test_labels_pass_the_check_that_is_meant_for_several_outputs():
    check_classifier_multioutput("Classifier", Classifier(stopping=HASTY))
    check_classifier_multioutput("AutoClassifier", AutoClassifier(**LITTLE))


def test_the_tags_say_what_is_true():
    for estimator in ESTIMATORS:
        tags = estimator.__sklearn_tags__()
        assert tags.input_tags.sparse
        assert tags.input_tags.allow_nan
        assert not tags.no_validation
        assert not tags.non_deterministic
    for classifier in (Classifier(), AutoClassifier()):
        assert classifier.__sklearn_tags__().classifier_tags.multi_label
        assert not classifier.__sklearn_tags__().classifier_tags.poor_score
    for regressor in (Regressor(), AutoRegressor()):
        assert regressor.__sklearn_tags__().target_tags.multi_output
        assert not regressor.__sklearn_tags__().regressor_tags.poor_score
