import pytest

from gradwise import defaults
from gradwise.criteria.embedding.embed_neighbours import EmbedNeighbours
from gradwise.criteria.penalties import L2
from gradwise.journeys.requests.assignments import Assignment, assignments_of, resolve
from gradwise.journeys.requests.training_requests import FitRequest
from gradwise.models.activations import Tanh
from gradwise.models.shared_weights import SharedWeights
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage, PolyakAverage
from gradwise.optimisers.first_order.schedules import FlatCosine, InverseTime, RepeatedCosine
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.runtime.errors import RequestError
from gradwise.specs.paths import get, knobs, parts
from gradwise.specs.schedules import Constant
from gradwise.training.stopping import Off, Plus

RECIPES = {
    "classes": defaults.classification(),
    "labels": defaults.multilabel(),
    "numbers": defaults.regression(),
}


def resolved(*texts, recipe=RECIPES["classes"]):
    return resolve(recipe, assignments_of(FitRequest.of({"data": "iris", "set": list(texts)})))


def turned(*texts, recipe=RECIPES["classes"]):
    return resolved(*texts, recipe=recipe).recipe


def text_of(value):
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("kind", RECIPES)
def test_every_knob_is_reached_by_its_path_and_keeps_its_value(kind):
    recipe = RECIPES[kind]
    for path, _, value in knobs(recipe):
        assert turned(f"{path}={text_of(value)}", recipe=recipe) == recipe, path


@pytest.mark.parametrize("kind", RECIPES)
def test_a_number_given_to_any_numeric_knob_arrives_there_and_nowhere_else(kind):
    recipe = RECIPES[kind]
    for path, declaration, value in knobs(recipe):
        if isinstance(value, (bool, str, tuple)):
            continue
        candidates = (
            (value + 1,) if isinstance(declaration.default, int) else (float(value) * 0.5, float(value) * 1.5, 0.25)
        )
        new = next(one for one in candidates if one in declaration.allowed and one != value)
        changed = turned(f"{path}={new!r}", recipe=recipe)
        different = [p for (p, _, a), (_, _, b) in zip(knobs(recipe), knobs(changed), strict=True) if a != b]
        assert different == [path]
        assert get(changed, path) == new


def test_values_are_read_by_their_declared_type():
    recipe = turned(
        "model.widths=64, 32",
        "model.residual=yes",
        "batches.size=1e2",
        "model.dropout=.5",
        "criterion.loss.score_by=loss",
    )
    assert recipe.model.widths == (64, 32)
    assert recipe.model.residual is True
    assert recipe.batches.size == 100
    assert type(recipe.batches.size) is int
    assert float(recipe.model.dropout) == 0.5
    assert recipe.criterion.loss.score_by == "loss"
    assert turned("model.widths=16").model.widths == (16,)
    assert turned("model.widths=none").model.widths == ()
    assert turned("model.widths=(16, 8)").model.widths == (16, 8)


def test_parts_are_exchanged_by_class_name_whatever_its_case():
    recipe = turned("model.activation=tanh", "optimiser=heavy-ball", "stopping=Off")
    assert recipe.model.activation == Tanh()
    assert recipe.optimiser == HeavyBall()
    assert recipe.stopping == Off()


def test_knobs_of_a_new_part_can_be_set_in_any_order():
    one = turned("optimiser=Sgd", "optimiser.learning_rate=0.1", "optimiser.schedule=InverseTime")
    other = turned("optimiser.schedule=InverseTime", "optimiser.learning_rate=0.1", "optimiser=Sgd")
    assert one == other
    assert one.optimiser == Sgd(learning_rate=0.1, schedule=InverseTime())
    deep = turned("optimiser.schedule.tau_updates=50", "optimiser.schedule=InverseTime")
    assert float(deep.optimiser.optimiser.schedule.tau_updates) == 50
    assert turned("stopping.growth=Plus", "stopping.growth.examples=7").stopping.growth == Plus(7.0)


def test_a_knob_that_the_old_part_has_twice_is_that_of_the_new_one():
    """`criterion.coefficient` is that of two penalties, until the criterion is another."""
    for texts in (
        ("criterion=EmbedNeighbours", "criterion.coefficient=0.3"),
        ("criterion.coefficient=0.3", "criterion=EmbedNeighbours"),
    ):
        assert turned(*texts).criterion == EmbedNeighbours(coefficient=0.3)
    with pytest.raises(RequestError, match="ambiguous"):
        turned("criterion.coefficient=0.3")


