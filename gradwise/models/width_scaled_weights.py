"""Initial weights for networks that are tuned narrow and run wide (row J7).

    Mlp(widths=(64, 64), initial=FanIn(), output_initial=OutputScaled(base_width=64))

The other half is `gradwise.optimisers.WidthTransfer`, which has the whole table. Hidden layers need a scale
by the number of inputs alone (`FanIn`): Glorot's also depends on the number of outputs, so the first layer's
activations would shrink as the network grows. Output weights need standard deviations that fall as 1/fan_in, faster
than usual, or `ZeroWeights()`: their sum is not random once training has moved the hidden units in a common direction.
"""

from typing import Any

from jaxtyping import Array, Key

from ..specs.knobs import knob, switch
from ..specs.priors import LogUniform
from .initial_weights import AbstractInitial, Shape, Weights, uniform


class OutputScaled(AbstractInitial):
    """Uniform, +-sqrt(base_width) / fan_in times the gain: at the base width the same as `FanIn`."""

    scale: float = knob(
        1.0,
        allowed="(0, inf)",
        prior=LogUniform(0.1, 10.0),
        row="D8",
        kind="model",
        about="multiplies the scale of the initial output weights",
    )
    base_width: int = switch(64, allowed="[1, inf)", row="J7", about="the width at which the scale is the usual one")

    def draw(self, fan_out: Any, fan_in: Any, gain: Any, *, key: Key[Array, ""], shape: Shape = None) -> Weights:
        limit = gain * self.base_width**0.5 / fan_in
        return self.scale * limit * uniform(shape or (fan_out, fan_in), key)
