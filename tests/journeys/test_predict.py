"""`gradwise predict` and `gradwise report`."""

import csv
import io
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from gradwise.training.model_files import load_predictor

NEW = "bed,colour,width,length,extra\n3,red,-0.1,0.2,x\n5,green,-1.1,1.2,y\n7,,-2.1,,z\n"


@pytest.fixture
def new(a_run, here) -> Path:
    """Rows in another order of columns, one colour never seen, one missing, one column too many, no target."""
    path = here / "new.csv"
    path.write_text(NEW)
    return path


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.slow
def test_predictions_are_classes_as_they_came(new, gradwise):
    said = gradwise("predict", "run", "new.csv")
    assert said.code == 0
    rows = rows_of(said.out)
    assert [list(row) for row in rows] == [["prediction"]] * 3
    assert {row["prediction"] for row in rows} <= {"ann", "bob", "cyd"}


def test_unseen_categories_are_handled_and_counted(new, gradwise):
    said = gradwise("predict", "run", "new.csv")
    assert said.err.count("\n") == 1
    assert "column `colour`: 1 values of categories not seen in training are treated as missing" in said.err
    assert gradwise("predict", "run", "new.csv", "--quiet").err == ""


def test_probabilities_sum_to_one_and_lead_to_the_prediction(new, gradwise):
    rows = rows_of(gradwise("predict", "run", "new.csv", "--probabilities", "--keep", "extra", "--keep", "bed").out)
    assert [list(row) for row in rows] == [
        ["extra", "bed", "prediction", "probability_ann", "probability_bob", "probability_cyd"]
    ] * 3
    assert [row["extra"] for row in rows] == ["x", "y", "z"]
    for row in rows:
        shares = {name: float(row[f"probability_{name}"]) for name in ("ann", "bob", "cyd")}
        assert sum(shares.values()) == pytest.approx(1)
        assert row["prediction"] == max(shares, key=shares.__getitem__)


def test_the_model_file_alone_is_enough(new, gradwise, tmp_path_factory, monkeypatch):
    expected = gradwise("predict", "run", "new.csv", "--probabilities").out
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copy("run/model.safetensors", elsewhere / "weights.safetensors")
    shutil.copy("new.csv", elsewhere)
    monkeypatch.chdir(elsewhere)
    assert gradwise("predict", "weights.safetensors", "new.csv", "--probabilities").out == expected


def test_all_forms_hold_the_same(new, gradwise):
    words = ("predict", "run", "new.csv", "--probabilities", "--keep", "bed")
    expected = rows_of(gradwise(*words).out)
    for out in ("p.csv", "p.json", "p.parquet"):
        said = gradwise(*words, "--out", out)
        assert (said.code, said.out) == (0, "")
    found = {
        "p.csv": rows_of(Path("p.csv").read_text()),
        "p.json": json.loads(Path("p.json").read_text()),
        "p.parquet": pq.read_table("p.parquet").to_pylist(),
    }
    for rows in found.values():
        assert [{name: str(value) for name, value in row.items()} for row in rows] == expected
    assert json.loads(gradwise(*words, "--format", "json").out) == found["p.json"]
    assert gradwise(*words, "--out", "p.data", "--format", "json").code == 0
    assert json.loads(Path("p.data").read_text()) == found["p.json"]


def test_a_prediction_does_not_depend_on_the_other_rows(new, gradwise):
    together = rows_of(gradwise("predict", "run", "new.csv", "--probabilities").out)
    lines = NEW.splitlines()
    for number, line in enumerate(lines[1:]):
        Path("one.csv").write_text(f"{lines[0]}\n{line}\n")
        assert rows_of(gradwise("predict", "run", "one.csv", "--probabilities").out) == [together[number]]


def test_the_error_is_told_where_the_target_is_known(a_run, gradwise):
    said = gradwise("predict", "run", "flowers.csv")
    rows = list(csv.DictReader(Path("flowers.csv").read_text().splitlines()))
    predicted = rows_of(said.out)
    wrong = np.mean([row["kind"] != one["prediction"] for row, one in zip(rows, predicted, strict=True)])
    assert f"error_rate {wrong:.4g}," in said.err
    assert "on 60 rows" in said.err
    # Those that the run was tested on are among them, and of these the error is the run's own.
    result = json.loads(Path("run/result.json").read_text())
    sizes = result["data"]["rows"]
    assert f"{sizes['train'] + sizes['valid']} of these rows were used to train or choose this model" in said.err
    assert f"On the {sizes['test']} others: error_rate {result['test']:.4g}," in said.err
    # Of rows that it never saw nothing more is said.
    lines = Path("flowers.csv").read_text().splitlines()
    numbers = [name for name, value in rows[0].items() if value.replace(".", "").isdigit()]
    changed = [{**row, numbers[0]: float(row[numbers[0]]) + 0.0625} for row in rows]
    text = "\n".join([lines[0], *(",".join(str(value) for value in row.values()) for row in changed)])
    Path("changed.csv").write_text(text + "\n")
    said = gradwise("predict", "run", "changed.csv")
    assert "on 60 rows" in said.err
    assert "optimistic" not in said.err


def test_a_target_that_cannot_be_used_is_said_and_does_no_harm(a_run, gradwise):
    text = Path("flowers.csv").read_text()
    Path("flowers.csv").write_text(text + "0,0,red,1,dan\n")
    said = gradwise("predict", "run", "flowers.csv")
    assert said.code == 0
    assert len(rows_of(said.out)) == 61
    assert "its error cannot be measured" in said.err
    assert "'dan'" in said.err


