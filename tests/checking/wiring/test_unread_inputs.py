"""Arrays of a batch that nothing reads, told from those that something does."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import gradwise
from gradwise.checking.subject import Subject
from gradwise.checking.wiring.unread_inputs import Unread, unread
from gradwise.models.mlp import Mlp

RANDOM = np.random.default_rng(0)
IMAGE, TABLE = (RANDOM.normal(size=(20, width)).astype(np.float32) for width in (6, 4))
LABELS = (IMAGE[:, 0] + TABLE[:, 0] > 0).astype(np.int32)
MODEL = {
    "image": jr.normal(jr.key(0), (6, 5)),
    "table": jr.normal(jr.key(1), (4, 5)),
    "top": jr.normal(jr.key(2), (5, 2)),
}


def _loss(model: Any, batch: Any, reads_table: bool = True) -> Any:
    inputs, labels = batch
    hidden = inputs["image"] @ model["image"]
    hidden = hidden + inputs["table" if reads_table else "image"][:, :4] @ model["table"]
    return optax.softmax_cross_entropy_with_integer_labels(jnp.tanh(hidden) @ model["top"], labels).mean()


@pytest.mark.slow
def test_a_forgotten_input_is_named_and_one_that_is_read_is_not() -> None:
    batch = ({"image": IMAGE, "table": TABLE}, LABELS)
    wrong = gradwise.check_problem(lambda m, b: _loss(m, b, reads_table=False), MODEL, batch, only=["wiring"])
    (told,) = wrong.coded("GW304")
    assert (told.level, told.where) == ("warning", "0.table")
    assert wrong.passed
    assert not gradwise.check_problem(_loss, MODEL, batch, only=["wiring"]).coded("GW304")


def test_what_came_along_is_told_apart_and_what_cannot_be_asked_is_not() -> None:
    def loss(model: Any, batch: Any) -> Any:
        noise = jax.vmap(lambda key: jr.normal(key, (5,)))(batch["keys"])
        return jnp.mean((jnp.tanh(batch["x"] @ model["image"] + noise) @ model["top"])[:, 0] - batch["y"]) ** 2

    batch = {"x": IMAGE, "y": LABELS, "row": np.arange(20), "keys": jr.split(jr.key(0), 20), "same": np.ones((20, 2))}
    subject = Subject.of(loss, MODEL, batch)
    assert unread(subject, bits=64, key=jr.key(0)) == (Unread("row", an_input=False),)


@pytest.mark.slow
def test_a_batch_of_gradwises_own_holds_more_than_a_loss_reads() -> None:
    recipe = gradwise.defaults.classification(model=Mlp(widths=(4,)))
    assert not gradwise.check_problem(recipe, gradwise.read("iris"), only=["wiring"]).coded("GW304")
