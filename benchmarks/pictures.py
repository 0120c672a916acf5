"""Makes what the README shows: what the commands say, pictures of their reports in a browser, and a notebook.

python benchmarks/pictures.py [NAME ...]          needs Chromium on the path, and the extra `dev` for the notebook
"""

import datetime
import html
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
DESK, PHONE = ["--window-size=1100,1500"], ["--window-size=500,1500", "--blink-settings=preferredColorScheme=0"]
# What is shown, under which name, and the pictures of its report.
SHOWN = {
    "demo": (["fit", "digits", "--out", "runs/fit"], "report"),
    "search_demo": (["search", "digits", "--budget", "60s", "--out", "runs/search"], "study"),
    "check_demo": (["check", "problem.py:make_problem", "--out", "runs/check"], "check"),
}
OWN = HERE.parent / "examples" / "check.py"  # the problem with the bug


def show(name: str, arguments: list[str], picture: str, command: str, browser: str) -> None:
    """Runs one command in a fresh folder, keeps what it says, and takes pictures of its report."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COLUMNS": "80"}
        run = [command, *arguments]
        shutil.copy(OWN, Path(folder) / "problem.py")
        finds = arguments[0] == "check"  # an error, and says so by its exit code
        if arguments[0] != "search":  # warms the cache; a search has its time given
            subprocess.run(run, cwd=folder, check=not finds, capture_output=True, env=environment)
            shutil.rmtree(Path(folder) / "runs")
        told = subprocess.run(run, cwd=folder, check=not finds, capture_output=True, text=True, env=environment).stdout
        page = Path(folder) / arguments[-1] / "report.html"
        for form, options in (("desk", DESK), ("phone", PHONE)):
            target = HERE.parent / "docs" / "pictures" / f"{picture}-{form}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            profile = f"--user-data-dir={folder}/profile"
            subprocess.run(
                [browser, *QUIET, profile, f"--screenshot={target}", *options, page.as_uri()],
                check=True,
                capture_output=True,
            )
    result = {
        "shown": f"gradwise {' '.join(arguments)}",
        "output": told,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/pictures.py",
    }
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


CELLS = (
    'import gradwise as gw\n\nmodel = gw.fit("breast-cancer")\nmodel',
    'model.plot("importance");',
    'model.history[["age_examples", "train_loss", "valid_loss", "valid_score"]].tail(3)',
)
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ font-family: sans-serif; margin: 24px; width: 820px; font-size: 14px }}
.in {{ background: #f5f5f5; border: 1px solid #ddd; border-radius: 3px; padding: 8px 12px; margin: 14px 0 8px }}
.in, .text {{ font-family: monospace; white-space: pre-wrap }} .out {{ padding: 4px 12px }} img {{ max-width: 470px }}
table {{ border-collapse: collapse }} td, th {{ padding: 3px 12px; text-align: right }} table.dataframe {{ border: 0 }}
</style>{cells}"""


def _output(data: dict[str, str]) -> str:
    """What a notebook shows of a value: its richest form."""
    if "text/html" in data:
        return data["text/html"]
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{data["image/png"].strip()}">'
    return f'<div class="text">{html.escape(data.get("text/plain", ""))}</div>'


def show_notebook(browser: str) -> None:
    """Executes a notebook and takes a picture of its cells."""
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    shown = ""
    for cell in notebook.cells:
        shown += f'<div class="in">{html.escape(cell.source)}</div>'
        values = [one.data for one in cell.outputs if "data" in one]
        shown += "".join(f'<div class="out">{_output(data)}</div>' for data in values)
    target = HERE.parent / "docs" / "pictures" / "notebook.png"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "notebook.html"
        page.write_text(PAGE.format(cells=shown))
        form = [f"--user-data-dir={folder}/profile", f"--screenshot={target}", "--window-size=880,1180"]
        subprocess.run([browser, *QUIET, *form, page.as_uri()], check=True, capture_output=True)


def main() -> None:
    command = shutil.which("gradwise", path=str(Path(sys.executable).parent)) or "gradwise"
    browser = shutil.which("chromium") or sys.exit("there is no chromium on the path")
    for name in sys.argv[1:] or [*SHOWN, "notebook"]:
        if name == "notebook":
            show_notebook(browser)
            continue
        arguments, picture = SHOWN[name]
        show(name, arguments, picture, command, browser)


if __name__ == "__main__":
    main()
