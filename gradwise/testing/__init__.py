"""Proofs for parts, ours and yours: `contracts` checks that a part keeps its word, `oracles` says what is right.

from gradwise.testing.contracts import check_part
check_part(MyOptimiser(learning_rate=0.1))

from gradwise.testing import assert_gradients
assert_gradients(loss, model, batch)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gradients import assert_gradients

__all__ = ["assert_gradients"]


def __getattr__(name: str) -> Any:
    """`assert_gradients` is imported when it is asked for: the other proofs need none of the checks."""
    if name == "assert_gradients":
        from .gradients import assert_gradients

        return assert_gradients
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
