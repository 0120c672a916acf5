"""A recipe holds one part in each place, and its leaves are its knobs."""

import equinox as eqx
import jax
import pytest

from gradwise import defaults
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.paths import knobs
from gradwise.specs.recipe import Recipe


def test_a_recipe_is_a_pytree_whose_leaves_are_its_knobs() -> None:
    recipe = defaults.classification()
    leaves = [leaf for leaf in jax.tree.leaves(recipe) if eqx.is_array(leaf)]
    assert len(leaves) == sum(not declared.static and type(value) is not float for _, declared, value in knobs(recipe))
    assert isinstance(recipe, Recipe)


def test_a_part_in_the_wrong_place_is_named() -> None:
    with pytest.raises(RequestError, match=r"`Recipe\.stopping` must be an instance of AbstractStopping; got Sgd"):
        defaults.classification(stopping=Sgd())
