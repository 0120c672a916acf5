"""The recipes for pictures and texts: when they are chosen, and what a search varies of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwise as gw
from gradwise import defaults
from gradwise.journeys.data_and_recipe import resolve_for
from gradwise.journeys.requests.training_requests import FitRequest
from gradwise.models.convolution.convolutional import Convolutional
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.recipes import (
    InputForm,
    form_of_recipe,
    input_form,
    parts_for_pictures,
    parts_for_texts,
    ranges_of_network,
)
from gradwise.specs.dataset import Classes, Column, Dataset
from gradwise.training.stopping import Patience


def pictures(*shape: int, kind: Any = np.uint8) -> Dataset:
    draw = np.random.default_rng(0)
    return Dataset(draw.integers(0, 255, (40, *shape)).astype(kind), np.arange(40) % 2, Classes(np.arange(2)))


@pytest.mark.parametrize(
    ("shape", "sides"),
    [
        ((28, 28), (28, 28)),
        ((16, 20, 3), (16, 20)),
        ((8, 8), None),
        ((15, 40), None),
        ((28, 28, 12), None),
        ((784,), None),
    ],
)
def test_pictures_of_16_pixels_or_more_get_filters(shape: tuple[int, ...], sides: Any) -> None:
    data = pictures(*shape)
    assert input_form(data) == (InputForm("pictures", 40, sides) if sides else InputForm())
    wanted = Mlp if sides is None else Convolutional
    assert isinstance(defaults.for_data(data).model, wanted)
    assert isinstance(defaults.for_search(data).model, Mlp)


def test_what_the_user_gives_is_kept() -> None:
    data = pictures(20, 20)
    flat = defaults.for_data(data, model=Mlp(widths=(5,)))
    assert flat == defaults.classification(model=Mlp(widths=(5,)))
    own = defaults.for_data(data, optimiser=Sgd(0.1), stopping=Patience())
    assert isinstance(own.model, Convolutional)
    assert own.optimiser == Sgd(0.1)
    assert own.stopping == Patience()


def test_a_run_visits_about_as_many_examples_whatever_their_number() -> None:
    def epochs(rows: int) -> float:
        return float(parts_for_pictures(rows, (28, 28))["stopping"].epochs)

    assert [epochs(rows) for rows in (50, 20_000, 60_000, 10**6)] == [100, 30, 10, 10]
    assert [parts_for_pictures(100, (side, 20))["model"].stride for side in (64, 65)] == [1, 2]


def test_the_shell_takes_the_same_recipe_as_python() -> None:
    data = pictures(20, 24)

    def model(**knobs: Any) -> Any:
        options = FitRequest(data="x.npz", set={name.replace("_", "."): value for name, value in knobs.items()})
        return resolve_for(options, "classes", data, form=input_form(data)).recipe

    assert model() == defaults.for_data(data)
    assert model(model="Mlp") == defaults.classification()
    assert model(model_channels="4,8").model.channels == (4, 8)
    assert isinstance(model(optimiser="Sgd").model, Convolutional)


def test_a_search_of_convolutional_networks_varies_filters() -> None:
    space = defaults.search_space(defaults.classification(model=Convolutional()), pictures(20, 20))
    assert {"model.channels", "model.kernel", "model.dropout", "model.augmentation"} <= set(space.paths)
    assert "model.widths.count" not in space.paths
    for fraction in (0.0, 0.5, 0.99):
        recipe = space.recipe_at(dict.fromkeys(space.paths, fraction))
        assert isinstance(recipe.model, Convolutional)
    assert ranges_of_network(defaults.classification()) == []
    series = ranges_of_network(defaults.classification(model=Convolutional(dimensions=1)))
    assert "model.augmentation" not in dict(series)


@pytest.mark.slow
def test_a_finished_run_of_pictures_is_recognised(tmp_path: Path) -> None:
    data = pictures(16, 16)
    np.savez(tmp_path / "data.npz", X=data.inputs, y=data.targets)
    given: dict[str, Any] = {
        "target": "y",
        "out": tmp_path / "run",
        "set": {"model.channels": (2,), "model.widths": (3,), "stopping.epochs": 1},
    }
    first = gw.fit(tmp_path / "data.npz", **given)
    assert isinstance(first.record.recipe.model, Convolutional)
    again = gw.fit(tmp_path / "data.npz", resume=True, **given)
    assert again.record.seconds == first.record.seconds


def _with_text() -> Dataset:
    columns = (Column("age"), Column("review:1", "text", ("bad", "good")), Column("review:2", "text"))
    inputs = np.random.default_rng(0).integers(0, 2, (40, 3)).astype(float)
    return Dataset(inputs, np.arange(40) % 2, Classes(np.arange(2)), columns)


def test_a_table_with_a_text_has_its_own_recipe_and_is_known_by_it() -> None:
    data = _with_text()
    assert input_form(data) == InputForm("texts", 40)
    recipe = defaults.for_data(data)
    assert recipe == defaults.texts("classes", 40)
    assert form_of_recipe(recipe, 40, (3,), is_table=False) == InputForm("texts", 40)
    assert form_of_recipe(defaults.classification(), 40, (3,), is_table=False) == InputForm()
    assert [parts_for_texts(rows)["stopping"].epochs for rows in (50, 2000, 10_000, 10**6)] == [100, 50, 10, 10]


def test_a_network_of_ones_own_keeps_the_rest_of_the_recipe_for_texts() -> None:
    own = Mlp(widths=(8,))
    assert defaults.for_data(_with_text(), model=own) == defaults.texts("classes", 40, model=own)


def test_a_vocabulary_does_not_widen_the_layers_that_a_search_tries() -> None:
    words = tuple(f"w{number:05}" for number in range(5000))
    columns = (Column("review:1", "text", words), Column("review:2", "text"))
    data = Dataset(np.zeros((40, 2)), np.arange(40) % 2, Classes(np.arange(2)), columns)
    widest = {one.path: one.prior for one in defaults.search_space(defaults.for_data(data), data).dimensions}
    assert widest["model.widths.each"].high == 256
