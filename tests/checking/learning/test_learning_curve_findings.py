"""What errors against the number of examples mean: bent curves are noticed, gradual ones raise nothing."""

import numpy as np

from gradwise.checking.learning.learning_curve import ErrorsBySize, errors_by_size
from gradwise.checking.learning.learning_curve_findings import find_growth

COUNTS = (100, 200, 400, 800, 1600, 3200)


def _valid(count: int) -> float:
    return 0.05 + 3.0 * count**-0.6


def _curves(train: list[float], valid: list[float], metric: str = "error_rate") -> ErrorsBySize:
    columns = (np.array(errors, float)[:, None] for errors in (train, valid))
    return errors_by_size(COUNTS, *columns, metric=metric, valid_count=1000)


def _codes(growth: ErrorsBySize | None) -> list[str]:
    return [finding.code for finding in find_growth(growth)]


def test_gradual_curves_raise_nothing() -> None:
    falls = [_valid(count) for count in COUNTS]
    assert _codes(_curves([0, 0, 0.005, 0.01, 0.03, 0.05], falls)) == []
    assert _codes(_curves([0, 0, 0, 0, 0, 0], [0.01] * 6)) == []  # so easy that a few examples are enough
    assert find_growth(None) == ()


def test_training_error_that_falls_or_jumps_is_noticed() -> None:
    falls = [_valid(count) for count in COUNTS]
    falling = find_growth(_curves([0.4, 0.3, 0.2, 0.1, 0.05, 0.02], falls))
    assert [(one.code, one.level) for one in falling] == [("GW402", "warning")]
    assert "from 0.4 with 100 to 0.02 with 3200" in falling[0].what
    jump = find_growth(_curves([0, 0, 0.01, 0.02, 0.25, 0.27], falls))
    assert [one.code for one in jump] == ["GW402"]
    assert "0.02 with 800 examples to 0.25 with 1600" in jump[0].what


def test_validation_error_that_stays_is_noticed_beyond_its_noise() -> None:
    assert _codes(_curves([0, 0, 0, 0.1, 0.2, 0.3], [0.9, 0.905, 0.89, 0.9, 0.91, 0.9])) == ["GW403"]
    assert _codes(_curves([0, 0, 0, 0.1, 0.2, 0.3], [0.9, 0.89, 0.88, 0.87, 0.86, 0.85])) == []
