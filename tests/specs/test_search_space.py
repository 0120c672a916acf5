"""The search space: read off a recipe, or put together by paths; what is active where, and what reads back."""

import dataclasses
import json
import math

import numpy as np
import pytest

from gradwise import defaults
from gradwise.models.activations import Rectifier, Tanh
from gradwise.models.input_stage import PiecewiseLinear
from gradwise.models.mlp import Mlp
from gradwise.models.shared_weights import SharedWeights
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.knobs import Spec, switch
from gradwise.specs.paths import knobs, replace
from gradwise.specs.priors import AbstractPrior, Choice, LogInteger, LogUniform, Uniform, ZeroOr
from gradwise.specs.recipe import Recipe
from gradwise.specs.search_space import (
    Dimension,
    Space,
    dimension,
    exists,
    label,
    read_at,
    read_space,
    space_from_plain,
    space_to_plain,
    write_at,
)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return defaults.classification(model=Mlp(widths=(8, 8), dropout=0.2), optimiser=Sgd(learning_rate=0.1))


@pytest.fixture(scope="module")
def space(recipe: Recipe) -> Space:
    """Layers and their sizes, and two optimisers of which one has a momentum."""
    optimisers = Choice((Sgd(), HeavyBall(), HeavyBall(momentum=0.2)))
    return Space(
        recipe,
        (
            dimension(recipe, "model.widths.count", Choice((1, 2, 3))),
            dimension(recipe, "model.widths.each", LogInteger(4, 64)),
            dimension(recipe, "model.widths.2", LogInteger(4, 64)),
            dimension(recipe, "optimiser", optimisers),
            Dimension("optimiser.learning_rate", LogUniform(1e-3, 1.0)),
            Dimension("optimiser.momentum", Uniform(0.5, 0.9)),
            dimension(recipe, "model.dropout", ZeroOr(Uniform(0.1, 0.5))),
        ),
    )


def test_the_space_holds_what_has_a_prior_under_its_path() -> None:
    recipe = defaults.classification(optimiser=HeavyBall(learning_rate=0.05))
    space = {dimension.path: dimension for dimension in read_space(recipe)}
    assert {"optimiser.learning_rate", "optimiser.momentum", "model.widths", "batches.size"} <= set(space)
    assert set(space) == {path for path, declared, _ in knobs(recipe) if declared.prior is not None}
    assert "stopping.spacing" not in space
    rate = space["optimiser.learning_rate"]
    assert (rate.row, rate.value) == ("C1", 0.05)


def test_every_value_of_the_space_makes_a_recipe() -> None:
    recipe = defaults.classification()
    for one in read_space(recipe):
        for fraction in (0.0, 0.3, 0.7, 0.999999):
            value = one.at(fraction)
            changed = replace(recipe, one.path, value)
            assert {path: got for path, _, got in knobs(changed)}[one.path] == value


def test_order_follows_the_fields_and_a_bare_spec_has_no_space() -> None:
    paths = [dimension.path for dimension in read_space(defaults.classification())]
    order = ["split", "scaler", "batches", "model", "criterion", "optimiser", "stopping"]
    firsts = [order.index(path.partition(".")[0]) for path in paths]
    assert firsts == sorted(firsts)

    class Bare(Spec):
        length: int = switch(1, row="C1")

    assert read_space(Bare()) == ()


# --- paths into a switch that holds whole numbers


@pytest.mark.parametrize(
    ("path", "value", "widths"),
    [
        ("model.widths.count", 1, (8,)),
        ("model.widths.count", 4, (8, 9, 8, 8)),  # new layers are like the first
        ("model.widths.each", 5, (5, 5)),
        ("model.widths.0", 5, (5, 9)),
        ("model.widths.1", 5, (8, 5)),
        ("model.widths.2", 5, (8, 9)),  # there is no third layer
        ("model.widths", (3,), (3,)),
    ],
)
def test_sizes_are_written_by_count_by_each_and_by_place(path: str, value: object, widths: tuple[int, ...]) -> None:
    recipe = defaults.classification(model=Mlp(widths=(8, 9)))
    written = write_at(recipe, path, value)
    assert written.model.widths == widths
    assert replace(written, "model.widths", (8, 9)) == recipe  # nothing else was touched


def test_sizes_are_read_by_count_by_each_and_by_place() -> None:
    recipe = defaults.classification(model=Mlp(widths=(8, 9)))
    assert read_at(recipe, "model.widths.count") == (True, 2)
    assert read_at(recipe, "model.widths.each") == (True, 8)
    assert read_at(recipe, "model.widths.1") == (True, 9)
    assert read_at(recipe, "model.widths.2") == (False, None)
    linear = defaults.classification(model=Mlp(widths=()))
    assert read_at(linear, "model.widths.count") == (True, 0)
    assert read_at(linear, "model.widths.each") == (False, None)
    assert write_at(linear, "model.widths.count", 2).model.widths == (1, 1)


