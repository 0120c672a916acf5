"""Sparsity on any hidden layer (row D5): the formula's own gradient, one pass, any network, any way to write it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.datasets import load_digits

import gradwise as gw
from gradwise import defaults
from gradwise.cli.main import run_program
from gradwise.criteria.code_sparsity import BiasPenalty, KlToTarget, L1Codes, SquaredToTarget, StudentT
from gradwise.criteria.hidden_units import choose_units, run_with_units
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.criteria.semi_supervised import SemiSupervised
from gradwise.criteria.supervised import Supervised
from gradwise.evaluation.run_findings import find_in_run
from gradwise.models.activations import Gelu, HardTanh, Identity, Parametric, Rectifier, Selu, Sigmoid, Tanh
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.centred_mlp import CentredMlp
from gradwise.models.input_stage import Embedded
from gradwise.models.joint_network import Joint
from gradwise.models.mlp import BatchNorm, LayerNorm, Mlp
from gradwise.models.shared_weights import SharedWeights
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.second_order.hessian_free import HessianFree
from gradwise.records.outcome import Outcome
from gradwise.runtime.errors import RequestError
from gradwise.searching.running.device_runner import DeviceRunner, train_alone
from gradwise.searching.running.jobs import Job
from gradwise.searching.running.population_size import Given
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.networks import apply_batch
from gradwise.training.loop import RunOptions
from gradwise.training.stopping import Off
from gradwise.training.train import train
from tests.marks import parametrize_one_quick
from tests.searching import tiny

KEY = jr.key(3)
LOSS = SoftmaxLoss()


def a_batch(count: int = 6, inputs: int = 5) -> Batch:
    random = np.random.default_rng(0)
    x = jnp.asarray(random.uniform(0.0, 1.0, (count, inputs)))
    weights = jnp.asarray([1.0, 0.5, 2.0, 1.0, 1.0, 0.0][:count], x.dtype)
    targets = jnp.asarray(random.integers(0, 3, count))
    return Batch(x, targets, weights, (weights > 0).astype(x.dtype), jnp.asarray(30.0))


def built(model: Any, inputs: int = 5) -> Any:
    network = model.build((inputs,), 3, key=jr.key(1))
    return jax.tree.map(lambda leaf: leaf + 0.1 if eqx.is_inexact_array(leaf) else leaf, network)


def by_hand(penalty: Any, h: jax.Array, bias: jax.Array, weights: jax.Array) -> jax.Array:
    """The formulas of the chapter, each written out once more."""
    slots, rho = weights.shape[0], getattr(penalty, "target", 0.0)
    mean = jnp.sum(weights[:, None] * h, axis=0) / jnp.sum(weights)
    kl = -rho * jnp.log(mean / rho) - (1 - rho) * jnp.log((1 - mean) / (1 - rho))
    share = jnp.sum(weights) / slots
    return {
        "L1Codes": jnp.sum(weights[:, None] * jnp.abs(h)) / slots,
        "StudentT": jnp.sum(weights[:, None] * jnp.log(1 + h**2)) / slots,
        "SquaredToTarget": share * jnp.sum((rho - mean) ** 2),
        "KlToTarget": share * jnp.sum(kl),
        "BiasPenalty": share * jnp.sum(jnp.log(1 + jnp.exp(bias))),
    }[type(penalty).__name__]


@parametrize_one_quick(
    "penalty", [KlToTarget(2.0), L1Codes(0.3), StudentT(0.3), SquaredToTarget(2.0), BiasPenalty(0.5)], ids=repr
)
def test_the_gradient_is_that_of_the_plain_formula(penalty: Any) -> None:
    """On layer 1 of three, beside a weight decay; a slot out of use; every parameter, in 64 bits."""
    penalty = dataclasses.replace(penalty, where="layers.1")
    with jax.enable_x64(True):
        network = jax.tree.map(
            lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf,
            built(Mlp(widths=(4, 3, 4), activation=Sigmoid(), dropout=0.0)),
        )
        batch = a_batch()
        parts, rest = eqx.partition(network, eqx.is_inexact_array)

        def ours(parts: Any) -> jax.Array:
            return Supervised(LOSS, penalties=(L2(0.7), penalty))(eqx.combine(parts, rest), batch, key=KEY)[0]

        def plainly(parts: Any) -> jax.Array:
            net = eqx.combine(parts, rest)
            h, seen = batch.inputs, []
            for layer in net.layers:
                h = jax.nn.sigmoid(h @ layer.weight.T + layer.bias)
                seen.append(h)
            losses = -jnp.sum(
                jax.nn.one_hot(batch.targets, 3) * jax.nn.log_softmax(h @ net.output.weight.T + net.output.bias), 1
            )
            squares = sum(jnp.sum(layer.weight**2) for layer in (*net.layers, net.output))
            decay = jnp.sum(batch.present) / (6 * 30.0) * 0.7 * squares
            term = by_hand(penalty, seen[1], net.layers[1].bias, batch.weights)
            return jnp.sum(batch.weights * losses) / 6 + decay + penalty.coefficient * term

        for found, expected in zip(
            jax.tree.leaves(jax.jit(jax.value_and_grad(ours))(parts)),
            jax.tree.leaves(jax.jit(jax.value_and_grad(plainly))(parts)),
            strict=True,
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-9)  # a mean is blended with 1e-6


def operations(criterion: Any, model: Any, name: str) -> int:
    network, batch = built(model), a_batch()
    text = str(jax.make_jaxpr(lambda: criterion(network, batch, key=KEY)[0])())
    return text.count(f" {name}[")


@pytest.mark.parametrize(
    "model", [Mlp(widths=(4, 3)), MlpAutoEncoder(widths=(4, 3))], ids=lambda one: type(one).__name__
)
def test_loss_and_activations_are_one_pass(model: Any) -> None:
    """No product more than without the penalty; a penalty of 0 leaves no trace."""
    make = Supervised if isinstance(model, Mlp) else Reconstruction
    without = make(**({"loss": LOSS} if make is Supervised else {}), penalties=())
    products = operations(without, model, "dot_general")
    assert products >= 3
    assert operations(
        dataclasses.replace(without, penalties=(SquaredToTarget(1.0),)), model, "dot_general"
    ) == products + (2 if isinstance(model, Mlp) else 3)  # the weighted mean of each layer is a product too
    assert operations(dataclasses.replace(without, penalties=(StudentT(1.0),)), model, "dot_general") == products
    network, batch = built(model), a_batch()
    off = dataclasses.replace(without, penalties=(StudentT(0.0),))
    texts = [str(jax.make_jaxpr(lambda c=c: c(network, batch, key=KEY)[0])()) for c in (without, off)]
    assert texts[0] == texts[1]


class TwoBranches(eqx.Module):
    """Nobody's layers: two branches of different non-linearities that are added, and a convolution before them."""

    kernel: jax.Array
    left: eqx.nn.Linear
    right: eqx.nn.Linear
    out: eqx.nn.Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        rows = jax.nn.sigmoid(jax.lax.conv(x[None, None, :], self.kernel, (1,), "VALID"))[0]
        flat = rows.ravel()
        return self.out(jnp.tanh(self.left(flat)) + jax.nn.relu(self.right(flat)))


