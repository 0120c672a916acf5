"""What the areas hand on to the verdict: numbers of a training or of a growth curve, also from a record on disk."""

import dataclasses
import json
import math
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.datasets import load_iris

import gradwise
from gradwise.checking.areas import CODES_OF_AREA, OF_RECIPE, ON_REQUEST, Case, can_report
from gradwise.checking.check import check_recipe
from gradwise.checking.codes import CODES, reported_codes
from gradwise.checking.recipe_subject import prepare_recipe
from gradwise.checking.subject import Subject
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.evidence.check_evidence import CheckedEvidence, GrowthEvidence, TrainingEvidence
from gradwise.records.evidence.verdict import Present, Probes, RunNumbers
from gradwise.records.plain_values import from_values, to_values
from gradwise.training.stopping import Off

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)
GROWTH = GrowthEvidence((30, 60), (0.0, 0.1), (0.4, 0.3), (0.0, 0.0), (0.0, 0.0), "error_rate")


def _numbers(**seen: Any) -> RunNumbers | None:
    subject = Subject.of(
        lambda model, x, y: jnp.mean((x @ model["w"] - y) ** 2),
        {"w": jnp.ones(3)},
        (X, Y),
        train=(X, Y),
        valid=(X[:20], Y[:20]),
    )
    return Case(subject, jr.key(0)).numbers(CheckedEvidence(**seen))


def test_numbers_of_a_training_survive_being_written() -> None:
    numbers = RunNumbers(
        train=0.1,
        test=0.2,
        test_interval=(0.1, math.nan),
        probes=Probes(("inputs", "layers.0"), (0.3, 0.2), 50, (0.3,)),
        present=Present(command="gradwise fit x", widths=(8, 4)),
    )
    training = TrainingEvidence(numbers, (1,), (0.1,), (0.2,), "finished")
    training = from_values(TrainingEvidence, json.loads(json.dumps(to_values(training))))
    restored = _numbers(training=training, growth=dataclasses.replace(GROWTH, gain=-0.03))
    assert restored is not None
    assert restored.probes == numbers.probes
    assert restored.present.widths == (8, 4)
    assert restored.present.checked
    assert restored.test_interval[0] == 0.1
    assert math.isnan(restored.test_interval[1])
    assert restored.gain_at_twice == pytest.approx(0.03)


def test_without_a_training_the_growth_curve_gives_the_numbers_and_without_both_there_are_none() -> None:
    numbers = _numbers(growth=GROWTH)
    assert numbers is not None
    assert (numbers.train, numbers.test, numbers.train_count, numbers.test_count) == (0.1, 0.3, 60, 20)
    assert numbers.chance == pytest.approx(1 - np.bincount(Y).max() / 60)
    assert _numbers() is None
    assert _numbers(growth=dataclasses.replace(GROWTH, metric="loss")) is None


@pytest.mark.slow
def test_probes_look_at_hidden_layers_where_training_is_perfect_and_the_test_is_not() -> None:
    random = np.random.default_rng(1)
    inputs = random.normal(size=(300, 20))
    noisy = (inputs[:, 0] + 1.5 * random.normal(size=300) > 0).astype(int)
    dataset = gradwise.Dataset(inputs, noisy, gradwise.Classes(np.array([0, 1])))
    recipe = gradwise.defaults.classification(model=Mlp(widths=(32, 16)))
    prepared = prepare_recipe(recipe, dataset, key=jr.key(0))
    _, told = OF_RECIPE["training"](Case(prepared.subject, jr.key(0), prepared, dataset))
    assert told.training is not None
    probes = told.training.numbers.probes
    assert probes is not None
    assert probes.names == ("inputs", "layers.0", "layers.1")
    assert len(probes.untrained) == 2
    assert all(0 <= error <= 1 for error in probes.errors)


def test_every_code_belongs_to_an_area() -> None:
    areas = [*OF_RECIPE, *ON_REQUEST]
    assert list(CODES_OF_AREA) == areas
    assert [code for code in CODES if not any(can_report(area, frozenset({code})) for area in areas)] == []
    wanted = reported_codes("GW301,GW9")
    assert [area for area in OF_RECIPE if can_report(area, wanted)] == ["wiring", "padding", "graph"]
    assert [area for area in OF_RECIPE if can_report(area, frozenset({""}))] == ["training"]


def test_what_is_run_on_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit, widths and variance of a recipe, each one finding; none of them in a check of everything."""
    inputs, targets = load_iris(return_X_y=True)
    dataset = gradwise.Dataset(inputs, targets, gradwise.Classes(np.arange(3)))
    parts = {"model": Mlp(widths=(4,)), "optimiser": Sgd(50.0), "stopping": Off(epochs=2.0, least_examples=1)}
    recipe = gradwise.defaults.classification(**parts)
    record = check_recipe(recipe, dataset, key=jr.key(0), only=("limit", "widths", "variance"))
    told = {one.code: one for one in record.findings}
    assert sorted(told) == ["GW506", "GW507", "GW807"]
    limit = told["GW506"]
    assert (limit.level, limit.where) == ("warning", "optimiser.learning_rate")
    assert limit.evidence["recommended"] <= limit.evidence["largest"] < 50.0
    assert limit.next == f"--set optimiser.learning_rate={limit.evidence['recommended']:.2g}"
    assert set(told["GW507"].evidence["slopes"]) == {"layers.0", "output"}
    assert "over 20 resampled training sets" in told["GW807"].what
    ran: list[str] = []
    for name in {**OF_RECIPE, **ON_REQUEST}:
        area = OF_RECIPE if name in OF_RECIPE else ON_REQUEST
        monkeypatch.setitem(area, name, lambda case, name=name: (ran.append(name), ((), CheckedEvidence()))[1])
    check_recipe(recipe, dataset, key=jr.key(0))
    assert ran == list(OF_RECIPE)


def test_a_model_without_widths_has_none_to_compare() -> None:
    inputs, targets = load_iris(return_X_y=True)
    dataset = gradwise.Dataset(inputs, targets, gradwise.Classes(np.arange(3)))
    recipe = gradwise.defaults.classification(model=Mlp(widths=()))
    record = check_recipe(recipe, dataset, key=jr.key(0), only="widths")
    assert (record.ran[0].outcome, record.ran[0].why) == ("skipped", "the model has no `widths`")
