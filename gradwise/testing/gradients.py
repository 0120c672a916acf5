"""A gradient check in one line of a test: `loss(model, batch, key)` of your own, whatever library the model is from.

    from gradwise.testing import assert_gradients

    def test_my_derivative():
        assert_gradients(loss, model, batch)

It fails with the findings GW101 ... GW107 as its text: what is wrong, where, and what to do; wrong signs first.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Key

from ..checking.gradient.gradient import find_gradient, measure_gradient
from ..checking.subject import Subject
from ..records.finding import worst_first
from ..runtime import keys


def assert_gradients(
    loss: Callable[..., Any], model: Any, batch: Any, *, key: Key[Array, ""] | None = None, **subject_options: Any
) -> None:
    """Raises AssertionError where the gradient of a loss is certainly not its own.

    `subject_options` are those of `Subject.of`: with `frozen="encoder.*"` parameters that are not meant to learn are
    left out. Warnings and notes do not fail, but stand in the text beside the errors.
    """
    subject = Subject.of(loss, model, batch, **subject_options)
    findings = worst_first(find_gradient(measure_gradient(subject, key=keys.from_seed(0) if key is None else key)))
    if any(finding.level == "error" for finding in findings):
        told = [f"{one.code} {one.level} [{one.where}]: {one.what}\n    next: {one.next}" for one in findings]
        raise AssertionError("\n".join(told))
