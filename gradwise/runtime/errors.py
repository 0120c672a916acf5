"""Errors are written for the person who made the mistake: what is wrong, where, what to do.

Two kinds are caught at the boundary of the command line, so they have a class of their own; every other
mistake of ours stays an ordinary exception with its traceback.
"""

import difflib
from collections.abc import Iterable


class RequestError(ValueError):
    """What was asked cannot be done as asked: a file, an option or a value is wrong. Exit code 2."""


class WorkError(RuntimeError):
    """The request was fine and the work failed: the disk is full, the run diverged. Exit code 1."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Ends a message with the nearest right name, or with the whole list when it is short.

    >>> nearest("learning_rat", ["learning_rate", "momentum"])
    " Did you mean 'learning_rate'?"
    """
    known = list(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f" Did you mean {close[0]!r}?"
    if 0 < len(known) <= 12:
        return " It is one of: " + ", ".join(known) + "."
    return ""
