"""Suspect labels and the finding, from accounts made by hand."""

import dataclasses

import numpy as np
import pytest

from gradwise import defaults
from gradwise.data.batches import Stream
from gradwise.evaluation.example_evidence import (
    MOST,
    PredictedPart,
    contradicted,
    find_in_examples,
    gather_examples,
    ranked,
    suspects,
    why_not_kept,
)
from gradwise.records.evidence.example_record import ExampleRecord
from gradwise.specs.dataset import Classes, Inputs, Labels, Numbers
from gradwise.tracing.example_accounts import Account, Accounts

TASK = Classes(np.array(["cat", "dog"], dtype=object))


def made(wrong: int, total: int = 200, task: Classes | Numbers = TASK) -> ExampleRecord:
    """Accounts of 200 learned examples, the first `wrong` of them contradicted, and of 50 held-out ones."""
    random = np.random.default_rng(0)
    accounts = Accounts.begin(total, 52)  # two slots are empty
    confidence = np.tanh(random.normal(1.5, 0.3, total))
    confidence[:wrong] = np.linspace(-0.9, -0.5, wrong)
    training = np.zeros((total, len(Account._fields)), np.float32)
    training[:, 0] = 9
    training[:, Account._fields.index("margin")] = confidence
    held_out = np.full(52, 0.1)
    held_out[7], held_out[51] = 5.0, 99.0
    accounts = accounts._replace(training=training, confidence=confidence, held_out_loss=held_out)
    classes = isinstance(task, Classes)
    shape = (total,) if classes else (total, 1)
    parts = [
        PredictedPart(
            np.arange(size) + start,
            np.zeros((size, *shape[1:]), int),
            np.tile([0.2, 0.8][: 2 if classes else 1], (size, 1)),
        )
        for size, start in ((total, 1000), (50, 5000))
    ]
    return gather_examples(task, accounts, *parts)


def test_contradicted_labels_are_suspect_and_named_worst_first() -> None:
    record = made(12)
    assert suspects(record).tolist() == [*range(12), 200 + 7]
    (finding,) = find_in_examples(record)
    assert (finding.code, finding.level, finding.row) == ("GW215", "note", "F6")
    assert "12 of 200 labels" in finding.what
    assert "rows 1000, 1001, 1002" in finding.what
    assert finding.evidence["rows"] == [*range(1000, 1012), 5007]
    assert set(record.columns["target"]) == {"cat"}
    assert set(record.columns["predicted"]) == {"dog"}


def test_few_are_listed_but_not_reported() -> None:
    record = made(3)
    assert int(record.columns["suspect"].sum()) == 4
    assert find_in_examples(record) == ()
    assert find_in_examples(None) == ()


def test_overlapping_classes_and_numbers_have_no_suspects() -> None:
    random = np.random.default_rng(1)
    assert contradicted(np.tanh(random.normal(0.3, 0.5, 4000))).mean() < 0.02  # what a run reports from on
    assert not contradicted(np.full(5, np.nan)).any()
    record = made(12, task=Numbers())
    assert not record.columns["suspect"].any()


def test_examples_without_a_target_are_left_out() -> None:
    accounts = Accounts.begin(4, 1)
    part = PredictedPart(np.arange(4), np.array([0, -1, 1, 1]), np.full((4, 2), 0.5))
    record = gather_examples(TASK, accounts, part, None)
    assert record.columns["row"].tolist() == [0, 2, 3]
    assert np.isnan(record.columns["forgotten"]).all()  # never visited


def test_several_targets_have_a_column_each() -> None:
    part = PredictedPart(np.arange(2), np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.9, 0.8], [0.1, 0.2]]))
    columns = gather_examples(Labels(("a", "b")), Accounts.begin(2, 1), part, None).columns
    assert [columns[name].tolist() for name in ("target_a", "target_b", "predicted_a", "predicted_b")] == [
        [1, 0],
        [0, 1],
        [1, 0],
        [1, 0],
    ]


def test_ranks_leave_out_what_is_not_known() -> None:
    record = made(0)
    values = np.full(250, np.nan)
    values[[3, 5, 220]] = 1.0, 2.0, 9.0
    assert ranked(record, "training", values, 5).tolist() == [5, 3]
    assert ranked(record, "validation", values, 5).tolist() == [220]


@pytest.mark.parametrize(
    ("stream", "task", "count", "said"),
    [
        (True, TASK, 10, "stream"),
        (False, TASK, MOST + 1, "more than"),
        (False, Inputs(), 9, "target"),
        (False, TASK, 9, ""),
    ],
)
def test_why_accounts_are_not_kept(stream: bool, task: Classes | Inputs, count: int, said: str) -> None:
    recipe = defaults.classification()
    recipe = dataclasses.replace(recipe, batches=Stream(8)) if stream else recipe
    why = why_not_kept(recipe, task, count, 5)
    assert said in why
    assert bool(why) == bool(said)
