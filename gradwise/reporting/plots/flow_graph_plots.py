"""Drawing the flow graph: one column for each layer, forward on top, the gradient's way back below.

    plan = layout(checked.evidence.graph)          where everything stands, in pixels
    flow_graph_plots.draw_flow_graph(plan, ax=ax)

A column holds a layer's parameters, its boxes from top to bottom, and the box of its gradient. Columns run from left to
right and go on in the next row. The bar at the foot of a box is its share of all operations.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...records.evidence.check_evidence import Box, GraphMeasured
from .. import wording
from .axes import takes_axes
from .style import FIRST, INK, PAPER, QUIET, RULE, SECOND, THIRD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 7
_PITCH, _WIDE = 146, 120  # from column to column, and a box
_TALL, _GAP = 44, 16
_HEAD, _FOOT = 24, 26
_COLOURS = {"input": THIRD, "parameter": QUIET, "internal": FIRST, "output": SECOND, "loss": INK}
_TEXT = 10.0


@dataclass(frozen=True)
class Node:
    """A box at its place: its corner at the top left, what it says, its share of all operations."""

    kind: str
    x: float
    y: float
    title: str
    detail: str
    share: float
    column: int
    row: int
    gradient: bool = False


@dataclass(frozen=True)
class GraphLayout:
    """Nodes, the edges between their numbers, and titles of the columns with their places."""

    width: int
    height: int
    nodes: tuple[Node, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    back: tuple[tuple[int, int], ...] = ()
    titles: tuple[tuple[float, float, str], ...] = field(default=())


def _fit(names: str, length: int) -> str:
    """As many of the names as there is room for."""
    kept = ""
    for name in names.split(", "):
        longer = f"{kept}, {name}" if kept else name
        if len(longer) > length:
            return wording.short(names, length) if not kept else f"{kept} …"
        kept = longer
    return kept


def _said(box: Box, total: float) -> tuple[str, str, float]:
    if box.kind == "parameter":
        return "parameters", f"{wording.age(sum(box.shape))} numbers", 0.0
    title = "penalty" if box.stage == "penalty" else _fit(wording.clean(box.name), 18)
    if box.kind == "input" and not box.sites:
        return title, "of the batch", 0.0
    shape = wording.short(" × ".join(map(str, box.shape)) or "1", 11)
    return title, f"{shape} · {wording.age(box.operations)} ops", box.operations / max(total, 1.0)


def _column(stage: str) -> str:
    """A penalty has no column of its own: it is a part of the loss."""
    return "loss" if stage == "penalty" else stage


def _columns(graph: GraphMeasured) -> list[str]:
    stages = list(dict.fromkeys(_column(stage.name) for stage in graph.stages))
    return stages if "inputs" in stages else ["inputs", *stages]


def _order(box: Box) -> int:
    """Within a column: what comes in, parameters, then what is computed."""
    early = box.kind == "parameter" or box.stage == "penalty"
    return 0 if box.kind == "input" and not box.sites else 1 if early else 2


def layout(graph: GraphMeasured) -> GraphLayout:
    """Where the boxes of a graph stand. Columns are stages; a row of them is as tall as its tallest."""
    names = _columns(graph)
    boxes = graph.boxes
    stages = {stage.name: stage for stage in graph.stages}
    total = graph.operations + graph.backward_operations
    ordered = sorted(range(len(boxes)), key=lambda i: (_order(boxes[i]), i))
    inside = {name: [i for i in ordered if _column(boxes[i].stage) == name] for name in names}
    nodes: list[Node] = []
    at: dict[int, int] = {}
    back_at: dict[str, int] = {}
    titles = []
    top = 0.0
    for row in range(0, len(names), COLUMNS):
        here = names[row : row + COLUMNS]
        deepest = max(len(inside[name]) for name in here)
        foot = top + _HEAD + deepest * (_TALL + _GAP) + 10
        for column, name in enumerate(here):
            x = column * _PITCH + 14.0
            titles.append((x, top + 14, name))
            for place, number in enumerate(inside[name]):
                at[number] = len(nodes)
                y = top + _HEAD + place * (_TALL + _GAP)
                nodes.append(Node(boxes[number].kind, x, y, *_said(boxes[number], total), column, row // COLUMNS))
            stage = stages.get(name)
            if stage is not None and (stage.backward_operations > 0 or stage.backward_sites):
                back_at[name] = len(nodes)
                back = stage.backward_operations
                said = ("gradient", f"{wording.age(back)} ops", back / max(total, 1.0))
                nodes.append(Node(stage.kind, x, foot, *said, column, row // COLUMNS, True))
        top = foot + (_TALL + _FOOT if any(name in back_at for name in here) else 0)
    order = [stage.name for stage in graph.stages]
    back_edges = [(order[a], order[b]) for a, b in graph.back_edges]

    def aside(a: int, b: int) -> bool:  # every parameter may be penalised: such arrows would hide the others
        return boxes[a].kind == "parameter" and boxes[b].stage == "penalty"

    return GraphLayout(
        width=min(len(names), COLUMNS) * _PITCH + 4,
        height=int(top),
        nodes=tuple(nodes),
        edges=tuple((at[a], at[b]) for a, b in graph.edges if a in at and b in at and not aside(a, b)),
        back=tuple((back_at[a], back_at[b]) for a, b in back_edges if a in back_at and b in back_at),
        titles=tuple(titles),
    )


def _arrow(ax: "Axes", start: tuple[float, float], end: tuple[float, float], **look: Any) -> None:
    from matplotlib.patches import FancyArrowPatch

    style = {"arrowstyle": "-|>,head_length=3.4,head_width=1.9", "linewidth": 1.1, "color": QUIET, "zorder": 1.5}
    ax.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **{**style, **look}))


def _forward_arrow(ax: "Axes", a: Node, b: Node) -> None:
    """Down within a column, across to a later one; to another row it leaves at the right and comes in at the left."""
    faint: dict[str, Any] = {"alpha": 0.45} if a.kind == "parameter" else {}
    if (a.row, a.column) == (b.row, b.column):
        if abs(b.y - a.y) <= _TALL + _GAP:
            _arrow(ax, (a.x + _WIDE / 2, a.y + _TALL), (b.x + _WIDE / 2, b.y), **faint)
        else:  # past the boxes between
            bend = f"arc3,rad={22 / (b.y - a.y)}"
            _arrow(ax, (a.x, a.y + _TALL / 2), (b.x, b.y + _TALL / 2), connectionstyle=bend, **faint)
        return
    start, end = (a.x + _WIDE, a.y + _TALL / 2), (b.x, b.y + _TALL / 2)
    if a.row != b.row:
        _arrow(ax, start, (start[0] + 15, start[1]), **faint)
        _arrow(ax, (end[0] - 13, end[1]), end, **faint)
    elif b.column == a.column + 1:
        _arrow(ax, start, end, **faint)
    else:
        forward = b.column > a.column
        start = start if forward else (a.x + _WIDE / 2, a.y + _TALL)
        _arrow(ax, start, end, connectionstyle="arc3,rad=-0.12", **{**faint, "alpha": 0.3})


def _back_arrow(ax: "Axes", a: Node, b: Node) -> None:
    """From right to left; over boxes between it passes below."""
    if a.row != b.row:
        _arrow(ax, (a.x, a.y + _TALL / 2), (a.x - 13, a.y + _TALL / 2), color=SECOND)
        _arrow(ax, (b.x + _WIDE + 15, b.y + _TALL / 2), (b.x + _WIDE, b.y + _TALL / 2), color=SECOND)
    elif abs(a.column - b.column) == 1:
        right = a.column > b.column
        start, end = (a.x, b.x + _WIDE) if right else (a.x + _WIDE, b.x)
        _arrow(ax, (start, a.y + _TALL / 2), (end, b.y + _TALL / 2), color=SECOND)
    else:
        ends = (a.x + _WIDE / 2, a.y + _TALL), (b.x + _WIDE / 2, b.y + _TALL)
        _arrow(ax, *ends, color=SECOND, connectionstyle="arc3,rad=-0.06", alpha=0.35)


def _box(ax: "Axes", node: Node) -> None:
    from matplotlib.patches import FancyBboxPatch, Rectangle

    colour = _COLOURS.get(node.kind, QUIET)
    dashes = (0, (3, 2)) if node.gradient else "-"
    looks: tuple[dict[str, Any], ...] = (
        {"facecolor": PAPER, "edgecolor": "none"},  # below the tint, or lines would show through
        {"facecolor": colour, "edgecolor": "none", "alpha": 0.1},
        {"facecolor": "none", "edgecolor": colour, "linestyle": dashes, "linewidth": 1.2},
    )
    for look in looks:
        corners = "round,pad=0,rounding_size=5"
        ax.add_patch(FancyBboxPatch((node.x, node.y), _WIDE, _TALL, boxstyle=corners, zorder=2, **look))
    said: dict[str, Any] = {"fontsize": _TEXT, "zorder": 4, "parse_math": False}
    ax.text(node.x + 7, node.y + 16, node.title, color=INK, **said)
    ax.text(node.x + 7, node.y + 31, node.detail, color=QUIET, **said)
    if node.share > 0:
        width = max(1.0, node.share * (_WIDE - 14))
        ax.add_patch(Rectangle((node.x + 7, node.y + _TALL - 7), _WIDE - 14, 3, facecolor=RULE, zorder=4))
        ax.add_patch(Rectangle((node.x + 7, node.y + _TALL - 7), width, 3, facecolor=colour, zorder=5))


@takes_axes
def draw_flow_graph(data: GraphLayout, ax: "Axes") -> None:
    """Boxes and arrows of a loss and of its gradient."""
    ax.set_axis_off()
    ax.set_xlim(0, data.width)
    ax.set_ylim(data.height, 0)
    for a, b in data.edges:
        _forward_arrow(ax, data.nodes[a], data.nodes[b])
    for a, b in data.back:
        _back_arrow(ax, data.nodes[a], data.nodes[b])
    for node in data.nodes:
        _box(ax, node)
    for x, y, name in data.titles:
        ax.text(x, y, wording.short(name, 19), color=INK, fontsize=11, weight="bold", parse_math=False)
