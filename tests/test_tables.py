"""The benchmark on tables: files of several processes joined, noise, the anytime curve, and AutoGluon's files."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

BENCHMARKS = str(Path(__file__).resolve().parents[1] / "benchmarks")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def _result(name: str, model: str, error: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    kind = "numbers" if name.startswith("reg_") else "classes"
    fixed = {"set": name, "seed": seed, "model": model, "kind": kind, "judged": 1000, "seconds": 10.0}
    return fixed | {"error": error} | more


def _file(path: Path, results: list[dict[str, Any]], machine: str = "two cores") -> Path:
    path.write_text(json.dumps({"machine": machine, "date": "2026-11-16", "command": "", "results": results}))
    return path


def test_files_of_several_processes_become_one(tmp_path: Path) -> None:
    tables = importlib.import_module("tables")
    old, new = _result("glass", "search", 0.3, budget=15.0), _result("glass", "search", 0.2, budget=15.0)
    other = _result("glass", "search", 0.1, budget=30.0)
    first, second = _file(tmp_path / "a.json", [old]), _file(tmp_path / "b.json", [new, other])
    tables.join([first, second], tmp_path / "all.json")
    stored = json.loads((tmp_path / "all.json").read_text())
    assert stored["results"] == [new, other]  # the later one of the same key
    assert stored["command"] == "python benchmarks/tables.py --search 15,30"
    assert (stored["machine"], stored["date"]) == ("two cores", "2026-11-16")
    with pytest.raises(SystemExit, match="several machines"):
        tables.join([first, _file(tmp_path / "c.json", [new], "a laptop")], tmp_path / "mixed.json")


def test_a_table_counts_as_worse_only_beyond_noise() -> None:
    summary = importlib.import_module("table_summary")
    results = [_result("glass", "gradwise", error, seed) for seed, error in enumerate((0.20, 0.21, 0.19))]
    results += [_result("glass", "search", error, seed) for seed, error in enumerate((0.21, 0.20, 0.21))]
    results += [_result("reg_naval", "gradwise", error, seed) for seed, error in enumerate((1.0, 1.1, 0.9))]
    results += [_result("reg_naval", "search", error, seed) for seed, error in enumerate((1.3, 1.4, 1.2))]
    assert summary.worse_beyond_noise(results) == ["reg_naval"]
    assert "| reg_naval 1.30 | none | missed |" in summary.show_search(results)


def test_errors_side_by_side_are_of_the_same_splits() -> None:
    summary = importlib.import_module("table_summary")
    results = [_result("reg_yacht", "search", error, seed) for seed, error in enumerate((1.0, 5.0))]
    results += [_result("reg_yacht", "gradwise", 2.0), _result("reg_yacht", "autogluon", 4.0, elsewhere=True)]
    text = summary.show_search(results)
    assert "Mean over 1 split," in text
    assert "| reg_yacht | **1** | 2 | 4 |" in text
    assert "| error / AutoGluon, default preset | 0.250 ± nan (1) | ≤ 1 | too few tables |" in text


def test_curve_is_of_the_tables_that_have_every_time() -> None:
    summary = importlib.import_module("table_summary")
    results = [_result("reg_yacht", "gradwise", 2.0, seconds=4.0), _result("reg_energy", "gradwise", 1.0, seconds=6.0)]
    results += [_result("reg_yacht", "search", error, budget=time) for time, error in ((15.0, 1.8), (30.0, 1.6))]
    results += [
        _result("reg_yacht", "lightgbm-search", 1.9, budget=15.0),
        _result("reg_energy", "search", 9.0, budget=15.0),
    ]
    curves = summary.anytime_curves(results)
    assert curves["search"] == [(15.0, [pytest.approx(0.9)]), (30.0, [pytest.approx(0.8)])]
    assert curves["lightgbm-search"] == [(15.0, [pytest.approx(0.95)])]
    assert curves["gradwise"] == [(4.0, [1.0])]
    assert "it falls at every step" in summary.show_anytime(results)
    results.append(_result("reg_energy", "search", 30.0, budget=30.0))
    assert "no fall from 15 to 30 s" in summary.show_anytime(results)


def test_autogluon_reads_the_columns_that_were_written() -> None:
    models, process = importlib.import_module("table_models"), importlib.import_module("autogluon_process")
    colours = pd.Series(["red", None, "blue"], dtype="category")
    frame = pd.DataFrame({"size": [0.1, np.nan, 3.0], "colour": colours, "count": [1, 2, 3]})
    model = models.AutoGluon("classes", 0, models.Machine())
    with model.folder as folder:
        model._save(frame, "train.npz", target=np.array([0, 1, 0]))
        loaded, targets = process.load(Path(folder) / "train.npz")
    assert targets.tolist() == [0, 1, 0]
    assert loaded["size"].isna().tolist() == [False, True, False]
    assert loaded["size"][2] == 3.0
    assert loaded["colour"].dtype == "category"
    assert loaded["colour"].isna().tolist() == [False, True, False]
    assert loaded["colour"][2] == "blue"
    assert loaded["count"].tolist() == [1, 2, 3]


def test_processor_time_counts_processes_that_still_run() -> None:
    tables = importlib.import_module("tables")
    before = tables.own_seconds()
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"done"
        while_running = tables.own_seconds() - before
        process.communicate(b"\n")
    after = tables.own_seconds() - before
    assert while_running >= 0.25
    assert 0.25 <= after < while_running + 0.25  # counted once
