"""Checks for parts, ours and yours: `check_part` tests the contract of a part, `assert_gradients` a gradient.

from gradwise.testing import check_part
check_part(MyOptimiser(learning_rate=0.1))

from gradwise.testing import assert_gradients
assert_gradients(loss, model, batch)
"""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