def test_fractions_are_listed_where_the_default_is_one():
    recipe = turned("criterion.loss.weights=1, 0.5", recipe=defaults.multitask())
    assert recipe.criterion.loss.weights == (1.0, 0.5)
    with pytest.raises(RequestError, match="expected numbers separated by commas"):
        turned("criterion.loss.weights=a,b", recipe=defaults.multitask())


def test_a_schedule_becomes_any_other_and_constant_again():
    """The contract and `Constant` stand apart from the other schedules."""
    table = defaults.table("classes")
    calm = turned("optimiser.schedule=Constant", "optimiser.decay_schedule=Constant", recipe=table)
    assert calm.optimiser.optimiser.schedule == calm.optimiser.optimiser.decay_schedule == Constant()
    waves = turned("optimiser.schedule=RepeatedCosine", "optimiser.schedule.cycles=2")
    assert waves.optimiser.optimiser.schedule == RepeatedCosine(cycles=2)
    dropped = turned("model.dropout_schedule=flat-cosine", "criterion.loss.smoothing_schedule=FlatCosine")
    assert dropped.model.dropout_schedule == dropped.criterion.loss.smoothing_schedule == FlatCosine()


def test_a_repeated_name_may_be_left_out():
    assert turned("optimiser.learning_rate=0.03") == turned("optimiser.optimiser.learning_rate=0.03")
    twice = defaults.classification(optimiser=PolyakAverage(MovingAverage(Adam())))
    changed = turned("optimiser.learning_rate=0.03", recipe=twice)
    assert float(changed.optimiser.optimiser.optimiser.learning_rate) == 0.03


def test_the_whole_path_comes_before_the_shortened_one():
    recipe = turned("optimiser.optimiser=AdamW", "optimiser.decay=0.5")
    assert float(recipe.optimiser.decay) == 0.5  # the average's, not AdamW's
    assert float(recipe.optimiser.optimiser.decay) == 0.01
    two_rates = defaults.classification(optimiser=PolyakAverage(MovingAverage(Adam(), decay=0.9)))
    assert float(turned("optimiser.decay=0.5", recipe=two_rates).optimiser.optimiser.decay) == 0.5


def test_a_penalty_is_called_by_its_class_or_its_number():
    assert turned("criterion.penalties.l1.coefficient=3") == turned("criterion.penalties.1.coefficient=3")
    assert float(turned("criterion.penalties.L2.coefficient=3").criterion.penalties[0].coefficient) == 3


def test_two_penalties_of_one_class_must_be_told_apart():
    recipe = turned("criterion.penalties.0=L1")
    with pytest.raises(RequestError, match=r"penalties\.0\.coefficient or criterion\.penalties\.1\.coefficient"):
        turned("criterion.penalties.l1.coefficient=3", recipe=recipe)


def test_a_list_of_parts_grows_by_its_next_number():
    """Penalties by the class of a new one; groups by what they need, the rest copied from the base as it is set."""
    words = ("criterion.penalties.2=L2", "criterion.penalties.2.where=output.weight")
    assert turned(*words).criterion.penalties[2] == L2(where="output.weight")
    words = (
        "optimiser=Grouped",
        "optimiser.groups.0.where=*.bias",
        "optimiser.base=Sgd",
        "optimiser.learning_rate=0.3",
    )
    assert turned(*words).optimiser == Grouped(Sgd(0.3), groups=(ParameterGroup("*.bias", Sgd(0.3)),))
    inside = turned(
        "optimiser.optimiser=Grouped", "optimiser.groups.0.where=*.bias", "optimiser.groups.0.optimiser=Sgd"
    )
    assert inside.optimiser == MovingAverage(Grouped(Adam(), groups=(ParameterGroup("*.bias", Sgd()),)))
    again = resolved("optimiser=Grouped", "optimiser.groups.0.where=*.bias", "optimiser.groups.0.learning_rate=0.2")
    assert turned(*again.changes) == again.recipe
    with pytest.raises(RequestError, match=r"name its class first, such as criterion\.penalties\.2=NAME"):
        turned("criterion.penalties.2.where=output.weight")


def test_a_wrapper_wraps_what_stood_there():
    assert turned("optimiser=PolyakAverage").optimiser == PolyakAverage(Adam())
    plain = defaults.classification(optimiser=Sgd(learning_rate=0.3))
    assert turned("optimiser=MovingAverage", recipe=plain).optimiser == MovingAverage(Sgd(learning_rate=0.3))


def test_knobs_that_fit_only_together_are_set_together():
    recipe = turned("split.valid=0.85", "split.test=0.1")  # 0.85 beside the default 0.2 would leave nothing
    assert (recipe.split.valid, recipe.split.test) == (0.85, 0.1)
    with pytest.raises(RequestError, match="leave examples for training"):
        turned("split.valid=0.85")