def two_branches() -> TwoBranches:
    keys = jr.split(jr.key(0), 4)
    linear = [eqx.nn.Linear(12, 4, key=keys[1]), eqx.nn.Linear(12, 4, key=keys[2]), eqx.nn.Linear(4, 3, key=keys[3])]
    return TwoBranches(jr.normal(keys[0], (3, 1, 2)), *linear)


def mlp(**options: Any) -> Any:
    return lambda: built(Mlp(**{"widths": (4, 3), "activation": Sigmoid(), **options}))


NETWORKS: list[tuple[Callable[[], Any], list[tuple[str, int, int]]]] = [
    (mlp(), [("layers.0", 6, 4), ("layers.1", 6, 3)]),
    (mlp(normalisation=LayerNorm(), residual=True), [("layers.0.norm", 6, 4), ("layers.1.norm", 6, 3)]),
    (mlp(normalisation=BatchNorm()), [("layers.0.norm", 6, 4), ("layers.1.norm", 6, 3)]),
    (mlp(activation=Identity()), [("layers.0", 6, 4), ("layers.1", 6, 3)]),
    (mlp(activation=Parametric(Selu())), [("layers.0", 6, 4), ("layers.1", 6, 3)]),
    (mlp(inputs=Embedded()), [("layers.0", 6, 4), ("layers.1", 6, 3)]),
    (lambda: built(SharedWeights(Mlp(widths=(4, 3)), members=2)), [("layers.0 (3)", 12, 4), ("layers.1 (3)", 12, 3)]),
    (lambda: built(CentredMlp(widths=(4, 3))), [("layers.0", 6, 4), ("layers.1", 6, 3)]),
    (lambda: built(Joint(MlpAutoEncoder(widths=(4,)))), [("features.encoder.0", 6, 4)]),
    (lambda: eqx.nn.MLP(5, 3, 4, 2, key=jr.key(0)), [("layers.0", 6, 4), ("layers.1", 6, 4)]),
    (two_branches, [("kernel", 24, 3), ("left", 6, 4), ("right", 6, 4)]),
]


