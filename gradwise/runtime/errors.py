"""Errors for the user: what is wrong, where, and what to do.

The command line catches two kinds, so each has its own class; a bug in gradwise stays an ordinary exception with its
traceback.
"""

import difflib
from collections.abc import Iterable


class RequestError(ValueError):
    """The request is invalid: a file, an option or a value is wrong. Exit code 2."""


class WorkError(RuntimeError):
    """The request is valid but the work failed: the disk is full, the run diverged. Exit code 1."""


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the closest valid name, or the whole list if it is short.

    >>> nearest("learning_rat", ["learning_rate", "momentum"])
    " Did you mean 'learning_rate'?"
    """
    known = list(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f" Did you mean {close[0]!r}?"
    if 0 < len(known) <= 12:
        return " Choose from: " + ", ".join(known) + "."
    return ""
