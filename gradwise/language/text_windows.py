"""A text as a data set: windows of word numbers that follow one another, each after the context that it needs.

    windows(numbers, context=5, steps=16, begin=vocabulary.end)

Every word of the text is predicted once: the first ones after a context of `begin`, as after the end of a sentence. The
last window is filled with -1, which nobody predicts, and weighs as much as it has words. Windows are a view of the
text; only what training places on a device is copied, four bytes for each number.
"""

import numpy as np

from ..runtime.errors import RequestError
from ..specs.dataset import Column, Dataset, Inputs


def window_rows(numbers: np.ndarray, *, context: int, steps: int, begin: int) -> np.ndarray:
    """The windows (n, context + steps) of a text; neighbours share the context."""
    if context < 1 or steps < 1:
        raise RequestError(f"`context` and `steps` must be 1 or more; got {context} and {steps}.")
    if len(numbers) == 0:
        raise RequestError("the text has no words.")
    room = -len(numbers) % steps
    padded = np.concatenate([np.full(context, begin), numbers, np.full(room, -1)]).astype(np.int32)
    view: np.ndarray = np.lib.stride_tricks.sliding_window_view(padded, context + steps)[::steps]
    return view


def windows(numbers: np.ndarray, *, context: int, steps: int, begin: int, name: str = "text") -> Dataset:
    """The windows of a text as a data set without targets."""
    rows = window_rows(np.asarray(numbers), context=context, steps=steps, begin=begin)
    last = len(numbers) - (len(rows) - 1) * steps
    weights = None if last == steps else np.append(np.ones(len(rows) - 1), last / steps)
    columns = tuple(Column(f"word {place - context + 1}") for place in range(context + steps))
    targets = np.zeros((len(rows), 0))
    return Dataset(rows, targets, Inputs(), columns, weights=weights, name=name)