@pytest.mark.parametrize(("make", "expected"), NETWORKS)
def test_any_network_shows_its_hidden_layers(make: Any, expected: list[tuple[str, int, int]]) -> None:
    network, batch = make(), a_batch()
    outputs, units = run_with_units(apply_batch, network, batch.inputs, KEY)
    np.testing.assert_allclose(outputs, apply_batch(network, batch.inputs, KEY), rtol=1e-5, atol=1e-6)
    assert [(one.name, *one.activations.shape) for one in units] == expected
    assert all(np.isfinite(one.activations).all() for one in units)
    criterion = Supervised(LOSS, penalties=(SquaredToTarget(1.0), L1Codes(0.1)))
    value = eqx.filter_jit(lambda n: criterion(n, batch, key=KEY)[0])
    assert float(value(network)) > float(eqx.filter_jit(lambda n: Supervised(LOSS)(n, batch, key=KEY)[0])(network))


def test_activations_are_those_before_dropout_and_after_learned_parts() -> None:
    batch = a_batch()
    wet = built(Mlp(widths=(4, 3), activation=Sigmoid(), dropout=0.5))
    first = run_with_units(apply_batch, wet, batch.inputs, KEY)[1][0].activations
    layer = wet.layers[0]
    np.testing.assert_allclose(first, jax.nn.sigmoid(batch.inputs @ layer.weight.T + layer.bias), rtol=1e-5)
    learned = built(Mlp(widths=(4,), activation=Parametric(Selu()), dropout=0.0))
    seen = run_with_units(apply_batch, learned, batch.inputs, KEY)[1][0].activations
    np.testing.assert_allclose(seen, jax.vmap(lambda x: learned.layers[0](x, key=None))(batch.inputs), rtol=1e-5)


@pytest.mark.parametrize(
    ("activation", "span"),
    [
        (Sigmoid(), (0.0, 1.0)),
        (Tanh(), (-1.0, 1.0)),
        (HardTanh(), (-1.0, 1.0)),
        (Rectifier(), (0.0, 1e4)),
        (Gelu(), (-0.17, 1e4)),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, tuple) else "",
)
def test_the_range_of_a_layer_is_read_off_its_program(activation: Any, span: tuple[float, float]) -> None:
    """Inside a compiled function, where no parameter is known."""
    network, batch, found = built(Mlp(widths=(4,), activation=activation)), a_batch(), []

    @eqx.filter_jit
    def run(network: Any) -> Any:
        outputs, units = run_with_units(apply_batch, network, batch.inputs, KEY)
        found.append(units[0].span())
        return outputs

    run(network)
    np.testing.assert_allclose(found[0], span, atol=0.01)


