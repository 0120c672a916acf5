"""A trained model as one file for other programs: the suffix says which.

export_model(predictor, "model.onnx")                  ONNX, preprocessing included
export_model(predictor, "model.stablehlo")             StableHLO, from encoded rows to predictions
export_model(predictor, "model.py")                    Python that needs NumPy alone
"""

from collections.abc import Callable
from pathlib import Path

from ..runtime.errors import RequestError, WorkError
from ..runtime.files import write_whole
from ..specs.dataset import refuse_several, text_places
from ..training.predictor import AbstractPredictor, reads_sequences
from .numpy_module import numpy_module
from .onnx_model import onnx_model
from .stablehlo import stablehlo_program

FORMATS: dict[str, Callable[[AbstractPredictor], bytes]] = {
    ".onnx": onnx_model,
    ".stablehlo": stablehlo_program,
    ".py": numpy_module,
}


def export_model(predictor: AbstractPredictor, path: str | Path) -> Path:
    """Writes a predictor in the format of the path's suffix: .onnx, .stablehlo or .py."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise RequestError(f"cannot export to {path.name}: the suffix must be {', '.join(FORMATS)}.")
    if reads_sequences(predictor):
        raise RequestError("a model of sequences cannot be exported: use `model.save`, and `gw.load` to predict.")
    if text_places(predictor.columns):
        raise RequestError("a model of texts cannot be exported: use `model.save`, and `gw.load` to predict.")
    refuse_several(predictor.task, "an exported model")
    content = FORMATS[path.suffix.lower()](predictor)
    try:
        write_whole(path, content)
    except OSError as problem:
        raise WorkError(f"could not write {path}: {problem.strerror or problem}.") from None
    return path
