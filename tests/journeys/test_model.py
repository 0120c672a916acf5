"""What the command line wrote, opened from Python: it predicts as `gradwise predict` does, from rows in any form."""

import csv
import io
import runpy
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

import gradwise
from gradwise.cli.main import run_program
from gradwise.runtime.errors import RequestError, WorkError

matplotlib.use("agg")


def houses(rows: int = 120) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": draw.uniform(20, 200, rows).round(1),
            "town": draw.choice(["Bath", "Leeds", "York"], rows),
            "built": pd.to_datetime("2001-01-01") + pd.to_timedelta(draw.integers(0, 9000, rows), unit="D"),
        }
    )
    frame.loc[::17, "size"] = np.nan
    frame["dear"] = np.where((frame["town"] == "Bath") | (frame["size"] > 120), "yes", "no")
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("houses")
    houses().to_csv(place / "houses.csv", index=False)
    asked = ["fit", str(place / "houses.csv"), "--target", "dear", "--out", str(place / "run"), "--quiet"]
    assert run_program([*asked, "--set", "stopping.epochs=8", "--set", "model.widths=16"]) == 0
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> gradwise.Model:
    return gradwise.load(folder / "run")


def test_it_predicts_what_the_command_line_predicts(
    folder: Path, model: gradwise.Model, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["predict", str(folder / "run"), str(folder / "houses.csv"), "--probabilities", "--quiet"]) == 0
    told = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    frame = pd.read_csv(folder / "houses.csv")
    assert model.predict(frame).tolist() == [row["prediction"] for row in told]
    wanted = [[float(row[f"probability_{name}"]) for name in model.classes] for row in told]
    np.testing.assert_allclose(model.predict_proba(frame), wanted, atol=1e-6)
    np.testing.assert_array_equal(model.predict(folder / "houses.csv"), model.predict(frame))


@pytest.mark.parametrize("suffix", [".onnx", ".stablehlo", ".py"])
def test_it_is_exported_by_the_suffix_of_the_path(model: gradwise.Model, tmp_path: Path, suffix: str) -> None:
    assert model.export(str(tmp_path / f"houses{suffix}")) == tmp_path / f"houses{suffix}"
    assert (tmp_path / f"houses{suffix}").stat().st_size > 1000
    with pytest.raises(RequestError, match=r"\.onnx, \.stablehlo, \.py"):
        model.export(tmp_path / "houses.pickle")


def test_an_exported_file_predicts_what_the_model_predicts(model: gradwise.Model, tmp_path: Path) -> None:
    frame = houses(30)
    space = runpy.run_path(str(model.export(tmp_path / "houses.py")))
    np.testing.assert_allclose(space["predict_proba"](frame), model.predict_proba(frame), atol=1e-5)
    assert space["predict"](frame).tolist() == model.predict(frame).tolist()


def test_columns_may_come_in_any_order_and_others_are_ignored(model: gradwise.Model) -> None:
    frame = houses()
    moved = frame[["dear", "built", "town", "size"]].assign(other=1)
    np.testing.assert_array_equal(model.predict(moved), model.predict(frame))


def test_a_missing_column_is_named_and_an_unseen_category_is_told(model: gradwise.Model) -> None:
    frame = houses(20)
    with pytest.raises(RequestError, match="town"):
        model.predict(frame.drop(columns="town"))
    with pytest.raises(RequestError, match="table"):
        model.predict(np.zeros((3, 3)))
    with pytest.warns(UserWarning, match="`town`: 1 values of categories not seen in training"):
        told = model.predict_proba(frame.assign(town=["Paris", *frame["town"][1:]]))
    assert np.isfinite(told).all()