def test_patterns_choose_layers() -> None:
    network = built(Mlp(widths=(4, 3, 3), normalisation=LayerNorm()))
    units = run_with_units(apply_batch, network, a_batch().inputs, KEY)[1]

    def chosen(where: str) -> list[int]:
        return [int(one.path.split(".")[1]) for one in choose_units(units, where)]

    assert chosen("*") == [0, 1, 2]
    assert chosen("layers.1") == chosen("layers.1.*") == chosen("*.1") == [1]
    assert chosen("layers.0|layers.2") == [0, 2]
    with pytest.raises(
        RequestError, match=r"no hidden layer matches the penalty's `where='layer.1'`. Did you mean 'layers.1.norm'"
    ):
        chosen("layer.1")


@pytest.mark.parametrize("activation", [Tanh(), Rectifier(), Identity()], ids=lambda one: type(one).__name__)
def test_a_divergence_is_refused_where_activations_are_no_probabilities(activation: Any) -> None:
    network = built(Mlp(widths=(4,), activation=activation))
    with pytest.raises(RequestError, match=r"KlToTarget .* the units of layers.0 lie in \[.*Use Sigmoid\(\)"):
        jax.jit(lambda: Supervised(LOSS, penalties=(KlToTarget(),))(network, a_batch(), key=KEY)[0])()


def test_other_refusals_are_one_line() -> None:
    bare = eqx.nn.MLP(5, 3, 4, 1, use_bias=False, key=jr.key(0))
    with pytest.raises(RequestError, match=r"BiasPenalty needs a layer with a `bias`; layers\.0 has none"):
        Supervised(LOSS, penalties=(BiasPenalty(),))(bare, a_batch(), key=KEY)
    criterion = Reconstruction(on_codes=(L1Codes(where="encoder.0"),))
    with pytest.raises(RequestError, match=r"`on_codes` holds penalties of the code. Put it into .* `penalties`"):
        criterion(built(MlpAutoEncoder(widths=(4,))), a_batch(), key=KEY)
    with pytest.raises(
        RequestError, match="HessianFree needs a loss of each example's own output: the penalty L1Codes"
    ):
        gw.fit("digits", criterion=Supervised(LOSS, penalties=(L1Codes(),)), optimiser=HessianFree())


def test_hidden_layers_of_encoder_and_decoder() -> None:
    network = built(MlpAutoEncoder(widths=(4, 3)))
    batch = a_batch()
    whole = Reconstruction(penalties=(L1Codes(1.0),))(network, batch, key=KEY)[0]
    plain = Reconstruction(penalties=())(network, batch, key=KEY)[0]
    first = jax.vmap(lambda x: network.encoder[0](x, key=None))(batch.inputs)
    codes = apply_batch(network, batch.inputs, None)
    back = jax.nn.sigmoid(codes @ network.encoder[1].weight + network.decoder[0].bias)
    expected = sum(float(jnp.sum(batch.weights[:, None] * jnp.abs(h))) / 6 for h in (first, codes, back))
    assert float(whole - plain) == pytest.approx(expected, rel=1e-5)


def test_a_warning_where_sparsity_does_not_fit_the_hidden_units() -> None:
    history: dict[str, list[Any]] = {"age_examples": [], "best": []}
    data = Dataset(np.zeros((2, 3)), np.zeros(2, int), Classes(np.asarray(["a", "b"])))

    def said(model: Any) -> list[str]:
        recipe = defaults.classification(model=model, criterion=Supervised(LOSS, penalties=(L1Codes(),)))
        return [one.what for one in find_in_run(recipe, history, Outcome("patience", 0), data) if one.code == "GW704"]

    for unfit in (Mlp(activation=Tanh()), SharedWeights(Mlp(activation=Tanh()))):
        assert "L1Codes on units of range [-1, 1] (Tanh)" in said(unfit)[0]
    assert said(Mlp()) == said(Mlp(activation=Sigmoid())) == []


