"""`gradwise check` and `gradwise explain`: your own problem, data, a run; what is said, written and exited with."""

import json
from pathlib import Path

import pytest

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
"""
SOUND, BROKEN = OWN.format(more=""), OWN.format(more="+ jnp.nan * jnp.sum(model['v'])")
FAST = ("--only", "gradient", "--no-report")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sound_problem.py").write_text(SOUND)
    (tmp_path / "broken_problem.py").write_text(BROKEN)
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
        (("nowhere.module:f",), "there is no module `nowhere.module` here"),
        (("missing.py:f",), "missing.py:f: there is no file missing.py"),
        (("sound_problem.py:make_problm",), "has no function `make_problm`. Did you mean 'make_problem'?"),
        (("sound_problem.py:raising",), "sound_problem.py:raising failed: KeyError: 'nothing' (line 15"),
        (("sound_problem.py:returning",), "returned a int. It must return (loss, model, batch)"),
        (("sound_problem.py:make_problem", "--only", "gradeint"), "there is no check 'gradeint' here. Did you mean"),
        (("sound_problem.py:make_problem", "--set", "model.widths=3"), "--set turns knobs of a recipe"),
        (("nothing.csv",), "nothing.csv"),
    ],
)
def test_a_wrong_request_is_told_in_a_line_and_leaves_nothing(words, said, here, gradwise):
    done = gradwise("check", *words, "--out", "mine")
    assert done.code == 2
    assert done.out == ""
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (here / "mine").exists()


def test_a_folder_that_exists_is_refused(here, gradwise):
    (here / "mine").mkdir()
    done = gradwise("check", "sound_problem.py:make_problem", *FAST, "--out", "mine")
    assert done.code == 2
    assert "exists already" in done.err


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
    assert "there is no finding 'GW999'" in wrong.err


def test_a_problem_that_was_mended_is_checked_anew(here, gradwise):
    words = ("check", "sound_problem.py:make_problem", *FAST, "--out", "mine")
    (here / "sound_problem.py").write_text(BROKEN)
    assert gradwise(*words).code == 1
    (here / "sound_problem.py").write_text(SOUND)
    assert gradwise(*words, "--resume").code == 0


def test_a_run_is_judged_by_its_record_and_never_written_over(a_run, gradwise):
    before = (a_run / "report.html").read_bytes()
    assert gradwise("check", "run", "--out", "judged", "--quiet", "--no-report").code == 0
    assert "--only has nothing to act on" in gradwise("check", "run", "--only", "rates").err
    refused = gradwise("check", "flowers.csv", "--target", "kind", *FAST, "--out", "run", "--overwrite")
    assert refused.code == 2
    assert "holds a run, which a check would write over" in refused.err
    assert (a_run / "report.html").read_bytes() == before
