"""What the areas hand on to the verdict: numbers of a training or of a growth curve, also from a record on disk."""

import dataclasses
import json
import math
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise
from gradwise.checking.areas import CODES_OF_AREA, OF_RECIPE, Case, can_report
from gradwise.checking.codes import CODES, reported_codes
from gradwise.checking.recipe_subject import prepare_recipe
from gradwise.checking.subject import Subject
from gradwise.models.mlp import Mlp
from gradwise.records.evidence.check_evidence import CheckedEvidence, GrowthEvidence, TrainingEvidence
from gradwise.records.evidence.verdict import Present, Probes, RunNumbers
from gradwise.records.plain_values import from_values, to_values

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
    assert list(CODES_OF_AREA) == list(OF_RECIPE)
    assert [code for code in CODES if not any(can_report(area, frozenset({code})) for area in OF_RECIPE)] == []
    wanted = reported_codes("GW301,GW9")
    assert [area for area in OF_RECIPE if can_report(area, wanted)] == ["wiring", "padding", "graph"]
    assert [area for area in OF_RECIPE if can_report(area, frozenset({""}))] == ["training"]
