"""Progress is shown on a terminal and in a notebook, never on standard output, and leaves nothing behind."""

import os
import pty
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from gradwise.journeys.progress_bar import progress_here
from gradwise.records.score_scale import ScoreScale

ROOT = Path(__file__).parents[2]
TINY = ("--set", "model.widths=8", "--set", "stopping=Off")
CLI = ("-m", "gradwise.cli.main")
TRAINING = textwrap.dedent(
    """
    import jax
    import gradwise as gw
    from gradwise.journeys.progress_bar import progress_here
    from gradwise.records.score_scale import ScoreScale
    from tests.tracking.conftest import BLOBS, RECIPE

    def fit(verbose=None):
        with progress_here(verbose) as progress:
            progress.phase("reading [bold]my<b>.csv")
            progress.tell("plan as [it] is")
            progress.training("training", length=288, scale=ScoreScale("error"))
            result = gw.train(RECIPE, BLOBS, key=jax.random.key(0), options=gw.RunOptions(watch=progress.watch))
            progress.phase("writing")
        return result.outcome.name
    """
)


def environment() -> dict[str, str]:
    """That of a user's program: not under pytest, whatever runs it."""
    here = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return {**here, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"}


def show(verbose: bool | None = None) -> None:
    with progress_here(verbose) as progress:
        progress.phase("reading")
        progress.training("training", length=100, scale=ScoreScale())
        progress.tell("a plan")


def test_without_a_terminal_progress_is_silent(capsys, monkeypatch):
    show()
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    show()
    assert capsys.readouterr() == ("", "")
    show(verbose=True)
    assert capsys.readouterr() == ("", "reading\ntraining: compiling\na plan\n")


def seen_on_a_terminal(words: tuple[str, ...], folder: Path, *, all_of_it: bool = True) -> tuple[str, str]:
    """What a Python program writes to its terminal, without the codes that move the cursor; and to standard output.

    Without `all_of_it`, only standard error is a terminal.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=theirs if all_of_it else subprocess.PIPE,
        stderr=theirs,
        cwd=folder,
        env=environment(),
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # Linux says in this way that the other end has closed
            break
        if not block:
            break
        shown += block
    os.close(ours)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown.decode()
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()), (output or b"").decode()


def test_a_python_program_shows_its_progress_on_a_terminal_and_not_on_standard_output(tmp_path):
    # Quiet first: what the second shows is then all that there is.
    program = f"{TRAINING}\nprint(fit(verbose=False))\nimport sys; print('now', file=sys.stderr)\nprint(fit())"
    shown, output = seen_on_a_terminal(("-c", program), tmp_path, all_of_it=False)
    assert output == "finished\nfinished\n"
    before, _, after = shown.partition("now")
    assert before == ""
    assert "reading [bold]my<b>.csv" in after
    assert "plan as [it] is" in after
    assert re.search(r"training \S+ age \d+  loss [\d.]+  valid [\d.]+\u202f%  best [\d.]+\u202f%", after), after


class Browser(NotebookClient):
    """Executes a notebook and keeps every message that a browser would show."""

    def process_message(self, message: Any, *where: Any) -> Any:
        if "data" in message["content"] and "display" in message["msg_type"]:
            self.seen = [*getattr(self, "seen", []), message["content"]["data"]]
        return super().process_message(message, *where)


def test_a_notebook_shows_its_progress_below_the_cell_and_keeps_none_of_it(tmp_path):
    cells = [TRAINING, "print('before')\nfit()", "fit(verbose=False)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    browser = Browser(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    browser.execute(env=environment())
    texts = [message["text/plain"] for message in browser.seen]
    assert texts[0].startswith("reading [bold]my<b>.csv")
    assert any(re.match(r"training age \d+  loss [\d.]+  valid [\d.]+\u202f%", text) for text in texts), texts
    pages = [message["text/html"] for message in browser.seen if "text/html" in message]
    assert "my&lt;b&gt;.csv <progress style" in pages[0]
    assert any(re.search(r'<progress value="\d+" max="\d+"', page) for page in pages)
    # Left: what was printed, the line that stays, an empty place where the bar was, and the value of the cell.
    printed, bar, plan, value = notebook.cells[1].outputs
    assert printed["text"] == "before\n"
    assert bar["data"] == {"text/plain": "", "text/html": ""}
    assert plan["data"] == {"text/plain": "plan as [it] is"}
    assert value["data"] == {"text/plain": "'finished'"}
    assert [one["output_type"] for one in notebook.cells[2].outputs] == ["execute_result"]


@pytest.mark.slow
def test_progress_on_a_terminal(table):
    epochs = ("--set", "stopping.epochs=3000", "--no-report", "--out", "run")
    shown, _ = seen_on_a_terminal((*CLI, "fit", "flowers.csv", "--target", "kind", *TINY, *epochs), table.parent)
    line = re.search(
        r"training \S+ age ([\d.]+k?)  loss [\d.e-]+  valid [\d.]+\u202f%  best [\d.]+\u202f%  .*? left", shown
    )
    assert line is not None, shown[-2000:]
    assert len(line[0]) <= 80
    assert "Test error" in shown


@pytest.mark.slow
def test_progress_of_a_search_on_a_terminal(table):
    words = ("--trials", "6", "--range", "stopping.epochs=choice(200, 2000, 6000)", "--finalists", "0", "--no-report")
    still = ("--set", "model.dropout=0", "--set", "criterion.penalties.l2.coefficient=0", "--on", "here", "--no-nested")
    asked = (*CLI, "search", "flowers.csv", "--target", "kind", *TINY, *words, *still, "--folds", "1", "--out", "study")
    shown, _ = seen_on_a_terminal(asked, table.parent)
    line = re.search(r"search \S+ (\d) of 6 done  (\d) running  best [\d.]+\u202f%", shown)
    assert line is not None, shown[-2000:]
    assert int(line[1]) + int(line[2]) <= 6
    assert len(line[0]) <= 80
    assert "Test error" in shown
