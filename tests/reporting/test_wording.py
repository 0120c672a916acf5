"""Numbers and names as a reader sees them."""

import math

import numpy as np
import pytest

from gradwise.reporting import wording

THIN = "\u202f"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (3.14, "3.1 s"), (59.96, "1 min 0 s"), (125, "2 min 5 s"), (4350, "1 h 12 min"), (None, "–")],
)
def test_duration(seconds, text):
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(("examples", "text"), [(0, "0"), (950, "950"), (43_000, "43k"), (1_250_000, "1.25M")])
def test_age(examples, text):
    assert wording.age(examples) == text


def test_clean_removes_what_cannot_be_seen_but_keeps_what_can():
    assert wording.clean("a\x00b\u202ec") == "a\ufffdb\ufffdc"
    assert wording.clean("  two\n\t words ") == "two words"
    assert wording.clean("naïve 漢字 🙂 2\u202f%") == "naïve 漢字 🙂 2\u202f%"
    assert wording.clean(3) == "3"


def test_short_keeps_both_ends():
    assert wording.short("abcdefghij", 10) == "abcdefghij"
    cut = wording.short("beginning of a long name, end", 10)
    assert len(cut) == 10
    assert cut.startswith("beginn")
    assert cut.endswith("end")


def test_short_names_stay_told_apart():
    names = [f"a rather long common beginning, {kind}, and a common end" for kind in ("one", "two", "three")]
    assert wording.short_names(names, 12) == ["…one…", "…two…", "…three…"]
    assert wording.short_names(["cat", "dog"], 12) == ["cat", "dog"]
    assert wording.short_names(["same" * 9, "same" * 9], 12) == [wording.short("same" * 9, 12)] * 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float64(0.001), "0.001"),
        ((256, 256), "256, 256"),
        ((), "none"),
        (True, "yes"),
        ("tanh", "tanh"),
        (None, "–"),
        (np.int64(32), "32"),
    ],
)
def test_setting(value, text):
    assert wording.setting(value) == text


def test_device():
    assert wording.device("cpu: cpu") == "CPU"
    assert wording.device("gpu: NVIDIA H200") == "NVIDIA H200"


def test_what_training_figures_are_worth_is_said_with_the_numbers_at_hand():
    metrics = {"train": {"error_rate": 0.001}, "valid": {"error_rate": 0.02}, "test": {"error_rate": 0.03}}
    said = wording.optimism("error_rate", metrics)
    assert said.startswith(f"Training 0.1{THIN}% is optimistic: ")
    assert said.endswith(f"quote the test, 3.0{THIN}%.")
    metrics["test"] = {"error_rate": math.nan}
    assert f"Validation 2.0{THIN}% was used to choose it, so it is a little" in wording.optimism("error_rate", metrics)
    assert wording.optimism("error_rate", metrics, "train").endswith("rows are the same; nothing was held out.")
    assert wording.optimism("error_rate", {"train": {}, "test": {"error_rate": 0.03}}) == ""
