"""The section of the examples: what it shows, and in which order."""

import numpy as np

from gradwise.records.evidence.example_record import ExampleRecord
from gradwise.reporting.blocks import Figure, Table
from gradwise.reporting.captioned_figures.example_figures import example_figures


def record(numbers: bool = False) -> ExampleRecord:
    """Forty training examples, the loss of which grows with the row, and ten validation examples."""
    place = np.arange(50)
    training = place < 40
    unknown = np.full(50, np.nan, np.float32)
    return ExampleRecord(
        {
            "set": np.where(training, "training", "validation"),
            "row": place + 100,
            "target": np.full(50, 2.5) if numbers else np.full(50, "cat"),
            "predicted": np.full(50, 2.0) if numbers else np.full(50, "dog"),
            "seen": np.full(50, 3),
            "first_loss": np.linspace(2, 3, 50),
            "mean_loss": np.linspace(0.01, 2, 50),
            "last_loss": np.linspace(0.0, 1, 50),
            "deviation": np.linspace(0.5, 0.1, 50),
            "learned_at": unknown if numbers else np.where(training & (place < 35), 1.0, np.nan),
            "forgotten": unknown if numbers else np.where(training, place % 4, np.nan),
            "confidence": unknown if numbers else np.where(training, 1 - place / 20, np.nan),
            "suspect": np.zeros(50, bool) if numbers else (place >= 38) & training,
        }
    )


def tables(found: list[object]) -> dict[str, list[str]]:
    return {one.caption: [str(row[0]) for row in one.rows] for one in found if isinstance(one, Table)}


def test_suspects_come_first_then_the_examples_to_look_at() -> None:
    figure, *rest = example_figures(record())
    assert isinstance(figure, Figure)
    assert list(figure.table.header) == ["mean loss", "learned", "forgotten", "never learned"]
    sums = [sum(int(row[k]) for row in figure.table.rows) for k in (1, 2, 3)]
    assert sums == [9, 30, 5]  # some were forgotten and never learned again
    found = tables(rest)
    assert next(iter(found)) == "Suspected label errors, the most certain first"
    assert found["Suspected label errors, the most certain first"] == ["139", "138"]
    assert found["The hardest training examples"][:3] == ["139", "138", "137"]
    assert found["The easiest training examples"][:2] == ["100", "101"]
    assert found["The training examples whose loss changed most"][0] == "100"
    assert found["The training examples forgotten most often"][:2] == ["103", "107"]
    assert found["The hardest validation examples"][0] == "149"


def test_numbers_have_losses_of_both_sets_and_nothing_of_right_and_wrong() -> None:
    figure, *rest = example_figures(record(numbers=True))
    assert isinstance(figure, Figure)
    assert list(figure.table.header) == ["mean loss", "training", "validation"]
    assert not [name for name in tables(rest) if "forgotten" in name or "Suspected" in name]


def test_without_a_record_there_is_nothing() -> None:
    assert list(example_figures(None)) == []
