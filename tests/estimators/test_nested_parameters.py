"""Nested parameters, in parts that have no `get_params` of their own."""

import re

import pytest
from sklearn.base import clone

from gradwise.defaults import table
from gradwise.estimators import Classifier, Regressor
from gradwise.estimators.nested_parameters import read_parameters, write_parameters
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam, AdamW
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime.errors import RequestError


def test_read_names_every_knob_by_its_path_and_a_wrapped_one_also_in_short():
    found = read_parameters("optimiser", MovingAverage(Adam(learning_rate=0.02), decay=0.9))
    assert found["optimiser__optimiser__learning_rate"] == 0.02
    assert found["optimiser__learning_rate"] == 0.02
    assert found["optimiser__decay"] == 0.9
    assert type(found["optimiser__learning_rate"]) is float


def test_a_wrapper_keeps_its_own_knob_where_both_have_one_of_the_same_name():
    wrapped = MovingAverage(AdamW(decay=0.5), decay=0.9)
    assert read_parameters("optimiser", wrapped)["optimiser__decay"] == 0.9
    changed = write_parameters("optimiser", wrapped, "decay", 0.8)
    assert (changed.decay, changed.optimiser.decay) == (0.8, 0.5)
    assert write_parameters("optimiser", wrapped, "optimiser__decay", 0.1).optimiser.decay == 0.1


def test_write_reaches_through_wrappers_and_leaves_the_original_alone():
    before = MovingAverage(MovingAverage(Adam(learning_rate=0.25)))
    after = write_parameters("optimiser", before, "learning_rate", 0.5)
    assert after.optimiser.optimiser.learning_rate == 0.5
    assert before.optimiser.optimiser.learning_rate == 0.25


def test_write_returns_the_very_part_when_nothing_changes():
    part = Mlp(widths=(8,), dropout=0.0)
    assert write_parameters("model", part, "widths", (8,)) is part
    assert write_parameters("model", part, "dropout", 0.0) is part
    assert write_parameters("model", part, "widths", (9,)) is not part


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model__width", "Did you mean 'model__widths'"),
        ("model__scale", "`model__initial__scale` or `model__output_initial__scale`"),
        ("optimiser__momentun", "no parameter `optimiser__momentun`"),
        ("modle", "Did you mean 'model'"),
        ("split__valid", "no parameter `split__valid`"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_and_nothing_is_set(name, message):
    classifier = Classifier()
    with pytest.raises(RequestError, match=re.escape(message)):
        classifier.set_params(**{"metric": "auc", name: 1})
    assert classifier.metric is None


def test_a_value_out_of_range_is_refused_by_the_spec_itself():
    with pytest.raises(RequestError, match=r"`Adam.learning_rate` must lie in \(0, inf\)"):
        Classifier(optimiser=MovingAverage(Adam())).set_params(optimiser__learning_rate=-1.0)


def test_a_nested_parameter_replaces_the_recommended_part_by_a_changed_copy():
    recommended = table("classes").optimiser
    before = Classifier().get_params()["optimiser__learning_rate"]
    classifier = Classifier().set_params(optimiser__learning_rate=2 * before)
    assert classifier.get_params()["optimiser__learning_rate"] == 2 * before
    assert type(classifier.optimiser) is type(recommended)
    assert classifier.optimiser != recommended
    assert Classifier().get_params()["optimiser__learning_rate"] == before


def test_a_part_and_its_knob_can_be_set_in_one_call_in_either_order():
    for names in (("optimiser", "optimiser__learning_rate"), ("optimiser__learning_rate", "optimiser")):
        values = {"optimiser": Sgd(), "optimiser__learning_rate": 0.3}
        classifier = Classifier().set_params(**{name: values[name] for name in names})
        assert isinstance(classifier.optimiser, Sgd)
        assert classifier.optimiser.learning_rate == 0.3


@pytest.mark.parametrize("estimator", [Classifier(), Regressor(), Classifier(model=Mlp(widths=(8,)), optimiser=Sgd())])
def test_setting_what_was_read_changes_nothing(estimator):
    before = estimator.get_params(deep=False)
    estimator.set_params(**estimator.get_params())
    assert all(estimator.get_params(deep=False)[name] is value for name, value in before.items())


def test_a_clone_has_equal_parts_of_its_own():
    original = Classifier(model=Mlp(widths=(8,)), optimiser=Sgd(learning_rate=0.2), metric="auc")
    copy = clone(original)
    assert copy.model is not original.model
    assert copy.get_params() == original.get_params()


def test_a_part_within_a_part_can_be_exchanged():
    from gradwise.models.activations import Tanh

    regressor = Regressor().set_params(model__activation=Tanh())
    assert isinstance(regressor.model.activation, Tanh)
    assert regressor.model.widths == table("numbers").model.widths


def test_what_is_no_spec_has_no_nested_parameters():
    assert read_parameters("criterion", print) == {}
    assert "criterion__mixup" not in Regressor(criterion=print).get_params()