def test_labelled_and_unlabelled_examples_together() -> None:
    network = built(Joint(MlpAutoEncoder(widths=(4,))))
    batch = dataclasses.replace(a_batch(), targets=jnp.asarray([0, 1, -1, 2, -1, 0]))
    value = SemiSupervised(Supervised(LOSS, penalties=(L1Codes(1.0),)))(network, batch, key=KEY)[0]
    assert float(value) > float(SemiSupervised(Supervised(LOSS))(network, batch, key=KEY)[0])


# --- training

SIGMOID = {"widths": (32, 32), "activation": Sigmoid(), "dropout": 0.0}


def recipe_with(*penalties: Any, epochs: float = 30.0, **parts: Any) -> Any:
    return defaults.classification(
        **{
            "model": Mlp(**SIGMOID),
            "criterion": Supervised(LOSS, penalties=penalties),
            "optimiser": Adam(learning_rate=0.01),
            "stopping": Off(epochs=epochs, least_examples=1),
            **parts,
        }
    )


@pytest.fixture(scope="module")
def digits() -> Dataset:
    bunch = load_digits()
    return Dataset(bunch.data, bunch.target, Classes(np.asarray(bunch.target_names)), name="digits")


def means(fit: Any, digits: Dataset) -> list[np.ndarray]:
    """The mean activation of each unit of each hidden layer over the data."""
    scaled = jax.vmap(fit.predictor.scaler)(jnp.asarray(digits.inputs[:600], jnp.float32))
    units = run_with_units(apply_batch, fit.predictor.network, scaled, None)[1]
    return [np.asarray(one.activations).mean(0) for one in units]


def test_the_mean_activation_of_a_layer_goes_to_its_target(digits: Dataset) -> None:
    """Of layer 1 alone: the other one is free, and few more digits are mistaken."""
    free = train(recipe_with(), digits, key=jr.key(0))
    held = train(recipe_with(KlToTarget(0.3, target=0.1, where="layers.1")), digits, key=jr.key(0))
    before, after = means(free, digits), means(held, digits)
    assert before[1].mean() > 0.4
    assert after[1].mean() == pytest.approx(0.1, abs=0.03)
    assert np.abs(after[1] - 0.1).max() < 0.05
    assert after[0].mean() > 0.4
    assert held.test < free.test + 0.02
    assert held.test < 0.06


@pytest.mark.slow
def test_units_of_a_rectifier_rest_more_often(digits: Dataset) -> None:
    model = Mlp(widths=(24,), dropout=0.0)
    free = train(recipe_with(model=model), digits, key=jr.key(0))
    held = train(recipe_with(L1Codes(0.1), model=model), digits, key=jr.key(0))
    assert means(held, digits)[0].mean() < 0.6 * means(free, digits)[0].mean()
    assert held.test < 0.08


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_a_run_that_is_cut_goes_on_bit_for_bit(digits: Dataset, tmp_path: Path) -> None:
    stopping = Off(epochs=4.0, spacing=1.0, least_examples=1)
    recipe = recipe_with(SquaredToTarget(1.0), stopping=stopping)
    whole = train(recipe, digits, key=jr.key(0))
    cut = train(recipe, digits, key=jr.key(0), options=RunOptions(folder=tmp_path, max_seconds=0.0))
    assert cut.outcome.name == "out_of_time"
    resumed = train(recipe, digits, key=jr.key(0), options=RunOptions(folder=tmp_path, resume=True))
    assert same(whole.predictor.network, resumed.predictor.network)


def test_trials_trained_together_are_what_they_are_alone() -> None:
    """Coefficients and targets are numbers of one program; no layer is padded, since empty units would count."""
    data = tiny.data()
    jobs = [
        Job(
            number,
            tiny.recipe(epochs=4, model=Mlp(widths=(9,), activation=Sigmoid(), dropout=0.0), criterion=one),
            number,
        )
        for number, one in enumerate(
            Supervised(LOSS, penalties=(KlToTarget(coefficient, target=target),))
            for coefficient, target in ((0.5, 0.1), (3.0, 0.2), (0.1, 0.05))
        )
    ]
    runner = DeviceRunner(data)
    runner.submit(jobs)
    assert len(runner.cohorts) == 1
    together = train_alone(data, jobs)
    tiny.assert_same(together, train_alone(data, jobs, slots=Given(1)))
    assert len({one.loss for one in together}) == 3
    (cohort,) = runner.cohorts.values()
    assert cohort.queue[0][1].model == jobs[0].recipe.model


