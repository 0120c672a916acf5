"""A file that was exported predicts what the predictor predicts, wherever it runs."""

import ast
import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import scipy.sparse
from jax import export

import gradwise
from gradwise.cli.main import run_program
from gradwise.exporting.export import export_model
from gradwise.runtime.errors import RequestError, WorkError
from gradwise.specs.dataset import Classes
from gradwise.training.committee import Committee

from .conftest import MAKERS, Case, images, mixed

WITHOUT_JAX = """
import json, sys
for name in ("jax", "jaxlib", "equinox", "gradwise", "pandas", "scipy", "sklearn"):
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
import numpy as np, model
rows = json.load(open(sys.argv[2]))
rows = np.array(rows) if isinstance(rows, list) and isinstance(rows[0], list) else rows
found = {"predict": model.predict(rows).tolist(), "outputs": model.outputs(rows).tolist()}
found["same"] = not hasattr(model, "predict_proba") or model.predict_proba(rows).tolist() == found["outputs"]
print(json.dumps(found))
"""


def close(found: Any, wanted: np.ndarray) -> None:
    """Equal to 1e-5 of the predictions' size."""
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(wanted).max())))


def labels_of(case: Case) -> list[Any]:
    """What a user calls the predictions."""
    task, wanted = case.predictor.task, case.wanted
    if isinstance(task, Classes):
        return np.asarray(task.labels)[wanted.argmax(1)].tolist()
    return (wanted > 0.5).astype(int).tolist()


def session_of(path: Path) -> Any:
    return onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])


def feed_of(case: Case, session: Any, rows: Any = None) -> dict[str, np.ndarray]:
    """The rows as ONNX Runtime takes them: one input for each column."""
    rows = case.rows if rows is None else rows
    if not case.predictor.columns:
        return {"inputs": np.asarray(rows, np.float64)}
    return {
        one.name: rows[one.name].to_numpy(float)
        if one.type == "tensor(double)"
        else rows[one.name].map(lambda value: "" if pd.isna(value) else str(value)).to_numpy(object)
        for one in session.get_inputs()
    }


def test_an_onnx_model_predicts_the_same(case: Case, tmp_path: Path) -> None:
    path = export_model(case.predictor, tmp_path / "model.onnx")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = session_of(path)
    found = dict(
        zip([one.name for one in session.get_outputs()], session.run(None, feed_of(case, session)), strict=True)
    )
    if case.predictor.task.kind in ("classes", "labels"):
        assert list(found) == ["probabilities", "label"]
        assert found["label"].tolist() == labels_of(case)
    else:
        assert list(found) == ["predictions"]
    close(next(iter(found.values())), case.wanted)
    (first, *_) = session.run(None, feed_of(case, session, case.rows[:1]))
    close(first, case.wanted[:1])


def test_a_stablehlo_program_predicts_the_same(case: Case, tmp_path: Path) -> None:
    path = export_model(case.predictor, str(tmp_path / "model.stablehlo"))
    exported = export.deserialize(bytearray(path.read_bytes()))
    assert set(exported.platforms) == {"cpu", "cuda"}
    with jax.enable_x64(True):
        close(exported.call(case.encoded), case.wanted)
        close(exported.call(case.encoded[:1]), case.wanted[:1])


def test_a_python_file_predicts_the_same_with_numpy_alone(case: Case, tmp_path: Path) -> None:
    export_model(case.predictor, tmp_path / "model.py")
    rows = case.rows
    if case.predictor.columns:
        frame = rows.astype(object).where(rows.notna(), None)
        rows = {str(name): frame[name].to_numpy() for name in frame}
    rows = {name: values.tolist() for name, values in rows.items()} if isinstance(rows, dict) else rows.tolist()
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_JAX, str(tmp_path), str(tmp_path / "rows.json")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["same"]
    close(found["outputs"], case.wanted)
    if case.predictor.task.kind in ("classes", "labels"):
        assert found["predict"] == labels_of(case)
    else:
        close(found["predict"], case.wanted[:, 0] if case.wanted.shape[1] == 1 else case.wanted)


@pytest.fixture(scope="module")
def table() -> Case:
    return mixed()


