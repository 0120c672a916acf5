"""Columns as inputs of an ONNX graph become the numbers that `gradwise predict` reads."""

import datetime

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from onnx import TensorProto, helper

from gradwise.data.reading.tables import from_frame
from gradwise.data.reading.words_and_dates import DATE_PARTS
from gradwise.exporting.onnx_columns import encoded_rows
from gradwise.exporting.onnx_graph import OnnxGraph
from gradwise.specs.dataset import Column


def encoded(columns: tuple[Column, ...], feed: dict[str, np.ndarray]) -> np.ndarray:
    graph = OnnxGraph()
    rows = encoded_rows(graph, columns)
    kinds = {name: TensorProto.STRING if one.dtype == object else TensorProto.DOUBLE for name, one in feed.items()}
    inputs = [helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in kinds.items()]
    graph.nodes.append(helper.make_node("Identity", [rows], ["rows"]))
    output = helper.make_tensor_value_info("rows", TensorProto.DOUBLE, ["n", len(columns)])
    made = helper.make_graph(graph.nodes, "g", inputs, [output], graph.constants)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


DATES = tuple(Column(f"when:{part}", "date") for part in DATE_PARTS)
FORMS = {
    "days": "%Y-%m-%d",
    "slashes": "%Y/%m/%d",
    "points": "%d.%m.%Y",
    "minutes": "%Y-%m-%d %H:%M",
    "seconds": "%Y-%m-%dT%H:%M:%S",
    "parts of seconds": "%Y-%m-%dT%H:%M:%S.%fZ",
    "points and minutes": "%d.%m.%Y %H:%M",
    "hours": "%Y-%m-%d %H",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_dates_are_read_as_from_a_file(form: str) -> None:
    """Over four centuries, so that every rule of leap years is met."""
    draw = np.random.default_rng(0)
    start = datetime.datetime(1699, 12, 31)
    moments = [start + datetime.timedelta(hours=int(hours)) for hours in draw.integers(0, 400 * 366 * 24, 300)]
    moments += [datetime.datetime(year, 2, 28) + datetime.timedelta(days=1) for year in (1900, 2000, 2023, 2024)]
    texts = [moment.strftime(form) for moment in moments]
    wanted = from_frame(pd.DataFrame({"when": texts}), DATES).inputs
    np.testing.assert_array_equal(encoded(DATES, {"when": np.array(texts, object)}), wanted)


def test_texts_that_are_no_dates_are_missing() -> None:
    texts = [
        "",
        "soon",
        "2024-13-01",
        "2024-01-32",
        "24-01-01",
        "1/2/2024",
        "2024-01-01 25:00",
        "2024-01-01 10:00+02:00",
    ]
    found = encoded(DATES, {"when": np.array([*texts, "2024-1-5"], object)})
    assert np.isnan(found[:-1]).all()
    assert found[-1].tolist() == [2024, 1, 5, 4, 0]


def test_forms_may_be_mixed_and_one_row_is_enough() -> None:
    texts = ["2024-01-31", "31.1.2024 09:30", "2024/1/31 9:30", "2024-01-31T23"]
    found = encoded(DATES, {"when": np.array(texts, object)})
    assert found[:, :4].tolist() == [[2024, 1, 31, 2]] * 4
    assert found[:, 4].tolist() == [0, 9, 9, 23]
    for number, text in enumerate(texts):
        assert encoded(DATES, {"when": np.array([text], object)}).tolist() == [found[number].tolist()]


def test_categories_become_indices_and_strange_ones_missing() -> None:
    columns = (
        Column("size"),
        Column("town", "category", ("Bath", "York")),
        Column("true", "category", ("False", "True")),
    )
    feed = {
        "size": np.array([1.5, np.nan, 3.0]),
        "town": np.array(["York", "Paris", ""], object),
        "true": np.array(["True", "False", ""], object),
    }
    np.testing.assert_array_equal(encoded(columns, feed), [[1.5, 1, 1], [np.nan, np.nan, 0], [3.0, np.nan, np.nan]])
