"""Draws what `tables.py --search` measured: the error of a search and of its peers, as multiples of one fit's.

    python benchmarks/search_picture.py          benchmarks/results/tables_search.json -> docs/pictures/search.png

Peers that the run did not have are taken from `tables.py`, on the same splits.
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from table_models import TITLES
from table_summary import geometric_mean, ratios

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "search.png"
MODELS = {"search": ("o", "#1f6f8b", 70), "realmlp": ("s", "#b0b0b0", 34), "lightgbm-search": ("^", "#d98b3a", 40)}
LEAST, MOST = 0.2, 6.0  # multiples beyond are drawn at the border


def main() -> None:
    stored = [json.loads((RESULTS / f"{name}.json").read_text()) for name in ("tables_search", "tables")]
    sets = {result["set"] for result in stored[0]["results"]}
    seeds = {result["seed"] for result in stored[0]["results"]}
    results = [r for one in stored for r in one["results"] if r["set"] in sets and r["seed"] in seeds]
    found = {model: ratios(results, model, "gradwise", "error") for model in MODELS}
    order = sorted(found["search"], key=lambda name: -found["search"][name])
    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    axes.axvline(1.0, color="#404040", linewidth=1)
    for model, (marker, colour, size) in MODELS.items():
        shown = [min(max(found[model][name], LEAST), MOST) for name in order]
        mean = geometric_mean(list(found[model].values()))
        label = f"{TITLES[model]} (geometric mean {mean:.2f})"
        axes.scatter(shown, range(len(order)), marker=marker, color=colour, s=size, label=label, zorder=3)
    axes.set_xscale("log")
    ticks = (0.25, 0.5, 0.75, 1, 1.5, 2, 4)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(order)), [name.removeprefix("reg_").replace("_", " ") for name in order])
    axes.set_xlabel("error on judged rows, as a multiple of one fit's (left is better)")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, 1.17), ncols=1, frameon=False, fontsize=9)
    figure.savefig(PICTURE, dpi=130)
    print(PICTURE)


if __name__ == "__main__":
    main()
