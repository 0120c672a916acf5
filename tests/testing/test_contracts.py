"""The contracts hold for every public part of the mathematical packages, and each of them can be broken."""

import dataclasses
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradwise.criteria
import gradwise.data.batches
import gradwise.data.category_scaling
import gradwise.data.count_scaling
import gradwise.data.scaling
import gradwise.data.sequence_scaling
import gradwise.data.text
import gradwise.models
import gradwise.optimisers
from gradwise.criteria.linear_probe import Probed
from gradwise.criteria.losses import AbstractLoss, SoftmaxLoss
from gradwise.criteria.penalties import L1, L2, AbstractPenalty
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.criteria.several_losses import SeveralLosses
from gradwise.criteria.supervised import Supervised
from gradwise.data.scaling import Chain, Logarithm, Standardise
from gradwise.models.activations import AbstractActivation
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.convolution.auto_encoder import ConvolutionalAutoEncoder
from gradwise.models.convolution.convolutional import Convolutional
from gradwise.models.deep_boltzmann import DeepBoltzmann
from gradwise.models.gaussian_visible import PreciseUnits
from gradwise.models.input_stage import Embedded, LaidOut
from gradwise.models.language.feed_forward import FeedForwardLanguageModel
from gradwise.models.language.recurrent_language import RecurrentLanguageModel
from gradwise.models.mlp import Mlp
from gradwise.models.padded_mlp import PaddedMlp, pad
from gradwise.models.recurrence.recurrent import Recurrent
from gradwise.models.restricted_boltzmann import Rbm
from gradwise.models.shared_weights import SharedWeights
from gradwise.models.sparse_coding import PredictiveSparse, SparseDictionary
from gradwise.models.trees.recursive import Recursive
from gradwise.optimisers.averaging.parameter_average import MovingAverage, PolyakAverage, TailAverage
from gradwise.optimisers.first_order.frozen import Frozen
from gradwise.optimisers.first_order.schedules import SelfTimed
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.clipped import Clipped
from gradwise.optimisers.wrappers.effective_decay import EffectiveDecay
from gradwise.optimisers.wrappers.lazy_rows import LazyRows
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.optimisers.wrappers.proximal import Proximal
from gradwise.optimisers.wrappers.rates_by_kind import RatesByKind
from gradwise.optimisers.wrappers.recentred import Recentred
from gradwise.optimisers.wrappers.slower_below import SlowerBelow
from gradwise.optimisers.wrappers.width_transfer import WidthTransfer
from gradwise.specs.contracts import AbstractBatches, AbstractModel, AbstractOptimiser
from gradwise.specs.knobs import Spec, knob, switch
from gradwise.specs.priors import LogUniform, Uniform
from gradwise.specs.schedules import AbstractSchedule
from gradwise.testing.contracts import (
    check_activation,
    check_batches,
    check_loss,
    check_model,
    check_optimiser,
    check_part,
    check_penalty,
    check_schedule,
    public_specs,
)
from gradwise.testing.spec_contracts import check_spec

# What a class cannot be made without; a new class that needs something fails until it is named here.
NEEDED = {
    Supervised: {"loss": SoftmaxLoss(label_smoothing=0.1), "penalties": (L2(0.1), L1(0.2, where="output.weight"))},
    PolyakAverage: {"optimiser": Sgd(0.1)},
    MovingAverage: {"optimiser": Sgd(0.1, schedule=SelfTimed(window_updates=3.0)), "decay": 0.9},
    ParameterGroup: {"where": "*.bias", "optimiser": HeavyBall()},
    Grouped: {
        "base": PolyakAverage(Sgd(0.1)),
        "groups": (
            ParameterGroup("layers.0.*", Sgd(0.05, smoothing=0.5)),
            ParameterGroup("*.bias", MovingAverage(HeavyBall())),
        ),
    },
    Mlp: {"widths": (5, 4), "dropout": 0.2},
    # A model of features has as many outputs as it has features.
    MlpAutoEncoder: {"widths": (3,)},
    Rbm: {"units": 3},
    SparseDictionary: {"units": 3},
    PredictiveSparse: {"units": 3},
    DeepBoltzmann: {"widths": (4, 3)},
    Probed: {"criterion": Reconstruction()},
    WidthTransfer: {"optimiser": Sgd(0.1), "base_width": 2},
    RatesByKind: {"optimiser": Sgd(0.1)},
    SlowerBelow: {"optimiser": Sgd(0.1), "layers": 1, "factor": 0.5},
    SharedWeights: {"mlp": Mlp(widths=(5, 4), dropout=0.2, inputs=Embedded()), "members": 3},
    TailAverage: {"optimiser": Sgd(0.1)},
    Proximal: {"optimiser": Sgd(0.1)},
    EffectiveDecay: {"optimiser": Sgd(0.1)},
    ConvolutionalAutoEncoder: {"units": 1, "kernel": 4, "padding": "valid", "dimensions": 1},
    Convolutional: {"channels": (3, 4), "widths": (4,), "dimensions": 1, "dropout": 0.2},
    LazyRows: {"optimiser": Sgd(0.1)},
    Clipped: {"optimiser": Sgd(0.1)},
    Recurrent: {"units": (4,), "dropout": 0.2},
    Recursive: {"units": 4, "width": 3, "symbols": 2, "dropout": 0.2},
    # Outputs are features: there are as many as the last layer has units.
    FeedForwardLanguageModel: {"words": 7, "context": 2, "size": 4, "units": (3,), "dropout": 0.2},
    RecurrentLanguageModel: {"words": 7, "size": 4, "units": (4, 3), "dropout": 0.2},
    SeveralLosses: {"weights": (2.0, 0.5), "pieces": (("classes", 1, 2, 1.0), ("numbers", 1, 1, 1.0))},
    Chain: {"steps": (Logarithm(), Standardise())},
}
# `Frozen` does not descend, on purpose; `PaddedMlp`, `LaidOut` and `PreciseUnits` are made when a run begins, chosen by
# nobody; `Recentred` needs a network that can be centred. All have tests apart.
SPECS = [
    kind
    for kind in public_specs(
        gradwise.criteria,
        gradwise.data.batches,
        gradwise.data.category_scaling,
        gradwise.data.count_scaling,
        gradwise.data.scaling,
        gradwise.data.sequence_scaling,
        gradwise.data.text,
        gradwise.models,
        gradwise.optimisers,
    )
    if kind not in (Frozen, LaidOut, PaddedMlp, PreciseUnits, Recentred)
]