def test_scores_come_from_a_column_or_from_targets_beside_the_rows(model: gradwise.Model) -> None:
    frame = houses()
    right = float(np.mean(model.predict(frame) == frame["dear"]))
    assert model.score(frame) == pytest.approx(right)
    assert model.score(frame.drop(columns="dear"), frame["dear"]) == pytest.approx(right)
    assert model.measure(frame)["error_rate"] == pytest.approx(1 - right)
    with pytest.raises(RequestError, match="120 rows, but 2 targets"):
        model.score(frame, ["yes", "no"])
    with pytest.raises(RequestError, match="no column `dear`"):
        model.score(frame.drop(columns="dear"))


def test_it_says_what_it_is_in_a_few_lines_and_as_a_card(model: gradwise.Model) -> None:
    told = repr(model)
    assert len(told.splitlines()) < 15
    assert "houses" in told
    assert "Test error" in told
    card = model._repr_html_()
    assert card.count("<svg") == 1
    assert "<script" not in card
    assert 0 <= model.test_interval[0] <= model.test <= model.test_interval[1] <= 1


def test_history_plots_and_report(model: gradwise.Model, tmp_path: Path) -> None:
    assert {"age_examples", "valid_score"} <= set(model.history.columns)
    assert len(model.history) > 1
    assert model.trials.empty
    assert model.plot("confusion").axes[0].get_title()
    assert {"roc", "precision_recall"} <= set(model.plots)
    assert model.plot("roc").axes[0].get_xlabel() == "false positive rate"
    with pytest.raises(WorkError, match="could not write"):
        model.report(tmp_path / "none" / "page.html")
    with pytest.raises(RequestError, match=r"no plot `confusio`.*confusion"):
        model.plot("confusio")
    assert model.report(tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_a_study_of_numbers_opens_too(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(80, 2))
    np.savez(tmp_path / "plane.npz", X=inputs, y=inputs @ [1.0, 2.0] + 0.5)
    asked = ["search", str(tmp_path / "plane.npz"), "--trials", "2", "--folds", "1", "--on", "here", "--quiet"]
    asked += ["--set", "model.widths=16", "--set", "stopping.epochs=4", "--out", str(tmp_path / "run"), "--no-report"]
    assert run_program(asked) == 0
    model = gradwise.load(str(tmp_path / "run"))
    assert list(model.trials["number"]) == [0, 1]
    assert "optimiser.optimiser.learning_rate" in model.trials
    assert model.history.empty
    assert model.predict(inputs).shape == (80,)
    assert np.isfinite(model.test)
    assert "search" in repr(model)
    with pytest.raises(RequestError, match="no probabilities"):
        model.predict_proba(inputs)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no model\.safetensors"):
        gradwise.load(tmp_path)


def test_the_examples_of_a_run_are_the_same_when_it_is_opened_again(tmp_path: Path) -> None:
    """Row F6; and a switch leaves them out."""
    frame = houses()
    made = gradwise.fit(frame, target="dear", set={"stopping.epochs": 8, "model.widths": 16}, no_baselines=True)
    kept = made.examples
    assert set(kept["set"]) == {"training", "validation"}
    assert set(kept["target"]) == {"yes", "no"}
    assert (kept["target"].to_numpy() == frame["dear"].to_numpy()[kept["row"]]).all()
    made.save(tmp_path / "run")
    pd.testing.assert_frame_equal(gradwise.load(tmp_path / "run").examples, kept)
    page = (tmp_path / "run" / "report.html").read_text()
    assert 'id="examples"' in page
    assert "The hardest training examples" in page
    without = gradwise.fit(
        frame, target="dear", set={"stopping.epochs": 8, "model.widths": 16}, no_baselines=True, no_examples=True
    )
    assert len(without.examples) == 0
    without.save(tmp_path / "bare")
    assert not (tmp_path / "bare" / "examples.npz").exists()
    assert 'id="examples"' not in (tmp_path / "bare" / "report.html").read_text()


def test_an_estimator_tells_what_became_of_its_rows() -> None:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(60, 2))
    fitted = gradwise.Classifier(stopping=gradwise.Off(epochs=3)).fit(inputs, (inputs[:, 0] > 0).astype(int))
    assert sorted(fitted.examples_["row"]) == list(range(60))
