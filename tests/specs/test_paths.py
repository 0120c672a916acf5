"""Paths into specs and into parameters."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L1, L2
from gradwise.criteria.supervised import Supervised
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.runtime.errors import RequestError
from gradwise.specs import paths
from gradwise.specs.knobs import Spec, switch
from gradwise.training.stopping import Patience, Times


@pytest.fixture(scope="module")
def network() -> Any:
    return Mlp(widths=(3, 2), normalisation=BatchNorm(), dropout=0.5).build((4,), 2, key=jax.random.key(0))


def test_knobs_are_found_at_every_depth() -> None:
    recipe = defaults.classification(
        criterion=Supervised(SoftmaxLoss(), penalties=(L2(1.0), L1(0.1))),
        optimiser=MovingAverage(Adam(learning_rate=0.5)),
        model=Mlp(widths=(9, 8)),
        stopping=Patience(growth=Times(3.0)),
    )
    found = {path: value for path, _, value in paths.knobs(recipe)}
    assert found["optimiser.optimiser.learning_rate"] == 0.5
    assert found["criterion.penalties.0.coefficient"] == 1.0
    assert found["criterion.penalties.1.coefficient"] == 0.1
    assert found["stopping.growth.factor"] == 3.0
    assert found["model.widths"] == (9, 8)
    assert all(paths.get(recipe, path) is value for path, value in found.items())


def test_parts_are_what_can_be_exchanged() -> None:
    found = dict(paths.parts(defaults.classification()))
    assert {"model", "model.activation", "optimiser", "optimiser.optimiser", "criterion.loss"} <= set(found)
    assert isinstance(found["optimiser.optimiser"], Adam)
    assert not set(found) & {path for path, _, _ in paths.knobs(defaults.classification())}


def test_a_built_module_stands_as_a_part_without_knobs() -> None:
    module = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    recipe = defaults.regression(model=module)
    assert dict(paths.parts(recipe))["model"] is module
    assert [path for path, _, _ in paths.knobs(recipe) if path.startswith("model")] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("optimiser.optimiser.learning_rate", 0.25),
        ("criterion.penalties.1.coefficient", 0.5),
        ("model.widths", (7,)),
        ("batches.size", 3),
        ("optimiser", Sgd()),
    ],
)
def test_replace_changes_one_place_and_leaves_the_original(path: str, value: Any) -> None:
    recipe = defaults.classification()
    before = paths.get(recipe, path)
    changed = paths.replace(recipe, path, value)
    assert paths.get(changed, path) == value
    assert paths.get(recipe, path) is before
    others = {name: got for name, _, got in paths.knobs(recipe) if not name.startswith(path)}
    if path != "optimiser":
        assert {name: got for name, _, got in paths.knobs(changed) if name != path} == others


def test_replace_checks_as_when_first_made() -> None:
    with pytest.raises(RequestError, match=r"Adam\.learning_rate"):
        paths.replace(defaults.classification(), "optimiser.optimiser.learning_rate", -1.0)
    with pytest.raises(RequestError, match="expected an optimiser such as `Adam"):
        paths.replace(defaults.classification(), "optimiser", 3)


class _Counted(Spec):
    """Made by a constructor of its own, which a copy must not pass by."""

    twice: int = switch(2, allowed="[0, inf)", row="E3", about="an even number")

    def __init__(self, twice: int = 2):
        self.twice = 2 * (twice // 2)


class _Following(Spec):
    first: int = switch(1, allowed="[0, inf)", row="E3", about="a number")
    second: int = switch(1, allowed="[0, inf)", row="E3", about="no less than the first")

    def __check_init__(self) -> None:
        if self.second < self.first:
            raise RequestError("the second is less than the first.")


def test_replace_makes_what_a_constructor_would() -> None:
    assert paths.replace(_Counted(), "twice", 7).twice == 6
    assert paths.replace_several(_Following(), {"first": np.int64(2), "second": 5}) == _Following(2, 5)
    assert type(paths.replace(_Following(), "second", np.int64(3)).second) is int  # converted
    with pytest.raises(RequestError, match="the second is less"):
        paths.replace(_Following(), "first", 3)
    with pytest.raises(RequestError, match=r"expected an optimiser.*got an object of type L1"):
        paths.replace(defaults.classification(), "optimiser", L1())
    with pytest.raises(TypeError, match="unexpected keyword"):
        paths.replace(_Following(), "third", 3)
    grouped = Grouped(Sgd(0.1), (ParameterGroup("*.bias", Sgd(0.2)),))
    assert paths.replace(grouped, "groups.0.where", "*.weight").groups[0].where == "*.weight"


def test_a_misspelt_path_gets_the_nearest_right_one() -> None:
    recipe = defaults.classification(optimiser=Sgd())
    paths.check_path(recipe, "optimiser.learning_rate")
    paths.check_path(recipe, "model.activation")
    with pytest.raises(
        RequestError, match=r"unknown knob `optimiser\.learning_rat`\. Did you mean 'optimiser\.learning_rate'"
    ):
        paths.check_path(recipe, "optimiser.learning_rat")
    for path in ("", ".", "optimiser.", "criterion.penalties.9.coefficient", "__class__"):
        with pytest.raises(RequestError, match="unknown knob"):
            paths.check_path(recipe, path)


def test_parameters_have_dotted_names(network: Any) -> None:
    parameters, _ = paths.trainable(network)
    names = [name for name, _ in paths.named_leaves(parameters)]
    assert names[:2] == ["layers.0.weight", "layers.0.bias"]
    assert "layers.1.norm.gain" in names
    assert "output.bias" in names
    assert paths.name_of(jax.tree_util.tree_leaves_with_path({"a": [1, 2]})[1][0]) == "a.1"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("output.*", {"output.weight", "output.bias"}),
        ("*.bias", {"layers.0.bias", "layers.1.bias", "output.bias"}),
        ("layers.0.weight|output.bias", {"layers.0.weight", "output.bias"}),
        ("Layers.*", set()),
    ],
)
def test_patterns_pick_parameters(network: Any, pattern: str, expected: set[str]) -> None:
    parameters, _ = paths.trainable(network)
    assert {name for name, mark in paths.named_leaves(paths.matching(parameters, pattern)) if mark} == expected


def test_trainable_leaves_buffers_and_whole_numbers_alone(network: Any) -> None:
    parameters, rest = paths.trainable(network)
    held = [leaf for leaf in jax.tree.leaves(rest) if eqx.is_array(leaf)]
    assert sum(leaf.size for leaf in held) == 2 * (3 + 2) + 2  # two moments a unit, two dropout probabilities
    assert eqx.tree_equal(eqx.combine(parameters, rest), network)
    mixed = {"weight": jnp.ones(2), "count": jnp.arange(2), "function": jnp.tanh, "kept": paths.Buffer((jnp.ones(3),))}
    moves, _ = paths.trainable(mixed)
    assert [name for name, _ in paths.named_leaves(moves)] == ["weight"]


def test_map_named_gives_each_leaf_its_path() -> None:
    made = paths.map_named(lambda name, leaf: f"{name}={leaf}", {"a": (1, 2), "b": {"c": np.float64(3)}})
    assert made == {"a": ("a.0=1", "a.1=2"), "b": {"c": "b.c=3.0"}}
