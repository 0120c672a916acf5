"""A predictor as an ONNX model: all that `predict` does, preprocessing included.

    content = onnx_model(predictor)                        bytes of a `.onnx` file

A table has one input for each column of the table, named as it is; other data have one, `inputs`. Classes give
`probabilities` and `label`, labels (several may be right) `probabilities` and `label` of 0 and 1, numbers and features
`predictions`.
"""

from typing import Any

import numpy as np

from .. import __version__
from ..data.reading.tables import source_of
from ..runtime.errors import RequestError
from ..specs.dataset import Classes, Column, Task
from ..training.predictor import AbstractPredictor
from .onnx_columns import encoded_rows
from .onnx_graph import OnnxGraph
from .translation import translate
from .whole_predictor import whole_predictor

OPSET = 20  # the first that splits and matches text
TABLES_OPSET = 3  # of `ai.onnx.ml`
FORMAT = 10  # of the file; ONNX Runtime reads it from 1.18 on


def _inputs(columns: tuple[Column, ...], shape: tuple[int, ...]) -> list[Any]:
    from onnx import TensorProto, helper

    if not columns:
        return [helper.make_tensor_value_info("inputs", TensorProto.DOUBLE, ["n", *shape])]
    kinds = {source_of(column): column.kind in ("category", "date") for column in columns}
    return [
        helper.make_tensor_value_info(name, TensorProto.STRING if is_text else TensorProto.DOUBLE, ["n"])
        for name, is_text in kinds.items()
    ]


def _outputs(graph: OnnxGraph, task: Task, found: str, width: int) -> dict[str, tuple[str, Any, list[Any]]]:
    """Each output with its name inside, type and shape."""
    whole = (np.dtype(np.float64), ["n", width])
    if isinstance(task, Classes):
        labels = np.asarray(task.labels)
        labels = labels.astype(object) if labels.dtype.kind in "US" else labels
        label = graph.node("Gather", graph.constant(labels), graph.node("ArgMax", found, axis=1, keepdims=0))
        return {"probabilities": (found, *whole), "label": (label, labels.dtype, ["n"])}
    if task.kind == "labels":
        label = graph.cast(graph.node("Greater", found, graph.constant(np.array(0.5))), np.int64)
        return {"probabilities": (found, *whole), "label": (label, np.dtype(np.int64), ["n", width])}
    return {"predictions": (found, *whole)}


def onnx_model(predictor: AbstractPredictor) -> bytes:
    """The content of the file."""
    try:
        from onnx import checker, helper
    except ImportError:
        raise RequestError("the package onnx is not installed. Run: pip install gradwise[onnx]") from None
    graph = OnnxGraph()
    inputs = _inputs(predictor.columns, predictor.shape)
    graph.count_rows(inputs[0].name)
    rows = encoded_rows(graph, predictor.columns) if predictor.columns else "inputs"
    program, value = translate(whole_predictor(predictor).program)
    found = graph.add_program(program, value, rows)
    outputs = []
    for name, (inner, dtype, shape) in _outputs(graph, predictor.task, found, int(value.shape[1])).items():
        if name in {one.name for one in inputs}:
            raise RequestError(
                f"the column `{name}` has the name of an output of the ONNX model: rename it, and train."
            )
        graph.nodes.append(helper.make_node("Identity", [inner], [name]))
        outputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape))
    made = helper.make_model(
        helper.make_graph(graph.nodes, "gradwise", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", TABLES_OPSET)],
        ir_version=FORMAT,
        producer_name="gradwise",
        producer_version=__version__,
    )
    checker.check_model(made)
    return made.SerializeToString()
