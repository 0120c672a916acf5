"""A figure as inline SVG that follows the page: light or dark, and in the page's own type.

matplotlib writes the colours of `draw.COLOURS`; here each becomes a CSS variable of its role's name. Text stays text,
so that it can be read aloud, searched and copied. Equal figures give equal text: no dates, no random names.
"""

import io
import re
import warnings
from typing import Any

from .blocks import Figure
from .plots.style import COLOURS, TEXT_SIZE

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": TEXT_SIZE,
    "text.parse_math": False,
    "text.color": COLOURS["ink"],
    "figure.dpi": 72,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def _themed(tag: str) -> str:
    """One SVG tag with roles for colours and no more digits than a screen shows."""
    for role, colour in COLOURS.items():
        tag = tag.replace(colour, f"var(--{role})")
    tag = tag.replace("xlink:href", "href").replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    tag = re.sub(r'transform="rotate\(-?0 [^"]*\)"', "", tag)
    tag = re.sub(r"-?\d+\.\d{2,}", lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), tag)
    return re.sub(r"\s+", " ", tag).replace(' "', '"').replace(" />", "/>").replace(" >", ">")


def _lean(svg: str) -> str:
    """The drawing alone: no prologue, no metadata, no names that nothing refers to."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]*>", lambda match: _themed(match[0]), svg)
    used = set(re.findall(r'(?:url\(#|href="#)([\w.-]+)', svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda match: match[0] if match[1] in used else "", svg)
    svg = re.sub(r">\s+<", "><", svg)
    # A cloud of a thousand dots repeats one style a thousand times: say it once, on the group around them.
    return re.sub(
        r'<g((?: clip-path="[^"]*")?)>((?:<use [^>]*style="([^"]*)"/>)(?:<use [^>]*style="\3"/>)+)</g>',
        lambda match: f'<g{match[1]} style="{match[3]}">' + match[2].replace(f' style="{match[3]}"', "") + "</g>",
        svg,
    )


def picture(figure: Figure) -> str:
    """A figure as inline SVG: equal figures give equal text, whatever the user's matplotlib settings are."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    plain: dict[Any, Any] = {
        name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")
    }
    left, bottom, right, top = figure.margins
    wide, high = figure.width, figure.height
    text = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({**plain, **_SETTINGS, "svg.hashsalt": figure.name}):
        # The browser has glyphs for the names that matplotlib's own font lacks; it only measures them here.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        canvas = Canvas(figsize=(wide / 72, high / 72))
        ax = canvas.add_axes((left / wide, bottom / high, (wide - left - right) / wide, (high - bottom - top) / high))
        figure.draw(ax)
        canvas.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    return _lean(text.getvalue())
