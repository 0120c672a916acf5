"""Functions that exported programs need and NumPy lacks. `model.py` holds their source, so they use NumPy alone."""

import math
from typing import Any

import numpy as np

_ERF = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Any) -> Any:
    """The error function."""
    return _ERF(x).astype(x.dtype) if x.size else x


def convolve(
    x: Any,
    kernel: Any,
    *,
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Any:
    """The convolution of x (n, channels, *size) with a kernel (outputs, channels / groups, *window)."""
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    reach = [step * (length - 1) + 1 for step, length in zip(dilation, kernel.shape[2:], strict=True)]
    axes = tuple(range(2, x.ndim))
    windows: Any = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, step) for step in strides))]
    windows = windows[(..., *(slice(None, None, step) for step in dilation))]
    inside = [1, *range(x.ndim, 2 * x.ndim - 2)]  # the channels, then the places in a window
    found = []
    for part, own in zip(np.split(windows, groups, axis=1), np.split(kernel, groups, axis=0), strict=True):
        found.append(np.moveaxis(np.tensordot(part, own, (inside, range(1, x.ndim))), -1, 1))
    return np.concatenate(found, axis=1)
