"""`gradwise search` from the command line to its folder and back."""

import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

import gradwise as gw
from gradwise import defaults
from gradwise.records.study_files import read_study
from gradwise.runtime.errors import WorkError
from gradwise.searching.storage import backend
from gradwise.searching.storage.study_store import Store
from tests.searching.postgres import postgres_server  # noqa: F401

FILES = {
    *("recipe.json", "result.json", "study.json", "trials.parquet", "study.journal", "study.toml"),
    *("model.safetensors", "report.html", "contenders", "effort.json", "test_readings.json"),
}


def plain(folder: Path) -> dict:
    found = json.loads((folder / "result.json").read_text())
    return {name: value for name, value in found.items() if name not in {"seconds", "machine"}}


def test_a_study_s_folder_has_all_that_was_promised(searched, gradwise):
    assert {path.name for path in searched.iterdir()} == FILES
    assert list((searched / "contenders").iterdir())
    table = pq.read_table(searched / "trials.parquet").to_pydict()
    assert table["phase"].count("search") == 4
    assert table["phase"].count("finalist") == 2
    assert "optimiser.optimiser.learning_rate" in table
    result = plain(searched)
    assert (result["kind"], result["outcome"], result["metric"]) == ("study", "finished", "error_rate")
    assert result["settings"]["budget"] == "4 trials"
    winner = next(trial for trial in read_study(searched).trials if trial.number == result["winner"]["number"])
    assert json.loads((searched / "recipe.json").read_text())["model"]["widths"] == [8]
    assert winner.recipe.model.widths == (8,)
    assert (result["data"]["test_readings"], (searched / "test_readings.json").read_text()) == (1, "1")
    assert not any("has been read" in finding["what"] for finding in result["findings"])


def test_predict_and_report_work_on_a_study(searched, gradwise):
    said = gradwise("predict", "study", "flowers.csv", "--probabilities")
    assert said.code == 0
    assert said.out.splitlines()[0] == "prediction,probability_ann,probability_bob,probability_cyd"
    page = (searched / "report.html").read_text()
    (searched / "report.html").unlink()
    assert gradwise("report", "study").out.strip() == "study/report.html"
    assert (searched / "report.html").read_text() == page
    assert "gradwise search flowers.csv" in page
    assert json.loads(gradwise("report", "study", "--json").out)["kind"] == "study"


def test_a_finished_study_has_nothing_left_to_do(searched, gradwise):
    before = {path: path.read_bytes() for path in searched.rglob("*") if path.is_file()}
    said = gradwise("search", "--out", "study", "--resume", "--json")
    assert said.code == 0
    assert json.loads(said.out)["trials"] == len(read_study(searched).trials)
    assert {path: path.read_bytes() for path in searched.rglob("*") if path.is_file()} == before


def _scores(folder: Path) -> dict[int, float]:
    return {trial.number: trial.score for trial in read_study(folder).trials}


def test_a_journal_that_lost_its_end_is_noticed_and_run_again(searched, gradwise):
    before, journal = _scores(searched), searched / "study.journal"
    lines = journal.read_text().splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if '"op_code":4' in line]
    journal.write_text("".join(lines[: places[2]]))
    merged = gradwise("merge", "study", "study", "--out", "both")
    assert merged.code == 2
    lost = f"study.journal is damaged: {len(before) - 2} of {len(before)} trials are missing (2, 3, "
    assert lost in merged.err
    said = gradwise("search", "--out", "study", "--resume", "--on", "here", "--no-report")
    assert said.code == 0, said.err
    assert any(lost in finding["what"] for finding in plain(searched)["findings"])
    assert _scores(searched) == before
    with Store.open(journal, write=False) as store:
        assert [trial.number for trial in store.trials()] == sorted(before)


def test_a_score_edited_in_the_journal_is_measured_again(searched, gradwise):
    before, journal = _scores(searched), searched / "study.journal"
    text = journal.read_text()
    score = f'\\"score\\":{before[1]}'
    assert text.count(score) >= 1
    journal.write_text(text.replace(score, '\\"score\\":-9.0', 1))
    extended = gradwise("search", "--out", "study", "--resume", "--trials", "+1", "--on", "here")
    assert extended.code == 2
    assert "was changed after it was written" in extended.err
    assert "gradwise search --out study --resume runs again what is missing." in extended.err
    said = gradwise("search", "--out", "study", "--resume", "--on", "here", "--no-report")
    assert said.code == 0, said.err
    assert any("was changed after it was written" in finding["what"] for finding in plain(searched)["findings"])
    assert _scores(searched) == before


