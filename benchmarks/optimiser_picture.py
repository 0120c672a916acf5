"""Draws what `optimisers.py` measured: for each problem the loss against age, in passes, and against time."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

FAMILIES = {
    "first order": ("SGD", "SGD, 1/t", "averaged SGD", "heavy ball", "Nesterov", "SAG", "dual averaging"),
    "rates that set themselves": (
        "re-estimated rate", "global rate", "rates by layer", "rates by neuron", "held ratio",
        "eigenvalue's rate", "SGD-QN",
    ),
    "diagonal": (
        "Adagrad", "RMSprop", "Adam", "Adam, averaged", "diagonal Newton", "vSGD-l", "vSGD-b", "vSGD-g", "vSGD-fd",
    ),
    "curvature": ("diagonal natural", "TONGA", "Kronecker"),
    "batch": ("conjugate gradient", "L-BFGS", "Hessian-free"),
}  # fmt: skip
COLOURS = dict(zip(FAMILIES, ("#4269d0", "#efb118", "#3ca951", "#a463f2", "#ff725c"), strict=True))
ORDER = ("logistic_adult", "logistic_web", "logistic_spam", "mnist", "autoencoder")
STRONG = {"SGD", "SAG", "Adam", "vSGD-l", "Kronecker", "L-BFGS", "Hessian-free", "re-estimated rate", "TONGA"}


def _height(result: dict[str, Any], run: dict[str, Any]) -> np.ndarray:
    """What is drawn: the gap to the optimum where it is known, the squared error of an auto-encoder, else the loss."""
    curve = run["curve"]
    if result["optimum"] is not None:
        return np.maximum(np.minimum.accumulate(curve["loss"]) - result["optimum"], 1e-9)
    return np.minimum.accumulate(np.asarray(curve["valid" if result["problem"] == "autoencoder" else "loss"]))


def _label(result: dict[str, Any]) -> str:
    if result["optimum"] is not None:
        return "criterion above its optimum"
    return "training squared error of a digit" if result["problem"] == "autoencoder" else "training loss"


def draw(folder: Path, target: Path | None = None) -> Path:
    """One row of two panels a problem; lines by family, the best known of each named at its end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    places = [folder / f"optimisers_{name}.json" for name in ORDER]
    results = [json.loads(place.read_text()) for place in places if place.exists()]
    figure, axes = plt.subplots(len(results), 2, figsize=(11, 4.2 * len(results)), squeeze=False)
    family = {name: kind for kind, names in FAMILIES.items() for name in names}
    for row, result in zip(axes, results, strict=True):
        for run in result["runs"]:
            if "curve" not in run or len(run["curve"]["loss"]) < 2:
                continue
            name, heights = run["optimiser"], _height(result, run)
            colour = COLOURS[family.get(name, "first order")]
            strong = name in STRONG
            style = {"color": colour, "lw": 1.8 if strong else 0.8, "alpha": 1.0 if strong else 0.45}
            for ax, across in zip(
                row, (np.asarray(run["curve"]["age"]) / result["examples"], run["curve"]["seconds"]), strict=True
            ):
                ax.plot(across[1:], heights[1:], **style)
                if strong and math.isfinite(heights[-1]):
                    ax.annotate(f" {name}", (across[-1], heights[-1]), color=colour, fontsize=7, va="center")
        for ax, words in zip(row, ("passes through the training set", "seconds"), strict=True):
            ax.set(xscale="log", yscale="log", xlabel=words)
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(alpha=0.15)
        row[0].set(ylabel=_label(result), title=result["about"])
        row[0].title.set(fontsize=9, position=(0, 1), ha="left")
        if result["reference"]:
            row[1].axhline(result["reference"], color="grey", lw=0.8, ls=":")
    handles = [plt.Line2D([], [], color=colour, label=kind) for kind, colour in COLOURS.items()]
    figure.legend(handles=handles, ncol=5, loc="upper center", frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / len(results) / 4))
    place = target or Path(__file__).parent.parent / "docs" / "pictures" / "optimisers.png"
    figure.savefig(place, dpi=110)
    print(f"drawn: {place}")
    return place
