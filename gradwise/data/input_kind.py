"""What kind of examples inputs hold: the recipe and the scaler depend on it.

kind_of_inputs(dataset.inputs, dataset.columns)      "table", "images", "sequences", "trees" or "sparse"
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..specs.dataset import Column
from ..specs.sequences import Sequences
from ..specs.trees.container import Trees
from .column_statistics import is_sparse

KindOfInputs = Literal["sequences", "trees", "sparse", "images", "table"]


def kind_of_inputs(inputs: Any, columns: Sequence[Column] = ()) -> KindOfInputs:
    """Images have two or more dimensions per example, or pixel columns, or 64 or more unnamed columns of bytes."""
    if isinstance(inputs, Sequences):
        return "trees" if isinstance(inputs, Trees) else "sequences"
    if is_sparse(inputs):
        return "sparse"
    # Bytes without names are an image laid flat, if it can be one: the smallest in use has 8 by 8 pixels.
    flat = not columns and inputs.dtype == np.uint8 and inputs.ndim == 2 and inputs.shape[1] >= 64
    pixels = bool(columns) and all(column.kind == "pixel" for column in columns)
    return "images" if inputs.ndim > 2 or flat or pixels else "table"
