"""What first layers learn without labels: filters of four learners, on digits and on photographs (rows A2, A5, A6).

    python benchmarks/filters_picture.py train --arrays filters.npz [--units 200 --epochs 40 --rows 40000]
    python benchmarks/filters_picture.py draw --arrays filters.npz --picture docs/pictures/filters.png

Two rows, digits above and patches below; a plain auto-encoder, the same with noise on its inputs, a contractive one and
a Boltzmann machine. A tile is what a unit listens to: its row of the weights, grey being 0 and each tile at its own
full contrast. The first hundred units of each are shown, not the fairest. The digits are MNIST's, in [0, 1]:
cross-entropy and binary units. Patches, 12 by 12 pixels, have their mean taken out and are whitened without being
turned (ZCA), so that they and the filters remain pictures: squared error and Gaussian units. Data are read from
`$GRADWISE_DATA`.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

PATCH = 12
SHOWN = 10  # tiles along and across
KEPT = 0.9  # of the variance of the patches; whitening would blow up the rest, which is noise of the camera
TITLES = {
    "plain": "plain auto-encoder",
    "denoising": "denoising auto-encoder",
    "contractive": "contractive (sparse too, below)",
    "rbm": "Boltzmann machine",
}
ROWS = {"digits": "MNIST digits", "patches": "natural images"}


def settings(units: int, epochs: float) -> dict[tuple[str, str], dict[str, Any]]:
    """Hidden units, epochs and the learner's own parts for each panel."""
    from gradwise.criteria.code_sparsity import KlToTarget
    from gradwise.criteria.contraction import Contraction
    from gradwise.criteria.contrastive_divergence import ContrastiveDivergence, PersistentDivergence
    from gradwise.criteria.corruption import GaussianNoise, Masking
    from gradwise.criteria.reconstruction import CrossEntropy, Reconstruction, SquaredError
    from gradwise.models.activations import Rectifier
    from gradwise.models.auto_encoder import MlpAutoEncoder
    from gradwise.models.gaussian_visible import GaussianVisible
    from gradwise.models.initial_weights import GaussianWeights as Normal
    from gradwise.models.restricted_boltzmann import Rbm
    from gradwise.optimisers.adaptive.adam import Adam
    from gradwise.optimisers.first_order.sgd import HeavyBall

    def panel(model: Any, criterion: Any, rate: float, contrast: float = 1.0) -> dict[str, Any]:
        optimiser = Adam(rate) if rate else None
        return {"model": model, "criterion": criterion, "optimiser": optimiser, "epochs": epochs, "contrast": contrast}

    # Small at the start: what training does not move is then not seen, where the usual range would leave its noise.
    sigmoid = MlpAutoEncoder(widths=(units,), initial=Normal(0.02))
    rectifier = MlpAutoEncoder(widths=(units,), initial=Normal(0.05), activation=Rectifier())
    noisy, rough = Masking(0.5), GaussianNoise(1.0)
    # Whitened patches have no direction of more variance: only a code of which few units speak finds edges. Rectifiers
    # fall silent by themselves under noise; sigmoid units are made to, by a target for their means.
    quiet = (Contraction(1.0), KlToTarget(30.0))
    machine = Rbm(units=units, visible=GaussianVisible())
    return {
        ("digits", "plain"): panel(sigmoid, Reconstruction(CrossEntropy()), 2e-3),
        ("digits", "denoising"): panel(sigmoid, Reconstruction(CrossEntropy(), corruption=noisy), 2e-3),
        ("digits", "contractive"): panel(sigmoid, Reconstruction(CrossEntropy(), on_codes=(Contraction(0.5),)), 2e-3),
        ("digits", "rbm"): panel(Rbm(units=units), PersistentDivergence(), 1e-3),
        ("patches", "plain"): panel(rectifier, Reconstruction(SquaredError()), 2e-3),
        ("patches", "denoising"): panel(rectifier, Reconstruction(SquaredError(), corruption=rough), 2e-3),
        ("patches", "contractive"): panel(sigmoid, Reconstruction(SquaredError(), on_codes=quiet), 5e-3, 2.0),
        # Whitened to deviation 1 the patches would be what the machine says without any hidden unit.
        ("patches", "rbm"): panel(machine, ContrastiveDivergence(), 0.0, 1.5) | {"optimiser": HeavyBall(0.02, 0.9)},
    }


def _digits(rows: int) -> np.ndarray:
    from gradwise.data.reading import named_sets

    images = np.asarray(named_sets.load_named("mnist").arrays["X"])
    return images[:rows].reshape(-1, 28 * 28) / np.float32(255)


