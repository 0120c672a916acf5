"""The recommended recipe for learning one layer of features, by name.

    learner("denoising", 1000)                 an auto-encoder that repairs masked inputs
    learner("rbm", 500, inputs=codes)          a Boltzmann machine; binary or Gaussian units as the inputs ask
    parse("denoising:1000x3")                  [("denoising", 1000)] * 3
    parse("rbm:500,contractive:250")           a mix, bottom up

Inputs in [0, 1] are taken for probabilities: cross-entropy and binary units. Others get a squared error and Gaussian
units. The codes of sigmoid units always lie in [0, 1].
"""

from collections.abc import Callable
from typing import Any

from ..core.errors import RequestError, nearest
from ..core.recipe import Recipe
from ..criteria.corruption import Gaussian, Masking
from ..criteria.reconstruct import CrossEntropy, Reconstruction, SquaredError, unit_range
from ..data.batches import Reshuffled
from ..data.scale import Automatic, Uniformise, UnitRange
from ..data.split import HoldOut
from ..models.autoencoder import AutoEncoder
from ..optimisers.adaptive import Adam
from ..training.stopping import Patience

SCALER = Automatic(numbers=Uniformise(), images=UnitRange(together=True))
STOPPING = Patience(epochs=50.0)


def _recipe(model: Any, criterion: Any, **parts: Any) -> Recipe:
    chosen = {
        "split": HoldOut(valid=0.1, test=0.0),
        "scaler": SCALER,
        "batches": Reshuffled(size=100),
        "model": model,
        "criterion": criterion,
        "optimiser": Adam(learning_rate=0.001),
        "stopping": STOPPING,
    }
    return Recipe(**{**chosen, **parts})


def _loss(unit: bool) -> Any:
    return CrossEntropy() if unit else SquaredError()


def _plain(units: int, unit: bool) -> Recipe:
    return _recipe(AutoEncoder(widths=(units,)), Reconstruction(_loss(unit)))


def _denoising(units: int, unit: bool) -> Recipe:
    noise = Masking(0.25) if unit else Gaussian(0.3)
    return _recipe(AutoEncoder(widths=(units,)), Reconstruction(_loss(unit), corruption=noise))


LEARNERS: dict[str, Callable[[int, bool], Recipe]] = {"plain": _plain, "denoising": _denoising}


def learner(kind: str, units: int, inputs: Any = None) -> Recipe:
    """The recipe for one layer. `inputs`, where given, are those it will see, scaled; else they are in [0, 1]."""
    if kind not in LEARNERS:
        raise RequestError(f"there is no learner {kind!r}; there are {', '.join(LEARNERS)}.{nearest(kind, LEARNERS)}")
    return LEARNERS[kind](units, True if inputs is None else unit_range(inputs))


def parse(text: str) -> list[tuple[str, int]]:
    """`kind:units` or `kind:unitsxdepth`, several of them joined by commas."""
    found: list[tuple[str, int]] = []
    for piece in text.split(","):
        kind, _, sizes = piece.strip().partition(":")
        units, _, depth = sizes.partition("x")
        learner_known = kind in LEARNERS
        if not learner_known or not units.isdigit() or (depth and not depth.isdigit()) or int(units) < 1:
            hint = "" if learner_known else nearest(kind, LEARNERS)
            raise RequestError(
                f"`{piece.strip()}` is no layer to pre-train: write kind:units or kind:unitsxdepth, as denoising:1000x3, "
                f"with a kind of {', '.join(LEARNERS)}.{hint}"
            )
        found += [(kind, int(units))] * (int(depth) if depth else 1)
    return found
