"""Planted functions of a trial's values, whose best point is known: what a strategy that looks back must find."""

import math
from typing import Any

RATE = "optimiser.optimiser.learning_rate"


def bowl(values: dict[str, Any]) -> float:
    """A bowl with a knob that does nothing."""
    rate, width = math.log10(values[RATE]), math.log2(values["model.widths.each"])
    return (rate + 2.2) ** 2 + 0.2 * (width - 5) ** 2


def branched(values: dict[str, Any]) -> float:
    """Three layers are best, if the third is narrow."""
    third = math.log2(values["model.widths.2"]) - 5 if values["model.widths.count"] == 3 else 3.0
    return (math.log10(values[RATE]) + 3) ** 2 + 0.2 * third**2 + 0.5 * values["model.dropout"]
