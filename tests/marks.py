"""Marks that several tests share."""

from collections.abc import Iterable
from typing import Any

import pytest


def parametrize_one_quick(names: str | tuple[str, ...], values: Iterable[Any], **options: Any) -> pytest.MarkDecorator:
    """`pytest.mark.parametrize` with the first value in the quick suite and the others, which prove more of the same,
    in the slow one."""
    several = not isinstance(names, str) or "," in names
    first, *others = values
    marked = [pytest.param(*(v if several else (v,)), marks=pytest.mark.slow) for v in others]
    return pytest.mark.parametrize(names, [first, *marked], **options)
