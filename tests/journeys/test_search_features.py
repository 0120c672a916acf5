"""`gradwise search` where there is no target: features are searched for, and the result gives them."""

import json
from pathlib import Path

import numpy as np
import pyarrow.csv as csv
import pytest

WORDS = ("--set", "stopping=Off", "--set", "stopping.epochs=2", "--set", "model.widths=6", "--on", "here")


def test_a_table_is_searched_without_its_target(table, gradwise):
    words = ("search", "flowers.csv", "--target", "kind", "--unsupervised", *WORDS, "--trials", "2", "--out", "study")
    said = gradwise(*words, "--committee", "seeds")
    assert said.code == 0, said.err
    assert said.out.startswith("Test denoising error ")
    assert "the network of the best trial is used instead of `seeds`" in " ".join(said.out.split())
    result = json.loads(Path("study/result.json").read_text())
    assert (result["task"], result["metric"]) == ("inputs", "denoising_error")
    assert result["winner"]["number"] in (0, 1)
    assert result["winner"]["values"].keys() == {"optimiser.learning_rate", "criterion.corruption.level"}
    assert result["estimates"]["metrics"]["test"].keys() == {"denoising_error", "reconstruction_error"}
    page = Path("study/report.html").read_text()
    assert "The winner&#39;s features" in page or "The winner's features" in page
    assert "validation denoising error" in page
    assert gradwise("predict", "study", "flowers.csv", "--out", "features.csv").code == 0
    assert csv.read_csv("features.csv").column_names == [f"feature_{number}" for number in range(1, 7)]


def test_an_array_without_labels_is_searched_by_itself_and_goes_on(here, gradwise):
    np.save("rows.npy", np.random.default_rng(0).random((120, 5)).astype(np.float32))
    words = ("search", "rows.npy", *WORDS, "--trials", "1", "--out", "study", "--no-report", "--json")
    first = json.loads(gradwise(*words).out)
    said = gradwise("search", "--out", "study", "--resume", "--trials", "+1", "--on", "here", "--no-report", "--json")
    assert said.code == 0, said.err
    second = json.loads(said.out)
    assert (first["trials"], second["trials"]) == (1, 2)
    assert second["winner"]["score"] <= first["winner"]["score"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metric", "reconstruction_error"), "cannot choose between feature learners"),
        (("--nested",), "--nested needs predictions of a target"),
        (("--range", "criterion.judged_by.level=uniform(0.1, 0.4)"), "could not be compared"),
        (("--class-weight", "balanced"), "exclude each other: features have no classes"),
    ],
)
def test_what_makes_no_sense_without_a_target_is_refused(table, gradwise, words, said):
    answer = gradwise("search", "flowers.csv", "--target", "kind", "--unsupervised", "--out", "study", *words)
    assert answer.code == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert not Path("study").exists()


def test_a_probe_reads_the_target_that_the_learner_does_not(table, gradwise):
    words = ("search", "flowers.csv", "--target", "kind", "--learner", "denoising:6", *WORDS[:4], "--on", "here")
    said = gradwise(*words, "--trials", "2", "--metric", "probe_error_rate", "--out", "study", "--no-report")
    assert said.code == 0, said.err
    assert said.out.startswith("Test error of a linear probe ")
    refused = gradwise(*words, "--trials", "2", "--out", "other")
    assert refused.err.startswith("error: --learner denoising:6 ignores the target")
