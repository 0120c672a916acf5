"""The recommended recipe for learning one layer of features, by name.

    learner("denoising", 1000)                 an auto-encoder that repairs masked inputs
    learner("rbm", 500, inputs=codes)          a Boltzmann machine; binary or Gaussian units as the inputs ask
    parse_layers("denoising:1000x3")           [("denoising", 1000)] * 3
    parse_layers("rbm:500,contractive:250")    a mix, bottom up
    learner("convolutional", 16)               16 filters of pictures; in a stack they come first
    learner("supervised", 100, task="classes") a layer learned with the targets; it is stacked, never trained alone

Inputs in [0, 1] are taken for probabilities: cross-entropy and binary units. Others get a squared error and Gaussian
units. The codes of sigmoid units always lie in [0, 1].
"""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..criteria.code_sparsity import KlToTarget, code_activation
from ..criteria.contraction import Contraction
from ..criteria.contrastive_divergence import ContrastiveDivergence
from ..criteria.corruption import Clean, GaussianNoise, Masking
from ..criteria.losses import AbstractLoss, GaussianLoss, SigmoidLoss, SoftmaxLoss
from ..criteria.reconstruction import CrossEntropy, Reconstruction, SquaredError, unit_range
from ..criteria.sparse_code_energy import SparseCode
from ..criteria.supervised import Supervised
from ..data.batches import Reshuffled
from ..data.scaling import Automatic, Chain, Uniformise, UnitRange
from ..data.splits import HoldOut
from ..models.activations import Sigmoid
from ..models.auto_encoder import MlpAutoEncoder
from ..models.convolution.auto_encoder import ConvolutionalAutoEncoder
from ..models.gaussian_visible import GaussianVisible
from ..models.mlp import Mlp
from ..models.restricted_boltzmann import Rbm
from ..models.sparse_coding import PredictiveSparse
from ..models.visible_units import BinaryVisible
from ..optimisers.adaptive.adam import Adam
from ..optimisers.first_order.sgd import HeavyBall
from ..runtime.errors import RequestError, nearest
from ..specs.adapters import as_criterion
from ..specs.recipe import Recipe
from ..training.stopping import Patience

# Whatever the data, inputs in [0, 1], those beyond the training range too. Ranks are stretched to both ends: ties share
# the middle of theirs, so that a column of 0 and 1 would otherwise become one of 0.25 and 0.75.
RANKS = Chain((Uniformise(), UnitRange()))
SCALER = Automatic(numbers=RANKS, images=UnitRange(together=True), sparse=UnitRange(), counts=UnitRange())
STOPPING = Patience(epochs=50.0)
SETTLED_SOON = Patience(initial_examples=20_000.0, initial_epochs=2.0, epochs=20.0)


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


def _auto_encoder(units: int, unit: bool, **parts: Any) -> Recipe:
    return _recipe(MlpAutoEncoder(widths=(units,)), Reconstruction(CrossEntropy() if unit else SquaredError(), **parts))


def _psd(units: int, unit: bool) -> Recipe:
    # Atoms have length 1 whatever the inputs are: a larger rate than a network's suits them (digits, natural patches).
    return _recipe(PredictiveSparse(units=units), SparseCode(), optimiser=Adam(learning_rate=0.003))


def _rbm(units: int, unit: bool) -> Recipe:
    # On digits this went further in 30 epochs than Adam at 0.001, which hardly moved in its noise.
    # For Gaussian units a benchmark chose 0.01 at 256 hidden ones (docs/features.md), where 0.05 diverges; at 50 units
    # 0.2 does: the steps that a machine bears shrink as its units grow in number.
    visible = BinaryVisible() if unit else GaussianVisible()
    optimiser = HeavyBall(learning_rate=0.05 if unit else 0.01 * min(1.0, 256.0 / units), momentum=0.9)
    return _recipe(Rbm(units=units, visible=visible), ContrastiveDivergence(), optimiser=optimiser)


def _filters(units: int, unit: bool) -> Recipe:
    # Answers of rectifiers rest at 0, as the background of a picture does: masking suits both.
    criterion = Reconstruction(CrossEntropy() if unit else SquaredError(), corruption=Masking(0.25))
    # Few weights, of which every place of a picture teaches: they settle within some thousands of pictures.
    return _recipe(ConvolutionalAutoEncoder(units=units), criterion, stopping=SETTLED_SOON)


