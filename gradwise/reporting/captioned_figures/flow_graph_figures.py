"""The flow graph as a figure with its tables: what each part costs, and what compilation made of it.

tuple(graph_blocks(checked.evidence.graph))
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from ...records.evidence.check_evidence import GraphMeasured
from .. import wording
from ..blocks import Block, Figure, Row, Table
from ..plots import flow_graph_plots


def _megabytes(size: float) -> str:
    return wording.NOTHING if not math.isfinite(size) else f"{wording.age(size)}B"


def _stage_table(graph: GraphMeasured) -> Table:
    rows: tuple[Row, ...] = tuple(
        (
            stage.name,
            *(wording.age(count) for count in (stage.operations, stage.backward_operations)),
            *(_megabytes(size) for size in (stage.bytes, stage.kept_bytes)),
        )
        for stage in graph.stages
    )
    header = ("part", "operations", "of its gradient", "bytes moved", "kept for the gradient")
    return Table("Operations and memory of each part", header, rows, (1, 2, 3, 4), folded=len(rows) > 12)


def _compile_table(graph: GraphMeasured) -> Table:
    counts, compiled = graph.counts, graph.compiled
    told = {
        "equations of the loss": counts.loss,
        "equations of its gradient alone": counts.gradient,
        "both in one program": counts.together,
        "of these, used by nothing": counts.unused,
        "of these, computed twice": counts.repeated,
    }
    if compiled.instructions:
        told["instructions after compilation"] = compiled.instructions
        told["of these, within fusions"] = compiled.fused
        told["launched one after another"] = compiled.kernels
    rows: list[Row] = [(name, wording.whole(value)) for name, value in told.items()]
    if math.isfinite(compiled.operations):
        rows.append(("operations, by the compiler's count", wording.age(compiled.operations)))
    sizes = (compiled.argument_bytes, compiled.output_bytes, compiled.temporary_bytes)
    for name, size in zip(("arguments", "results", "working memory"), sizes, strict=True):
        if math.isfinite(size):
            rows.append((name, _megabytes(size)))
    return Table("Before and after compilation", ("", ""), tuple(rows), (1,))


def graph_blocks(graph: GraphMeasured) -> Iterator[Block]:
    """The flow graph of the loss and of its gradient, its costs, and what compilation made of it."""
    if not graph.boxes:
        return
    plan = flow_graph_plots.layout(graph)
    forward, backward = graph.operations, graph.backward_operations
    ratio = f", {wording.number(backward / forward)} times as much" if forward > 0 else ""
    rows: tuple[Row, ...] = tuple(
        (
            box.stage,
            box.name or "parameters",
            " × ".join(map(str, box.shape)) or "1",
            wording.whole(box.operations),
            box.line,
        )
        for box in graph.boxes
    )
    said = f"One evaluation takes {wording.age(forward)} operations, the gradient {wording.age(backward)} more{ratio}. "
    said += "Inputs are purple, parameters grey, layers blue, the output vermilion, the loss in the colour of the "
    said += "text; dashed boxes are the gradient. A bar is a box's share of all operations."
    draw = partial(flow_graph_plots.draw_flow_graph, plan)
    table = Table("Boxes", ("part", "computes", "shape", "operations", "line"), rows, (3,))
    look: Any = {"width": plan.width, "height": plan.height, "margins": (0, 0, 0, 0), "wide": True}
    yield Figure("graph", "The loss and its gradient", said, draw, table, **look)
    yield from (_stage_table(graph), _compile_table(graph))
