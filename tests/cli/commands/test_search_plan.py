import json


def test_a_dry_run_says_what_would_be_searched_and_starts_nothing(table, gradwise):
    words = ("search", "flowers.csv", "--target", "kind", "--trials", "40", "--set", "model.dropout=0", "--dry-run")
    said = gradwise(*words, "--json")
    assert (said.code, said.err) == (0, "")
    plan = json.loads(said.out)
    assert [one["path"] for one in plan["ranges"]] == [
        *("model.widths.count", "model.widths.each", "optimiser.optimiser.learning_rate"),
        "criterion.penalties.0.coefficient",
    ]
    assert plan["ranges"][1]["range"] == "integers(32, 256)"
    assert plan["training"]["budget"] == "40 trials"
    assert plan["training"]["double cross-validation"] == "5 folds, 10 trials each"
    assert plan["training"]["rows to choose by, about"] == "48, in 5 folds"
    assert plan["folder"] == "new"
    assert 'data = "flowers.csv"' in plan["study_file"]
    assert [path.name for path in table.parent.iterdir()] == ["flowers.csv"]
    read = gradwise(*words)
    assert read.code == 0
    assert "Nothing was trained or written" in read.out
    assert "integers(32, 256)" in read.out
    assert "gradwise search flowers.csv" in read.out