LEARNERS: dict[str, Callable[[int, bool], Recipe]] = {
    "plain": _auto_encoder,
    "denoising": lambda units, unit: _auto_encoder(
        units, unit, corruption=Masking(0.25) if unit else GaussianNoise(0.3)
    ),
    "sparse": lambda units, unit: _auto_encoder(units, unit, on_codes=(KlToTarget(3.0),)),
    "contractive": lambda units, unit: _auto_encoder(units, unit, on_codes=(Contraction(0.1),)),
    "psd": _psd,
    "rbm": _rbm,
    "convolutional": _filters,
}
FILTERS = "convolutional"  # its layers read pictures and maps, so that they can stand on nothing else
FILTERS_BY_DEFAULT = 16


_LOSSES: dict[str, AbstractLoss] = {"classes": SoftmaxLoss(), "labels": SigmoidLoss(), "numbers": GaussianLoss()}
SUPERVISED = "supervised"
KINDS = (*LEARNERS, SUPERVISED)  # of layers; the last is no learner of features, because it needs targets


def supervised_layer(units: int, task: str) -> Recipe:
    """One hidden layer learned with the targets, its output thrown away: greedy and supervised (row A1)."""
    if task not in _LOSSES:
        raise RequestError(
            f"a supervised layer learns from the target, but the task is {task!r}: there is none. "
            f"Use {', '.join(LEARNERS)}."
        )
    return _recipe(Mlp(widths=(units,), activation=Sigmoid(), dropout=0.0), Supervised(_LOSSES[task]))


def learner(kind: str, units: int, inputs: Any = None, task: str = "inputs") -> Recipe:
    """The recipe for one layer. `inputs`, where given, are those it will see, scaled; else they are in [0, 1].

    A supervised layer needs the kind of the `task`: "classes", "labels" or "numbers".
    """
    if kind not in KINDS:
        raise RequestError(f"unknown learner {kind!r}; choose from {', '.join(KINDS)}.{nearest(kind, KINDS)}")
    if kind == SUPERVISED:
        return supervised_layer(units, task)
    return LEARNERS[kind](units, True if inputs is None else unit_range(inputs))


def kind_of_layer(recipe: Recipe) -> str:
    """The kind of learner that a recipe is, as `--pretrain` names it; another network by its own name."""
    model, criterion = recipe.model, as_criterion(recipe.criterion)
    if criterion.learns_from == "targets":
        return SUPERVISED
    if isinstance(model, ConvolutionalAutoEncoder):
        return FILTERS
    if isinstance(criterion, Reconstruction):
        if any(isinstance(one, Contraction) for one in criterion.on_codes):
            return "contractive"
        noisy = not isinstance(criterion.corruption, Clean)
        return "sparse" if criterion.on_codes else "denoising" if noisy else "plain"
    named: dict[type, str] = {Rbm: "rbm", PredictiveSparse: "psd"}
    return named.get(type(model), type(model).__name__)


def parse_layers(text: str, kinds: Sequence[str] = KINDS) -> list[tuple[str, int]]:
    """`kind:units` or `kind:unitsxdepth`, several of them joined by commas, of these kinds."""
    found: list[tuple[str, int]] = []
    for piece in text.split(","):
        kind, _, sizes = piece.strip().partition(":")
        numbers = re.fullmatch(r"([1-9][0-9]{0,8})(?:x([1-9][0-9]?))?", sizes)
        if kind not in kinds or numbers is None:
            hint = f" Kinds: {', '.join(kinds)}." if kind in KINDS else nearest(kind, kinds)
            raise RequestError(
                f"invalid layer `{piece.strip()}` to pre-train: write kind:units or kind:unitsxdepth, for example "
                f"denoising:1000x3.{hint}"
            )
        found += [(kind, int(numbers[1]))] * int(numbers[2] or 1)
    return found


def recipes_of_layers(text: str, unit: bool, task: str) -> list[Recipe]:
    """The recipes of the layers, bottom up, each for the codes of the one below; `unit`: inputs lie in [0, 1]."""
    recipes: list[Recipe] = []
    layers = parse_layers(text)
    below = [kind for (kind, _), (above, _) in itertools.pairwise(layers) if above == FILTERS != kind]
    if below:
        raise RequestError(
            f"a layer of filters reads a picture or a map, which a {below[0]} layer does not give: put the "
            f"{FILTERS} layers of {text!r} first."
        )
    for kind, units in layers:
        recipes.append(supervised_layer(units, task) if kind == SUPERVISED else LEARNERS[kind](units, unit))
        activation = code_activation(recipes[-1].model)
        unit = activation is None or isinstance(activation, Sigmoid)  # those of Boltzmann machines are
    return recipes
