"""scikit-learn's own checks of both estimators, with their default parts. Two of them are excused, and why is said."""

from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import check_classifier_multioutput, parametrize_with_checks

from gradwise.estimators import Classifier, Regressor

_WHY = "which rows are held out, and 32-bit rounding, differ between a row of weight 2 and the same row twice"
EXCUSED = {
    "check_sample_weight_equivalence_on_dense_data": _WHY,
    "check_sample_weight_equivalence_on_sparse_data": _WHY,
}
INAPPLICABLE = (
    "SCIPY_ARRAY_API is not set: not checking array_api input",
    "Classifier does not have a decision_function method.",
)


@pytest.mark.slow
@parametrize_with_checks([Classifier(), Regressor()], expected_failed_checks=lambda estimator: EXCUSED)
def test_scikit_learns_contract_holds(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        if str(reason) not in INAPPLICABLE:  # no other check may say that it does not apply
            raise


@pytest.mark.slow
def test_labels_pass_the_check_that_is_meant_for_several_outputs():
    check_classifier_multioutput("Classifier", Classifier())


def test_the_tags_say_what_is_true():
    for estimator in (Classifier(), Regressor()):
        tags = estimator.__sklearn_tags__()
        assert tags.input_tags.sparse
        assert tags.input_tags.allow_nan
        assert not tags.no_validation
        assert not tags.non_deterministic
    assert Classifier().__sklearn_tags__().classifier_tags.multi_label
    assert not Classifier().__sklearn_tags__().classifier_tags.poor_score
    assert Regressor().__sklearn_tags__().target_tags.multi_output
    assert not Regressor().__sklearn_tags__().regressor_tags.poor_score
