"""What a study concludes is written as JSON and comes back equal."""

import json
import math

import pytest

from gradwise.records.evidence.fit_evidence import CrossValidationEstimate
from gradwise.records.plain_values import from_values, to_values
from gradwise.records.study_conclusions import (
    CommitteeSummary,
    CorrectedScore,
    Estimates,
    Finalist,
    WeightedEstimate,
    Winner,
)

COMMITTEE = CommitteeSummary(
    "seeds", 3, (7, 8), 2, 5, (Finalist(3, {"model.widths": "8×8"}, (0.1,), 0.1, math.nan),), member_tests=(0.1, 0.2)
)


@pytest.mark.parametrize(
    "record",
    [
        Winner(3, 0.1, {"model.dropout": 0.5, "model.activation": "Tanh()"}, CorrectedScore(0.12, 0.02, (0.1, 0.2))),
        Winner(3, 0.1),
        COMMITTEE,
        CommitteeSummary("ensemble", 1, (1,), 5, 1, weights={1: 1.0}, honest=0.2, best_trial=0.3, last_gain=(0.1, 0.2)),
        Estimates(),
        Estimates(
            {"test": {"error_rate": 0.1}},
            0.1,
            (0.0, 0.2),
            WeightedEstimate(0.1, 0.01, (0.5, 0.5)),
            CrossValidationEstimate("error_rate", (0.1, 0.3), 0.2, (0.0, 0.5)),
        ),
    ],
)
def test_conclusions_come_back_equal(record: object) -> None:
    plain = json.loads(json.dumps(to_values(record), allow_nan=False))
    assert from_values(type(record), plain) == record


def test_the_mean_member_is_that_of_the_members() -> None:
    assert COMMITTEE.mean_member_test == pytest.approx(0.15)
    assert math.isnan(CommitteeSummary("none", 0, (), 1, 1).mean_member_test)
