"""Makes what the README shows: the output of `gradwise fit digits`, and pictures of its report in a real browser.

python benchmarks/pictures.py          needs Chromium on the path
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
SHOTS = {
    "report-desk.png": ["--window-size=1100,1500"],
    "report-phone.png": ["--window-size=500,1500", "--blink-settings=preferredColorScheme=0"],
}


def main() -> None:
    command = shutil.which("gradwise", path=str(Path(sys.executable).parent)) or "gradwise"
    browser = shutil.which("chromium") or sys.exit("there is no chromium on the path")
    with tempfile.TemporaryDirectory() as folder:
        run = [command, "fit", "digits", "--out", "runs/digits"]
        environment = {**os.environ, "COLUMNS": "80"}
        subprocess.run(run, cwd=folder, check=True, capture_output=True, env=environment)  # warms the cache
        shutil.rmtree(Path(folder) / "runs")
        told = subprocess.run(run, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout
        page = Path(folder) / "runs" / "digits" / "report.html"
        for name, options in SHOTS.items():
            target = HERE.parent / "docs" / "pictures" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            profile = f"--user-data-dir={folder}/profile"
            subprocess.run(
                [browser, *QUIET, profile, f"--screenshot={target}", *options, page.as_uri()],
                check=True,
                capture_output=True,
            )
    result = {
        "output": told,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/pictures.py",
    }
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "demo.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
