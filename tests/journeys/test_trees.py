"""Trees through the front door: fit, predict, save, load, resume, and the command line."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwise as gw
from gradwise.cli.main import run_program


def formula(depth: int, draw: random.Random) -> tuple[str, bool]:
    """A formula of T and F with `and`, `or` and `not`, and its value."""
    if depth == 0 or draw.random() < 0.2:
        value = draw.random() < 0.5
        return ("T" if value else "F"), value
    one, first = formula(depth - 1, draw)
    if draw.random() < 0.25:
        return f"(not {one})", not first
    two, second = formula(depth - 1, draw)
    if draw.random() < 0.5:
        return f"(and {one} {two})", first and second
    return f"(or {one} {two})", first or second


def formulas(count: int, seed: int, depth: int = 3) -> tuple[list[str], np.ndarray]:
    draw = random.Random(seed)
    found = [formula(depth, draw) for _ in range(count)]
    return [text for text, _ in found], np.array([int(value) for _, value in found])


SMALL: dict[str, Any] = {
    "model.units": 16,
    "model.width": 4,
    "stopping": "Off",
    "stopping.epochs": 30,
    "batches.size": 8,
    "optimiser.optimiser.optimiser.learning_rate": 0.01,
}


@pytest.fixture(scope="module")
def model() -> Any:
    texts, values = formulas(500, 0)
    return gw.fit(texts, values, set=SMALL, seed=0, no_baselines=True)


def test_the_recommended_recipe_reads_trees_and_learns_their_values(model: Any) -> None:
    assert isinstance(model.record.recipe.model, gw.Recursive)
    assert isinstance(model.record.recipe.optimiser.optimiser, gw.Clipped)
    texts, values = formulas(100, 1)
    assert model.score(texts, values) >= 0.97
    deeper, truth = formulas(100, 2, depth=5)  # than any of training
    assert max(gw.Trees.from_list(deeper).lengths) > model.predictor.shape[0]
    assert model.score(deeper, truth) >= 0.9


def test_a_prediction_depends_on_its_own_tree_alone(model: Any) -> None:
    texts = ["T", "(and T F)", *formulas(6, 3, depth=5)[0], "(or T maybe)"]
    together = model.predict_proba(texts)
    for place, text in enumerate(texts):
        np.testing.assert_allclose(model.predict_proba([text])[0], together[place], atol=1e-6)
    np.testing.assert_array_equal(model.predict_proba([("and", "T", "F")]), model.predict_proba(["(and T F)"]))


def test_a_saved_model_predicts_the_same_and_reports(model: Any, tmp_path: Path) -> None:
    texts, _ = formulas(6, 4)
    folder = model.save(tmp_path / "run")
    assert (folder / "report.html").is_file()
    np.testing.assert_array_equal(gw.load(folder).predict_proba(texts), model.predict_proba(texts))


@pytest.mark.slow
def test_the_command_line_fits_resumes_and_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    texts, values = formulas(60, 5)
    rows = [f"{text},{'yes' if value else 'no'}" for text, value in zip(texts, values, strict=True)]
    Path("formulas.csv").write_text("\n".join(["formula,holds", *rows]) + "\n")
    options = ["--set", "model.units=4", "--set", "stopping.epochs=2", "--no-baselines", "--no-report"]
    command = ["fit", "formulas.csv", "--target", "holds", *options, "--out", "run"]
    assert run_program(command) == 0
    before = Path("run/model.safetensors").read_bytes()
    assert run_program([*command, "--resume"]) == 0
    assert Path("run/model.safetensors").read_bytes() == before
    assert run_program(["predict", "run", "formulas.csv", "--out", "found.csv"]) == 0
    assert len(Path("found.csv").read_text().splitlines()) == 61
    capsys.readouterr()


def test_what_cannot_be_learned_from_trees_is_refused() -> None:
    texts, values = formulas(30, 6)
    with pytest.raises(gw.RequestError, match="sequences and trees need a target"):
        gw.fit(texts)
    with pytest.raises(gw.RequestError, match=r"tree 0: .* brackets that are not closed"):
        gw.fit(["(and T", *texts[1:]], values)
    with pytest.raises(gw.RequestError, match="NaN beyond their ends"):
        gw.fit(texts, values, model=gw.Mlp(widths=(4,)), set={"stopping.epochs": 1})
