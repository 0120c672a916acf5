"""Text as an input, from a file to predictions: planted truth, new words, missing and long texts, mixed tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gradwise as gw
from gradwise.data.reading.read import ReadRequest, read
from gradwise.runtime.errors import RequestError

GOOD, BAD = ["splendid", "moving", "fresh"], ["tedious", "empty", "stale"]
PLAIN = "the a film plot of and with its story scene actors in an hour".split()


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
FAST: dict[str, Any] = {"seed": 0, "no_baselines": True, "changes": {"stopping.epochs": 12.0, "model.widths": (16,)}}


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