def test_the_walk_finds_the_parts() -> None:
    names = {kind.__name__ for kind in SPECS}
    assert {
        "Sgd",
        "Adam",
        "AdamW",
        "Nesterov",
        "Reshuffled",
        "Mlp",
        "L1",
        "GaussianLoss",
        "BatchNorm",
        "ZeroWeights",
    } <= names
    assert not any(inspect.isabstract(kind) for kind in SPECS)


@pytest.mark.parametrize("kind", SPECS, ids=lambda kind: f"{kind.__module__.split('.', 1)[1]}.{kind.__name__}")
def test_every_public_part_keeps_its_contract(kind: type[Spec]) -> None:
    check_part(kind(**NEEDED.get(kind, {})))


def test_a_padded_network_keeps_the_contract_of_a_model() -> None:
    padded = pad(Mlp(widths=(5, 4), dropout=0.2), (4,), lambda width: 8)
    assert isinstance(padded, PaddedMlp)
    check_model(padded)


# --- broken parts: each breaks one promise, and the check says which


class Unchecked(Spec):
    share: float = 0.5


class OddPrior(Spec):
    share: float = knob(0.5, allowed="[0, 1]", prior=Uniform(0.0, 2.0), row="C1", about="a share")


class OddRow(Spec):
    share: float = knob(0.5, allowed="[0, 1]", prior=Uniform(0.0, 1.0), row="Z9", about="a share")


class Holding(Spec):
    function: object = switch(lambda x: x, row="C1", about="a function has no written form here")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Unchecked(), "neither knob, switch nor part"),
        (OddPrior(), r"must lie in \[0, 1\]"),
        (OddRow(), "no chapter row 'Z9'"),
        (Holding(), "not part of gradwise"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Spec) else "",
)
def test_a_broken_spec_is_found(spec: Spec, message: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=message):
        check_spec(spec)


class _Rule(AbstractOptimiser):
    """A right one, to be broken below."""

    learning_rate: float = knob(0.1, allowed="(0, inf)", prior=LogUniform(1e-3, 1.0), row="C1", about="the rate")

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(optax.sgd(self.learning_rate))

    def rate(self, state):
        return jnp.asarray(self.learning_rate)


def _sharing() -> optax.GradientTransformation:
    return optax.GradientTransformation(lambda p: p, lambda g, s, p=None: (jax.tree.map(lambda x: -0.1 * x, g), s))


class Climbing(_Rule):
    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(optax.scale(self.learning_rate))


class Sharing(_Rule):
    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(_sharing())


class Switched(_Rule):
    learning_rate: float = switch(0.1, row="C1", about="static, so that another value compiles anew")
    momentum: float = knob(0.9, allowed="[0, 1)", prior=Uniform(0.0, 0.9), row="C9", about="memory")

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(optax.sgd(self.learning_rate, float(self.momentum)))


class Summing(_Rule):
    def judged(self, parameters, state):
        return jax.tree.map(jnp.sum, parameters)


