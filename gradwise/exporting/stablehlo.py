"""A predictor as a StableHLO program, which JAX, XLA and IREE run without gradwise.

    exported = jax.export.deserialize(Path("model.stablehlo").read_bytes())
    with jax.enable_x64(True):
        predictions = exported.call(rows)                  # encoded rows (n, columns), 64-bit floats

It takes any number of rows, on a CPU or a CUDA device.
"""

import jax
from jax import export

from ..training.predictor import AbstractPredictor
from .whole_predictor import whole_predictor

PLATFORMS = ("cpu", "cuda")


def stablehlo_program(predictor: AbstractPredictor) -> bytes:
    """The content of the file."""
    whole = whole_predictor(predictor)
    with jax.enable_x64(True):
        exported = export.export(jax.jit(whole.function), platforms=PLATFORMS)(whole.rows)
        return bytes(exported.serialize())
