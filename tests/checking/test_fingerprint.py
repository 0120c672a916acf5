"""The mark of a problem: the same for the same problem in any process, another one after any change that matters."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradwise.checking.fingerprint import fingerprint
from gradwise.checking.subject import Subject

X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
Y = X.sum(1)


def _problem(slope: float = 1.0, scale: float = 1.0, x: np.ndarray = X, **more: Any) -> Subject:
    @jax.custom_vjp
    def bent(x: Any) -> Any:
        return jnp.tanh(x)

    bent.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (slope * g / jnp.cosh(x) ** 2,))

    def loss(model: Any, x: Any, y: Any) -> Any:
        return scale * jnp.mean((bent(x @ model["w"]) - y) ** 2)

    return Subject.of(loss, {"w": jnp.ones(3)}, (x, Y), apply=lambda m, x: bent(x @ m["w"]), **more)


CHANGES = {
    "the backward pass": {"slope": 0.5},
    "the loss": {"scale": 2.0},
    "one number of the batch": {"x": np.where(np.arange(36).reshape(12, 3) == 7, 0, X).astype(np.float32)},
    "the optimiser's rate": {"optimiser": optax.sgd(0.1)},
    "a validation set": {"valid": (X, Y)},
    "how it is evaluated": {"evaluate": lambda m, x: x @ m["w"]},
    "what is frozen": {"frozen": "w"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_that_matters_changes_the_mark(change: str) -> None:
    assert fingerprint(_problem()) == fingerprint(_problem())
    assert fingerprint(_problem(**CHANGES[change])) != fingerprint(_problem())


def test_what_else_is_told_counts_and_so_does_a_program_that_cannot_be_traced() -> None:
    subject = _problem()
    assert len({fingerprint(subject), fingerprint(subject, 1), fingerprint(subject, 2)}) == 3

    def broken(parameters: Any, inputs: Any) -> Any:
        raise ValueError("no evaluation yet")

    assert fingerprint(dataclasses.replace(subject, evaluated=broken)) != fingerprint(subject)


def test_another_process_finds_the_same_mark() -> None:
    script = "import sys; sys.path[:0] = sys.argv[1:]; from tests.checking import test_fingerprint as here; "
    script += "print(here.fingerprint(here._problem()))"
    paths = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
    told = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == fingerprint(_problem())
