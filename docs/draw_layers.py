"""Draws the layers of the house from its imports: `python docs/draw_layers.py` writes docs/pictures/layers.svg.

Each box is a package, with its modules and lines; an arrow points at what it imports. An import that another one
implies is not drawn (`training` imports `records`, which imports `specs`: no arrow from `training` to `specs`). The
whole list stands in the picture's description, and `tests/test_house.py` compares it with the imports of today.
"""

import ast
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
HOUSE = HERE.parent / "gradwise"
PICTURE = HERE / "pictures" / "layers.svg"
INK, QUIET, FILL = "#1c2127", "#8b96a1", "#eef3f7"
WIDTH, HEIGHT, ACROSS, UP = 142, 40, 160, 82


def _files() -> dict[Path, str]:
    """Every module below a package, with the package's name; the root's own files are no package."""
    return {path: path.relative_to(HOUSE).parts[0] for path in sorted(HOUSE.glob("*/**/*.py"))}


def room_imports() -> dict[str, set[str]]:
    """The packages that each package imports, late imports included."""
    rooms = set(_files().values())
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for path, room in _files().items():
        package = ["gradwise", *path.relative_to(HOUSE).parts[:-1]]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = package[: len(package) - node.level + 1] + (node.module or "").split(".")
                names = base[1:2] if base[1:2] != [""] else [alias.name for alias in node.names]
                found[room] |= {name for name in names if name in rooms and name != room}
    return found


def describe(imports: dict[str, set[str]]) -> str:
    """One line a package, for the picture's description."""
    return "; ".join(
        f"{room} imports {', '.join(sorted(others)) or 'nothing'}" for room, others in sorted(imports.items())
    )


def _below(room: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    for other in imports[room]:
        found |= {other} | _below(other, imports)
    return found


def _levels(imports: dict[str, set[str]]) -> dict[str, int]:
    """The row of each package, from 0 at the bottom: directly below the lowest of those that import it."""
    depths: dict[str, int] = {}

    def depth(room: str) -> int:
        if room not in depths:
            users = [other for other, used in imports.items() if room in used]
            depths[room] = 1 + max((depth(user) for user in users), default=-1)
        return depths[room]

    deepest = max(depth(room) for room in imports)
    return {room: deepest - depths[room] for room in imports}


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = (start[0], start[1] + HEIGHT / 2), (end[0], end[1] - HEIGHT / 2 - 5)
    bend = (y2 - y1) / 2
    curve = f"M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2:.0f}"
    return f'<path d="{curve}" fill="none" stroke="{QUIET}" stroke-width="1.1" marker-end="url(#head)"/>'


def _box(room: str, place: tuple[float, float], modules: int, lines: int) -> str:
    x, y = place
    return (
        f'<rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
        f'fill="{FILL}" stroke="{QUIET}"/><text x="{x:.0f}" y="{y - 2:.0f}" font-size="14" fill="{INK}">{room}</text>'
        f'<text x="{x:.0f}" y="{y + 13:.0f}" font-size="10" fill="{INK}">{modules} modules, {lines:,} lines</text>'
    )


def draw() -> str:
    """The picture as SVG."""
    imports = room_imports()
    levels = _levels(imports)
    rows: dict[int, list[str]] = defaultdict(list)
    for room in sorted(imports):
        rows[levels[room]].append(room)
    wide = max(len(row) for row in rows.values()) * ACROSS + 20
    tall = len(rows) * UP + 10
    places = {
        room: (wide / 2 + (number - (len(row) - 1) / 2) * ACROSS, tall - UP * level - UP / 2)
        for level, row in rows.items()
        for number, room in enumerate(row)
    }
    sizes: dict[str, list[int]] = defaultdict(list)
    for path, room in _files().items():
        sizes[room].append(path.read_text().count("\n"))
    direct = [
        (room, other)
        for room, others in imports.items()
        for other in sorted(others)
        if not any(other in _below(third, imports) for third in others)
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {tall:.0f}" font-family="sans-serif" '
        'text-anchor="middle" role="img">',
        "<title>The layers of gradwise, drawn from its imports</title>",
        f"<desc>{describe(imports)}</desc>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{QUIET}"/></marker></defs>',
        f'<rect width="{wide:.0f}" height="{tall:.0f}" fill="#ffffff"/>',
        *(_arrow(places[room], places[other]) for room, other in direct),
        *(_box(room, place, len(sizes[room]), sum(sizes[room])) for room, place in places.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw())
    print(f"{PICTURE.relative_to(HERE.parent)}: {len(room_imports())} packages")
