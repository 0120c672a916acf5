"""The journeys as a stranger takes them: a script, a notebook and a shell, on a table with everything tables have.

The table has dates, categories, amounts written as text, missing values, and new rows with a category that training
never saw; a missing column is refused by name.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FIT = 'set={"stopping.epochs": 12, "model.widths": (16,)}'
SCRIPT = f"""
import gradwise as gw
import pandas as pd

orders = pd.read_csv("orders.csv")
found = gw.check(orders, target="late", only="data")
print("check:", found.verdict)
model = gw.fit(orders, target="late", {FIT})
print(model)
new = pd.read_csv("new.csv")
print("predicted:", *model.predict(new))
try:
    model.predict(new.drop(columns="region"))
except ValueError as problem:
    print("refused:", problem)
model.report("page.html")
model.save("saved")
assert (gw.load("saved").predict(new) == model.predict(new)).all()
study = gw.search(orders, target="late", trials=2, folds=2, on="here", {FIT})
print(study.trials[["number", "score"]])
print(study.plots)
"""


def _orders(rows: int = 160) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    region = draw.choice(["north", "south", "west"], rows)
    weight = draw.gamma(2.0, 3.0, rows)
    placed = pd.Timestamp("2023-01-01") + pd.to_timedelta(draw.integers(0, 700, rows), unit="D")
    late = np.where((region == "north") ^ (weight > 7) ^ (draw.random(rows) < 0.05), "yes", "no")
    frame = pd.DataFrame({"placed": placed.strftime("%Y-%m-%d"), "region": region, "weight": weight.round(2)})
    frame["paid"] = [f"${1000 + 250 * value:,.2f}" for value in weight]
    frame.loc[::13, "weight"] = np.nan
    frame.loc[5::17, "region"] = None
    return frame.assign(late=late)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    _orders().to_csv(tmp_path / "orders.csv", index=False)
    new = _orders(6).drop(columns="late")
    new.loc[0, "region"] = "east"
    new[["region", "weight", "paid", "placed"]].to_csv(tmp_path / "new.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "100"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, check=False)


def test_a_script(here: Path) -> None:
    Path("script.py").write_text(SCRIPT)
    said = _run("script.py")
    assert said.returncode == 0, said.stderr
    assert "check: Nothing stands out" in said.stdout
    assert "gradwise model, data: Test error" in said.stdout
    predicted = next(line for line in said.stdout.splitlines() if line.startswith("predicted:"))
    assert set(predicted.split()[1:]) <= {"yes", "no"}
    assert len(predicted.split()) == 7
    assert "refused: the table lacks columns that the model needs: `region`" in said.stdout
    assert "column `region`: 1 values of categories not seen in training are treated as missing" in said.stderr
    assert "'errors'" in said.stdout or "'confusion'" in said.stdout
    assert Path("page.html").stat().st_size > 20_000


def test_a_shell(here: Path) -> None:
    short = ["--set", "stopping.epochs=12", "--set", "model.widths=16"]
    checked = _run("-m", "gradwise", "check", "orders.csv", "--target", "late", "--only", "data", "--out", "check")
    assert checked.returncode == 0, checked.stderr
    fitted = _run("-m", "gradwise", "fit", "orders.csv", "--target", "late", *short, "--out", "run")
    assert fitted.returncode == 0, fitted.stderr
    assert "Test error" in fitted.stdout
    assert "run/report.html" in fitted.stdout
    predicted = _run("-m", "gradwise", "predict", "run", "new.csv", "--out", "told.csv")
    assert predicted.returncode == 0, predicted.stderr
    assert "region" in predicted.stdout + predicted.stderr
    assert set(pd.read_csv("told.csv")["prediction"]) <= {"yes", "no"}
    pd.read_csv("new.csv").drop(columns="region").to_csv("short.csv", index=False)
    refused = _run("-m", "gradwise", "predict", "run", "short.csv")
    assert refused.returncode == 2
    assert refused.stderr.strip().count("\n") == 0
    assert "region" in refused.stderr
    search = ["search", "orders.csv", "--target", "late", "--trials", "2", "--folds", "2", "--on", "here", *short]
    searched = _run("-m", "gradwise", *search, "--out", "study", "--json")
    assert searched.returncode == 0, searched.stderr
    assert json.loads(searched.stdout)["trials"] == 2
    assert _run("-m", "gradwise", "report", "study").returncode == 0


@pytest.mark.slow
def test_a_notebook(here: Path) -> None:
    import nbclient
    import nbformat

    cells = [
        "import gradwise as gw, pandas as pd\norders = pd.read_csv('orders.csv')",
        f"model = gw.fit(orders, target='late', {FIT})\nmodel",
        "model.predict(pd.read_csv('new.csv'))",
        "figure = model.plot(model.plots[0])",
        f"study = gw.search(orders, target='late', trials=2, folds=2, on='here', {FIT})\nstudy",
        "gw.check(orders, target='late', only='data')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(textwrap.dedent(cell)) for cell in cells])
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": "."}}
    ).execute()
    shown = [cell.outputs[-1].data for cell in notebook.cells[1:3] + notebook.cells[4:]]
    for card in (shown[0], shown[2], shown[3]):
        assert "<div" in card["text/html"]
        assert len(card["text/plain"].splitlines()) < 15
    assert "<svg" in shown[0]["text/html"]
    assert "yes" in shown[1]["text/plain"] or "no" in shown[1]["text/plain"]


def test_a_request_that_is_refused_while_modules_are_imported_prints_one_line(tmp_path: Path) -> None:
    words = ("--set", "criterion.penalties.0.where=layer.1", "--set", "criterion.penalties.0.coefficient=1")
    said = _run("-m", "gradwise", "fit", "digits", *words, "-q", "--out", str(tmp_path / "run"))
    assert said.returncode == 2
    assert said.stderr.splitlines()[-1].startswith("error: no parameter matches the penalty's `where='layer.1'`.")
    assert "Traceback" not in said.stderr