def test_a_path_leads_somewhere_or_not(recipe: Recipe) -> None:
    for path in ("model", "model.dropout", "criterion.penalties.0.coefficient", "model.widths"):
        assert exists(recipe, path)
    for path in ("modle", "model.dropout.rate", "criterion.penalties.7", "criterion.penalties.first", "model.widths.x"):
        assert not exists(recipe, path)
        assert read_at(recipe, path) == (False, None)
        assert write_at(recipe, path, 1.0) is recipe


# --- row E3: conditional knobs


def test_a_knob_is_active_where_its_path_leads_somewhere(space: Space) -> None:
    deep = space.recipe_of({"model.widths.count": 3, "model.widths.each": 16, "model.widths.2": 5})
    assert deep.model.widths == (16, 16, 5)
    assert space.values(deep)["model.widths.2"] == 5
    shallow = space.recipe_of({"model.widths.count": 1, "model.widths.each": 16, "model.widths.2": 5})
    assert shallow.model.widths == (16,)
    assert "model.widths.2" not in space.values(shallow)
    assert "optimiser.momentum" not in space.values(shallow)
    heavy = space.recipe_of({"optimiser": HeavyBall(), "optimiser.momentum": 0.6})
    assert heavy.optimiser == HeavyBall(momentum=0.6)
    assert space.values(heavy)["optimiser.momentum"] == 0.6


def test_fractions_of_what_is_not_active_change_nothing(space: Space) -> None:
    fractions = dict.fromkeys(space.paths, 0.1)
    one = space.recipe_at(fractions)  # one layer, no momentum
    assert (one.model.widths, type(one.optimiser)) == ((5,), Sgd)
    other = space.recipe_at({**fractions, "model.widths.2": 0.9, "optimiser.momentum": 0.9})
    assert one == other


def test_a_part_with_knobs_of_its_own_reads_back_as_the_item_it_came_from(space: Space) -> None:
    """The rate is searched within the optimiser, so the optimiser of a recipe is no item of the choice by itself."""
    for item in (Sgd(), HeavyBall()):
        made = space.recipe_of({"optimiser": item, "optimiser.learning_rate": 0.5, "optimiser.momentum": 0.7})
        assert made.optimiser != item
        values = space.values(made)
        assert values["optimiser"] == item
        assert space.fractions(made)["optimiser"] in (pytest.approx(1 / 6), pytest.approx(0.5))
        assert space.recipe_of(values) == made
    strange = space.recipe_of({})
    odd = replace(strange, "optimiser", Adam())
    assert space.values(odd)["optimiser"] == Adam()  # no item: as it is
    with pytest.raises(RequestError, match="not one of the values"):
        space.fractions(odd)


def test_a_recipe_lies_where_it_was_made(space: Space) -> None:
    """Values to recipe to values; fractions to recipe to fractions that give the same recipe."""
    draw = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        made = space.recipe_at(dict(zip(space.paths, draw.random(len(space.paths)).tolist(), strict=True)))
        values = space.values(made)
        assert space.recipe_of(values) == made
        again = space.recipe_at(space.fractions(made))
        assert space.values(again).keys() == values.keys()
        for path, value in values.items():
            found = space.values(again)[path]
            assert found == (pytest.approx(value) if isinstance(value, float) else value)
        seen.add(frozenset(values))
    assert len(seen) >= 4  # with and without a third layer, with and without momentum


def test_a_space_narrowed_or_given_other_priors(space: Space, recipe: Recipe) -> None:
    other = space.with_priors({"optimiser.learning_rate": LogUniform(1e-2, 0.1)})
    assert other["optimiser.learning_rate"].prior == LogUniform(1e-2, 0.1)
    assert other.paths == space.paths
    best = space.recipe_of({"model.widths.count": 3})
    only = space.only(["optimiser.learning_rate"], best)
    assert only.paths == ("optimiser.learning_rate",)
    assert only.recipe_of({"optimiser.learning_rate": 0.25}).model.widths == (8, 8, 8)
    with pytest.raises(RequestError, match=r"unknown dimension `optimiser\.learning`.*learning_rate"):
        space.with_priors({"optimiser.learning": Uniform(0, 1)})
    with pytest.raises(RequestError, match=r"`model\.dropout` appears twice in the space"):
        Space(recipe, (*space.dimensions, space["model.dropout"]))


# --- what a dimension knows, and what is refused


@pytest.mark.parametrize(
    ("prior", "numeric", "logarithmic"),
    [
        (Uniform(0.0, 0.5), True, False),
        (LogUniform(1e-3, 0.5), True, True),
        (ZeroOr(LogUniform(1e-3, 0.5)), True, True),
        (Choice((0.1, 0.2)), False, False),
    ],
)
def test_a_dimension_knows_its_line(recipe: Recipe, prior: AbstractPrior, numeric: bool, logarithmic: bool) -> None:
    found = dimension(recipe, "model.dropout", prior)
    assert (found.numeric, found.logarithmic) == (numeric, logarithmic)
    assert (found.row, found.kind, found.allowed) == ("J3", "capacity", (0.0, 1.0))


