"""Learning features and pre-training from the command line: what is left behind, refused, interrupted and repeated."""

import dataclasses
import json
import os
import shlex
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from gradwise.data.reading.new_rows import read_rows
from gradwise.journeys import progress_bar
from gradwise.models.mlp import MlpNetwork
from gradwise.pretraining.stack import Pretrained
from gradwise.records.commands import as_check, as_search
from gradwise.records.fit import read_fit
from gradwise.reporting.pages.provenance import python_lines
from gradwise.training.model_files import load_predictor

SHORT = ("--set", "stopping=Off", "--set", "stopping.epochs=3")
LAYERS = (
    *("--pretrain", "denoising:10,plain:6", "--set", "layers.stopping=Off", "--set", "layers.stopping.epochs=4"),
    *("--set", "layers.stopping.spacing=1", "--set", "layers.stopping.least_examples=100"),
)
PRETRAIN = ("fit", "labelled.npz", *LAYERS, *SHORT, "--no-report")


def write_digits(folder: Path) -> None:
    """120 pictures of 8 x 8 pixels, with their labels and without."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = images[:120].reshape(-1, 8, 8).astype(np.uint8)
    np.savez(folder / "labelled.npz", X=pixels, y=labels[:120])
    np.savez(folder / "pictures.npz", X=pixels)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with data, a run that learned features, and one that was pre-trained. Not to be written to: copy it."""
    from gradwise.cli.main import run_program

    folder = tmp_path_factory.mktemp("features")
    write_digits(folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert (
            run_program(["fit", "pictures.npz", "--learner", "denoising:12", *SHORT, "--out", "learned", "--quiet"])
            == 0
        )
        assert run_program([*PRETRAIN[:-1], "--out", "pretrained", "--quiet"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def place(runs, here):
    """The runs, copied into the working directory."""
    shutil.copytree(runs, here, dirs_exist_ok=True)
    return here


def result_of(folder):
    return json.loads(Path(folder, "result.json").read_text())


def test_an_array_without_a_target_is_learned_from_by_itself(place):
    result = result_of("learned")
    assert (result["task"], result["metric"], result["outcome"]) == ("inputs", "denoising_error", "finished")
    assert set(result["metrics"]["test"]) == {"denoising_error", "reconstruction_error"}
    assert 0 < result["test_interval"][0] < result["test"] < result["test_interval"][1]
    assert result["evidence"]["features"]["image"] == [8, 8]
    assert result["data"]["rows"] == {"train": 72, "valid": 24, "test": 24}
    names = {
        "recipe.json",
        "history.parquet",
        "model.safetensors",
        "report.html",
        "checkpoint.safetensors",
        "result.json",
        "test_readings.json",
    }
    assert {path.name for path in Path("learned").iterdir()} == names
    page = Path("learned/report.html").read_text()
    assert page.index("What the units look for") < page.index("Inputs and their reconstructions") < page.index("metric")
    assert read_fit(Path("learned")).recipe.model.widths == (12,)


def test_predict_writes_the_features(place, gradwise):
    """An oracle: the sigmoid of weights and pixels, the pixels divided by the largest of the training part."""
    assert gradwise("predict", "learned", "pictures.npz", "--out", "codes.csv").code == 0
    header, *lines = Path("codes.csv").read_text().splitlines()
    assert header.split(",") == [f"feature_{k + 1}" for k in range(12)]
    codes = np.array([[float(cell) for cell in line.split(",")] for line in lines])
    layer = load_predictor(Path("learned/model.safetensors"))[0].network.encoder[0]
    inputs = np.load("pictures.npz")["X"].reshape(120, 64) / 16.0
    expected = 1 / (1 + np.exp(-(inputs @ np.asarray(layer.weight).T + np.asarray(layer.bias))))
    assert codes == pytest.approx(expected, abs=1e-5)
    said = gradwise("predict", "learned", "pictures.npz", "--probabilities")
    assert (said.code, said.err.count("\n")) == (2, 1)


def test_a_pretrained_run_leaves_a_network_that_predicts(place, gradwise):
    recipe = read_fit(Path("pretrained")).recipe
    assert isinstance(recipe.model, Pretrained)
    assert [layer.model.widths for layer in recipe.model.layers] == [(10,), (6,)]
    assert [layer.stopping.epochs for layer in recipe.model.layers] == [4, 4]
    assert (recipe.model.mlp.dropout, recipe.stopping.epochs) == (0, 3)
    predictor, _ = load_predictor(Path("pretrained/model.safetensors"))
    assert isinstance(predictor.network, MlpNetwork)
    assert [layer.weight.shape for layer in predictor.network.layers] == [(10, 64), (6, 10)]
    rows = read_rows("pictures.npz", predictor.columns, predictor.shape)
    assert predictor.predict(rows.inputs).shape == (120, 10)
    assert gradwise("predict", "pretrained", "pictures.npz").out.startswith("prediction\n")
    result = result_of("pretrained")
    assert [(one["learner"], one["units"]) for one in result["evidence"]["layers"]] == [("denoising", 10), ("plain", 6)]
    assert result["seconds"] >= sum(one["seconds"] for one in result["evidence"]["layers"])
    page = Path("pretrained/report.html").read_text()
    assert "Layer 1: denoising, 10 units" in page
    assert "Layer 2: plain, 6 units" in page
    assert "pretrain=&#34;denoising:10,plain:6&#34;, recipe=recipe" in page


def test_what_was_found_in_a_layer_is_shown_under_its_name(place, gradwise):
    """In the terminal, on the page and in the record: four epochs leave reconstructions worse than the mean."""
    said = gradwise(*PRETRAIN, "--out", "pretrained", "--resume")
    found = {one["where"]: one["what"] for one in result_of("pretrained")["findings"]}
    worse = "layer {} units): the reconstructions are no better than the mean of each input"
    for place_of, name in (("model.layers.0", "1 (denoising, 10"), ("model.layers.1", "2 (plain, 6")):
        assert found[place_of].startswith(worse.format(name))
        for text in (" ".join(said.out.split()), Path("pretrained/report.html").read_text()):
            assert worse.format(name)[1:] in text  # a page begins it with a capital


def test_layers_are_learned_with_the_target_from_the_command_line(table, gradwise):
    """One row in three has no class: refused in a line without --pretrain, and not used by a supervised layer."""
    lines = table.read_text().splitlines()
    some = [line.rpartition(",")[0] + "," if row % 3 == 0 else line for row, line in enumerate(lines[1:])]
    table.write_text("\n".join([lines[0], *some]) + "\n")
    words = ("fit", "flowers.csv", "--target", "kind", *SHORT, "--out", "mine", "--no-report")
    said = gradwise(*words)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "--pretrain denoising:100x2" in said.err
    layers = ("--set", "layers.stopping=Off", "--set", "layers.stopping.epochs=3")
    said = gradwise(*words, "--pretrain", "supervised:4,plain:3", *layers)
    assert said.code == 0
    result = result_of("mine")
    assert [(one["learner"], one["metric"], one["rows"]) for one in result["evidence"]["layers"]] == [
        ("supervised", "error_rate", 24),
        ("plain", "denoising_error", 24 + 20),
    ]
    told = "20 rows without a target served the pre-training alone, not of layer 1, which learns from the target."
    assert told in " ".join(said.out.split())
    assert read_fit(Path("mine")).recipe.model.layers[0].criterion.loss.task() == "classes"
    said = gradwise(*words, "--pretrain", "supervised:4", *layers, "--overwrite")
    told = "20 rows without a target are not used: supervised layers learn from the target."
    assert told in " ".join(said.out.split())


@pytest.mark.slow
def test_the_kept_command_repeats_a_pretrained_run(place, gradwise):
    command = result_of("pretrained")["data"]["command"]
    assert "--pretrain denoising:10,plain:6" in command
    assert gradwise(*shlex.split(command)[1:], "--out", "again", "--no-report").code == 0
    for name in ("model.safetensors", "recipe.json"):
        assert Path("again", name).read_bytes() == Path("pretrained", name).read_bytes()
    before = Path("again/model.safetensors").stat().st_mtime_ns
    assert gradwise(*shlex.split(command)[1:], "--out", "again", "--no-report", "--resume").code == 0
    assert Path("again/model.safetensors").stat().st_mtime_ns == before  # nothing was left to do


def test_the_python_lines_of_the_report_repeat_it_too(place):
    record, names = read_fit(Path("pretrained")), {}
    exec("\n".join(python_lines(record)).replace("recipe.json", "pretrained/recipe.json"), names)  # our own text
    assert names["model"].record.metrics["test"] == pytest.approx(record.metrics["test"])


def test_ctrl_c_in_a_layer_keeps_it_and_resume_ends_with_the_same_bits(place, gradwise, monkeypatch):
    seen: list[str] = []
    usual = progress_bar.ProgressBar.training

    def training(self, prefix, **more):
        seen.append(prefix)
        usual(self, prefix, **more)

    def watch(self, line):
        if seen == ["layer 1 of 2", "layer 2 of 2"]:  # the second layer, and the first time
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress_bar.ProgressBar, "training", training)
    monkeypatch.setattr(progress_bar.ProgressBar, "watch", watch)
    said = gradwise(*PRETRAIN, "--out", "cut")
    assert (said.code, said.out) == (130, "")
    assert said.err == "error: interrupted in layer 2 of 2. Progress is saved: continue with --resume.\n"
    assert sorted(path.name for path in Path("cut").iterdir()) == ["layer-1", "layer-2"]
    kept = Path("cut/layer-1/checkpoint.safetensors").read_bytes()
    assert gradwise(*PRETRAIN, "--out", "cut", "--resume").code == 0
    assert Path("cut/layer-1/checkpoint.safetensors").read_bytes() == kept
    assert Path("cut/model.safetensors").read_bytes() == Path("pretrained/model.safetensors").read_bytes()
    assert seen == ["layer 1 of 2", "layer 2 of 2", "layer 1 of 2", "layer 2 of 2", "fine-tuning"]


def test_a_failure_in_a_layer_leaves_nothing_behind(place, gradwise):
    """Twice: over what is not there, and over a finished run, which stays as it was."""
    bad = ("--set", "layers.criterion.loss=CrossEntropy", "--set", "scaler=Standardise")
    said = gradwise(*PRETRAIN, *bad, "--out", "none")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "UnitRange" in said.err
    assert not Path("none").exists()
    before = {path: path.read_bytes() for path in Path("learned").rglob("*") if path.is_file()}
    assert gradwise(*PRETRAIN, *bad, "--out", "learned", "--overwrite").code == 2
    assert {path: path.read_bytes() for path in Path("learned").rglob("*") if path.is_file()} == before
    assert not Path("learned/.next").exists()


def plan_of(gradwise, *words):
    said = gradwise(*words, "--dry-run", "--json")
    assert (said.code, said.err) == (0, "")
    return json.loads(said.out)


def chosen(plan, path):
    return next(choice["value"] for choice in plan["recipe"] if choice["path"] == path)


def test_the_criterion_follows_the_scaled_inputs(table, gradwise):
    words = ("fit", "flowers.csv", "--unsupervised", "--learner", "denoising:7")
    usual = plan_of(gradwise, *words)
    assert (chosen(usual, "criterion.loss"), chosen(usual, "criterion.corruption")) == ("CrossEntropy", "Masking")
    assert (usual["data"]["task"], usual["training"]["metric"]) == ("inputs", "denoising_error")
    assert usual["command"].startswith("gradwise fit flowers.csv --unsupervised --learner denoising:7")
    other = plan_of(gradwise, *words, "--set", "scaler.numbers=Standardise")
    assert (chosen(other, "criterion.loss"), chosen(other, "criterion.corruption")) == ("SquaredError", "GaussianNoise")


def test_a_target_that_is_named_is_no_input(table, gradwise):
    words = ("fit", "flowers.csv", "--unsupervised")
    columns = [column["name"] for column in plan_of(gradwise, *words)["data"]["columns"]]
    assert columns == ["length", "width", "colour", "bed", "kind"]
    columns = [column["name"] for column in plan_of(gradwise, *words, "--target", "kind")["data"]["columns"]]
    assert columns == ["length", "width", "colour", "bed"]


def test_a_plan_of_a_pretrained_network_counts_its_parameters(table, gradwise):
    plan = plan_of(
        gradwise, "fit", "flowers.csv", "--target", "kind", "--pretrain", "denoising:9x2", "--drop", "colour"
    )
    assert plan["training"]["parameters"] == 3 * 9 + 9 + 9 * 9 + 9 + 9 * 3 + 3
    assert plan["training"]["pre-training"] == "denoising:9x2"
    assert chosen(plan, "model") == "Pretrained"
    assert chosen(plan, "model.layers.1.model.widths") == [9]


@pytest.mark.slow
def test_rows_without_a_label_serve_pretraining_alone(table, gradwise):
    """Half of the labels are gone: refused without --pretrain, used with it."""
    lines = table.read_text().splitlines()
    half = [line if row % 2 else line.rpartition(",")[0] + "," for row, line in enumerate(lines[1:])]
    table.write_text("\n".join([lines[0], *half]) + "\n")
    said = gradwise("fit", "flowers.csv", "--target", "kind", *SHORT, "--out", "mine")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert not Path("mine").exists()
    layer = ("--pretrain", "denoising:5", "--set", "layers.stopping=Off", "--set", "layers.stopping.epochs=2")
    said = gradwise("fit", "flowers.csv", "--target", "kind", *layer, *SHORT, "--json", "--out", "mine", "--no-report")
    assert said.code == 0
    result = json.loads(said.out)
    assert "30 rows without a target served the pre-training alone." in [one["what"] for one in result["findings"]]
    assert sum(result["data"]["rows"].values()) == 30
    (layer_told,) = result["evidence"]["layers"]
    assert layer_told["age"][-1] == 2 * round(
        0.9 * (18 + 30)
    )  # training part and unlabelled rows, a tenth to choose by


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--pretrain", "denoising"), "denoising:1000x3"),
        (("--pretrain", "denoising:10x0"), "denoising:1000x3"),
        (("--pretrain", "denosing:10"), "Did you mean 'denoising'?"),
        (("--pretrain", "denoising:10", "--folds", "3"), "exclude each other"),
        (("--pretrain", "denoising:10", "--unsupervised"), "exclude each other"),
        (("--pretrain", "denoising:10", "--set", "model.widths=4"), "given by --pretrain"),
        (("--pretrain", "denoising:900000000"), "fewer units in --pretrain"),
        (("--learner", "supervised:9", "--unsupervised"), "Use --pretrain supervised:9"),
        (("--learner", "denoising:900000000"), "--set model.widths=256"),
        (("--learner", "denoising:5x2"), "--pretrain"),
        (("--learner", "no:5"), "Choose from: plain"),
        (("--learner", "denoising:5", "--target", "y"), "--unsupervised"),
        (("--unsupervised", "--class-weight", "balanced"), "exclude each other"),
        (("--unsupervised", "--metric", "rmse"), "denoising_error"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(words, told, here, gradwise):
    said = gradwise("fit", "digits", *words, "--out", "mine")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert told in said.err
    assert not Path("mine").exists()


def test_labels_are_asked_for_where_they_are_needed(place, table, gradwise):
    said = gradwise("fit", "pictures.npz", "--pretrain", "denoising:10")
    assert said.code == 2
    assert "the data have none. Name it with --target" in said.err
    said = gradwise("fit", "flowers.csv")
    assert said.code == 2
    assert "--target" in said.err
    assert "--unsupervised" in said.err


def test_cross_entropy_of_inputs_outside_the_unit_interval_names_the_scaler(place, gradwise):
    words = ("--unsupervised", "--set", "scaler=Standardise", "--set", "criterion.loss=CrossEntropy", *SHORT)
    said = gradwise("fit", "pictures.npz", *words, "--out", "mine")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "--set scaler=UnitRange" in said.err
    assert not Path("mine").exists()


def test_options_can_stand_in_a_file(here):
    from gradwise.journeys.requests.training_requests import FitRequest

    (here / "run.toml").write_text('[fit]\ndata = "x.npy"\nunsupervised = true\nlearner = "plain"\n')
    options = FitRequest.of({"config": "run.toml"})
    assert (options.learns_inputs, options.learner) == (True, "plain:256")
    assert dataclasses.replace(options, learner=None).learns_inputs


def test_inputs_that_are_all_alike_are_refused(here, gradwise):
    np.savez("same.npz", X=np.full((30, 4), 7, np.uint8), y=np.arange(30) % 2)
    for words in (("--unsupervised",), ("--pretrain", "denoising:4")):
        answer = gradwise("fit", "same.npz", *words)
        assert answer.code == 2
        assert answer.err == "error: all 30 rows have the same inputs: there is nothing to learn. Check the file.\n"


SECOND = ("fit", "second.npz", "--from", "learned", "--freeze", "1", "--no-report", *SHORT)


@pytest.fixture
def second(place):
    """Another task on the same kind of pictures, other rows: whether the digit is even."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rows = slice(120, 200)
    np.savez(place / "second.npz", X=images[rows].reshape(-1, 8, 8).astype(np.uint8), y=labels[rows] % 2)
    return place


def test_layers_of_another_run_are_taken_and_frozen(gradwise, second):
    assert gradwise(*SECOND, "--out", "taken").code == 0
    taken, learned = (load_predictor(Path(name, "model.safetensors"))[0] for name in ("taken", "learned"))
    assert isinstance(taken.network, MlpNetwork)
    assert np.array_equal(taken.network.layers[0].weight, learned.network.encoder[0].weight)
    assert np.array_equal(taken.scaler.apply(np.full((1, 8, 8), 7.0)), learned.scaler.apply(np.full((1, 8, 8), 7.0)))
    record = read_fit(Path("taken"))
    assert "--from learned --freeze 1" in record.data.command
    assert record.recipe.model.source == "learned"
    assert record.recipe.optimiser.optimiser.frozen == 1
    found = gradwise("predict", "taken", "second.npz")
    assert set(found.out.split()[1:]) <= {"0", "1"}


def test_freezing_outlives_another_optimiser(gradwise, second):
    assert gradwise(*SECOND, "--set", "optimiser=Sgd", "--set", "optimiser.learning_rate=0.1", "--out", "sgd").code == 0
    recipe = read_fit(Path("sgd")).recipe
    assert (type(recipe.optimiser).__name__, recipe.optimiser.frozen) == ("SlowerBelow", 1)
    assert float(recipe.optimiser.optimiser.learning_rate) == 0.1


def test_a_transferred_run_resumes_and_says_how_to_repeat_it(gradwise, second):
    assert gradwise(*SECOND, "--out", "taken").code == 0
    before = Path("taken/model.safetensors").read_bytes()
    assert gradwise(*SECOND, "--out", "taken", "--resume").code == 0
    assert Path("taken/model.safetensors").read_bytes() == before
    record = read_fit(Path("taken"))
    assert 'gw.fit("second.npz", seed=0, recipe=recipe)' in "\n".join(python_lines(record))
    assert "--from" not in as_search(record.data.command) + as_check(record.data.command)
    assert "--freeze" not in as_search(record.data.command) + as_check(record.data.command)


def test_the_test_rows_that_the_other_run_knew_are_told(gradwise, second):
    said = gradwise("fit", "labelled.npz", "--from", "learned", "--seed", "5", "--no-report", *SHORT, "--out", "taken")
    assert said.code == 0
    (found,) = (one for one in read_fit(Path("taken")).findings if "whose layers are taken" in one.what)
    assert (found.level, found.code) == ("warning", "GW201")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "nowhere"), "nowhere has no model.safetensors"),
        (("--freeze", "1"), "--freeze belongs to --from RUN"),
        (("--from", "learned", "--freeze", "2"), "1 hidden layers are taken from learned, so 2 cannot be frozen"),
        (("--from", "learned", "--pretrain", "rbm:5"), "--pretrain and --from exclude each other"),
        (("--from", "learned", "--unsupervised"), "--unsupervised and --from exclude each other"),
    ],
)
def test_what_cannot_be_transferred_is_refused_in_one_line(gradwise, second, words, told):
    said = gradwise("fit", "second.npz", *words)
    assert said.code == 2
    assert told in said.err
    assert len(said.err.strip().splitlines()) == 1


@pytest.mark.slow
def test_stages_of_filters_are_pretrained_and_resumed(place, gradwise):
    words = ("fit", "labelled.npz", "--pretrain", "convolutional:2,convolutional:3", *SHORT)
    words += ("--set", "layers.stopping=Off", "--set", "layers.stopping.epochs=1", "--set", "layers.model.kernel=3")
    assert gradwise(*words, "--out", "stages").code == 0
    network = load_predictor(Path("stages", "model.safetensors"))[0].network
    assert [layer.weight.shape for layer in network.convolutions] == [(2, 9), (3, 18)]
    record = read_fit(Path("stages"))
    assert [layer.learner for layer in record.evidence.layers] == ["convolutional", "convolutional"]
    assert record.evidence.layers[0].features.filters.image == (3, 3)
    before = Path("stages/model.safetensors").read_bytes()
    assert gradwise(*words, "--out", "stages", "--resume").code == 0
    assert Path("stages/model.safetensors").read_bytes() == before