def _patches(count: int) -> np.ndarray:
    """Patches at random places, without their means, every kept direction at deviation 1."""
    random = np.random.default_rng(0)
    folder = os.environ.get("GRADWISE_DATA")
    if not folder:
        raise SystemExit("GRADWISE_DATA does not name the folder of data sets")
    with np.load(Path(folder) / "natural_images_bsd" / "train400_180x180.npz", allow_pickle=False) as archive:
        images = archive[archive.files[0]]
    windows = np.lib.stride_tricks.sliding_window_view(images, (PATCH, PATCH), axis=(1, 2))
    drawn = windows[tuple(random.integers(0, high, count) for high in windows.shape[:3])]
    rows = np.log1p(drawn.reshape(count, -1).astype(np.float64))  # light is seen by its ratios
    rows -= rows.mean(axis=1, keepdims=True)
    values, axes = np.linalg.eigh(np.cov(rows.T))
    values, axes = values[::-1], axes[:, ::-1]
    number = int(np.searchsorted(np.cumsum(values) / values.sum(), KEPT)) + 1
    axes = axes[:, :number]
    whitened = (rows - rows.mean(axis=0)) @ (axes / np.sqrt(values[:number])) @ axes.T
    return whitened.astype(np.float32)


def train(target: Path, units: int, epochs: float, rows: int, only: list[str]) -> None:
    """Trains every panel through `fit` and keeps its filters."""
    import jax

    import gradwise
    from gradwise.data.batches import Reshuffled
    from gradwise.data.scaling import NoScaling
    from gradwise.data.splits import HoldOut
    from gradwise.specs.dataset import Dataset, Inputs
    from gradwise.specs.recipe import Recipe
    from gradwise.training.stopping import Off

    sets = {"patches": _patches(rows), "digits": _digits(rows)}
    filters: dict[str, Any] = {}
    for (data, kind), panel in settings(units, epochs).items():
        if only and f"{data}_{kind}" not in only:
            continue
        inputs = sets[data] * np.float32(panel["contrast"])
        recipe = Recipe(
            split=HoldOut(valid=0.05, test=0.0),
            scaler=NoScaling(),
            batches=Reshuffled(100),
            model=panel["model"],
            criterion=panel["criterion"],
            optimiser=panel["optimiser"],
            stopping=Off(epochs=panel["epochs"]),
        )
        started = time.perf_counter()
        dataset = Dataset(inputs, np.zeros((len(inputs), 0)), Inputs())
        record = gradwise.train(recipe, dataset, key=jax.random.key(0))
        filters[f"{data}_{kind}"] = np.asarray(record.predictor.network.hidden_layers[0].weight)
        told = ", ".join(f"{name} {value:.2f}" for name, value in record.metrics["valid"].items())
        print(f"{data:8} {kind:12} {time.perf_counter() - started:6.1f} s   {told}", flush=True)
    np.savez_compressed(target, **filters)


def mosaic(filters: np.ndarray) -> np.ndarray:
    """The first filters as tiles of one image in [-1, 1], with a seam of not-a-number between."""
    side = round(filters.shape[1] ** 0.5)
    out = np.full((SHOWN * (side + 1) - 1,) * 2, np.nan)
    for number, tile in enumerate(filters[: SHOWN * SHOWN]):
        row, column = (place * (side + 1) for place in divmod(number, SHOWN))
        out[row : row + side, column : column + side] = (tile / np.abs(tile).max()).reshape(side, side)
    return out


def draw(source: Path, target: Path) -> None:
    """One picture of all panels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with np.load(source, allow_pickle=False) as archive:
        filters = {name: archive[name] for name in archive.files}
    figure, axes = plt.subplots(2, 4, figsize=(14.0, 7.3), layout="constrained")
    for row, (data, about) in zip(axes, ROWS.items(), strict=True):
        for ax, (kind, title) in zip(row, TITLES.items(), strict=True):
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            if f"{data}_{kind}" in filters:
                shades = plt.get_cmap("gray").with_extremes(bad="white")
                ax.imshow(mosaic(filters[f"{data}_{kind}"]), cmap=shades, vmin=-1, vmax=1, interpolation="nearest")
            if data == "digits":
                ax.set_title(title, fontsize=11)
            if kind == "plain":
                ax.set_ylabel(about, fontsize=11)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="learn the filters and keep them as arrays")
    training.add_argument("--units", type=int, default=400)
    training.add_argument("--epochs", type=float, default=100.0)
    training.add_argument("--rows", type=int, default=60_000, help="digits, and patches")
    training.add_argument("--only", nargs="+", default=[], help="some panels, such as patches_rbm")
    drawing = commands.add_parser("draw", help="draw what was kept")
    drawing.add_argument("--picture", type=Path, default=Path("docs/pictures/filters.png"))
    for command in (training, drawing):
        command.add_argument("--arrays", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "train":
        train(given.arrays, given.units, given.epochs, given.rows, given.only)
    else:
        draw(given.arrays, given.picture)


if __name__ == "__main__":
    main()