def test_after_an_outage_of_the_database_the_study_is_resumed_from_its_folder(
    table,
    gradwise,
    postgres_server,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr(backend, "OUTAGE_SECONDS", 0.1)
    monkeypatch.setattr("optuna.storages._rdb.storage.random", SimpleNamespace(random=lambda: 0.0))
    ended = []

    def stop_the_server(row):
        if not ended:
            postgres_server.stop()
        ended.append(row)

    knobs = {"model.widths": 8, "stopping": "Off", "stopping.epochs": 2, "model.dropout": 0}
    wanted = {"trials": 6, "finalists": 0, "committee": "seeds", "folds": 1, "nested": False, "strategy": "tpe"}
    store = postgres_server.make("resumed")
    try:
        with pytest.raises(WorkError, match="the server does not answer"):
            gw.search(
                "flowers.csv",
                target="kind",
                set=knobs,
                **wanted,
                on="here",
                out="mine",
                store=store,
                callbacks=[stop_the_server],
            )
    finally:
        postgres_server.start()
    assert 1 <= len(ended) < 6
    assert tomllib.loads(Path("mine/study.toml").read_text())["trials"]["store"] == store
    said = gradwise("search", "--out", "mine", "--resume", "--on", "here", "--no-report")
    assert said.code == 0, said.err
    assert set(range(6)) <= set(_scores(Path("mine")))


@pytest.mark.slow
def test_more_trials_extend_a_study(searched, gradwise):
    first = {trial.number: trial for trial in read_study(searched).trials}
    said = gradwise("search", "--out", "study", "--resume", "--trials", "+2", "--on", "here", "--no-report", "--json")
    assert said.code == 0, said.err
    now = {trial.number: trial for trial in read_study(searched).trials}
    assert {number: now[number].score for number in first} == {number: one.score for number, one in first.items()}
    assert sum(trial.phase == "search" for trial in now.values()) == 6
    assert json.loads(said.out)["settings"]["budget"] == "6 trials"
    assert 'budget = "6 trials"' in (searched / "study.toml").read_text()
    assert json.loads(said.out)["data"]["test_readings"] == 2
    more = gradwise("search", "--out", "study", "--resume", "--trials", "+1", "--on", "here").out
    assert "test examples, read 3 times" in " ".join(more.split())
    assert "the test set has been read 3 times: resuming until" in " ".join(more.split())
    assert "he test set has been read 3 times" in (searched / "report.html").read_text()


def test_a_study_file_gives_the_same_study(searched, gradwise):
    words = ("search", "--study", "study/study.toml", "--on", "here", "--no-report", "--out", "again", "--quiet")
    said = gradwise(*words)
    assert said.code == 0, said.err
    assert said.out.startswith("Test error ")
    assert said.out.count("\n") == 1
    one, other = (read_study(folder) for folder in ("study", "again"))
    assert [(t.number, t.phase, t.values) for t in one.trials] == [(t.number, t.phase, t.values) for t in other.trials]
    assert [t.score for t in one.trials] == pytest.approx([t.score for t in other.trials], abs=1e-3)
    assert (searched / "study.toml").read_bytes() == Path("again/study.toml").read_bytes()


def test_a_study_takes_the_place_of_another_run_only_when_whole(search_words, a_run, gradwise):
    said = gradwise(*search_words, "--trials", "2", "--finalists", "0", "--no-report", "--out", "run", "--overwrite")
    assert said.code == 0, said.err
    assert {path.name for path in a_run.iterdir()} == FILES - {"report.html"}
    assert gradwise("fit", "flowers.csv", "--target", "kind", "--out", "run", "--resume").err == (
        "error: --resume: run holds a study. Continue it with gradwise search, or choose another folder.\n"
    )


def test_every_trial_diverging_is_a_failure_with_a_way_out(search_words, table, gradwise):
    rate = ("--range", "optimiser.learning_rate=log(1e30, 1e31)")
    said = gradwise(*search_words, *rate, "--trials", "3", "--no-report", "--out", "mine")
    assert said.code == 1
    assert said.out.startswith("Every trial diverged")
    assert said.err.startswith("error: all 3 trials diverged")
    assert "Try optimiser.optimiser.learning_rate=log(" in said.err
    assert said.err.count("\n") == 1
    assert not Path("mine/model.safetensors").exists()
    assert [trial.outcome for trial in read_study("mine").trials] == ["diverged"] * 3
    assert gradwise("report", "mine").code == 0


def test_a_budget_too_small_for_one_trial_runs_it_and_says_so(search_words, table, gradwise):
    said = gradwise(*search_words, "--budget", "0.001s", "--no-report", "--out", "mine")
    assert said.code == 0, said.err
    assert "the budget of 0.001s ran out before a trial had ended" in " ".join(said.out.split())
    assert any(trial.ok for trial in read_study("mine").trials)


@pytest.mark.slow
def test_trials_may_be_kept_in_a_database(search_words, table, gradwise):
    words = (*search_words, "--trials", "2", "--finalists", "0", "--no-report", "--quiet")
    address = ("--store", "sqlite:///trials.db")
    assert gradwise(*words, *address, "--name", "first", "--out", "one").code == 0
    assert gradwise(*words, *address, "--name", "other", "--seed", "1", "--out", "two").code == 0
    assert not Path("one/study.journal").exists()
    assert tomllib.loads(Path("one/study.toml").read_text())["trials"] == {"store": address[1], "name": "first"}
    more = gradwise("search", "--out", "one", "--resume", "--trials", "+1", "--on", "here")  # its file says where
    assert more.code == 0, more.err
    assert sum(trial.phase == "search" for trial in read_study("one").trials) == 3
    again = gradwise("search", "--study", "one/study.toml", "--no-report", "--out", "again", "--on", "here")
    assert again.code == 0, again.err
    assert Path("again/study.journal").exists()  # the same study elsewhere has trials of its own
    hidden = Path("one/study.toml").read_text().replace(address[1], "postgresql://me:***@localhost/x")
    Path("one/study.toml").write_text(hidden)
    lost = gradwise("search", "--out", "one", "--resume", "--trials", "+1", "--on", "here")
    assert lost.code == 2
    assert "the trials of one are in postgresql://me:***@localhost/x. Add --store, with the password." in lost.err
    wrong = gradwise("search", "--out", "one", "--resume", "--trials", "4", *address, "--name", "other", "--on", "here")
    assert wrong.code == 2
    assert "differs: its seed is 1" in wrong.err


@pytest.mark.slow
def test_double_cross_validation_judges_the_whole_procedure(search_words, table, gradwise):
    words = [word for word in search_words if word != "--no-nested"]
    said = gradwise(*words, "--nested", "--trials", "2", "--finalists", "0", "--no-report", "--out", "mine", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)["estimates"]["nested"]
    assert len(found["values"]) == 5
    assert 0 <= found["interval"][0] <= found["mean"] <= found["interval"][1] <= 1
    assert found["mean"] == pytest.approx(sum(found["values"]) / 5)
    kept = json.loads(Path("mine/nested.json").read_text())
    assert kept["folds"] == {str(number): value for number, value in enumerate(found["values"])}
    assert "nested cross-validation" in gradwise("search", "--out", "mine", "--resume", "--quiet").out


@pytest.mark.slow
def test_the_mini_batch_size_is_chosen_at_the_end(search_words, table, gradwise):
    words = ("--trials", "2", "--finalists", "1", "--seeds", "1", "--batch-size", "auto", "--set", "batches.size=32")
    said = gradwise(*search_words, *words, "--no-report", "--out", "mine")
    assert said.code == 0, said.err
    study = read_study("mine")
    found = study.analysis.batch_size
    assert {line.size for line in found.table} >= {8, 16, 32}
    assert found.recommended in {line.size for line in found.table}
    told = " ".join(said.out.split()).replace("The batch", "the batch").replace("A batch", "a batch")
    assert " ".join(found.sentence.split()) in told
    sizes = [trial for trial in study.trials if trial.phase == "size"]
    assert len(sizes) >= 18
    later = len(study.trials) - len(sizes) - len(study.searched)
    counted = f"{len(study.searched)} trials by random search and {later} more at borders, around the best or in finals"
    counted += f", {len(sizes)} runs to compare mini-batch sizes"
    assert counted in " ".join(said.out.split())
    assert study.winner.number not in {trial.number for trial in sizes}  # they were compared by time alone
    again = gradwise("search", "--out", "mine", "--resume", "--trials", "+1", "--on", "here", "--no-report", "-q")
    assert again.code == 0, again.err
    assert read_study("mine").analysis.batch_size == found


def test_as_it_comes_a_table_is_searched_from_the_recipe_of_fit_and_an_ensemble_answers(gradwise, table):
    said = gradwise("search", "iris", "--trials", "4", "--on", "here", "--out", "mine")
    assert said.code == 0, said.err
    assert "on held-out rows; the best trial alone" in " ".join(said.out.split())
    assert "The second half of the trials" in " ".join(said.out.split())
    found = read_study(Path("mine"))
    assert {path.name for path in Path("mine").iterdir()} == FILES
    assert found.trials[0].recipe.model == defaults.table("classes", 150).model
    assert (found.committee.kind, found.committee.trials) == ("ensemble", 4)
    assert json.loads(Path("mine/effort.json").read_text()) == {"folds": 8, "epochs": 1.0, "trials": 4}
    assert "The ensemble" in Path("mine/report.html").read_text()
    assert gradwise("search", "--out", "mine", "--resume", "--quiet").code == 0


def test_a_centred_network_is_searched_like_any_other(gradwise, here):
    """Its weights have names of their own, and every trial of a search reads a weight decay, be it 0."""
    words = ("--set", "stopping=Off", "--set", "stopping.epochs=4", "--set", "model.widths=8,8")
    options = ("--trials", "3", "--folds", "2", "--on", "here", "--no-report", "--out", "mine")
    said = gradwise("search", "digits", "--set", "model=CentredMlp", *words, *options)
    assert said.code == 0, said.err
    found = read_study("mine")
    assert len(found.trials) == 3
    assert {trial.outcome for trial in found.trials} <= {"finished", "behind"}
    assert any(trial.values["criterion.penalties.0.coefficient"] > 0 for trial in found.trials)
    assert found.estimates.test < 0.5
    assert json.loads(Path("mine/recipe.json").read_text())["model"]["class"] == "gradwise:CentredMlp"
    assert gradwise("predict", "mine", "digits", "--out", "said.csv").code == 0


SMALL_TABLE = (
    *("search", "flowers.csv", "--target", "kind", "--set", "model.widths=8", "--set", "stopping.epochs=2"),
    *("--folds", "1", "--on", "here", "--no-report", "--json"),
)


def test_a_grid_of_the_default_space_fits_the_trials(table, gradwise):
    said = gradwise(
        *SMALL_TABLE, "--strategy", "grid(counts=(learning_rate=3, dropout=1))", "--trials", "6", "--out", "g"
    )
    assert said.code == 0, said.err
    trials = [trial for trial in read_study("g").trials if trial.phase == "search"]
    assert len(trials) == 6
    assert len({trial.values["optimiser.optimiser.learning_rate"] for trial in trials}) == 3
    assert {trial.values["model.dropout"] for trial in trials} == {0.15}
    notes = [finding["what"] for finding in json.loads(said.out)["findings"]]
    assert any(note.startswith("tried a grid of 6 cells: learning_rate 3 × decay 2; fixed at") for note in notes)


@pytest.mark.slow
def test_a_finished_grid_names_the_trials_that_make_it_grow(table, gradwise):
    assert gradwise(*SMALL_TABLE, "--strategy", "grid", "--trials", "6", "--out", "g").code == 0
    before = {file: file.read_bytes() for file in Path("g").rglob("*") if file.is_file()}
    refused = gradwise("search", "--out", "g", "--resume", "--trials", "+1", "--on", "here")
    assert refused.code == 2
    advice = re.search(r"the grid is complete \(6 trials\), and 1 more are too few .* (\+\d+)\.\n$", refused.err)
    assert advice
    assert {file: file.read_bytes() for file in Path("g").rglob("*") if file.is_file()} == before
    more = gradwise("search", "--out", "g", "--resume", "--trials", advice[1], "--on", "here", "--no-report", "-q")
    assert more.code == 0, more.err
    assert sum(trial.phase == "search" for trial in read_study("g").trials) > 6


@pytest.mark.slow
def test_a_sequence_of_grids_chooses_the_schedule_after_the_rate_and_can_be_extended(table, gradwise):
    place, rate = "optimiser.optimiser.schedule", "optimiser.optimiser.learning_rate"
    said = gradwise(*SMALL_TABLE, "--strategy", "grids", "--trials", "7", "--out", "g")
    assert said.code == 0, said.err
    trials = [trial for trial in read_study("g").trials if trial.phase == "search"]
    assert [trial.values[place] for trial in trials[:3]] == ["Constant()"] * 3
    assert {trial.values[place] for trial in trials[3:6]} == {"RepeatedCosine()", "OneCycle()", "FlatCosine()"}
    assert len({trial.values[rate] for trial in trials[3:6]}) == 1
    more = gradwise("search", "--out", "g", "--resume", "--trials", "+1", "--on", "here", "--no-report", "--json")
    assert more.code == 0, more.err
    assert sum(trial.phase == "search" for trial in read_study("g").trials) == 8


@pytest.mark.slow
@pytest.mark.parametrize("model", ["forest", "gp"])
def test_a_model_searches_and_is_extended(model, table, gradwise):
    said = gradwise(*SMALL_TABLE, "--strategy", f"{model}(startup=3, interleave=0)", "--trials", "5", "--out", "m")
    assert said.code == 0, said.err
    more = gradwise("search", "--out", "m", "--resume", "--trials", "+1", "--on", "here", "--no-report", "--json")
    assert more.code == 0, more.err
    trials = [trial for trial in read_study("m").trials if trial.phase == "search"]
    assert len({str(trial.values) for trial in trials}) == 6


def _said(study):
    return sorted((finding.code, finding.level, finding.what) for finding in study.findings)


def test_python_finds_what_the_command_line_finds(search_words, table, gradwise):
    """The same data, space and budget: the same findings of a search half of whose trials diverge."""
    words = ("--range", "optimiser.learning_rate=log(1e-2, 1e8)", "--set", "optimiser=Sgd", "--trials", "6")
    gradwise(*search_words, *words, "--finalists", "0", "--no-report", "--out", "mine")
    shell, dataset = read_study("mine"), gw.data.read("flowers.csv", gw.ReadRequest(targets=("kind",)))
    plan = gw.SearchPlan(folds=1, finalists=0, committee="seeds")
    given = {"strategy": gw.Random(), "trials": 6, "plan": plan, "on": "here"}
    python = gw.search(dataset, space=shell.asked, **given).record
    assert [trial.outcome for trial in python.trials] == [trial.outcome for trial in shell.trials]
    assert _said(python) == _said(shell)
    assert "GW501" in {finding.code for finding in python.findings}


def test_a_study_is_compared_with_simple_models_on_all_rows_that_its_networks_saw(searched):
    study = read_study(searched)
    baselines = study.estimates.evidence.baselines
    assert [one.name for one in baselines] == ["linear model", "gradient boosting"]
    rows = study.data.rows
    assert {one.rows for one in baselines} == {rows.train + rows.valid if study.data.folds > 1 else rows.train}
    text = (searched / "report.html").read_text()
    assert "Simpler models on the same test rows" in text
    assert 'id="figure-precision_recall"' in text


def test_the_screen_the_report_the_record_and_optuna_count_the_same_trials(search_words, table, gradwise):
    """Half of the trials diverge; still there is one count, one score for each, and one winner."""
    import optuna

    words = ("--range", "optimiser.learning_rate=log(1e-2, 1e8)", "--set", "optimiser=Sgd", "--trials", "6")
    said = gradwise(*search_words, *words, "--finalists", "0", "--out", "mine")
    study = read_study("mine")
    count = len(study.trials)
    lost, later = count - sum(trial.ok for trial in study.trials), count - 6
    assert 0 < lost < 6
    told = f"6 trials by random search and {later} more at borders, around the best or in finals"
    assert f"{told}, {lost} diverged" in " ".join(said.out.split())
    assert f"(best of {count - lost} trials)" in " ".join(said.out.split())
    assert told in " ".join(Path("mine/report.html").read_text().split())
    assert json.loads(Path("mine/result.json").read_text())["trials"] == count
    assert len(gw.load("mine").trials) == count
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend("mine/study.journal"))
    stored = optuna.load_study(study_name="gradwise", storage=storage)
    assert len(stored.trials) == count
    scores = {trial.number: trial.score for trial in study.trials if trial.ok}
    assert {trial.number: trial.value for trial in stored.trials if trial.value is not None} == scores
    assert stored.best_trial.number == study.winner.number == min(scores, key=lambda number: scores[number])
    assert f"trial {study.winner.number}" in said.out