@pytest.mark.parametrize(
    ("optimiser", "message"),
    [(Climbing(), "did not descend"), (Sharing(), "own buffers"), (Summing(), "form"), (Switched(), "Tracer|concrete")],
    ids=lambda value: type(value).__name__ if isinstance(value, Spec) else "",
)
def test_a_broken_optimiser_is_found(optimiser: AbstractOptimiser, message: str) -> None:
    with pytest.raises((AssertionError, jax.errors.ConcretizationTypeError), match=message):
        check_optimiser(optimiser)


def test_a_right_optimiser_of_ones_own_passes() -> None:
    check_part(_Rule(), classes=(_Rule,))


class Overflowing(AbstractLoss):
    """Cross-entropy by the letter: exp and log, without the log domain."""

    def loss(self, output, target):
        powers = jnp.exp(output)
        return -jnp.log(powers[target] / jnp.sum(powers))

    def score(self, output, target):
        return jnp.asarray(0.0)

    def link(self, output):
        return jax.nn.softmax(output)

    def task(self):
        return "classes"


class Unlinked(AbstractLoss):
    def loss(self, output, target):
        return -jax.nn.log_softmax(output)[target]

    def score(self, output, target):
        return jnp.asarray(0.0)

    def link(self, output):
        return output

    def task(self):
        return "classes"


class WrongSlope(Unlinked):
    def loss(self, output, target):
        return jnp.sum(jax.lax.stop_gradient(output) * output)

    def task(self):
        return "numbers"


@pytest.mark.parametrize(
    ("loss", "message"),
    [(Overflowing(), "not finite"), (Unlinked(), "probabilities"), (WrongSlope(), "gradient of output 0 is wrong")],
    ids=lambda value: type(value).__name__ if isinstance(value, Spec) else "",
)
def test_a_broken_loss_is_found(loss: AbstractLoss, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_loss(loss)


class Norm(AbstractPenalty):
    """The norm itself, whose slope at 0 is not a number."""

    coefficient: float = knob(0.0, allowed="[0, inf)", prior=Uniform(0.0, 1.0), row="D2", about="lambda")

    def __call__(self, model):
        return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(model)))


def test_a_broken_penalty_is_found() -> None:
    with pytest.raises(AssertionError, match="not finite"):
        check_penalty(Norm())


class Growing(AbstractSchedule):
    def init(self):
        return ()

    def step(self, state, update, value):
        return (), 1.0 - 0.02 * update


class Normalising(AbstractActivation):
    def __call__(self, a):
        return a / jnp.max(jnp.abs(a))

    def gain(self):
        return 1.0


class WrongSlopeAt(AbstractActivation):
    def __call__(self, a):
        return jnp.tanh(a)

    def gain(self):
        return 1.0

    def slope_at(self, h):
        return 1.0 - h


def test_a_broken_schedule_and_activation_are_found() -> None:
    with pytest.raises(AssertionError, match="`slope_at` is not the slope"):
        check_activation(WrongSlopeAt())
    with pytest.raises(AssertionError, match="negative"):
        check_schedule(Growing())
    with pytest.raises(AssertionError, match="element by element"):
        check_activation(Normalising())


class _Noisy(eqx.Module):
    weight: jax.Array

    def __call__(self, x, *, key=None):
        return self.weight @ x + np.random.default_rng().normal()


class Noisy(AbstractModel):
    def build(self, inputs, outputs, *, key):
        return _Noisy(jnp.ones((outputs, *inputs)))


class Skipping(AbstractBatches):
    """Draws with replacement, so that an epoch misses some examples."""

    size: int = switch(4, row="C5", about="examples in an update")

    def indices(self, updates, count, *, key):
        rows = jax.random.randint(key, (updates.shape[0], self.size), 0, count)
        return rows, jnp.ones(rows.shape), (updates + 1) * self.size

    def limit_examples(self, count):
        return None


def test_a_broken_model_and_order_are_found() -> None:
    with pytest.raises(AssertionError, match="random"):
        check_model(Noisy())
    with pytest.raises(AssertionError, match="each example once"):
        check_batches(Skipping(), count=12)


class OutsideItsPrior(_Rule):
    share: float = knob(0.9, allowed="[0, 1]", prior=Uniform(0.0, 0.5), row="C1", about="a share")


class OffOutsideItsPrior(_Rule):
    share: float = knob(0.0, allowed="[0, 1]", prior=LogUniform(0.1, 0.5), row="C1", off=0.0, about="a share")


def test_a_default_outside_its_prior_is_found_unless_it_means_off() -> None:
    check_spec(OffOutsideItsPrior(), classes=(OffOutsideItsPrior,))
    with pytest.raises(AssertionError, match=r"OutsideItsPrior.share: its default 0.9 lies outside its prior"):
        check_part(OutsideItsPrior(), classes=(OutsideItsPrior,))


def test_a_spec_that_can_be_changed_is_found() -> None:
    @dataclasses.dataclass
    class Loose:
        share: float = 0.5

    with pytest.raises((AssertionError, TypeError)):
        check_spec(Loose())  # type: ignore[arg-type]
