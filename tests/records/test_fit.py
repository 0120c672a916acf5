"""Records on disk: whole files or none, and back again exactly."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import equinox as eqx
import pytest

from gradwise import defaults
from gradwise.records import fit
from gradwise.records.data_read import DataRead, SetSizes
from gradwise.records.evidence.fit_evidence import ClassEvidence, FitEvidence
from gradwise.records.finding import Finding
from gradwise.records.fit import Fit, read_fit, write_fit
from gradwise.records.outcome import Outcome
from gradwise.runtime.errors import RequestError


def _fit(**changes: Any) -> Fit:
    fields: dict[str, Any] = {
        "recipe": defaults.classification(),
        "outcome": Outcome("patience", 1234),
        "task": "classes",
        "metric": "error_rate",
        "metrics": {part: {"error_rate": 0.1, "auc": math.nan} for part in ("train", "valid", "test")},
        "test_interval": (0.05, 0.1 + 0.2),
        "history": {
            "age_examples": [100, 200],
            "best": [True, False],
            "valid_loss": [0.1 + 0.2, math.pi],
            "valid_score_by_class": [[0.0, math.nan], [1 / 3, 2 / 3]],
        },
        "evidence": FitEvidence(ClassEvidence(("a", "b"), ((3, 1), (0, 4)), temperature=1.0000000000000002)),
        "data": DataRead("toy", rows=SetSizes(6, 2, 8)),
        "findings": (Finding("warning", "something.", row="C6", next="do it."),),
        "seconds": 1.5,
        "seed": 7,
        "version": "0.1.0",
        "machine": {"device": "cpu: cpu"},
    }
    return Fit(**{**fields, **changes})


def _same(first: Any, second: Any) -> bool:
    """Equality in which not-a-number equals itself."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def test_a_record_comes_back_exactly(tmp_path: Path) -> None:
    before = _fit()
    write_fit(before, tmp_path)
    after = read_fit(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.parquet", "recipe.json", "result.json"]
    assert eqx.tree_equal(after.recipe, before.recipe)
    for field in dataclasses.fields(Fit):
        if field.name != "recipe":
            assert _same(*(_plain(getattr(one, field.name)) for one in (before, after))), field.name


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def test_equal_records_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_fit(_fit(), tmp_path / name)
    for name in ("recipe.json", "result.json", "history.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_summary_is_json_with_what_was_promised() -> None:
    told = json.loads(json.dumps(_fit(test_interval=(math.nan, 1.0)).summary(), allow_nan=False))
    promised = "task outcome metric train valid test test_interval age_examples seconds seed version findings"
    assert set(promised.split()) <= set(told)
    assert (told["outcome"], told["test"], told["age_examples"]) == ("patience", 0.1, 1234)
    assert told["test_interval"] == [None, 1.0]
    assert told["metrics"]["test"]["auc"] is None
    numbers = {part: {"rmse": 2.0, "r2": 0.5} for part in ("train", "valid", "test")}
    assert _fit(task="numbers", metric="rmse", metrics=numbers).summary()["r2"] == 0.5
    assert "r2" not in _fit().summary()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_fit(_fit(), tmp_path)
    (tmp_path / "result.json").unlink()
    with pytest.raises(RequestError, match=r"not the folder of a finished run: it has no result\.json"):
        read_fit(tmp_path)


DAMAGE: list[tuple[str, Any]] = [
    ("result.json", b"{"),
    ("result.json", b"\xff\xfe"),
    ("result.json", b"[]"),
    ("result.json", b"[" * 100_000),
    ("recipe.json", b"{"),
    ("recipe.json", b"[" * 100_000),
    ("recipe.json", b'{"class": "os:system"}'),
    ("recipe.json", b"3"),
    ("history.parquet", b"PAR1 and nothing else"),
    ("history.parquet", b""),
    ("result.json", {"outcome": "bored"}),
    ("result.json", {"outcome": ["patience"]}),
    ("result.json", {"metrics": []}),
    ("result.json", {"metrics": {"test": []}}),
    ("result.json", {"findings": [{"level": "note"}]}),
    ("result.json", {"test_interval": 3}),
    ("result.json", {"task": None, "gone": "task"}),
]


@pytest.mark.parametrize(("name", "content"), DAMAGE)
def test_a_damaged_run_is_refused_in_one_line(tmp_path: Path, name: str, content: Any) -> None:
    write_fit(_fit(), tmp_path)
    if isinstance(content, dict):
        result = {**json.loads((tmp_path / name).read_text()), **content}
        result.pop(result.pop("gone", ""), None)
        content = json.dumps(result).encode()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError) as caught:
        read_fit(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_the_result_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(fit, "write_whole", lambda path, content: written.append(path.name))
    write_fit(_fit(), tmp_path)
    assert written[-1] == "result.json"
    assert sorted(written) == ["history.parquet", "recipe.json", "result.json"]
