import json

import numpy as np


def test_a_dry_run_says_what_would_be_searched_and_starts_nothing(table, gradwise):
    words = ("search", "flowers.csv", "--target", "kind", "--trials", "40", "--set", "model.dropout=0", "--dry-run")
    said = gradwise(*words, "--json")
    assert (said.code, said.err) == (0, "")
    plan = json.loads(said.out)
    assert [one["path"] for one in plan["ranges"]] == [
        *("optimiser.optimiser.learning_rate", "optimiser.optimiser.decay"),
        *("model.inputs.numbers.deviation", "criterion.loss.label_smoothing"),
    ]
    assert plan["ranges"][0]["range"] == "log(0.01, 0.0625)"
    assert plan["training"]["budget"] == "40 trials"
    assert plan["training"]["double cross-validation"] == "no"
    assert plan["training"]["rows to choose by, about"] == "48, in folds"
    assert (plan["training"]["committee"], plan["training"]["finalists"]) == ("ensemble", "none")
    assert plan["folder"] == "new"
    assert 'data = "flowers.csv"' in plan["study_file"]
    assert [path.name for path in table.parent.iterdir()] == ["flowers.csv"]
    read = gradwise(*words)
    assert read.code == 0
    assert "nothing is trained or written" in read.out
    assert "log(0.01, 0.0625)" in read.out
    assert "gradwise search flowers.csv" in read.out


def test_widths_follow_the_inputs_and_each_layer_may_have_its_own(here, gradwise):
    inputs = np.random.default_rng(0).random((40, 20, 20), np.float32)
    np.savez(here / "wide.npz", X=inputs, y=np.arange(40) % 2)
    words = ("search", "wide.npz", "--dry-run", "--json")
    ranges = {one["path"]: one["range"] for one in json.loads(gradwise(*words).out)["ranges"]}
    assert ranges["model.widths.each"] == "integers(32, 800)"
    own = json.loads(gradwise(*words, "--range", "model.widths.0=integers(400, 800)").out)
    ranges = {one["path"]: one["range"] for one in own["ranges"]}
    assert (ranges["model.widths.each"], ranges["model.widths.0"]) == ("integers(32, 800)", "integers(400, 800)")
    # What is recommended goes without saying.
    assert own["command"].endswith("--seed 0 --budget 10min --range 'model.widths.0=integers(400, 800)'")
