"""The journey of a check: what is run, what is left out, what is kept, and what is said at the end."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import gradwise
from gradwise.checking.areas import OF_RECIPE, OF_SUBJECT
from gradwise.checking.check import PARTIAL, CheckRunOptions, check_recipe
from gradwise.models.mlp import Mlp
from gradwise.runtime.errors import RequestError

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = (X[:, 0] - X[:, 1]).astype(np.float32)
MODEL = {"w": jr.normal(jr.key(0), (3, 6)), "v": jr.normal(jr.key(1), (6,))}


def _loss(model: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ model["w"]) @ model["v"] - y) ** 2)


def test_areas_run_in_their_order_and_only_those_that_are_asked_for() -> None:
    begun: list[str] = []
    record = gradwise.check_problem(
        _loss, MODEL, (X, Y), only=["graph", "start", "gradient"], keeping=CheckRunOptions(watch=begun.append)
    )
    assert begun == ["gradient", "start", "graph"]
    assert [ran.name for ran in record.ran] == begun
    assert record.passed
    assert set(record.summary()["evidence"]) == {"gradient", "start", "graph", "verdict"}
    assert list(OF_RECIPE) == [*OF_SUBJECT, "training"]
    with pytest.raises(RequestError, match=r"unknown check 'flw'. Did you mean 'flow'\?"):
        gradwise.check_problem(_loss, MODEL, (X, Y), only=["flw"])


def test_an_area_that_cannot_be_run_says_why_and_costs_nothing_but_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(case: Any) -> Any:
        raise TypeError("the loss insists on 40 rows\nand more")

    monkeypatch.setitem(OF_SUBJECT, "padding", impossible)
    record = gradwise.check_problem(_loss, MODEL, (X, Y), only=["gradient", "padding", "start"])
    assert {ran.name: ran.outcome for ran in record.ran} == {
        "gradient": "passed",
        "padding": "not run",
        "start": "passed",
    }
    assert record.ran[1].why == "TypeError: the loss insists on 40 rows"
    assert record.verdict.endswith("passed. Not run: padding.")


def test_what_is_not_selected_is_neither_reported_nor_run(tmp_path: Path) -> None:
    def wrong(model: Any, x: Any, y: Any) -> Any:
        return _loss(jax.lax.stop_gradient(model), x, y) + 0 * model["v"].sum()

    keeping = CheckRunOptions(tmp_path, resume=True)
    record = gradwise.check_problem(wrong, MODEL, (X, Y), only=["gradient", "graph"], keeping=keeping)
    assert not record.passed
    assert {finding.code for finding in record.errors} == {"GW103"}
    begun: list[str] = []
    again = CheckRunOptions(tmp_path, resume=True, watch=begun.append)
    ignored = gradwise.check_problem(wrong, MODEL, (X, Y), only=["gradient", "graph"], ignore="GW103", keeping=again)
    assert begun == []  # what was measured before holds whatever is reported of it
    assert ignored.passed
    assert ignored.coded("GW103") == ()
    assert ignored.ran[0].outcome == "passed"
    assert ignored.verdict.startswith("Nothing stands out")
    selected = gradwise.check_problem(wrong, MODEL, (X, Y), select=["GW10"])
    assert [ran.name for ran in selected.ran] == ["gradient"]
    assert {finding.code for finding in selected.findings} == {"GW103"}
    with pytest.raises(RequestError, match="nothing to check"):
        gradwise.check_problem(wrong, MODEL, (X, Y), only="graph", select="GW1")


def test_what_there_is_nothing_to_ask_about_is_not_called_passed() -> None:
    record = gradwise.check_problem(_loss, MODEL, (X, Y), only=["padding", "start", "growth"])
    assert {ran.name: (ran.outcome, ran.why) for ran in record.ran if ran.name != "start"} == {
        "padding": ("skipped", "the batch has no mask or weights"),
        "growth": ("skipped", "needs `train` and `valid`"),
    }
    assert record.verdict == "Nothing stands out: 1 check of _loss passed."


def test_a_wrong_request_is_told_in_a_line() -> None:
    with pytest.raises(RequestError, match=r"check has no argument `optimizer`. Did you mean 'optimiser'?"):
        gradwise.check_problem(_loss, MODEL, (X, Y), optimizer=optax.adam(1e-3))
    labels = {"w": "moved", "v": "lost"}
    parted = optax.multi_transform({"moved": optax.adam(1e-3)}, labels)
    with pytest.raises(RequestError, match="the optimiser cannot update these parameters: ValueError"):
        gradwise.check_problem(_loss, MODEL, (X, Y), optimiser=parted)
    assert [ran.name for ran in gradwise.check_problem(_loss, MODEL, (X, Y), only="start", key=3).ran] == ["start"]


def test_one_seed_gives_one_record() -> None:
    first, second = (
        gradwise.check_problem(_loss, MODEL, (X, Y), key=jr.key(5), only=["gradient", "overfit"]) for _ in range(2)
    )
    assert first.findings == second.findings
    assert first.summary()["evidence"] == second.summary()["evidence"]


def test_finished_areas_are_kept_and_another_problem_does_not_get_them(tmp_path: Path) -> None:
    keeping = CheckRunOptions(tmp_path, resume=True)
    gradwise.check_problem(_loss, MODEL, (X, Y), only=["start"], keeping=keeping)
    assert set(json.loads((tmp_path / PARTIAL).read_text())["areas"]) == {"start"}
    begun: list[str] = []
    again = CheckRunOptions(tmp_path, resume=True, watch=begun.append)
    gradwise.check_problem(_loss, MODEL, (X, Y), only=["start", "graph"], keeping=again)
    assert begun == ["graph"]
    begun.clear()
    back = gradwise.check_problem(_loss, MODEL, (X, Y), only=["graph"], keeping=again)
    assert begun == []
    assert [ran.name for ran in back.ran] == ["graph"]
    gradwise.check_problem(_loss, MODEL, (X, -Y), only=["start"], keeping=again)
    assert begun == ["start"]


def test_a_recipe_needs_its_data() -> None:
    with pytest.raises(RequestError, match=r"check\(recipe, dataset\); got NoneType"):
        gradwise.check_problem(gradwise.defaults.classification())


@pytest.mark.slow
def test_a_small_rate_is_called_a_difficulty_of_optimisation_and_the_remedy_is_the_command() -> None:
    from gradwise.optimisers.first_order.sgd import Sgd

    recipe = gradwise.defaults.classification(model=Mlp(widths=(8,)), optimiser=Sgd(learning_rate=1e-6))
    record = check_recipe(
        recipe, gradwise.read("iris"), key=jr.key(0), only=["training"], command="gradwise fit iris --set x=1"
    )
    assert record.verdict.startswith("Optimisation is the difficulty")
    assert record.passed
    assert any("gradwise fit iris --set x=1 --set optimiser.learning_rate=" in remedy for remedy in record.remedies)
    assert record.evidence.verdict.kind == "optimisation"


@pytest.mark.slow
def test_the_record_of_a_run_is_judged_without_running_anything() -> None:
    record = gradwise.train(
        gradwise.defaults.classification(model=Mlp(widths=(8,))), gradwise.read("iris"), key=jr.key(0)
    )
    said = gradwise.check_problem(record)
    assert said.verdict
    assert [ran.name for ran in said.ran] == ["record"]
    assert all(finding.code for finding in said.findings)
    told = [(finding.code, finding.where) for finding in said.findings]
    assert len(set(told)) == len(told)
