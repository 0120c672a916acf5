"""`gradwise check` and `gradwise explain`: your own problem, data, a run; what is said, written and exited with."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from gradwise.cli.terminal.check import show_checked
from gradwise.records.check import Checked
from gradwise.records.finding import Finding

OWN = """
import jax.numpy as jnp, numpy as np

def loss(model, x, y):
    return jnp.mean((jnp.tanh(x @ model["w"]) @ model["v"] - y) ** 2) {more}

def make_problem():
    random = np.random.default_rng(0)
    x = random.normal(size=(24, 3)).astype("float32")
    y = x[:, 0] - 0.5 * x[:, 1]
    model = {{"w": random.normal(size=(3, 8)).astype("float32"), "v": random.normal(size=8).astype("float32")}}
    return loss, model, (x, y)

def raising():
    return {{}}["nothing"]

def returning():
    return 3

def needing(width, *, depth, seed=0):
    return 3

def misspelt():
    return dict(zip(("loss", "model", "batch"), make_problem()), optimizer=None)

def stopping():
    raise KeyboardInterrupt
"""
SOUND, BROKEN = OWN.format(more=""), OWN.format(more="+ jnp.nan * jnp.sum(model['v'])")
FAST = ("--only", "gradient", "--no-report")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sound_problem.py").write_text(SOUND)
    (tmp_path / "broken_problem.py").write_text(BROKEN)
    (tmp_path / "torn.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,4\n")
    for name, file in (("checked", "check.json"), ("checked", "report.html"), ("cut", "check.partial.json")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / file).touch()
    (tmp_path / "a study").mkdir()
    (tmp_path / "a study" / "result.json").write_text('{"kind": "study"}')
    return tmp_path


def test_a_sound_problem_passes_and_writes_its_record_and_report(here, gradwise):
    done = gradwise("check", "sound_problem.py:make_problem", "--only", "gradient", "--out", "mine")
    assert done.code == 0
    assert "gradient" in done.out
    assert {path.name for path in (here / "mine").iterdir()} >= {"check.json", "report.html"}
    assert json.loads((here / "mine" / "check.json").read_text())["passed"] is True


def test_an_error_exits_with_1_and_json_is_all_there_is_on_standard_output(here, gradwise):
    done = gradwise("check", "broken_problem.py:make_problem", *FAST, "--json", "--out", "mine")
    assert done.code == 1
    told = json.loads(done.out)
    assert told["passed"] is False
    assert told["findings"][0]["code"] == "GW104"
    assert told["report"] is None
    again = gradwise("check", "broken_problem.py:make_problem", *FAST, "--out", "mine", "--overwrite", "--quiet")
    assert again.code == 1
    assert again.out.startswith("Something is broken")
    assert len(again.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere.module:f",), "nowhere.module:f: module `nowhere.module` not found."),
        (("missing.py:f",), "missing.py:f: file missing.py not found."),
        (("sound_problem.py:make_problm",), "has no function `make_problm`. Did you mean 'make_problem'?"),
        (("sound_problem.py:raising",), "raising failed: KeyError: 'nothing' (sound_problem.py:15 in raising)"),
        (("sound_problem.py:returning",), "returned a int. It must return (loss, model, batch)"),
        (("sound_problem.py:make_problem", "--only", "gradeint"), "unknown check 'gradeint'. Did you mean"),
        (("sound_problem.py:make_problem", "--set", "model.widths=3"), "--set sets knobs of a recipe"),
        (("nothing.csv",), "nothing.csv"),
        (("sound_problem.py",), "sound_problem.py: name a function, sound_problem.py:FUNCTION, that takes no argum"),
        (
            ("sound_problem.py:",),
            "the file defines loss, make_problem, raising, returning, needing, misspelt, stopping.",
        ),
        (("sound_problem.py:a.b",), "sound_problem.py:a.b: name a function"),
        (("missing.py",), "missing.py: file missing.py not found."),
        (("torn.py",), "torn.py is not valid Python: invalid syntax (line 2)."),
        (("sound_problem.py:xyz",), "no function `xyz`. Choose from: loss, make_problem, raising, returning, needing"),
        (
            ("sound_problem.py:needing",),
            "needing must take no arguments, but requires width, depth: give them defaults",
        ),
        (
            ("sound_problem.py:misspelt",),
            "sound_problem.py:misspelt: check has no argument `optimizer`. Did you mean 'optimiser'?",
        ),
        (("sound_problem.py:make_problem", "--target", "y"), "--target controls how a data file is read, which your o"),
        (("sound_problem.py:make_problem", "--drop", "a"), "--drop controls how a data file is read"),
        (
            ("table.csv",),
            "or learn features of all columns with gradwise fit --unsupervised. The columns are",
        ),
        (("checked",), "checked contains a check, not a run: open checked/report.html"),
        (("cut",), "cut contains an interrupted check: name what was checked, with --out cut --resume."),
        (("a study",), "a study contains a study, not a run; view its report: gradwise report 'a study'"),
        ((), "file.py:function or package.module:function, or the folder of a finished run."),
    ],
)
def test_a_wrong_request_is_told_in_a_line_and_leaves_nothing(words, said, here, gradwise):
    done = gradwise("check", *words, "--out", "mine")
    assert done.code == 2
    assert done.out == ""
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (here / "mine").exists()


def test_a_folder_that_cannot_be_made_is_told_with_its_reason_and_nothing_of_it_stays(here, gradwise):
    done = gradwise("check", "sound_problem.py:make_problem", *FAST, "--out", "new/" + "x" * 300)
    assert done.code == 2
    assert "xxx cannot be " in done.err
    assert "File name too long. Choose another folder." in done.err
    assert not (here / "new").exists()
    (here / "new").write_text("")
    done = gradwise("check", "sound_problem.py:make_problem", *FAST, "--out", "new/deep")
    assert done.code == 2
    assert "--out new/deep cannot be written: Not a directory. Choose another folder." in done.err


def test_several_checks_can_be_named_between_commas(here, gradwise):
    words = ("check", "sound_problem.py:make_problem", "--only", "data, padding", "--only", "choices", "--no-report")
    told = json.loads(gradwise(*words, "--json", "--out", "mine").out)
    assert {one["name"] for one in told["ran"]} == {"data", "padding", "choices"}


def test_findings_are_selected_and_ignored_by_code(here, gradwise):
    (here / "broken_problem.py").write_text(BROKEN)
    words = ("check", "broken_problem.py:make_problem", "--no-report", "--json")
    whole = gradwise(*words, *FAST, "--out", "whole")
    assert whole.code == 1
    codes = {one["code"] for one in json.loads(whole.out)["findings"] if one["level"] == "error"}
    ignored = gradwise(*words, *FAST, "--ignore", ",".join(codes), "--out", "ignored")
    assert ignored.code == 0
    assert codes.isdisjoint(one["code"] for one in json.loads(ignored.out)["findings"])
    selected = json.loads(gradwise(*words, "--select", "GW9", "--select", "GW301", "--out", "selected").out)
    assert {one["name"] for one in selected["ran"]} == {"wiring", "padding", "graph"}
    wrong = gradwise(*words, "--ignore", "GW1,GW99")
    assert wrong.code == 2
    assert wrong.err.startswith("error: broken_problem.py:make_problem: unknown finding 'GW99'. Did you mean 'GW9")


def test_a_check_that_is_interrupted_says_how_to_go_on(here, gradwise, monkeypatch):
    done = gradwise("check", "sound_problem.py:stopping", "--out", "mine")
    assert done.code == 130
    assert done.err == (
        "error: interrupted before any check finished: nothing was saved; start again without --resume.\n"
    )
    assert not (here / "mine").exists()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    words = ("check", "sound_problem.py:make_problem", "--only", "padding")
    with monkeypatch.context() as patched:
        patched.setattr("gradwise.journeys.check.write_checked", stop)
        done = gradwise(*words, "--out", "my check", "--on", "cpu")
    assert done.code == 130
    told = "gradwise check sound_problem.py:make_problem --only padding --out 'my check' --resume --on cpu"
    assert done.err == f"error: interrupted; finished checks are saved. Resume with: {told}\n"
    assert gradwise(*shlex.split(told)[1:], "--no-report").code == 0


def test_explain_is_recommended_for_the_worst_finding_that_is_no_note(capsys):
    levels = (("GW302", "warning"), ("GW101", "note"), ("GW304", "error"))
    found = tuple(Finding(level=level, what="this", code=code) for code, level in levels)
    record = Checked("mine", "Broken.", found, (), (), {}, 0.0, 0, "", {})
    show_checked(record, None)
    assert "explain  gradwise explain GW304" in capsys.readouterr().out
    show_checked(dataclasses.replace(record, findings=found[1:2]), None)
    assert "explain" not in capsys.readouterr().out


def test_a_folder_that_exists_is_refused(here, gradwise):
    (here / "mine").mkdir()
    done = gradwise("check", "sound_problem.py:make_problem", *FAST, "--out", "mine")
    assert done.code == 2
    assert "already exists" in done.err


def test_a_check_that_was_killed_goes_on_from_the_areas_it_finished(here, gradwise):
    words = ("check", "sound_problem.py:make_problem", "--out", "mine", "--no-report", "--json")
    first = json.loads(gradwise(*words, "--only", "gradient").out)
    kept = here / "mine" / "check.partial.json"
    plain = json.loads(kept.read_text())
    plain["areas"]["gradient"]["ran"]["seconds"] = 1234.5  # a mark: what is kept is not measured again
    kept.write_text(json.dumps(plain))
    second = json.loads(gradwise(*words, "--only", "gradient", "--resume").out)
    assert second["ran"][0]["seconds"] == 1234.5
    assert second["findings"] == first["findings"]


def test_explain_prints_the_page_of_a_code(gradwise):
    done = gradwise("explain", "gw101")
    assert done.code == 0
    assert done.out.startswith("# GW101: ")
    wrong = gradwise("explain", "GW999")
    assert wrong.code == 2
    assert "unknown finding 'GW999'" in wrong.err


def test_a_problem_that_was_mended_is_checked_anew(here, gradwise):
    words = ("check", "sound_problem.py:make_problem", *FAST, "--out", "mine")
    (here / "sound_problem.py").write_text(BROKEN)
    assert gradwise(*words).code == 1
    (here / "sound_problem.py").write_text(SOUND)
    assert gradwise(*words, "--resume").code == 0


def test_a_run_is_judged_by_its_record_and_never_written_over(a_run, gradwise):
    before = (a_run / "report.html").read_bytes()
    assert gradwise("check", "run", "--out", "judged", "--quiet", "--no-report").code == 0
    assert "--only has no effect on run, a finished run" in gradwise("check", "run", "--only", "rates").err
    assert "--target has no effect on run, a finished run" in gradwise("check", "run", "--target", "kind").err
    refused = gradwise("check", "flowers.csv", "--target", "kind", *FAST, "--out", "run", "--overwrite")
    assert refused.code == 2
    assert "contains a run, which a check would overwrite" in refused.err
    assert (a_run / "report.html").read_bytes() == before
