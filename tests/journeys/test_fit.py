"""`gradwise fit` as people use it: files, numbers, options, and what a second call does."""

import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

import gradwise as gw
from gradwise import defaults
from gradwise.data.reading.new_rows import read_rows
from gradwise.evaluation.baselines import compare_with_baselines
from gradwise.evaluation.metrics import measure
from gradwise.journeys import progress_bar
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.fit import read_fit
from gradwise.reporting.pages.provenance import python_lines
from gradwise.runtime import keys
from gradwise.specs.paths import trainable
from gradwise.training.model_files import load_predictor
from gradwise.training.prepare import split_labelled

TINY = ("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=3")
FIT = ("fit", "flowers.csv", "--target", "kind", *TINY)
FILES = {
    *("recipe.json", "result.json", "history.parquet", "model.safetensors", "report.html", "checkpoint.safetensors"),
    *("test_readings.json", "examples.npz"),
}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_leaves_its_files_and_tells_where(table, gradwise):
    said = gradwise(*FIT, "--out", "mine")
    assert (said.code, said.err) == (0, "")
    assert {path.name for path in Path("mine").iterdir()} == FILES
    assert "mine/report.html" in said.out
    assert "<html" in Path("mine/report.html").read_text()[:200].lower()


def test_the_default_folder_is_named_after_data_and_time(table, gradwise):
    assert gradwise(*FIT, "--no-report").code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("flowers-20")
    assert {path.name for path in folder.iterdir()} == FILES - {"report.html"}


@pytest.mark.slow
def test_a_run_is_watched_and_judged(table, gradwise):
    said = gradwise(*FIT, "--watch", "2", "--out", "mine", "--json")
    result = json.loads(said.out)
    flow = result["evidence"]["flow"]
    assert flow["updates"][0] == 0
    assert min(np.diff(flow["updates"])) >= 2
    assert {group["layer"] for group in flow["groups"] if group["kind"] == "activation"} == {"layers.0", "output"}
    page = Path("mine/report.html").read_text()
    assert "Activations and gradients by layer" in page
    verdict = result["evidence"]["verdict"]
    assert verdict["kind"] in {"optimisation", "overfitting", "both", "fine", "unsure"}
    assert verdict["sentence"] in [finding["what"] for finding in result["findings"]]
    assert "--watch 2" in result["data"]["command"]
    assert gradwise(*FIT, "--watch", "0", "--out", "other").code == 2


def test_json_is_one_object_and_nothing_else(table, gradwise):
    said = gradwise(*FIT, "--out", "mine", "--json")
    assert said.err == ""
    result = json.loads(said.out)
    needed = "task outcome metric train valid test test_interval age_examples seconds seed version findings out report"
    assert [name for name in needed.split() if name not in result] == []
    assert (result["task"], result["metric"], result["outcome"]) == ("classes", "error_rate", "finished")
    assert (result["out"], result["report"]) == ("mine", "mine/report.html")
    assert result["age_examples"] == 3 * 36  # 3 epochs of 60 % of 60 rows
    assert result["data"]["rows"] == {"train": 36, "valid": 12, "test": 12}
    stored = json.loads(Path("mine/result.json").read_text())
    assert stored == {name: value for name, value in result.items() if name not in {"out", "report"}}


@pytest.mark.slow
def test_the_test_error_is_the_saved_network_s_own(table, gradwise):
    """An oracle: a fixed test set, predicted by the saved model, measured apart."""
    test = table.with_name("later.csv")
    lines = table.read_text().splitlines()
    test.write_text("\n".join([lines[0], *lines[41:]]) + "\n")
    table.write_text("\n".join(lines[:41]) + "\n")
    result = json.loads(gradwise(*FIT, "--test", "later.csv", "--out", "mine", "--json", "--no-report").out)
    predictor, about = load_predictor(Path("mine/model.safetensors"))
    rows = read_rows("later.csv", predictor.columns, predictor.shape)
    kinds = [line.rpartition(",")[2] for line in lines[41:]]
    targets = np.array([predictor.task.labels.tolist().index(kind) for kind in kinds])
    assert result["metrics"]["test"] == pytest.approx(
        measure(predictor.task, predictor.predict(rows.inputs), targets, None)
    )
    assert result["data"]["rows"]["test"] == 20
    assert about["metric"] == "error_rate"