def test_a_dimension_takes_the_prior_of_its_knob(recipe: Recipe) -> None:
    assert dimension(recipe, "optimiser.learning_rate").prior == LogUniform(1e-6, 1.0)
    each = dimension(recipe, "model.widths.each", LogInteger(4, 64))
    assert (each.row, each.kind, each.value, each.allowed) == ("D1", "capacity", 8, (1.0, math.inf))
    part = dimension(recipe, "model.activation", Choice((Tanh(), Rectifier())))
    assert (part.row, part.kind, part.numeric) == ("E3", "model", False)


@pytest.mark.parametrize(
    ("path", "prior", "said"),
    [
        ("optimiser.learning_rte", None, "unknown knob `optimiser.learning_rte`.*optimiser.learning_rate"),
        ("model.widths.nine", None, "unknown knob `model.widths.nine`"),
        ("stopping.spacing", None, "`stopping.spacing` has no default range: give one"),
        ("model.activation", None, "`model.activation` has no default range"),
        ("model.dropout", Uniform(0.1, 1.5), r"`model.dropout` must lie in \[0, 1\]; got the range 0.1 to 1.5"),
        ("model.dropout", ZeroOr(Uniform(-0.5, 0.5)), r"must lie in \[0, 1\]; got the range -0.5 to 0.5"),
        ("optimiser.learning_rate", Uniform(-1.0, 1.0), r"must lie in \[0, inf\]"),
        ("model.widths.each", Uniform(0.0, 8.0), r"must lie in \[1, inf\]"),
    ],
)
def test_a_dimension_that_cannot_be_is_refused_in_one_line(
    recipe: Recipe, path: str, prior: AbstractPrior | None, said: str
) -> None:
    with pytest.raises(RequestError, match=said) as refusal:
        dimension(recipe, path, prior)
    assert "\n" not in str(refusal.value)


# --- words and files


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.float64(0.5), 0.5),
        (Tanh(), "Tanh()"),
        (HeavyBall(momentum=0.25), "HeavyBall(momentum=0.25)"),
        ((16, 32), "16×32"),
        ((), "()"),
        (True, True),
        ("error", "error"),
    ],
)
def test_a_value_has_a_word(value: object, said: object) -> None:
    assert label(value) == said


def test_a_space_survives_json(space: Space) -> None:
    text = json.dumps(space_to_plain(space), allow_nan=False)
    back = space_from_plain(json.loads(text))
    assert back.recipe == space.recipe
    assert back.paths == space.paths
    assert [d.prior for d in back.dimensions] == [d.prior for d in space.dimensions]
    assert [d.declaration for d in back.dimensions[:4]] == [d.declaration for d in space.dimensions[:4]]
    assert back["model.widths.each"].value == 8
    fractions = dict.fromkeys(space.paths, 0.7)
    assert back.recipe_at(fractions) == space.recipe_at(fractions)


def test_an_unknown_prior_in_a_file_is_refused(space: Space) -> None:
    plain = space_to_plain(space)
    plain["dimensions"][0]["prior"] = "Normal"
    with pytest.raises(RequestError, match="unknown prior 'Normal'"):
        space_from_plain(plain)


def test_what_a_recipe_of_the_portfolio_has_otherwise_is_told_where_it_differs() -> None:
    """Parts by their name, knobs within a part that stays by their path; what a dimension tells already is left out."""
    recipe = defaults.table("classes", 5000)
    space = defaults.search_space(recipe)
    other = write_at(write_at(recipe, "model.widths.count", 2), "model.inputs.numbers", PiecewiseLinear(bins=8))
    other = write_at(write_at(other, "stopping.epochs", 64.0), "model.dropout", 0.3)
    wanted = {"model.widths": (256, 256), "model.inputs.numbers": PiecewiseLinear(bins=8), "stopping.epochs": 64.0}
    assert space.beyond(other) == wanted
    shared = dataclasses.replace(recipe, model=SharedWeights(recipe.model, members=4))
    assert {path: label(value) for path, value in space.beyond(shared).items()} == {"model": "SharedWeights(members=4)"}
    assert space.beyond(recipe) == {}


def test_a_change_reaches_the_portfolio_too() -> None:
    recipe = defaults.table("classes", 5000)
    space = Space(recipe, (dimension(recipe, "model.dropout"),), (write_at(recipe, "model.dropout", 0.4),))
    found = space.with_recipes(lambda one: write_at(one, "stopping.epochs", 8.0))
    assert [one.stopping.epochs for one in (found.recipe, *found.portfolio)] == [8.0, 8.0]
    assert found.portfolio[0].model.dropout == 0.4
    assert found.dimensions == space.dimensions
