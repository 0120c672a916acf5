"""Draws what `tables.py --search` measured: the error of a search and of its peers, as multiples of one fit's.

    python benchmarks/search_picture.py          benchmarks/results/tables_search.json -> docs/pictures/search.png
                                                 benchmarks/results/anytime.json -> docs/pictures/anytime.png

Peers that the run did not have are taken from other runs, on the same splits, as in the tables.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from table_models import TITLES
from table_summary import Result, anytime_curves, geometric_mean, names, ratios
from write_tables import with_peers

RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
MODELS = {
    "search": ("o", "#1f6f8b", 70),
    "realmlp": ("s", "#b0b0b0", 34),
    "realmlp-5": ("s", "#b0b0b0", 34),
    "lightgbm-search": ("^", "#d98b3a", 40),
    "autogluon": ("D", "#7a5ca8", 30),
    "gradwise": ("P", "#404040", 60),
}
LEAST, MOST = 0.2, 6.0  # multiples beyond are drawn at the border


def draw_search(results: list[Result]) -> plt.Figure:
    """One line a table, one mark a model."""
    found = {model: ratios(results, model, "gradwise", "error") for model in MODELS if model in names(results, "model")}
    del found["gradwise"]  # it is the line at 1
    order = sorted(found["search"], key=lambda name: -found["search"][name])
    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    axes.axvline(1.0, color="#404040", linewidth=1)
    for model, values in found.items():
        marker, colour, size = MODELS[model]
        shown = [min(max(values[name], LEAST), MOST) for name in order if name in values]
        places = [place for place, name in enumerate(order) if name in values]
        label = f"{TITLES[model]} (geometric mean {geometric_mean(list(values.values())):.2f})"
        axes.scatter(shown, places, marker=marker, color=colour, s=size, label=label, zorder=3)
    axes.set_xscale("log")
    _ticks(axes.set_xticks, (0.25, 0.5, 0.75, 1, 1.5, 2, 4))
    axes.minorticks_off()
    axes.set_yticks(range(len(order)), [name.removeprefix("reg_").replace("_", " ") for name in order])
    axes.set_xlabel("test error as a multiple of one fit's (left is better)")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=1, frameon=False, fontsize=9)
    return figure


def draw_anytime(results: list[Result]) -> plt.Figure:
    """A line for each model that is given its seconds, a point for each that takes what it takes."""
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    axes.axhline(1.0, color="#404040", linewidth=1)
    times: set[float] = set()
    for model, points in anytime_curves(results).items():
        marker, colour, size = MODELS[model]
        seconds, means = [time for time, _ in points], [geometric_mean(values) for _, values in points]
        axes.plot(seconds, means, marker=marker, color=colour, markersize=size**0.5, label=TITLES[model], zorder=3)
        times |= set(seconds) if len(points) > 1 else set()
    axes.set_xscale("log")
    axes.minorticks_off()
    _ticks(axes.set_xticks, sorted(times))
    axes.set_xlabel("seconds")
    axes.set_ylabel("test error as a multiple of one fit's\n(geometric mean)")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure


def _ticks(put: Any, ticks: Any) -> None:
    put(ticks, [f"{tick:g}" for tick in ticks])


def main() -> None:
    for name, source, draw in (("search", "tables_search", draw_search), ("anytime", "anytime", draw_anytime)):
        path = RESULTS / f"{source}.json"
        if path.is_file():
            stored = json.loads(path.read_text())
            draw(with_peers(stored) if name == "search" else stored["results"]).savefig(
                PICTURES / f"{name}.png", dpi=130
            )
            print(PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