# --- written by a user

SMALL = (
    "--set",
    "model.widths=8,6",
    "--set",
    "model.activation=Sigmoid",
    "--set",
    "stopping=Off",
    "--set",
    "stopping.epochs=2",
)
WORDS = (
    "criterion.penalties.2=KlToTarget",
    "criterion.penalties.2.where=layers.1",
    "criterion.penalties.2.target=0.2",
    "criterion.penalties.2.coefficient=0.5",
)
TWO = ("--set", WORDS[0], "--set", WORDS[1])
FILE = """
[model]
widths = [8, 6]
activation = "Sigmoid"
[stopping]
class = "Off"
epochs = 2
[criterion.penalties.2]
class = "KlToTarget"
where = "layers.1"
target = 0.2
coefficient = 0.5
"""


def test_from_the_shell_in_a_file_and_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = [word for one in WORDS for word in ("--set", one)]
    assert run_program(["fit", "digits", *SMALL, *said, "--no-report", "-q", "--out", "shell"]) == 0
    Path("run.toml").write_text(FILE)
    assert run_program(["fit", "digits", "--config", "run.toml", "--no-report", "-q", "--out", "file"]) == 0
    knobs = {"model.widths": (8, 6), "model.activation": "Sigmoid", "stopping": "Off", "stopping.epochs": 2}
    asked = gw.KlToTarget(0.5, target=0.2, where="layers.1")
    given = gw.fit("digits", criterion=gw.Supervised(gw.SoftmaxLoss(), penalties=(gw.L2(), gw.L1(), asked)), set=knobs)
    plain = gw.fit("digits", set=knobs)
    for folder in ("shell", "file"):
        assert same(gw.load(folder).predictor.network, given.predictor.network)
    assert not same(plain.predictor.network, given.predictor.network)


def test_a_search_reaches_its_knobs(tmp_path: Path) -> None:
    ranges = (
        "--range",
        "criterion.penalties.2.coefficient=log(1e-3, 1)",
        "--range",
        "criterion.penalties.2.target=uniform(0.05, 0.3)",
    )
    quick = ("--finalists", "1", "--seeds", "2", "--folds", "1", "--on", "here", "--no-report", "-q", "--no-nested")
    words = ("--trials", "3", "--strategy", "random", "--out", str(tmp_path / "study"))
    assert run_program(["search", "digits", *SMALL, *TWO, *ranges, *quick, *words]) == 0
    trials = gw.load(tmp_path / "study").trials
    assert len(set(trials["criterion.penalties.2.coefficient"])) >= 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["2.where=layers.1"], "name its class first, such as criterion.penalties.2=NAME."),
        (["2=KlToTarget", "2.where=layer.1"], "no hidden layer matches the penalty's `where='layer.1'`."),
        (["2=KlToTarget", "2.target=2"], "`KlToTarget.target` must lie in (0, 1); got 2.0."),
        (["2=Contraction"], "unknown part 'Contraction'."),
    ],
    ids=["class", "where", "target", "kind"],
)
def test_a_bad_penalty_is_one_line(
    words: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = [word for one in words for word in ("--set", f"criterion.penalties.{one}")]
    assert run_program(["fit", "digits", *SMALL, *said, "--out", str(tmp_path / "run"), "-q"]) == 2
    answer = capfd.readouterr().err
    assert answer.startswith("error: ")
    assert message in answer
    assert answer.count("\n") == 1


def test_penalties_of_a_code_can_be_written_from_the_shell_too(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "criterion.on_codes.0=Contraction", "--set", "criterion.on_codes.0.coefficient=0.3")
    assert run_program(["fit", "digits", "--unsupervised", *words, "--dry-run"]) == 0
    assert "criterion.on_codes.0.coefficient" in capfd.readouterr().out
