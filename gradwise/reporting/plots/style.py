"""Colours, sizes and lines of all plots.

The colours are roles: each occurs for one reason only, so that `svg.py` can find it in a drawing and hand it over to
the page's style sheet, which knows whether it is light or dark.
"""

from typing import Any

# Blue and vermilion of Okabe and Ito's palette: told apart by every kind of colour vision, and in print by weight.
COLOURS = {
    "ink": "#1c2127",
    "quiet": "#5d6773",
    "rule": "#dfe3e7",
    "first": "#0069a8",
    "second": "#c94f00",
    "third": "#8a4d94",
    "paper": "#fefefe",
    "on-cell": "#fffffe",
}
INK, QUIET, RULE, FIRST, SECOND, THIRD, PAPER, ON_CELL = COLOURS.values()
TEXT_SIZE = 11.5
LETTER = 6.6  # about the width of one letter at that size
DOTTED, DASHED = (0, (1, 2)), (0, (3.5, 1.6))
RING: Any = {"marker": "o", "color": PAPER, "markeredgecolor": INK, "markeredgewidth": 1.8, "markersize": 7.5}
