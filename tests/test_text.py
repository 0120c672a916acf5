"""Text as an input, from a file to predictions: planted truth, new words, missing and long texts, mixed tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gradwise as gw
from gradwise.checking.data.data import find_data, from_dataset, measure_data
from gradwise.data.reading.at_hand import texts_as_table
from gradwise.data.reading.read import ReadRequest, read
from gradwise.data.text.words import split_words
from gradwise.runtime.errors import RequestError

GOOD, BAD = ["splendid", "moving", "fresh"], ["tedious", "empty", "stale"]
PLAIN = ["the", "a", "film", "plot", "of", "and", "with", "its", "story", "scene", "actors", "in", "an", "hour"]


def write_texts(rows: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts of common words with one word that decides the class, and the classes."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, 2, rows)
    texts = []
    for one in classes:
        words = random.choice(PLAIN, random.integers(4, 12)).tolist()
        words.insert(int(random.integers(len(words))), str(random.choice(GOOD if one else BAD)))
        texts.append(" ".join(words) + ".")
    return texts, np.array(["bad", "good"])[classes]


TEXTS, CLASSES = write_texts(240, 0)
NEW_TEXTS, NEW_CLASSES = write_texts(60, 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    frame = pd.DataFrame({"review": TEXTS, "verdict": CLASSES})
    frame.to_csv(folder / "reviews.csv", index=False)
    frame.to_parquet(folder / "reviews.parquet")
    lines = (json.dumps({"review": text, "verdict": one}) for text, one in zip(TEXTS, CLASSES, strict=True))
    (folder / "reviews.jsonl").write_text("\n".join(lines) + "\n")
    pd.DataFrame({"review": NEW_TEXTS, "verdict": NEW_CLASSES}).to_csv(folder / "new.csv", index=False)
    return folder


@pytest.mark.parametrize("name", ["reviews.csv", "reviews.jsonl", "reviews.parquet"])
def test_every_format_gives_the_same_rows(files: Path, name: str) -> None:
    dataset = read(files / name, ReadRequest(targets=("verdict",)))
    expected = read(pd.DataFrame({"review": TEXTS}), ReadRequest(), pd.Series(CLASSES, name="verdict"))
    np.testing.assert_array_equal(dataset.inputs, expected.inputs)
    assert dataset.columns == expected.columns
    assert np.array_equal(dataset.targets, expected.targets)


@pytest.mark.parametrize(
    "texts",
    [
        ["good film", None],
        ("good film", float("nan")),
        np.array(["good film", None], object),
        pd.Series(["good film", None], dtype="string", name="said"),
    ],
)
def test_every_list_of_texts_is_a_table_of_one_column(texts: Any) -> None:
    table = texts_as_table(texts)
    assert table.to_pydict() == {"said" if isinstance(texts, pd.Series) else "text": ["good film", None]}


@pytest.mark.parametrize(
    "data", [[1.0, 2.0], np.zeros(3), [np.zeros(2), np.zeros(3)], pd.DataFrame({"a": ["b"]}), "text"]
)
def test_other_data_are_no_texts(data: Any) -> None:
    assert texts_as_table(data) is None


@pytest.fixture(scope="module")
def model() -> Any:
    return gw.fit(TEXTS, CLASSES, seed=0, no_baselines=True, no_examples=True)


def test_the_word_that_decides_is_found_among_those_that_do_not(model: Any) -> None:
    assert model.score(NEW_TEXTS, NEW_CLASSES) > 0.9
    # Among words that are in both classes, and one that nobody has seen, a single word decides.
    assert model.predict(["the zyzzyva scene is splendid", "the zyzzyva scene is tedious"]).tolist() == ["good", "bad"]


def test_unknown_words_and_no_words_are_predicted_and_the_same_whatever_they_are(model: Any) -> None:
    unknown = model.predict_proba(["zyzzyva qwerty", "qwerty zyzzyva", "zyzzyva qwerty zyzzyva qwerty"])
    np.testing.assert_allclose(unknown, unknown[:1].repeat(3, 0), rtol=1e-5)
    none = model.predict_proba(["", None, "   "])
    np.testing.assert_array_equal(none, none[:1].repeat(3, 0))
    assert np.isfinite(none).all()


def test_a_long_text_is_read_up_to_the_places_of_training(model: Any) -> None:
    places = model.predictor.shape[0]
    words = ["the", "splendid", *["plot"] * 1000]
    long, cut = model.predict_proba([" ".join(words), " ".join(words[:places])])
    np.testing.assert_array_equal(long, cut)


def test_rows_are_predicted_alike_alone_together_and_from_files(model: Any, files: Path, tmp_path: Path) -> None:
    together = model.predict_proba(NEW_TEXTS)
    alone = np.concatenate([model.predict_proba([text]) for text in NEW_TEXTS[:3]])
    np.testing.assert_allclose(alone, together[:3], rtol=1e-5)
    np.testing.assert_array_equal(model.predict_proba(pd.DataFrame({"text": NEW_TEXTS})), together)
    again = gw.load(model.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.predict_proba(pd.Series(NEW_TEXTS)), together)
    with pytest.raises(RequestError, match="lacks columns that the model needs: `text`"):
        model.predict(files / "new.csv")
    with pytest.raises(RequestError, match="a model of texts cannot be exported"):
        model.export(tmp_path / "model.py")
    with pytest.raises(RequestError, match="contain 3, which is no text"):
        model.predict(["good", 3])


def _mixed(rows: int, seed: int) -> pd.DataFrame:
    """A number, a category and a text that each add to the target, with gaps, and a second text that says nothing."""
    random = np.random.default_rng(seed)
    texts, classes = write_texts(rows, seed)
    others, _ = write_texts(rows, seed + 100)
    size, kind = random.normal(size=rows), random.choice(["x", "y", "z"], rows)
    target = 2.0 * (classes == "good") + size + (kind == "x") + 0.1 * random.normal(size=rows)
    frame = pd.DataFrame({"size": size, "kind": kind, "review": texts, "notes": others, "price": target})
    frame.loc[::17, "review"] = None
    frame.loc[::13, "size"] = np.nan
    return frame


@pytest.fixture(scope="module")
def mixed() -> Any:
    return gw.fit(_mixed(400, 2), target="price", test=_mixed(150, 3), seed=0, no_examples=True)


@pytest.mark.slow
def test_texts_numbers_and_categories_are_learned_together(mixed: Any) -> None:
    """Without the review, which is half of the variance, R² could not pass 0.6."""
    assert mixed.record.metrics["test"]["r2"] > 0.7
    new = _mixed(50, 4).drop(columns="price")
    np.testing.assert_allclose(mixed.predict(new.iloc[:1]), mixed.predict(new)[:1], rtol=1e-4)
    stranger = new.assign(review="words nobody has seen", notes="", size=np.nan)
    assert np.isfinite(np.asarray(mixed.predict(stranger))).all()


@pytest.mark.slow
def test_the_importance_of_a_text_is_that_of_one_column(mixed: Any) -> None:
    found = {one.column: one.rise for one in mixed.record.evidence.importance.columns}
    assert set(found) == {"size", "kind", "review", "notes"}
    assert found["review"] > 5 * abs(found["notes"])


@pytest.mark.slow
def test_baselines_say_what_they_read_of_a_text(mixed: Any) -> None:
    found = {one.name: one.metrics["r2"] for one in mixed.record.evidence.baselines}
    assert set(found) == {"linear model of word counts", "gradient boosting without the text"}
    assert found["linear model of word counts"] > 0.7 > found["gradient boosting without the text"]


@pytest.mark.slow
def test_the_data_are_described_column_by_column(mixed: Any) -> None:
    read_as = {one.name: one for one in mixed.record.data.columns}
    assert {name: one.kind for name, one in read_as.items()} == {
        "size": "number",
        "kind": "category",
        "review": "text",
        "notes": "text",
    }
    assert read_as["review"].missing == len(range(0, 400, 17))
    assert any(note.startswith("`review`: ") and "are known" in note for note in mixed.record.data.scaling)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"unsupervised": True}, "column `text` is text, which is learned with a target alone"),
        ({}, "no target column"),
    ],
)
def test_texts_without_a_target_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(RequestError, match=what):
        gw.fit(TEXTS, **options)


def test_texts_are_not_pretrained_and_the_target_may_not_be_missing() -> None:
    with pytest.raises(RequestError, match="leave out `pretrain`, or drop the column"):
        gw.fit(TEXTS, CLASSES, pretrain="denoising:16")


def test_a_test_file_is_read_under_the_words_of_training(files: Path) -> None:
    request = ReadRequest(targets=("verdict",), test=str(files / "new.csv"))
    dataset = read(str(files / "reviews.csv"), request)
    assert dataset.test is not None
    words = dataset.columns[0].categories
    assert dataset.test.columns == dataset.columns
    first = [words[int(code)] for code in dataset.test.inputs[0] if not np.isnan(code)]
    assert first == NEW_TEXTS[0].replace(".", " .").split()[: dataset.shape[0]]


def test_checks_of_data_find_copied_texts_and_nothing_in_those_that_are_not() -> None:
    bags = [" ".join(sorted(split_words(text))) for text in TEXTS]  # in another order the same words count as a copy
    kept = sorted({bag: row for row, bag in enumerate(bags)}.values())
    dataset = read([TEXTS[row] for row in kept], ReadRequest(), CLASSES[kept])
    train, valid, test = (dataset.take(np.arange(*ends)) for ends in ((0, 140), (140, 180), (180, len(kept))))
    clean = measure_data(**from_dataset(dataset, (train, valid, test)), key=gw.from_seed(0))
    assert [one.code for one in find_data(clean)] == []
    copied = measure_data(**from_dataset(dataset, (train, valid, dataset.take(np.arange(50)))), key=gw.from_seed(0))
    assert [one.copied for one in copied.overlaps] == [0, 50]
    assert [(one.code, one.level) for one in find_data(copied)] == [("GW201", "error")]
