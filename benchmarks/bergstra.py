"""Bergstra and Bengio's neural-network space (2012), without preprocessing: seven knobs and their priors.

One hidden layer of 18 to 1024 sigmoid or tanh units, batches of 20 or 100, a learning rate between 0.001 and 10 that is
constant for 300 to 30 000 updates and then falls as 1/t, weight decay off for half of the trials. The paper stops a
trial when its best epoch lies before half of its age, after 100 epochs at least and 1000 at most; `longest` and
`shortest` scale that down for machines that are slower than ours is patient.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Key

from gradwise import defaults
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.data.splits import GivenParts
from gradwise.models.activations import Sigmoid, Tanh
from gradwise.models.initial_weights import AbstractInitial, ZeroWeights, normal, uniform
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.schedules import InverseTime
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.knobs import knob, switch
from gradwise.specs.priors import Choice, LogInteger, LogUniform, Uniform, ZeroOr
from gradwise.specs.search_space import Space, dimension
from gradwise.training.stopping import Patience, Times

TRAIN, VALID = 10_000, 2_000


class BergstraInitial(AbstractInitial):
    """Uniform or normal, scaled by c / sqrt(inputs) or by sqrt(6 / (inputs + outputs))."""

    c: float = knob(1.0, allowed="(0, inf)", prior=Uniform(0.2, 2.0), row="D8", kind="model")
    rule: str = switch("inputs", allowed=("inputs", "both"), row="D8")
    distribution: str = switch("uniform", allowed=("uniform", "normal"), row="D8")

    def draw(
        self, fan_out: Any, fan_in: Any, gain: Any, *, key: Key[Array, ""], shape: tuple[int, int] | None = None
    ) -> Float[Array, "out in"]:
        scale = self.c * fan_in**-0.5 if self.rule == "inputs" else (6.0 / (fan_in + fan_out)) ** 0.5
        draw = uniform if self.distribution == "uniform" else normal
        return scale * draw(shape or (fan_out, fan_in), key)


def space(shortest: float = 100.0, longest: float = 1000.0) -> Space:
    """The space around a recipe that trains as the paper did."""
    recipe = defaults.classification(
        split=GivenParts(train=TRAIN, valid=VALID),
        scaler=NoScaling(),
        batches=Reshuffled(20),
        model=Mlp(
            widths=(128,), activation=Tanh(), initial=BergstraInitial(), output_initial=ZeroWeights(), dropout=0.0
        ),
        criterion=Supervised(SoftmaxLoss(), penalties=(L2(),)),
        optimiser=Sgd(0.01, schedule=InverseTime()),
        stopping=Patience(
            initial_examples=0, initial_epochs=shortest, growth=Times(2.0), spacing=TRAIN / VALID, epochs=longest
        ),
    )
    penalty = ZeroOr(LogUniform(3.1e-7 * TRAIN, 3.1e-5 * TRAIN))  # ours stands beside the summed loss
    priors = {
        "model.initial.distribution": Choice(("uniform", "normal")),
        "model.initial.rule": Choice(("inputs", "both")),
        "model.initial.c": Uniform(0.2, 2.0),
        "model.widths.each": LogInteger(18, 1024),
        "model.activation": Choice((Sigmoid(), Tanh())),
        "batches.size": Choice((20, 100)),
        "optimiser.learning_rate": LogUniform(1e-3, 10.0),
        "optimiser.schedule.tau_updates": LogUniform(300.0, 30_000.0),
        "criterion.penalties.0.coefficient": penalty,
    }
    return Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in priors.items()))


def digits(path: Path, test: int = 50_000) -> Dataset:
    """10 000 + 2 000 digits of MNIST to search with, and up to 50 000 others to judge by, as the paper had them."""
    with np.load(path) as file:
        inputs, targets = file["X"], file["y"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(inputs))[: TRAIN + VALID + test]
    inputs = (inputs.reshape(len(inputs), -1)[order] / 255.0).astype(np.float32)
    return Dataset(inputs, targets[order], Classes(np.arange(10), "digit"), name="mnist")
