"""The generator of Larochelle's data sets: geometry against brute force, and votes against libsvm's own."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


def _module() -> ModuleType:
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "larochelle.py"
    spec = importlib.util.spec_from_file_location("larochelle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["larochelle"] = module
    spec.loader.exec_module(module)
    return module


larochelle: Any = _module()
SIDE = 28


def _gap_by_pairs(lit: np.ndarray) -> bool:
    """Every pair of lit pixels, every pixel exactly between them."""
    grid = lit.reshape(SIDE, SIDE)
    points = np.argwhere(grid)
    for number, here in enumerate(points):
        apart = points[number + 1 :] - here
        pieces = np.gcd(apart[:, 0], apart[:, 1])
        for step in range(1, int(pieces.max(initial=1))):
            far = pieces > step
            between = here + step * apart[far] // pieces[far, None]
            if not grid[between[:, 0], between[:, 1]].all():
                return True
    return False


def _hull_is_full(lit: np.ndarray) -> bool:
    """Whether all pixels of the convex hull are lit."""
    from scipy.spatial import ConvexHull

    points = np.argwhere(lit.reshape(SIDE, SIDE))
    hull = ConvexHull(points, qhull_options="Qt")
    every = np.argwhere(np.ones((SIDE, SIDE)))
    inside = (every @ hull.equations[:, :2].T + hull.equations[:, 2] <= 1e-9).all(axis=1)
    return bool(inside.sum() == len(points))


@pytest.fixture(scope="module")
def shapes() -> tuple[np.ndarray, np.ndarray]:
    images, classes = larochelle.convex(600, np.random.default_rng(3))
    return images > 0, classes


@pytest.mark.slow
def test_a_gap_is_what_a_search_over_all_pairs_finds(shapes: tuple[np.ndarray, np.ndarray]) -> None:
    random = np.random.default_rng(0)
    lit, _ = shapes
    sparse = random.random((40, SIDE * SIDE)) < random.uniform(0.002, 0.01, (40, 1))  # few pairs have a pixel between
    nearly = lit[:40].copy()
    nearly[np.arange(40), random.integers(0, SIDE * SIDE, 40)] ^= True  # one pixel turned over
    sets = np.concatenate([sparse, nearly])
    expected = np.array([_gap_by_pairs(one) for one in sets])
    assert 10 < expected.sum() < 70  # both answers occur
    assert (larochelle.has_gap(sets) == expected).all()


def test_convex_images_fill_their_hulls_and_the_others_do_not(shapes: tuple[np.ndarray, np.ndarray]) -> None:
    lit, classes = shapes
    counts = lit.sum(axis=1)
    assert counts[classes == 1].min() >= 19
    assert counts.min() >= 10
    thick = [n for n in range(300) if counts[n] > 40]  # a single row of pixels has no hull in the plane
    assert [_hull_is_full(lit[n]) for n in thick] == [bool(classes[n]) for n in thick]


def test_the_published_constants_balance_the_mean_number_of_pixels() -> None:
    images, classes = larochelle.convex(3000, np.random.default_rng(1))
    counts = (images > 0).sum(axis=1)
    here, there = counts[classes == 1], counts[classes == 0]
    error = np.sqrt(here.var() / len(here) + there.var() / len(there))
    assert abs(here.mean() - there.mean()) < 3 * error
    assert abs(classes.mean() - 0.5) < 0.03


def test_rectangles_are_outlines_that_their_class_tells() -> None:
    images, classes = larochelle.rectangles(400, np.random.default_rng(0))
    for image, tall in zip(images > 0, classes, strict=True):
        rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert abs(height - width) >= 3
        assert bool(tall) == (height > width)
        full = np.zeros_like(image)
        full[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = True
        full[rows[0] + 1 : rows[-1], columns[0] + 1 : columns[-1]] = False
        assert (image == full).all()
    assert 0.4 < classes.mean() < 0.6


def test_a_quarter_turn_is_exact_and_any_other_is_bilinear() -> None:
    from scipy.ndimage import rotate

    random = np.random.default_rng(0)
    images = random.integers(0, 256, (3, SIDE, SIDE), dtype=np.uint8)
    exact = larochelle.turned(images, np.array([0.0, np.pi / 2, np.pi]))
    assert (exact[0] == images[0]).all()
    # Rounding of the coordinates lets border pixels fall out of the image: those within count.
    assert (exact[1] == np.rot90(images[1]))[1:-1, 1:-1].all()
    assert (exact[2] == np.rot90(images[2], 2))[1:-1, 1:-1].all()
    turned = larochelle.turned(images, np.full(3, np.deg2rad(37.0)))
    other = rotate(images.astype(np.float64), 37.0, axes=(1, 2), reshape=False, order=1)
    assert np.abs(turned - other).max() <= 0.51


def test_patches_come_from_the_images_and_are_not_flat() -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (2, 40, 40), dtype=np.uint8)
    images[1] = 7
    drawn = larochelle.patches(images, 50, random, flat=10.0)
    assert drawn.shape == (50, SIDE, SIDE)
    windows = np.lib.stride_tricks.sliding_window_view(images[0], (SIDE, SIDE)).reshape(-1, SIDE * SIDE)
    assert {one.tobytes() for one in drawn} <= {one.tobytes() for one in windows}


def test_rectangles_keep_their_two_patches_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    shades = iter((200, 100))
    monkeypatch.setattr(
        larochelle, "patches", lambda _, count, __: np.full((count, SIDE, SIDE), next(shades), np.uint8)
    )
    images, classes = larochelle.rectangles_image(300, random, np.zeros((1, 40, 40), np.uint8))
    for image, tall in zip(images == 200, classes, strict=True):
        height, width = image.any(axis=1).sum(), image.any(axis=0).sum()
        assert image.sum() == height * width
        assert min(height, width) >= 10
        assert abs(height - width) >= 5
        assert 0.25 <= height * width / SIDE**2 <= 0.75
        assert bool(tall) == (height > width)


@pytest.mark.parametrize("classes", [2, 5])
def test_votes_by_matrix_products_are_those_of_libsvm(classes: int) -> None:
    from sklearn.svm import SVC

    random = np.random.default_rng(classes)
    rows = random.integers(0, 256, (400, 6)).astype(np.uint8)
    targets = (rows[:, 0].astype(int) + rows[:, 1] + random.integers(0, 120, 400)) * classes // 631
    unit = rows[:200] / 255.0
    theirs = SVC(C=5.0, gamma=2.0).fit(unit, targets[:200])
    ours = SVC(C=5.0, kernel="precomputed").fit(larochelle.gaussian(unit, unit, 2.0), targets[:200])
    found = larochelle.predicted(ours, unit[ours.support_], 2.0, rows[200:])
    assert len(theirs.classes_) == classes
    assert (found == theirs.predict(rows[200:] / 255.0)).all()


def test_a_seed_gives_a_set_and_its_parts(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(larochelle, "sizes", lambda name: (60, 20, 100))
    for name in ("rot-back-image", "back-rand"):
        made, again, other = (larochelle.make(name, seed) for seed in (1, 1, 2))
        assert {field: array.shape for field, array in made.items() if field.endswith("_x")} == {
            "train_x": (60, 784), "valid_x": (20, 784), "test_x": (100, 784),
        }  # fmt: skip
        assert all((made[field] == again[field]).all() for field in made)
        assert (made["test_x"] != other["test_x"]).any()
        assert made["train_x"].dtype == np.uint8
    # A digit is never darker than without its background.
    random = np.random.default_rng([1, larochelle.SETS.index("back-rand")])
    digits, labels = larochelle._digits(180, random)
    assert (larochelle.make("back-rand", 1)["train_x"] >= digits[:60].reshape(60, -1)).all()
    assert (larochelle.make("back-rand", 1)["train_y"] == labels[:60]).all()