def module_at(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def exported_module(table: Case, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_at(export_model(table.predictor, tmp_path_factory.mktemp("exported") / "houses.py"))


def test_the_python_file_reads_rows_in_many_forms(table: Case, exported_module: Any) -> None:
    frame = table.rows
    forms = [
        frame,
        frame.convert_dtypes(),
        frame.assign(other=1)[["other", *reversed(frame.columns)]],
        frame.to_dict("records"),
        {name: frame[name].to_numpy() for name in frame},
        frame.assign(built=pd.to_datetime(frame["built"], format="ISO8601")),
        frame.assign(built=pd.to_datetime(frame["built"], format="ISO8601", utc=True)),
    ]
    for rows in forms:
        close(exported_module.predict_proba(rows), table.wanted)
    close(exported_module.predict_proba({name: frame[name].iloc[0] for name in frame}), table.wanted[:1])
    assert exported_module.predict_proba(frame[:0]).shape == (0, 2)


def test_the_python_file_names_what_it_cannot_read(table: Case, exported_module: Any) -> None:
    frame = table.rows
    with pytest.raises(ValueError, match="lack the column `town`"):
        exported_module.predict(frame.drop(columns="town"))
    with pytest.raises(ValueError, match="`size`: 'large' is not a number"):
        exported_module.predict(frame.assign(size="large"))
    with pytest.raises(ValueError, match="`built` cannot be read as dates"):
        exported_module.predict(frame.assign(built="yesterday"))
    with pytest.raises(ValueError, match="`size`: inf is infinite"):
        exported_module.predict(frame.assign(size=np.inf))
    with pytest.raises(ValueError, match="a dictionary of columns"):
        exported_module.predict(np.zeros((2, 3)))


def test_the_python_file_is_one_line_an_operation(exported_module: Any) -> None:
    source = Path(exported_module.__file__).read_text()
    (forward,) = (node for node in ast.parse(source).body if getattr(node, "name", "") == "forward")
    lines = (ast.get_source_segment(source, forward) or "").splitlines()
    assert "    # scaling" in lines
    assert "    # network" in lines
    assert any(line.endswith(" @ W[2]") or " @ W[" in line for line in lines)
    assert max(map(len, lines)) < 200


def test_no_name_of_a_column_becomes_code(tmp_path: Path) -> None:
    case = MAKERS["labels"]()
    task = dataclasses.replace(case.predictor.task, names=('"""\nraise SystemExit\n', "\\", "'"))  # type: ignore[type-var]
    renamed = dataclasses.replace(case.predictor, task=task)  # type: ignore[type-var]
    module = module_at(export_model(renamed, tmp_path / "model.py"))
    close(module.predict_proba(scipy.sparse.csr_matrix(case.rows)), case.wanted)
    assert tuple(module.NAMES) == task.names


def test_what_members_share_is_stored_once(tmp_path: Path) -> None:
    """Members that share a scaler scale their rows once, and weights are not repeated."""
    one = images().predictor
    alone = export_model(one, tmp_path / "one.onnx").stat().st_size
    together = export_model(Committee((one, one, one)), tmp_path / "three.onnx").stat().st_size  # type: ignore[arg-type]
    assert together < 1.1 * alone


def test_a_suffix_that_is_not_known_is_refused(table: Case, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"model\.pkl: the suffix must be \.onnx, \.stablehlo, \.py"):
        export_model(table.predictor, tmp_path / "model.pkl")
    with pytest.raises(WorkError, match="could not write"):
        export_model(table.predictor, tmp_path / "nowhere" / "model.py")


def test_without_the_package_the_message_says_what_to_install(
    table: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(RequestError, match=r"pip install gradwise\[onnx\]"):
        export_model(table.predictor, tmp_path / "model.onnx")


def test_a_column_with_the_name_of_an_output_is_refused(table: Case, tmp_path: Path) -> None:
    columns = tuple(dataclasses.replace(c, name="label") if c.name == "size" else c for c in table.predictor.columns)
    renamed = dataclasses.replace(table.predictor, columns=columns)  # type: ignore[type-var]
    with pytest.raises(RequestError, match="column `label` has the name of an output"):
        export_model(renamed, tmp_path / "model.onnx")


@pytest.mark.slow
def test_the_committee_of_a_search_is_exported(tmp_path: Path) -> None:
    """Through the front door: a search on a real table, opened again, exported in all three forms."""
    from sklearn.datasets import load_wine

    frame = load_wine(as_frame=True).frame
    frame.to_csv(tmp_path / "wine.csv", index=False)
    asked = ["search", str(tmp_path / "wine.csv"), "--target", "target", "--budget", "8 trials", "--seed", "1"]
    assert run_program([*asked, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    model = gradwise.load(tmp_path / "run")
    assert isinstance(model.predictor, Committee)
    case = Case(model.predictor, frame)
    session = session_of(model.export(tmp_path / "wine.onnx"))
    close(session.run(["probabilities"], feed_of(case, session))[0], case.wanted)
    exported = export.deserialize(bytearray(model.export(tmp_path / "wine.stablehlo").read_bytes()))
    with jax.enable_x64(True):
        close(exported.call(case.encoded), case.wanted)
    close(module_at(model.export(tmp_path / "wine.py")).predict_proba(frame), case.wanted)
