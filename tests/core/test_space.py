"""The search space, read off a recipe."""

from gradwise import defaults
from gradwise.core.knob import Spec, switch
from gradwise.core.space import read_space
from gradwise.core.tree import knobs, replace
from gradwise.optimisers.sgd import HeavyBall


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
    for dimension in read_space(recipe):
        for fraction in (0.0, 0.3, 0.7, 0.999999):
            value = dimension.at(fraction)
            changed = replace(recipe, dimension.path, value)
            assert {path: got for path, _, got in knobs(changed)}[dimension.path] == value


def test_order_follows_the_fields_and_a_bare_spec_has_no_space() -> None:
    paths = [dimension.path for dimension in read_space(defaults.classification())]
    order = ["split", "scaler", "batches", "model", "criterion", "optimiser", "stopping"]
    firsts = [order.index(path.partition(".")[0]) for path in paths]
    assert firsts == sorted(firsts)

    class Bare(Spec):
        length: int = switch(1, row="C1")

    assert read_space(Bare()) == ()
