"""The surface and the boundary."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from gradwise import __version__
from gradwise.cli import main
from gradwise.runtime.errors import RequestError, WorkError

ROOT = Path(__file__).parents[2]


def test_help_names_every_command_and_option(gradwise):
    said = gradwise("--help")
    assert said.code == 0
    assert all(
        word in said.out
        for word in ("fit", "search", "challenge", "compare", "seeds", "merge", "predict", "report", "--version")
    )
    said = gradwise("fit", "--help")
    options = (
        "--target --task --drop --kind --group --time --weight --class-weight --test --metric --folds --seed --out "
        "--resume --overwrite --set --config --max-time --checkpoint --on --dry-run --json --quiet --no-report"
    )
    assert [option for option in options.split() if option not in said.out] == []
    said = gradwise("search", "--help")
    options = (
        "--target --test --budget --trials --strategy --range --set --study --config --folds --finalists --seeds "
        "--committee --nested --no-nested --batch-size --metric --seed "
        "--out --resume --overwrite --store --name --checkpoint --on --dry-run --json --quiet --no-report"
    )
    assert [option for option in options.split() if option not in said.out] == []
    said = gradwise("predict", "-h")
    assert all(option in said.out for option in ("--out", "--format", "--probabilities", "--keep"))
    assert gradwise().out == gradwise("--help").out


def test_help_shows_defaults_and_what_stands_in_brackets(gradwise, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    said = gradwise("fit", "--help").out
    for words in ("Random seed. [default: 0]", "[default: 10s]", "[default: the best available]", "the table [fit]"):
        assert words in said
    assert "[default: 10min]" in gradwise("search", "--help").out
    assert "[default: no limit]" in gradwise("challenge", "--help").out
    assert gradwise("challenge").err == "error: missing argument 'DATA'. See gradwise challenge --help.\n"
    assert gradwise("challenge", "iris").err == "error: missing argument 'PATH=V,V'. See gradwise challenge --help.\n"


def test_an_option_that_is_its_default_still_overrides_a_file(tmp_path, gradwise, monkeypatch):
    given = []
    monkeypatch.setattr("gradwise.cli.commands.run_command", lambda request, begun: given.append(request) or 0)
    (tmp_path / "run.toml").write_text('[fit]\ndata = "iris"\nseed = 3\njson = true\n')
    for words in ((), ("--seed", "0")):
        assert gradwise("fit", "--config", str(tmp_path / "run.toml"), *words).code == 0
    assert [request.seed for request in given] == [3, 0]
    assert all(request.json for request in given)


def test_version(gradwise):
    assert gradwise("--version").out == f"gradwise {__version__}\n"


def test_the_surface_imports_nothing_heavy():
    heavy = ("jax", "numpy", "equinox", "optax", "sklearn", "pandas", "pyarrow", "scipy", "matplotlib")
    code = f"import sys, gradwise.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_takes_less_than_four_tenths_of_a_second_of_work():
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "gradwise.cli.main", "--help"], cwd=ROOT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.4


@pytest.mark.parametrize(
    ("problem", "code", "line"),
    [
        (RequestError("a is\nwrong."), 2, "error: a is wrong."),
        (WorkError("it failed."), 1, "error: it failed."),
        (KeyboardInterrupt(), 130, "error: interrupted. Everything saved so far is intact."),
        (
            OSError(errno.ENOSPC, "No space left on device", "out/x"),
            1,
            "error: No space left on device at out/x. Free some space;",
        ),
        (OSError(errno.EFBIG, "File too large"), 1, "error: File too large. Free some space;"),
        (PermissionError(errno.EACCES, "Permission denied", "out"), 1, "error: Permission denied at out."),
        (MemoryError(), 1, "error: out of memory."),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"),
            1,
            "error: out of memory.",
        ),
        (RecursionError("maximum recursion depth"), 2, "error: a file is nested too deeply"),
    ],
)
def test_the_boundary(problem, code, line, gradwise, monkeypatch):
    def work(*words, **more):
        raise problem

    monkeypatch.setattr("gradwise.journeys.fit.run_fit", work)
    said = gradwise("fit", "iris")
    assert said.code == code
    assert said.err.startswith(line)
    assert said.err.count("\n") == 1


def test_a_mistake_of_ours_keeps_its_traceback(gradwise, monkeypatch):
    def work(*words, **more):
        raise ZeroDivisionError

    monkeypatch.setattr("gradwise.journeys.fit.run_fit", work)
    with pytest.raises(ZeroDivisionError):
        gradwise("fit", "iris")


@pytest.mark.slow
def test_whoever_reads_our_output_may_stop_reading(a_run, program):
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-m", "gradwise.cli.main", "predict", str(a_run), "flowers.csv"],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=a_run.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(writer)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 141
    assert b"Traceback" not in err
    assert b"error" not in err.lower().replace(b"error_rate", b"")


def test_the_entry_point_is_declared():
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["gradwise"]
    module, _, name = declared.partition(":")
    assert module == main.__name__
    assert getattr(main, name) is main.run_program


@pytest.mark.parametrize(("option", "knob"), sorted(main._KNOBS.items()))
def test_an_option_of_other_tools_names_the_knob_and_the_advice_works(
    option: str, knob: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_program(["fit", "iris", option, "1"]) == 2
    assert capsys.readouterr().err == f"error: unknown option {option}. Set the knob: --set {knob}\n"
    assert main.run_program(["fit", "iris", "--set", knob, "--dry-run", "--json"]) == 0
