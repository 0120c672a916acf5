"""The flow graph as a figure with its tables: what each part costs, and what compilation made of it.

tuple(graph_blocks(checked.evidence["graph"]))
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from .. import wording
from ..blocks import Block, Figure, Row, Table
from ..plots import flow_graph_plots
from .record_values import Plain, as_number, part_of, rows_of


def _megabytes(value: Any) -> str:
    size = as_number(value)
    return wording.NOTHING if not math.isfinite(size) else f"{wording.age(size)}B"


def _stage_table(plain: Plain) -> Table:
    rows: tuple[Row, ...] = tuple(
        (
            str(stage.get("name")),
            *(wording.age(as_number(stage.get(name)) or 0.0) for name in ("operations", "backward_operations")),
            *(_megabytes(stage.get(name)) for name in ("bytes", "kept_bytes")),
        )
        for stage in rows_of(plain.get("stages"))
    )
    header = ("part", "operations", "of its gradient", "bytes moved", "kept for the gradient")
    return Table("Operations and memory of each part", header, rows, (1, 2, 3, 4), folded=len(rows) > 12)


def _compile_table(plain: Plain) -> Table | None:
    counts, compiled = part_of(plain, "counts"), part_of(plain, "compiled")
    told = {
        "equations of the loss": counts.get("loss"),
        "equations of its gradient alone": counts.get("gradient"),
        "both in one program": counts.get("together"),
        "of these, used by nothing": counts.get("unused"),
        "of these, computed twice": counts.get("repeated"),
        "instructions after compilation": compiled.get("instructions") or None,
        "of these, within fusions": compiled.get("fused") if compiled.get("instructions") else None,
        "launched one after another": compiled.get("kernels") or None,
    }
    rows: list[Row] = [(name, wording.whole(as_number(value))) for name, value in told.items() if value is not None]
    if math.isfinite(as_number(compiled.get("operations"))):
        rows.append(("operations, by the compiler's count", wording.age(as_number(compiled["operations"]))))
    sizes = {"arguments": "argument_bytes", "results": "output_bytes", "working memory": "temporary_bytes"}
    for name, key in sizes.items():
        if math.isfinite(as_number(compiled.get(key))):
            rows.append((name, _megabytes(compiled[key])))
    return Table("Before and after compilation", ("", ""), tuple(rows), (1,)) if rows else None


def _sound(plain: Plain) -> dict[str, Any]:
    """The graph without edges that lead nowhere."""
    boxes, stages = rows_of(plain.get("boxes")), rows_of(plain.get("stages"))

    def pairs(name: str, count: int) -> list[list[int]]:
        given = plain.get(name)
        listed = [edge for edge in given if isinstance(edge, list | tuple)] if isinstance(given, list | tuple) else []
        places = range(count)
        return [[*edge] for edge in listed if len(edge) == 2 and all(end in places for end in edge)]

    totals = {name: as_number(plain.get(name)) for name in ("operations", "backward_operations")}
    edges = {"edges": pairs("edges", len(boxes)), "back_edges": pairs("back_edges", len(stages))}
    return {"boxes": boxes, "stages": stages, **edges, **{k: v for k, v in totals.items() if math.isfinite(v)}}


def graph_blocks(plain: Plain) -> Iterator[Block]:
    """The flow graph of the loss and of its gradient, its costs, and what compilation made of it."""
    if not rows_of(plain.get("boxes")):
        return
    plan = flow_graph_plots.layout(_sound(plain))
    forward, backward = (as_number(plain.get(name)) for name in ("operations", "backward_operations"))
    ratio = f", {wording.number(backward / forward)} times as much" if forward > 0 and math.isfinite(backward) else ""
    rows: tuple[Row, ...] = tuple(
        (
            str(box.get("stage")),
            str(box.get("name") or "parameters"),
            " × ".join(map(str, box.get("shape") or ())) or "1",
            wording.whole(as_number(box.get("operations"))),
            str(box.get("line") or ""),
        )
        for box in rows_of(plain.get("boxes"))
    )
    said = f"One evaluation takes {wording.age(forward)} operations, the gradient {wording.age(backward)} more{ratio}. "
    said += "Inputs are purple, parameters grey, layers blue, the output vermilion, the loss in the colour of the "
    said += "text; dashed boxes are the gradient. A bar is a box's share of all operations."
    draw = partial(flow_graph_plots.draw_flow_graph, plan)
    table = Table("Boxes", ("part", "computes", "shape", "operations", "line"), rows, (3,))
    look: Any = {"width": plan.width, "height": plan.height, "margins": (0, 0, 0, 0), "wide": True}
    yield Figure("graph", "The loss and its gradient", said, draw, table, **look)
    yield from filter(None, (_stage_table(plain), _compile_table(plain)))
