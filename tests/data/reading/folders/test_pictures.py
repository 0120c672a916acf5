"""Folders of pictures: layouts, sizes, colours, and what is refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gradwise as gw
from gradwise.data.reading.folders import pictures
from gradwise.data.reading.folders.class_folders import load_folder
from gradwise.data.reading.folders.pictures import PICTURES
from gradwise.data.reading.new_rows import read_rows
from gradwise.data.reading.read import ReadRequest, read
from gradwise.runtime import memory
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes

DRAW = np.random.default_rng(0)


def draw(path: Path, shape: tuple[int, ...] = (6, 4), **options: Any) -> np.ndarray:
    """A random picture at this place; returns its pixels."""
    pixels = DRAW.integers(0, 256, shape).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return pixels


def folder(path: Path, each: int = 3, **options: Any) -> dict[str, list[np.ndarray]]:
    return {one: [draw(path / one / f"{k}.png", **options) for k in range(each)] for one in ("cat", "dog")}


def test_sub_folders_are_classes_and_hidden_files_are_ignored(tmp_path: Path) -> None:
    drawn = folder(tmp_path / "pets")
    for litter in (".DS_Store", "cat/.hidden.txt", "cat/Thumbs.db"):
        (tmp_path / "pets" / litter).write_text("litter")
    (tmp_path / "pets" / ".cache").mkdir()
    dataset = gw.read(str(tmp_path / "pets"))
    assert dataset.inputs.dtype == np.uint8
    np.testing.assert_array_equal(dataset.inputs, [*drawn["cat"], *drawn["dog"]])
    assert isinstance(dataset.task, Classes)
    assert dataset.task.labels.tolist() == ["cat", "dog"]
    assert dataset.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert (dataset.name, dataset.task.name, dataset.test, dataset.warnings) == ("pets", "class", None, ())


def test_one_picture_in_colour_gives_all_three_channels(tmp_path: Path) -> None:
    drawn = folder(tmp_path)
    colours = draw(tmp_path / "cat" / "9.bmp", (6, 4, 3))
    dataset = read(str(tmp_path), ReadRequest())
    assert dataset.shape == (6, 4, 3)
    np.testing.assert_array_equal(dataset.inputs[3], colours)
    np.testing.assert_array_equal(dataset.inputs[0], np.repeat(drawn["cat"][0][..., None], 3, axis=2))


@pytest.mark.parametrize("ending", pictures.ENDINGS)
def test_every_format_is_read(tmp_path: Path, ending: str) -> None:
    options = {"lossless": True} if ending == ".webp" else {}
    files = [tmp_path / one / f"{k}{ending.upper()}" for one in ("a", "b") for k in range(3)]
    drawn = np.stack([draw(file, (16, 16), **options) for file in files])
    dataset = read(str(tmp_path), ReadRequest())
    exact = ending not in (".jpg", ".jpeg")
    found = dataset.inputs[..., 0] if ending == ".webp" else dataset.inputs  # which knows no grey
    assert found.shape == drawn.shape
    if exact:
        np.testing.assert_array_equal(found, drawn)


def test_deep_and_turned_pictures(tmp_path: Path) -> None:
    folder(tmp_path)
    deep = DRAW.integers(0, 65536, (6, 4)).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "cat" / "7.png")
    turned = DRAW.integers(0, 256, (4, 6)).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    Image.fromarray(turned).save(tmp_path / "cat" / "8.png", exif=exif)
    dataset = read(str(tmp_path), ReadRequest())
    assert dataset.warnings == ()
    np.testing.assert_array_equal(dataset.inputs[3], deep >> 8)
    np.testing.assert_array_equal(dataset.inputs[4], np.rot90(turned, -1))


def test_other_sizes_become_the_most_frequent_one_with_a_warning(tmp_path: Path) -> None:
    folder(tmp_path)
    draw(tmp_path / "dog" / "big.png", (12, 8))
    dataset = read(str(tmp_path), ReadRequest())
    assert dataset.shape == (6, 4)
    assert len(dataset.warnings) == 1
    for words in ("1 of 7 pictures resized to 6 x 4", "dog/big.png", "12 x 8"):
        assert words in dataset.warnings[0]


def test_train_and_test_folders_are_an_official_split(tmp_path: Path) -> None:
    folder(tmp_path / "train")
    drawn = folder(tmp_path / "test", each=2, shape=(12, 8))
    dataset = read(str(tmp_path), ReadRequest())
    assert (len(dataset), dataset.shape) == (6, (6, 4))
    assert dataset.test is not None
    assert dataset.test.targets.tolist() == [0, 0, 1, 1]
    assert dataset.warnings[0].startswith("test set: 4 of 4 pictures resized")
    given = read(str(tmp_path / "train"), ReadRequest(test=str(tmp_path / "test")))
    assert given.test is not None
    np.testing.assert_array_equal(given.test.inputs, dataset.test.inputs)
    draw(tmp_path / "test" / "bird" / "1.png")
    with pytest.raises(RequestError, match=r"'bird'.*training set does not have"):
        read(str(tmp_path), ReadRequest())
    assert len(drawn) == 2


def test_pictures_without_classes_are_learned_without_a_target(tmp_path: Path) -> None:
    for number in range(6):
        draw(tmp_path / f"{number}.png")
    assert read(str(tmp_path), ReadRequest(unsupervised=True)).task.kind == "inputs"


def test_new_pictures_take_the_shape_of_the_model(tmp_path: Path) -> None:
    drawn = folder(tmp_path / "pets")
    rows = read_rows(tmp_path / "pets" / "cat" / "0.png", (), (6, 4))
    np.testing.assert_array_equal(rows.inputs, drawn["cat"][:1])
    assert rows.remarks == ()
    rows = read_rows(tmp_path / "pets", (), (3, 2, 3))
    assert rows.inputs.shape == (6, 3, 2, 3)
    assert "6 of 6 pictures resized to 3 x 2" in rows.remarks[0]
    assert [Path(path).name for path in rows.paths] == ["0.png", "1.png", "2.png"] * 2
    assert rows.table.column("class").to_pylist() == ["cat"] * 3 + ["dog"] * 3
    with pytest.raises(RequestError, match="the model expects 7"):
        read_rows(tmp_path / "pets", (), (7,))


def _break(path: Path, case: str) -> None:
    folder(path)
    if case == "text":
        (path / "cat" / "notes.txt").write_text("a note")
    elif case == "damaged":
        (path / "cat" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    elif case == "cut":
        (path / "cat" / "1.png").write_bytes((path / "cat" / "1.png").read_bytes()[:60])
    elif case == "deep":
        draw(path / "cat" / "more" / "1.png")
    elif case == "empty class":
        (path / "bird").mkdir()
    elif case == "loose":
        draw(path / "loose.png")
    elif case == "stray":
        (path / "readme.md").write_text("about")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("text", ("cat/notes.txt is not a picture",)),
        ("damaged", ("cat/1.png is not a picture that can be read",)),
        ("cut", ("cat/1.png is not a picture that can be read",)),
        ("deep", ("cat/more is a folder inside the class `cat`",)),
        ("empty class", ("bird has no pictures",)),
        ("loose", ("loose.png is not labelled", "name the classes")),
        ("stray", ("readme.md is not a picture",)),
    ],
)
def test_what_is_no_picture_is_named_in_one_line(tmp_path: Path, case: str, words: tuple[str, ...]) -> None:
    _break(tmp_path / "pets", case)
    with pytest.raises(RequestError) as refusal:
        read(str(tmp_path / "pets"), ReadRequest())
    assert "\n" not in str(refusal.value)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_folders_that_hold_nothing_to_learn_from(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    one = tmp_path / "flat" / "1.png"
    draw(one)
    folder(tmp_path / "both" / "train")
    folder(tmp_path / "both" / "test")
    for path, words in (
        (tmp_path / "none", "is a folder without pictures"),
        (tmp_path / "flat", r"pictures without classes.*--unsupervised"),
        (one, "is one picture"),
        (tmp_path / "absent.png", "no picture"),
    ):
        with pytest.raises(RequestError, match=words):
            read(str(path), ReadRequest())
    with pytest.raises(RequestError, match="give one of them"):
        read_rows(tmp_path / "both", (), (6, 4))


def test_memory_is_checked_before_any_pixel_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path)
    (tmp_path / "cat" / "1.png").write_bytes((tmp_path / "cat" / "1.png").read_bytes()[:-20])  # fails if decoded
    monkeypatch.setattr(memory, "available_bytes", lambda: 600.0)
    with pytest.raises(RequestError, match="6 pictures of 6 x 4"):
        load_folder(tmp_path, PICTURES)
