import pytest

from gradwise import defaults
from gradwise.journeys.requests.ranges import build_space, written_ranges
from gradwise.models.activations import Rectifier, Tanh
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.first_order.sgd import HeavyBall
from gradwise.runtime.errors import RequestError
from gradwise.specs.paths import replace
from gradwise.specs.priors import Choice, LogUniform, Uniform

RECIPE = defaults.classification()
RATE = "optimiser.optimiser.learning_rate"


def build(recipe=RECIPE, **how):
    return build_space(recipe, **how)


def test_without_a_word_the_space_is_the_recommended_one():
    assert build() == defaults.search_space(RECIPE)


def test_the_ranges_of_a_study_file_are_the_space_that_it_was_written_from():
    """Its portfolio too, without which a study that goes on, or is run again, would have other trials (row E17)."""
    table = defaults.table("classes", rows=400)
    for fixed in ([], ["model.dropout"]):
        space = build(table, fixed=fixed)
        assert space.portfolio
        assert build(table, fixed=fixed, ranges=written_ranges(space)) == space
    narrowed = {**written_ranges(space), "optimiser.optimiser.learning_rate": "log(1e-3, 2e-3)"}
    assert build(table, fixed=fixed, ranges=narrowed).portfolio == ()
    assert build(table, more_ranges={"optimiser.learning_rate": "log(1e-3, 2e-3)"}).portfolio == ()


def test_what_is_set_is_not_searched():
    assert build(fixed=["model.widths", RATE]).paths == ("model.dropout", "criterion.penalties.0.coefficient")
    exchanged = replace(RECIPE, "optimiser", HeavyBall())
    assert "optimiser.learning_rate" in build(exchanged, fixed=["optimiser"]).paths  # a part's own knobs still are


def test_a_range_changes_a_dimension_in_its_place_or_adds_one():
    space = build(
        more_ranges={"optimiser.learning_rate": "log(1e-3, 1e-2)", "model.activation": "choice(tanh, Rectifier)"}
    )
    assert space[RATE].prior == LogUniform(1e-3, 1e-2)
    assert space["model.activation"].prior == Choice((Tanh(), Rectifier()))
    assert space.paths == ("model.activation", *defaults.search_space(RECIPE).paths)  # parts come first


def test_a_knob_may_belong_to_one_of_several_parts():
    asked = {"optimiser.momentum": "uniform(0, 0.99)", "optimiser": "choice(HeavyBall, Adam)"}
    recipe = replace(RECIPE, "optimiser", Adam())
    space = build(recipe, more_ranges=asked)
    assert space.paths[0] == "optimiser"
    assert space["optimiser.momentum"].prior == Uniform(0, 0.99)
    assert "optimiser.momentum" in space.values(space.recipe_at(dict.fromkeys(space.paths, 0.1)))
    assert "optimiser.momentum" not in space.values(space.recipe_at(dict.fromkeys(space.paths, 0.9)))


def test_a_study_file_s_ranges_are_the_whole_space_and_come_back():
    written = {"model.widths.count": "choice(1, 2)", "model.widths.each": "integers(4, 8)", RATE: "log(0.001, 0.1)"}
    space = build(ranges=written, source="study.toml")
    assert written_ranges(space) == written
    assert build(ranges=written, turned=["model.widths"]).paths == (RATE,)


def test_equal_requests_in_another_order_are_equal_spaces():
    asked = {"model.activation": "choice(Tanh, Rectifier)", "batches.size": "choice(16, 32)"}
    assert build(more_ranges=asked) == build(more_ranges=dict(reversed(asked.items())))
    assert build(more_ranges=asked) == build(ranges=written_ranges(build(more_ranges=asked)))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"optimiser.learning_rat": "log(1, 2)"}, "Did you mean 'optimiser.learning_rate'?"),
        ({"optimiser.learning_rate": "log(1, 2"}, "--range optimiser.learning_rate: invalid range 'log(1, 2'"),
        ({"optimiser.learning_rate": "uniform(-1, 2)"}, "must lie in [0, inf]"),
        ({"model.activation": "choice(Tan, Rectifier)"}, "--range model.activation: unknown part 'Tan'."),
        ({"batches.size": "choice(0, 4)"}, "invalid value 0: `Reshuffled.size` must lie in [1, inf)"),
        ({"model.widths.count": "log(few, many)"}, "'few' is not a number"),
        ({"model.activation": "log(1, 2)"}, "--range model.activation: is a part"),
        ({"batches.size": "log(16, 256)"}, "--range batches.size: takes whole numbers"),
        ({"model.widths": "integers(16, 256)"}, "--range model.widths: is a list of numbers"),
        ({"model.widths": "choice([8], 4)"}, "--range model.widths: is a list of numbers"),
        ({"model.widths": "choice([8], [0])"}, "invalid value (0,)"),
    ],
)
def test_ranges_that_cannot_be_are_refused(asked, says):
    with pytest.raises(RequestError) as caught:
        build(more_ranges=asked)
    assert says in str(caught.value)


def test_a_space_without_a_knob_is_refused():
    with pytest.raises(RequestError, match="nothing to search: every knob is set"):
        build(fixed=["model.widths", RATE, "model.dropout", "criterion.penalties.0.coefficient"])