@pytest.mark.slow
def test_numbers_come_under_the_names_of_their_targets(finished_numbers, new, gradwise):
    rows = rows_of(gradwise("predict", str(finished_numbers), "flowers.csv").out)
    assert list(rows[0]) == ["length", "width"]
    predictor, _ = load_predictor(finished_numbers / "model.safetensors")
    assert predictor.task.names == ("length", "width")
    said = gradwise("predict", str(finished_numbers), "flowers.csv", "--probabilities")
    assert said.code == 2
    assert "predicts numbers" in said.err
    said = gradwise("predict", str(finished_numbers), "flowers.csv", "--keep", "width")
    assert said.code == 2
    assert "have a column of this name" in said.err


@pytest.mark.slow
def test_labels_come_one_column_each(here, gradwise):
    random = np.random.default_rng(0)
    lines = ["x,red,round"]
    for _ in range(60):
        x = random.normal()
        lines.append(f"{x:.3f},{int(x > 0)},{int(abs(x) < 1)}")
    Path("fruit.csv").write_text("\n".join(lines) + "\n")
    tiny = ("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=3", "--no-report")
    words = ("fit", "fruit.csv", "--target", "red", "--target", "round", *tiny, "--out", "run", "--json")
    assert json.loads(gradwise(*words).out)["task"] == "labels"
    rows = rows_of(gradwise("predict", "run", "fruit.csv", "--probabilities").out)
    assert list(rows[0]) == ["red", "round", "probability_red", "probability_round"]
    for row in rows:
        assert row["red"] == str(int(float(row["probability_red"]) > 0.5))


@pytest.mark.slow
def test_class_numbers_stay_numbers(here, gradwise):
    Path("n.csv").write_text("x,y\n" + "".join(f"{n % 2 + n / 100},{n % 2 + 7}\n" for n in range(40)))
    tiny = ("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=3", "--no-report")
    assert gradwise("fit", "n.csv", "--target", "y", *tiny, "--out", "run").code == 0
    assert {row["prediction"] for row in json.loads(gradwise("predict", "run", "n.csv", "--format", "json").out)} <= {
        7,
        8,
    }


def test_standard_input_and_output(new, gradwise, monkeypatch):
    expected = gradwise("predict", "run", "new.csv").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(NEW.encode())))
    assert gradwise("predict", "run", "-", "--out", "-").out == expected


@pytest.mark.slow
def test_images_and_their_array_file(here, gradwise):
    tiny = ("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=1", "--no-report")
    assert gradwise("fit", "digits", *tiny, "--out", "run").code == 0
    from sklearn.datasets import load_digits

    digits = load_digits()
    np.savez("new.npz", X=digits.images[:7].astype(np.uint8))
    rows = json.loads(gradwise("predict", "run", "new.npz", "--format", "json").out)
    assert len(rows) == 7
    assert {row["prediction"] for row in rows} <= set(range(10))
    said = gradwise("predict", "run", "new.npz", "--keep", "x")
    assert said.code == 2
    assert "no named columns" in said.err


def test_predictions_replace_a_file_whole_or_not_at_all(new, gradwise):
    Path("p.csv").write_text("precious\n")
    assert gradwise("predict", "run", "nothing.csv", "--out", "p.csv").code == 2
    assert Path("p.csv").read_text() == "precious\n"
    assert gradwise("predict", "run", "new.csv", "--out", "p.csv").code == 0
    assert Path("p.csv").read_text().startswith("prediction\n")


def test_the_report_is_written_again(a_run, gradwise):
    first = (a_run / "report.html").read_text()
    (a_run / "report.html").unlink()
    said = gradwise("report", "run")
    assert (said.code, said.out) == (0, "run/report.html\n")
    assert (a_run / "report.html").read_text() == first
    said = gradwise("report", "run", "--out", "page.html", "--json")
    result = json.loads(said.out)
    assert (result["out"], result["report"]) == ("run", "page.html")
    assert Path("page.html").read_text() == first
    assert gradwise("report", "run", "--out", "-").out == first


def test_a_report_does_not_replace_the_run_s_other_files(a_run, gradwise):
    before = (a_run / "result.json").read_bytes()
    said = gradwise("report", "run", "--out", "run/result.json")
    assert said.code == 2
    assert (a_run / "result.json").read_bytes() == before


QUICKLY = ("--set", "stopping=Off", "--set", "stopping.epochs=20", "--set", "model.widths=16", "--no-report")


@pytest.fixture
def shades(here) -> str:
    """A folder of dark and light pictures."""
    draw, pictures = np.random.default_rng(0), here / "shades"
    for number in range(60):
        shade = ("dark", "light")[number % 2]
        (pictures / shade).mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 128, (8, 8)) + 127 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(pictures / shade / f"{number}.png")
    return "shades"


def test_a_folder_of_pictures_is_learned_and_predicted(shades, gradwise):
    assert gradwise("fit", shades, "--out", "run_of_shades", *QUICKLY).code == 0
    one = gradwise("predict", "run_of_shades", "shades/light/1.png")
    assert rows_of(one.out) == [{"file": "shades/light/1.png", "prediction": "light"}]
    every = gradwise("predict", "run_of_shades", shades)
    assert [row["prediction"] for row in rows_of(every.out)] == ["dark"] * 30 + ["light"] * 30
    assert "error_rate 0," in every.err


@pytest.mark.slow
def test_a_folder_of_pictures_is_checked_and_searched(shades, gradwise):
    checked = gradwise("check", shades, "--out", "check_of_shades", "--only", "data", *QUICKLY)
    assert checked.code == 0, checked.err
    searched = gradwise("search", shades, "--trials", "1", "--out", "study_of_shades", "--on", "here", *QUICKLY)
    assert searched.code == 0, searched.err
