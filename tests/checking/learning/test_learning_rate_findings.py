"""What the numbers of the rates mean: numbers in, findings out, on both sides of each threshold."""

import dataclasses
import math
from typing import Any

import numpy as np

from gradwise.checking.learning.learning_rate import NoiseScale, RatesMeasured
from gradwise.checking.learning.learning_rate_findings import find_rates
from gradwise.records.finding import Finding


def _codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def _measured(**changed: Any) -> RatesMeasured:
    factors = np.array([0.0, *(3.0**k for k in range(-7, 8))])
    losses = np.tile(2.0 - np.linspace(0, 1, 16)[:, None], (1, 4))
    ratios = np.array([1e-3, math.nan, 2e-3])
    plain = RatesMeasured(
        factors,
        losses,
        (2.0, 1.0),
        1.0,
        0.0,
        math.nan,
        ("w", "b", "v"),
        ratios,
        np.zeros(3, bool),
        False,
        None,
        64,
        False,
    )
    return dataclasses.replace(plain, **changed)


def test_updates_out_of_proportion_name_the_worst_parameter_once() -> None:
    ratios = np.array([0.2, math.nan, 0.9])
    (finding,) = find_rates(_measured(ratios=ratios))
    assert (finding.code, finding.level, finding.where) == ("GW503", "warning", "v")
    assert "1 more" in finding.what
    assert find_rates(_measured(ratios=ratios, stand_in=True)) == ()
    small = np.array([1e-7, math.nan, 1e-3])
    assert _codes(find_rates(_measured(ratios=small))) == ["GW503"]
    assert find_rates(_measured(ratios=small, sparse=np.array([True, False, False]))) == ()
    assert find_rates(_measured(ratios=small, warming=True)) == ()
    assert find_rates(_measured(ratios=np.array([0.0, math.nan, 1e-3]))) == ()  # the schedule has ended
    assert "by about 1000," in find_rates(_measured(ratios=np.array([1e-20, math.nan, 1e-3])))[0].next
    assert find_rates(_measured()) == ()


def test_a_batch_far_from_the_noise_scale_is_noted() -> None:
    (note,) = find_rates(_measured(noise=NoiseScale(4096.0, 2000.0, 8000.0, 64, 16)))
    assert (note.code, note.level) == ("GW504", "note")
    assert "4096" in note.next
    assert _codes(find_rates(_measured(noise=NoiseScale(2.0, 1.0, 4.0, 64, 16)))) == ["GW504"]
    assert find_rates(_measured(noise=NoiseScale(400.0, 200.0, 800.0, 64, 16))) == ()
    assert find_rates(_measured(noise=NoiseScale(math.inf, 900.0, math.inf, 64, 16))) == ()


def test_a_loss_that_is_no_number_at_any_factor_says_nothing_of_rates() -> None:
    assert find_rates(_measured(losses=np.full((16, 4), np.nan))) == ()
    seen = _measured().evidence()
    assert seen.limit == 2.0
    assert len(seen.factors) == len(seen.losses) == 16