def test_quiet_says_one_line(table, gradwise):
    said = gradwise(*FIT, "--quiet", "--no-report", "--out", "mine")
    assert said.out.count("\n") == 1
    assert said.out.startswith("Test error ")


def test_the_command_is_kept_and_repeats_the_run(table, gradwise):
    words = ("--seed", "4", "--class-weight", "balanced", "--set", "optimiser.learning_rate=0.01", "--no-report")
    gradwise(*FIT, *words, "--out", "one")
    command = json.loads(Path("one/result.json").read_text())["data"]["command"]
    assert shlex.split(command)[:5] == ["gradwise", "fit", "flowers.csv", "--target", "kind"]
    gradwise(*shlex.split(command)[1:], "--out", "two", "--no-report")
    for name in ("model.safetensors", "recipe.json"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()


def test_the_seed_decides(table, gradwise):
    for name, seed in (("one", "1"), ("again", "1"), ("two", "2")):
        assert gradwise(*FIT, "--seed", seed, "--out", name, "--no-report").code == 0
    models = {name: Path(name, "model.safetensors").read_bytes() for name in ("one", "again", "two")}
    assert models["one"] == models["again"]
    assert models["one"] != models["two"]


@pytest.mark.slow
def test_a_config_file_and_the_command_line(table, gradwise):
    Path("run.toml").write_text(
        '[fit]\ndata = "flowers.csv"\ntarget = "kind"\nseed = 3\nno_report = true\nout = "theirs"\n'
        "[model]\nwidths = [4]\n"
        '[optimiser]\nclass = "Sgd"\nlearning_rate = 0.2\n[stopping]\nclass = "Off"\nepochs = 2\n'
    )
    words = ("fit", "--config", "run.toml", "--out", "mine", "--set", "model.widths=6", "--json")
    result = json.loads(gradwise(*words).out)
    assert (result["seed"], result["out"], result["report"]) == (3, "mine", None)
    recipe = read_fit(Path("mine")).recipe
    assert recipe.optimiser == Sgd(learning_rate=0.2)
    assert recipe.model.widths == (6,)
    assert recipe.stopping.epochs == 2


@pytest.mark.slow
def test_numbers_several_at_once(table, gradwise):
    words = ("fit", "flowers.csv", "--target", "length", "--target", "width", *TINY, "--no-report", "--json")
    result = json.loads(gradwise(*words).out)
    assert (result["task"], result["metric"]) == ("numbers", "rmse")
    assert result["r2"] == result["metrics"]["test"]["r2"]
    assert result["data"]["target"] == ["length", "width"]


@pytest.mark.slow
def test_columns_can_be_dropped_and_read_otherwise(table, gradwise):
    said = gradwise(*FIT, "--drop", "width", "--kind", "bed=category", "--no-report", "--json")
    columns = {column["name"]: column["kind"] for column in json.loads(said.out)["data"]["columns"]}
    assert columns == {"length": "number", "colour": "category", "bed": "category"}


@pytest.mark.slow
@pytest.mark.parametrize(("option", "split"), [("--group", "GroupHoldOut"), ("--time", "TimeHoldOut")])
def test_splits_by_group_and_by_time(option, split, table, gradwise):
    result = json.loads(gradwise(*FIT, option, "bed", "--no-report", "--json").out)
    assert result["data"]["split"] == split
    assert "bed" not in [column["name"] for column in result["data"]["columns"]]
    assert all(count % 4 == 0 for count in result["data"]["rows"].values())  # beds have four rows and stay whole


def test_a_metric_of_choice_leads_early_stopping_too(table, gradwise):
    result = json.loads(gradwise(*FIT, "--metric", "log_loss", "--no-report", "--json", "--out", "mine").out)
    assert result["metric"] == "log_loss"
    assert result["test"] == result["metrics"]["test"]["log_loss"]
    assert read_fit(Path("mine")).recipe.criterion.loss.score_by == "loss"


def test_standard_input(table, gradwise, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
    result = json.loads(gradwise("fit", "-", "--target", "kind", *TINY, "--no-report", "--json").out)
    assert Path(result["out"]).name.startswith("stdin-")
    again = json.loads(gradwise(*FIT, "--no-report", "--json").out)
    assert result["metrics"] == again["metrics"]


def test_folds_give_an_estimate_beside_the_hold_out(table, gradwise):
    plain = json.loads(gradwise(*FIT, "--no-report", "--json", "--out", "plain").out)
    result = json.loads(gradwise(*FIT, "--folds", "3", "--no-report", "--json", "--out", "mine").out)
    estimate = result["evidence"]["estimate"]
    values = estimate["values"]
    assert len(values) == 3
    assert estimate["mean"] == pytest.approx(np.mean(values))  # folds of equal size
    assert estimate["interval"][0] < estimate["mean"] < estimate["interval"][1]
    assert result["metrics"] == plain["metrics"]
    assert Path("plain/model.safetensors").read_bytes() == Path("mine/model.safetensors").read_bytes()


@pytest.mark.slow
def test_folds_may_be_added_to_a_run_that_was_killed_before_them(table, gradwise):
    words = (*FIT, "--folds", "2", "--no-report", "--json", "--out", "mine")
    whole = json.loads(gradwise(*words).out)
    stored = json.loads(Path("mine/result.json").read_text())
    del stored["evidence"]["estimate"]
    Path("mine/result.json").write_text(json.dumps(stored))
    again = json.loads(gradwise(*words, "--resume").out)
    assert again["evidence"] == whole["evidence"]


@pytest.mark.slow
def test_divergence_is_said_and_fails(table, gradwise):
    words = ("--set", "optimiser=Sgd", "--set", "optimiser.learning_rate=1e30", "--set", "stopping.epochs=50")
    said = gradwise(
        "fit", "flowers.csv", "--target", "kind", "--set", "model.widths=8", *words, "--out", "mine", "--json"
    )
    assert said.code == 1
    assert json.loads(said.out)["outcome"] == "diverged"
    assert said.err.startswith("error: the run diverged at age ")
    assert said.err.count("\n") == 1
    assert {path.name for path in Path("mine").iterdir()} == FILES


def test_a_run_that_is_terminated_is_saved_and_goes_on(table, gradwise, monkeypatch):
    """SIGTERM, as from a scheduler or a container that ends."""
    words = ("fit", "flowers.csv", "--target", "kind", *TINY[:-1], "stopping.epochs=30", "--no-report")
    with monkeypatch.context() as patch:
        patch.setattr(progress_bar.ProgressBar, "watch", lambda self, line: signal.raise_signal(signal.SIGTERM))
        said = gradwise(*words, "--out", "cut")
    assert said.code == 143
    line = said.err.splitlines()[-1]
    assert line.startswith("error: interrupted at age ")
    assert line.endswith("the best model so far is in cut. Continue with --out cut --resume.")
    assert gradwise("predict", "cut", "flowers.csv", "--quiet").code == 0
    assert gradwise(*words, "--out", "cut", "--resume").code == 0
    assert gradwise(*words, "--out", "whole").code == 0
    assert Path("cut/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()


@pytest.mark.slow
def test_time_runs_out_and_more_time_goes_on(table, gradwise):
    words = ("fit", "flowers.csv", "--target", "kind", *TINY[:-1], "stopping.epochs=100", "--no-report", "--json")
    whole = json.loads(gradwise(*words, "--out", "whole").out)
    assert whole["outcome"] == "finished"
    short = json.loads(gradwise(*words, "--out", "mine", "--max-time", "0.000001").out)
    assert short["outcome"] == "out_of_time"
    assert short["age_examples"] < whole["age_examples"]
    used_up = json.loads(gradwise(*words, "--out", "mine", "--max-time", "0.000001", "--resume").out)
    assert used_up["age_examples"] == short["age_examples"]
    assert used_up["data"]["test_readings"] == short["data"]["test_readings"] == 1  # it was told again, not read again
    on = json.loads(gradwise(*words, "--out", "mine", "--resume").out)
    assert on["outcome"] == "finished"
    assert on["data"]["test_readings"] == 2
    assert on["test"] == whole["test"]
    assert any("has been read twice" in finding["what"] for finding in on["findings"])
    assert Path("mine/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()
    one, other = (pq.read_table(f"{name}/history.parquet").drop(["seconds"]) for name in ("mine", "whole"))
    assert one.equals(other)


def test_resuming_a_finished_run_returns_at_once(a_run, gradwise, monkeypatch):
    before = snapshot(a_run)

    def never(*words, **more):
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr("gradwise.journeys.fit.fit", never)
    monkeypatch.setattr("gradwise.journeys.data_and_recipe.read", never)
    said = gradwise(*FIT, "--out", "run", "--resume", "--json")
    assert said.code == 0
    assert json.loads(said.out)["metrics"] == json.loads(before["result.json"])["metrics"]
    assert snapshot(a_run) == before


# The recipe for tables: a small network of it, for a short run.
TABLE = (
    *("fit", "flowers.csv", "--target", "kind", "--no-report", "--set", "model.widths=8,8"),
    *("--set", "stopping.epochs=3", "--set", "model.inputs.category_size=4"),
)


def test_a_table_is_learned_by_the_recipe_for_tables_and_its_run_is_known_again(table, gradwise, monkeypatch):
    said = gradwise(*TABLE, "--out", "mine", "--json")
    assert said.code == 0
    recipe, whole = read_fit(Path("mine")).recipe, defaults.table("classes", 60)
    assert recipe.optimiser == whole.optimiser
    assert (recipe.model.widths, recipe.model.inputs.category_size) == ((8, 8), 4)
    assert (recipe.stopping.keep, recipe.stopping.epochs) == ("best", 3.0)
    assert "model.inputs.category_size=4" in json.loads(said.out)["data"]["command"]
    before = snapshot(Path("mine"))

    def never(*words, **more):
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr("gradwise.journeys.fit.fit", never)
    monkeypatch.setattr("gradwise.journeys.data_and_recipe.read", never)
    again = gradwise(*TABLE, "--out", "mine", "--resume", "--json")
    assert (again.code, again.err) == (0, "")
    assert json.loads(again.out)["metrics"] == json.loads(said.out)["metrics"]
    assert snapshot(Path("mine")) == before


@pytest.mark.slow
def test_a_run_of_the_recipe_for_tables_goes_on_along_its_schedule(table, gradwise):
    """Interrupted and resumed it ends with the network, the waves and the best epoch of a run in one piece."""
    words = (*TABLE, "--set", "stopping.epochs=40", "--json")
    assert json.loads(gradwise(*words, "--out", "whole").out)["outcome"] == "finished"
    assert json.loads(gradwise(*words, "--out", "mine", "--max-time", "0.000001").out)["outcome"] == "out_of_time"
    assert json.loads(gradwise(*words, "--out", "mine", "--resume").out)["outcome"] == "finished"
    assert Path("mine/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()
    one, other = (pq.read_table(f"{name}/history.parquet").drop(["seconds"]) for name in ("mine", "whole"))
    assert one.equals(other)


@pytest.mark.parametrize(
    ("words", "general"),
    [
        ((), False),
        (("--set", "model.dropout=0.3", "--set", "optimiser.learning_rate=0.01"), False),
        (("--set", "optimiser.schedule=OneCycle"), False),
        (("--set", "model=Mlp"), True),
        (("--set", "optimiser=Sgd"), True),
        (("--set", "stopping=Patience"), True),
    ],
    ids=str,
)
def test_a_part_of_another_kind_brings_the_general_recipe(table, gradwise, words, general):
    said = gradwise("fit", "flowers.csv", "--target", "kind", *words, "--dry-run", "--json")
    assert said.code == 0
    recipe = json.loads(said.out)["recipe"]
    text = json.dumps(recipe)
    assert ("Patience" in text) == general
    assert ("Embedded" in text) == (not general)


def test_resuming_without_a_checkpoint_starts_afresh(a_run, table, gradwise):
    empty = table.with_name("empty")
    empty.mkdir()
    assert gradwise(*FIT, "--out", "empty", "--resume").code == 0
    assert (empty / "model.safetensors").read_bytes() == (a_run / "model.safetensors").read_bytes()


def test_a_run_killed_after_training_and_before_writing_ends_the_same(a_run, gradwise):
    """The last checkpoint of a run that is over holds no more training to do."""
    words = ("fit", "flowers.csv", "--target", "kind", "--set", "model.widths=8", "--no-report", "--json")
    patience = (
        "--set",
        "stopping=Patience",
        "--set",
        "stopping.initial_examples=2000",
        "--set",
        "stopping.growth.factor=1.0",
        "--set",
        "stopping.initial_epochs=1",
    )
    whole = json.loads(gradwise(*words, *patience, "--out", "whole").out)
    assert whole["outcome"] == "patience"
    shutil.copytree("whole", "mine")
    for name in ("result.json", "recipe.json", "history.parquet", "model.safetensors"):
        Path("mine", name).unlink()
    again = json.loads(gradwise(*words, *patience, "--out", "mine", "--resume").out)
    assert (again["outcome"], again["age_examples"]) == (whole["outcome"], whole["age_examples"])
    assert Path("mine/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()


def test_overwriting_replaces_a_run(a_run, gradwise):
    said = gradwise(*FIT, "--seed", "9", "--out", "run", "--overwrite", "--no-report")
    assert said.code == 0
    assert {path.name for path in a_run.iterdir()} == FILES - {"report.html"}  # the old report told of another run
    assert json.loads((a_run / "result.json").read_text())["seed"] == 9


def test_overwriting_what_is_not_there_makes_it(table, gradwise):
    assert gradwise(*FIT, "--out", "mine", "--overwrite", "--no-report").code == 0


def test_a_dry_run_says_what_would_be_done_and_does_nothing(table, gradwise):
    before = {path: path.read_bytes() for path in table.parent.rglob("*") if path.is_file()}
    said = gradwise(*FIT, "--dry-run", "--out", "mine")
    assert (said.code, said.err) == (0, "")
    flat = " ".join(said.out.split())
    for words in (
        "rows 60",
        "colour category 0 3",
        "ann, bob, cyd",
        "model.widths 8 default 256, 256",
        "stopping Off",
        "mine (new)",
    ):
        assert words in flat
    assert {path: path.read_bytes() for path in table.parent.rglob("*") if path.is_file()} == before


def test_the_plan_agrees_with_the_run(table, gradwise):
    plan = json.loads(gradwise(*FIT, "--dry-run", "--json").out)
    result = json.loads(gradwise(*FIT, "--json", "--no-report", "--out", "mine").out)
    training = plan["training"]
    assert [training[f"rows to {part}, about"] for part in ("learn from", "choose by", "judge by")] == [36, 12, 12]
    assert list(result["data"]["rows"].values()) == [36, 12, 12]
    assert plan["command"] == result["data"]["command"]
    predictor, _ = load_predictor(Path("mine/model.safetensors"))
    parameters, _ = trainable(predictor.network)
    assert training["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(parameters))
    history = pq.read_table("mine/history.parquet").to_pydict()
    assert history["updates"][-1] == 3 * training["updates per epoch"]
    assert history["age_examples"][-1] == training["examples at most"]


@pytest.mark.slow
def test_a_dry_run_starts_no_device(table, program):
    process = program(*FIT, "--dry-run", cwd=table.parent, env={"JAX_PLATFORMS": "abacus"})
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert "Dry run: nothing is trained or written." in out


@pytest.mark.slow
def test_a_device_that_cannot_start_is_said(table, program):
    process = program(*FIT, "--out", "mine", cwd=table.parent, env={"JAX_PLATFORMS": "abacus"})
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("error: JAX could not start a device")
    assert "abacus" in err
    assert err.count("\n") == 1
    assert not table.with_name("mine").exists()


def test_on_cpu_runs(table, gradwise):
    assert json.loads(gradwise(*FIT, "--on", "cpu", "--no-report", "--json").out)["machine"]["device"].startswith("cpu")


@pytest.mark.slow
def test_real_tables_of_every_form(data_folder, here, gradwise, monkeypatch):
    monkeypatch.setenv("GRADWISE_DATA", str(data_folder))
    quick = ("--set", "model.widths=16", "--set", "stopping=Off", "--set", "stopping.epochs=1", "--no-report", "--json")
    result = json.loads(gradwise("fit", "german-credit", *quick).out)
    assert (result["task"], len(result["data"]["columns"])) == ("classes", 20)
    result = json.loads(gradwise("fit", str(data_folder / "tabular" / "reg_yacht.npz"), *quick).out)
    assert result["task"] == "numbers"
    assert os.listdir("runs")


@pytest.mark.slow
def test_an_optimiser_that_remembers_examples_gets_room_for_them(table, gradwise):
    assert gradwise(*FIT, "--set", "optimiser=Sag", "--dry-run").code == 0
    said = gradwise(*FIT, "--set", "optimiser=Sag", "--out", "mine")
    assert (said.code, said.err) == (0, "")


def _said(record):
    return sorted((finding.code, finding.level, finding.what) for finding in record.findings)


def test_python_finds_what_the_command_line_finds(table, gradwise):
    """The same data and recipe: the same findings, and the same verdict."""
    words = ("--target", "kind", *TINY, "--set", "optimiser.learning_rate=1e-5", "--no-report", "--out", "run")
    assert gradwise("fit", "flowers.csv", *words).code == 0
    shell, dataset = read_fit(Path("run")), gw.data.read("flowers.csv", gw.ReadRequest(targets=("kind",)))
    python = gw.fit(dataset, recipe=shell.recipe).record
    assert _said(python) == _said(shell)
    assert any(finding.code for finding in python.findings)
    assert python.evidence.verdict.sentence == shell.evidence.verdict.sentence
    bare = gw.train(shell.recipe, dataset, key=gw.from_seed(0))
    assert bare.evidence.verdict is None
    estimator = gw.Classifier(optimiser=gw.Sgd(learning_rate=1e-6), stopping=gw.Off(epochs=3.0), random_state=0)
    record = estimator.fit(dataset.inputs, dataset.targets).record_
    rows = gw.Dataset(dataset.inputs, dataset.targets, gw.Classes(np.arange(3)), name="X")
    assert _said(record) == _said(gw.fit(rows, recipe=record.recipe).record)
    assert record.evidence.verdict.kind


@pytest.mark.parametrize(
    "words",
    [
        ("--target", "kind", "--drop", "bed", "--metric", "log_loss", "--class-weight", "ann=1,bob=2,cyd=1"),
        ("--target", "length", "--group", "bed", "--set", "split.test=0.3", "--kind", "colour=category"),
    ],
)
def test_the_lines_in_the_report_repeat_the_run(words, table, gradwise, monkeypatch):
    assert gradwise("fit", "flowers.csv", *words, *TINY, "--seed", "5", "--no-report", "--out", "run").code == 0
    record, names = read_fit(Path("run")), {}
    lines = "\n".join(python_lines(record)).replace("recipe.json", "run/recipe.json")
    exec(lines, names)  # our own text
    again = names["model"].record
    assert (again.metrics, again.seed, again.recipe) == (record.metrics, 5, record.recipe)
    assert again.data.rows == record.data.rows


def test_a_column_that_gives_the_target_away_is_named(here, gradwise):
    """The check of the data is part of every fit and search: a leak is no good result."""
    draw = np.random.default_rng(0)
    yes = draw.integers(0, 2, 200)
    lines = [f"{draw.normal():.4f},{draw.normal() + 2 * one:.4f},{10 * one + 3},{['no', 'yes'][one]}" for one in yes]
    Path("leak.csv").write_text("\n".join(["a,b,answer,y", *lines]) + "\n")
    words = ("leak.csv", "--target", "y", "--no-report")
    said = gradwise("fit", *words, "--set", "stopping.epochs=40", "--set", "model.widths=16", "--out", "run")
    assert said.code == 0
    assert "GW202 answer" in said.out
    assert "Nothing stands out" not in said.out
    found = read_fit(Path("run"))
    assert found.findings[0].code == "GW202"
    assert found.findings[0].level == "error"
    clean = gradwise("fit", *words, "--drop", "answer", "--set", "stopping.epochs=2", "--out", "clean")
    assert "GW2" not in clean.out
    plain = ("--trials", "1", "--folds", "1", "--on", "here", "--set", "stopping.epochs=2", "--set", "model.widths=16")
    assert "GW202 answer" in gradwise("search", *words, *plain, "--out", "study").out


def test_rows_that_judge_themselves_are_no_copies(here):
    """Where training rows are also the validation rows, that is said elsewhere, not as copied rows."""
    dataset = gw.data.read("iris")
    recipe = gw.defaults.for_data(dataset, split=gw.TrainingRows())
    recipe = dataclasses.replace(recipe, stopping=dataclasses.replace(recipe.stopping, epochs=1.0))
    codes = {one.code for one in gw.fit(dataset, recipe=recipe).record.findings}
    assert "GW201" not in codes


def test_simple_models_learn_and_are_measured_on_the_rows_of_the_network(here):
    key, dataset = gw.from_seed(0), gw.data.read("iris")
    recipe = dataclasses.replace(gw.defaults.for_data(dataset), stopping=gw.Off(epochs=1.0))
    result = gw.fit(dataset, recipe=recipe).record
    train, _, test = split_labelled(recipe.split, None, dataset, key=keys.named(key, "split"))
    predictions = result.predictor.predict(test.inputs)
    assert result.metrics["test"] == pytest.approx(measure(test.task, predictions, test.targets, None))
    assert result.evidence.baselines == compare_with_baselines(train, test, "error_rate", predictions)
    assert [one.name for one in result.evidence.baselines] == ["linear model", "gradient boosting"]
    # After one epoch any of them is better, and it is told.
    assert "GW808" in {one.code for one in result.findings}
    assert gw.fit(dataset, recipe=recipe, no_baselines=True).record.evidence.baselines == ()
    assert gw.train(recipe, dataset, key=key).evidence.baselines == ()


def test_the_command_line_compares_with_simple_models_unless_told_not_to(table, gradwise):
    said = " ".join(gradwise(*FIT, "--out", "run").out.split())
    assert re.search(r"Test error: linear model .*, gradient boosting .*, this network .*%\.", said)
    assert "Simpler models on the same test rows" in Path("run/report.html").read_text()
    assert len(read_fit(Path("run")).evidence.baselines) == 2
    bare = gradwise(*FIT, "--no-baselines", "--no-report", "--out", "bare", "--json")
    assert "baselines" not in json.loads(bare.out)["evidence"]


def test_the_columns_that_the_network_needs_are_told(table, gradwise):
    words = ("--set", "model.widths=8", "--set", "stopping.epochs=40", "--drop", "bed", "--no-baselines")
    gradwise("fit", "flowers.csv", "--target", "kind", *words, "--out", "run")
    found = read_fit(Path("run")).evidence.importance
    assert (found.part, found.metric, found.rows) == ("test", "error_rate", 12)
    model = gw.load("run")
    assert sorted(model.importance["column"]) == ["colour", "length", "width"]
    assert model.importance["rise"].is_monotonic_decreasing
    assert model.importance["rise"][0] > 0
    assert "importance" in model.plots
    assert model.plot("importance").axes[0].get_xlabel().startswith("rise of the error")
