"""Makes what the README shows: what the commands say, and pictures of their reports in a browser.

python benchmarks/pictures.py [NAME ...]          needs Chromium on the path
"""

import datetime
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


def main() -> None:
    command = shutil.which("gradwise", path=str(Path(sys.executable).parent)) or "gradwise"
    browser = shutil.which("chromium") or sys.exit("there is no chromium on the path")
    for name in sys.argv[1:] or SHOWN:
        arguments, picture = SHOWN[name]
        show(name, arguments, picture, command, browser)


if __name__ == "__main__":
    main()
