"""Recipes as JSON: exact, self-contained, and safe to read from anywhere."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradwise
from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L1, L2
from gradwise.criteria.supervised import Supervised
from gradwise.estimators.features import Decoding
from gradwise.models.activations import Tanh
from gradwise.models.mlp import LayerNorm, Mlp
from gradwise.optimisers.first_order.schedules import InverseTime
from gradwise.optimisers.first_order.sgd import Nesterov, Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.knobs import Spec, knob
from gradwise.specs.paths import knobs
from gradwise.specs.priors import Uniform
from gradwise.specs.serialisation import from_json, from_plain, public_path, to_json, to_plain
from gradwise.training.stopping import Off, Patience, Plus

RECIPES = {
    "classification": defaults.classification(),
    "regression": defaults.regression(),
    "multilabel": defaults.multilabel(),
    "another": defaults.classification(
        model=Mlp(widths=(), activation=Tanh(), normalisation=LayerNorm()),
        criterion=Supervised(SoftmaxLoss(label_smoothing=0.1), penalties=(L2(1.0), L1(0.1, where="layers.0.weight"))),
        optimiser=Nesterov(momentum=0.95, schedule=InverseTime(tau_updates=100)),
        stopping=Patience(growth=Plus(5000), significance=0.05),
    ),
    "off": defaults.classification(stopping=Off(epochs=3)),
}


class Mine(Spec):
    """A spec from outside gradwise."""

    amount: float = knob(0.5, allowed="[0, inf]", prior=Uniform(0.1, 1.0), row="C1", off=0.0)


def loss_of_mine(model: Any, batch: Any, key: Any) -> Any:
    return 0.0


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_comes_back_exactly(name: str) -> None:
    recipe = RECIPES[name]
    again = from_json(to_json(recipe))
    assert eqx.tree_equal(again, recipe)
    assert jax.tree.structure(again) == jax.tree.structure(recipe)
    assert to_json(again) == to_json(recipe)


@given(
    st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False),
    st.floats(min_value=0, max_value=1, exclude_max=True),
    st.floats(min_value=1, max_value=1e300),
    st.lists(st.integers(1, 5000), max_size=4),
)
def test_every_number_comes_back_exactly(rate: float, momentum: float, tau: float, widths: list[int]) -> None:
    optimiser = Nesterov(learning_rate=rate, momentum=momentum, schedule=InverseTime(tau_updates=tau))
    recipe = defaults.classification(optimiser=optimiser, model=Mlp(widths=tuple(widths)))
    again = from_json(to_json(recipe))
    for (path, _, before), (_, _, after) in zip(knobs(recipe), knobs(again), strict=True):
        assert type(before) is type(after), path
        assert before == after, path


def test_numbers_that_json_lacks_are_written_too() -> None:
    text = to_json(Mine(math.inf))
    assert json.loads(text)["amount"] == {"number": "inf"}
    assert from_json(text, classes=(Mine,)).amount == math.inf
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_off_values_come_back_off() -> None:
    again = from_json(to_json(defaults.classification(model=Mlp(dropout=0.0))))
    assert type(again.model.dropout) is float
    assert type(again.optimiser.optimiser.learning_rate) is np.float64


def test_arrays_go_beside_the_text_or_are_refused() -> None:
    network = Mlp(widths=(3,), dropout=0.0).build((2,), 2, key=jax.random.key(0))
    arrays: dict[str, np.ndarray] = {}
    plain = json.loads(json.dumps(to_plain(network, arrays)))
    assert set(arrays) == {"layers.0.weight", "layers.0.bias", "output.weight", "output.bias"}
    assert eqx.tree_equal(jax.tree.map(jax.numpy.asarray, from_plain(plain, arrays)), network)
    with pytest.raises(RequestError, match=r"layers\.0\.weight.*cannot be saved"):
        to_plain(network)
    with pytest.raises(RequestError, match=r"`layers\.0\.weight` is missing"):
        from_plain(plain, {name: value for name, value in arrays.items() if name != "layers.0.weight"})


def test_what_is_not_gradwises_must_be_passed_in() -> None:
    recipe = defaults.regression(criterion=loss_of_mine)
    with pytest.raises(RequestError, match=r"loss_of_mine` is not part of gradwise\. Pass it in"):
        from_json(to_json(recipe))
    assert from_json(to_json(recipe), classes=(loss_of_mine,)).criterion is loss_of_mine
    with pytest.raises(RequestError, match="Mine"):
        from_json(to_json(Mine()))
    assert from_json(to_json(Mine(0.25)), classes=(Mine,)).amount == 0.25


def test_parts_are_written_by_their_public_names_alone() -> None:
    """No module of ours stands in a file, so that one may move."""
    text = to_json(defaults.classification())
    assert '"class": "gradwise:Mlp"' in text
    assert "gradwise." not in text
    assert public_path(Mine) == f"{__name__}:Mine"


def test_what_has_no_public_name_is_not_written() -> None:
    """Rather refused now than when the file is read."""
    with pytest.raises(RequestError, match="`Decoding` has no public name"):
        to_plain(Decoding(None, None))


@pytest.mark.parametrize("name", ["gradwise.core.recipe:Recipe", "gradwise.models.mlp:Mlp"])
def test_files_of_version_0_1_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(RequestError, match=r"^written by gradwise 0\.1 .* Train again\.$") as caught:
        from_json(json.dumps({"class": name}))
    assert "\n" not in str(caught.value)


def test_fields_with_defaults_may_be_left_out_of_a_file() -> None:
    assert from_json('{"class": "gradwise:Sgd"}') == Sgd()


RATE = '{"class": "gradwise:Sgd", "learning_rate": %s}'
HOSTILE = {
    "not JSON": "{",
    "no text": "",
    "a number": "3",
    "null": "null",
    "a list": "[]",
    "an empty object": "{}",
    "class that is no text": '{"class": 3}',
    "class without colon": '{"class": "gradwise"}',
    "empty class": '{"class": ""}',
    "module with a dot at its end": '{"class": "gradwise.:Sgd"}',
    "two dots": '{"class": "gradwise..specs:Spec"}',
    "a module that acts when imported": '{"class": "gradwise:__main__"}',
    "a zero byte": '{"class": "gradwise\\u0000:Spec"}',
    "surrogate": '{"class": "gradwise.\\ud800:Spec"}',
    "unknown class": '{"class": "gradwise:Sgdd"}',
    "class outside": '{"class": "os:system"}',
    "class outside that begins alike": '{"class": "gradwisely:Sgd"}',
    "subprocess": '{"class": "subprocess:Popen", "args": "true"}',
    "a module reached through ours": '{"class": "gradwise:specs.serialisation.json.JSONDecoder"}',
    "an Equinox module reached through ours": '{"class": "gradwise:specs.serialisation.eqx.nn.Identity"}',
    "a function of ours": '{"class": "gradwise:from_json", "text": "3"}',
    "a function where a function is": '{"function": "gradwise:from_json"}',
    "function that is no text": '{"function": 3}',
    "not a Module": '{"class": "gradwise:Column", "name": "a"}',
    "abstract": '{"class": "gradwise:AbstractSplit"}',
    "abstract and fitted": '{"class": "gradwise:FittedScaler"}',
    "missing fields": '{"class": "gradwise:Recipe"}',
    "missing fields of what is fitted": '{"class": "gradwise:MlpNetwork", "layers": []}',
    "extra fields": '{"class": "gradwise:Sgd", "learning_rat": 0.1}',
    "dunder fields": '{"class": "gradwise:Sgd", "__class__": 3}',
    "knob out of range": RATE % "-1",
    "knob of another kind": RATE % '"fast"',
    "knob null": RATE % "null",
    "knob a list": RATE % "[0.1, 0.2]",
    "knob NaN": RATE % "NaN",
    "knob a part": RATE % '{"class": "gradwise:Sgd"}',
    "knob too large a number": RATE % "1e999",
    "a number that is none": RATE % '{"number": "fast"}',
    "a number that is a list": RATE % '{"number": []}',
    "an array that is not there": RATE % '{"array": "x"}',
    "an array that is no text": RATE % '{"array": {}}',
    "a part that is none": '{"class": "gradwise:MovingAverage", "optimiser": 3}',
    "a part of another kind": '{"class": "gradwise:MovingAverage", "optimiser": {"class": "gradwise:Mlp"}}',
    "deep lists": "[" * 100_000,
    "deep and closed": "[" * 900 + "]" * 900,
    "deep parts": '{"class": "gradwise:MovingAverage", "optimiser": ' * 20_000,
    "many digits": RATE % ("1" * 10_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        from_json(HOSTILE[name])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_reading_runs_no_constructor_of_the_files_choosing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gradwise_planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RequestError, match="is not part of gradwise"):
        from_json('{"class": "gradwise_planted:Thing"}')
    assert "gradwise_planted" not in sys.modules


NO_DEVICE = """
import sys
sys.path[:0] = sys.argv[1:]
import gradwise, gradwise.defaults as defaults
from gradwise.specs.serialisation import from_json, to_json
from gradwise.specs.search_space import read_space
from gradwise.specs.paths import get, knobs, replace
for recipe in (defaults.classification(), defaults.regression(), defaults.multilabel()):
    recipe = replace(recipe, "optimiser.optimiser.learning_rate", 0.25)
    again = from_json(to_json(recipe))
    assert [value for _, _, value in knobs(again)] == [value for _, _, value in knobs(recipe)]
    assert get(again, "optimiser.optimiser.learning_rate") == 0.25
    assert read_space(again)
import jax
try:
    jax.devices()
except RuntimeError as problem:
    print("no device:", "nonexistent" in str(problem))
"""


def test_making_and_reading_a_recipe_starts_no_device() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_DEVICE, str(Path(gradwise.__file__).parents[1])],
        env={**os.environ, "JAX_PLATFORMS": "nonexistent"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "no device: True\n", done.stderr
