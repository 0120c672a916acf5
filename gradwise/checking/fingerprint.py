"""A fingerprint of the problem, so that a check is never resumed after the problem was changed.

It is computed from the traced programs, not from the source: the loss with its gradient (including custom backward
passes), the outputs, the evaluation and an update; and from all their inputs.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from .. import __version__
from ..tracing.program import is_random_key
from .batch_access import inputs_of
from .rehearsal import trainer
from .subject import Subject

_ADDRESSES = re.compile(r" at 0x[0-9a-f]+")  # of functions: no two processes share them


def _program(function: Callable[..., Any], *arguments: Any) -> bytes:
    """A function's program and its constants; if it cannot be traced, the error message instead."""
    try:
        traced = jax.make_jaxpr(function)(*arguments)
    except Exception as problem:  # any error of the user's code: the area that needs this program reports it
        return repr(problem).encode()
    return _ADDRESSES.sub("", str(traced)).encode() + b"".join(map(_bytes, traced.consts))


def _programs(subject: Subject) -> Iterator[bytes]:
    parameters, batch, key = subject.parameters, subject.batch, jax.random.key(0)
    optimiser, update = trainer(subject)
    yield _program(lambda p: update(p, optimiser.init(p), batch, key), parameters)
    if subject.outputs is not None:
        yield _program(subject.outputs, parameters, inputs_of(batch), key)
    if subject.evaluated is not None:
        yield _program(subject.evaluated, parameters, inputs_of(batch))


def _bytes(leaf: Any) -> bytes:
    if is_random_key(leaf):
        leaf = jax.random.key_data(leaf)
    array = np.ascontiguousarray(leaf)
    return f"{array.shape}{array.dtype}".encode() + (repr(leaf).encode() if array.dtype == object else array.tobytes())


def fingerprint(subject: Subject, *more: Any) -> str:
    """The fingerprint of a subject and of whatever else a check depends on, as text."""
    mark = hashlib.blake2b(digest_size=16)
    for program in _programs(subject):
        mark.update(program)
    parts = (subject.parameters, subject.batch, subject.batches, subject.train, subject.valid, subject.test)
    for leaf in jax.tree.leaves(parts):
        mark.update(_bytes(leaf))
    told = (__version__, subject.name, subject.place, subject.frozen, subject.task, subject.columns, *more)
    mark.update(repr(told).encode())
    return mark.hexdigest()