def test_the_later_value_holds():
    assert float(turned("model.dropout=0.1", "model.dropout=0.3").model.dropout) == 0.3
    assert turned("optimiser=Sgd", "optimiser=HeavyBall").optimiser == HeavyBall()


def test_changes_lead_to_the_same_recipe_again():
    texts = (
        "optimiser.learning_rate=0.03",
        "stopping=off",
        "model.activation=TANH",
        "model.widths=8,8",
        "stopping.epochs=2",
    )
    found = resolved(*texts)
    assert turned(*found.changes) == found.recipe
    assert set(found.changes) == {
        "optimiser.optimiser.learning_rate=0.03",
        "stopping=Off",
        "model.activation=Tanh",
        "model.widths=8,8",
        "stopping.epochs=2.0",
    }


def test_tables_mirror_paths():
    table = {"optimiser.class": "Sgd", "optimiser.learning_rate": 0.1, "model.widths": [8, 4], "model.residual": True}
    request = FitRequest(data="iris", config="run.toml", recipe=table, set={"optimiser.learning_rate": "0.1"})
    assert {item.source for item in assignments_of(request)} == {"run.toml", "--set"}
    recipe = resolve(RECIPES["classes"], assignments_of(request)).recipe
    assert recipe.optimiser == Sgd(learning_rate=0.1)
    assert (recipe.model.widths, recipe.model.residual) == ((8, 4), True)


def test_every_part_can_become_any_other_of_its_kind():
    from gradwise.journeys.requests.assignments import _classes, _contract

    # One needs its steps, one is what a population makes of an `Mlp`, one what a run makes of its inputs, and one wraps
    # a criterion that has no target.
    only_in_python = {"Chain", "LaidOut", "PaddedMlp", "Probed"}
    made = 0
    for path, _ in parts(RECIPES["classes"]):
        for name, kind in _classes(*_contract(RECIPES["classes"], path)).items():
            if name not in only_in_python:
                assert type(get(turned(f"{path}={name}"), path)) is kind
                made += 1
    assert made > 80


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("optimiser.learning_rat=1", "Did you mean 'optimiser.learning_rate'?"),
        ("learning_rate=1", "Did you mean 'optimiser.learning_rate'?"),
        ("model.activations=tanh", "Did you mean 'model.activation'?"),
        ("optimiser.momentum=0.9", "unknown knob `optimiser.momentum`"),
        ("optimiser=Sdg", "Did you mean 'Sgd'?"),
        ("optimiser=Tanh", "unknown part 'Tanh'"),
        ("model.activation=AbstractActivation", "unknown part 'AbstractActivation'"),
        ("model=BuiltModel", "unknown part 'BuiltModel'"),
        ("scaler=Chain", "Chain needs `steps`"),
        ("model.widths=a,b", "whole numbers separated by commas"),
        ("model.widths=1.5", "whole numbers separated by commas"),
        ("model.widths=0", "`Mlp.widths` must be whole numbers of at least 1"),
        ("batches.size=1.5", "expected a whole number; got '1.5'"),
        ("batches.size=0", "`Reshuffled.size` must lie in [1, inf); got 0"),
        ("optimiser.learning_rate=-1", "`Adam.learning_rate` must lie in (0, inf); got -1"),
        ("optimiser.learning_rate=nan", "must lie in"),
        ("optimiser.learning_rate=fast", "expected a number; got 'fast'. Default: "),
        ("model.residual=maybe", "expected true or false"),
        ("criterion.loss.score_by=luck", "must be one of 'error', 'loss'"),
        ("optimiser.learning_rate", "expected path=value"),
        ("=1", "expected path=value"),
    ],
)
def test_mistakes_are_named(text, words):
    with pytest.raises(RequestError) as caught:
        turned(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("optimiser", 3, "expected the name of a class"),
        ("optimiser.learning_rate", True, "expected a number"),
        ("optimiser.learning_rate", 10**400, "expected a number"),
        ("model.widths", ["a"], "whole numbers"),
        ("criterion.loss.score_by", 1, "expected text"),
        ("model.residual", 2, "expected true or false"),
    ],
)
def test_values_of_a_file_are_checked_too(path, value, words):
    with pytest.raises(RequestError, match=words) as caught:
        resolve(RECIPES["classes"], [Assignment(path, value, "run.toml")])
    assert str(caught.value).startswith(f"run.toml {path}")


def test_a_wrapper_may_be_left_out_of_a_path():
    recipe = defaults.classification(model=SharedWeights())
    changed = resolve(recipe, [Assignment("model.widths", "8,8")])
    assert changed.recipe.model.mlp.widths == (8, 8)
    assert changed.changes == ("model.mlp.widths=8,8",)
