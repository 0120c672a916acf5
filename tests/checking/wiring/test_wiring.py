"""Parameters and inputs without effect, frozen layers and summed losses, each beside its sound twin."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise.checking.rehearsal import rehearse
from gradwise.checking.subject import Subject
from gradwise.checking.wiring.example_mixing import Leak, MixingMeasured
from gradwise.checking.wiring.training_mode import ModesMeasured
from gradwise.checking.wiring.wiring import UnmovedParameter, WiringMeasured, find_wiring, measure_wiring
from gradwise.specs.contracts import Batch

KEY = jr.key(0)
ROWS = np.random.default_rng(0).normal(size=(24, 5)).astype("float32")
ROWS[:, 4] = 0.0  # constant, as the border of an image
NUMBERS = (ROWS @ np.array([1.0, -1.0, 0.5, 0.2, 0.0]) + 0.1).astype("float32")
MODEL = {
    "first": {"w": 0.5 * jr.normal(jr.key(1), (5, 8)), "b": jnp.zeros(8)},
    "last": {"w": 0.5 * jr.normal(jr.key(2), (8, 1)), "b": jnp.zeros(1)},
}
NAMES = ("age", "height", "weight", "income", "border")


def apply(model, inputs):
    hidden = jax.nn.relu(inputs @ model["first"]["w"] + model["first"]["b"])
    return (hidden @ model["last"]["w"] + model["last"]["b"])[:, 0]


def squared(model, x, y):
    return jnp.mean((apply(model, x) - y) ** 2)


def check(loss, model=MODEL, batch=(ROWS, NUMBERS), *, rehearsed=False, **more):
    subject = Subject.of(loss, model, batch, **{"apply": apply, "columns": NAMES, **more})
    rehearsal = rehearse(subject, updates=5, key=KEY) if rehearsed else None
    measured = measure_wiring(subject, rehearsal, key=KEY)
    return measured, find_wiring(measured)


def test_a_sound_problem_raises_nothing_and_its_numbers_are_right():
    measured, findings = check(squared, rehearsed=True, optimiser=optax.sgd(0.01))
    assert findings == ()
    assert measured.columns_asked == 4  # the constant one cannot be told
    assert measured.trained == 4
    at = jax.tree.map(np.asarray, MODEL)
    hidden = np.maximum(ROWS[:5] @ at["first"]["w"], 0)
    direct = np.mean(((hidden @ at["last"]["w"])[:, 0] - NUMBERS[:5]) ** 2)
    np.testing.assert_allclose(measured.sized, [direct] * 3, rtol=1e-5)


def test_parameters_that_nothing_reads_are_told_from_detached_and_dead_ones():
    spare = {**MODEL, "spare": jnp.ones(3), "spare2": jnp.ones((2, 2)), "detached": jnp.ones(())}

    def loss(model, x, y):
        return squared(model, x * jax.lax.stop_gradient(model["detached"]), y)

    measured, (finding,) = check(loss, spare)
    assert measured.unused == ("spare", "spare2")
    assert (finding.code, finding.level, finding.where) == ("GW302", "warning", "spare")
    assert check(loss, spare, frozen="spare*")[1] == ()
    dead = {**MODEL, "first": {**MODEL["first"], "b": jnp.full(8, -50.0)}}  # dead rectifiers: not a matter of wiring
    assert check(squared, dead)[1] == ()


def test_a_layer_that_the_optimiser_leaves_out_is_an_error_unless_declared():
    def kind(path, _):
        return "still" if path[0].key == "first" else "moves"

    labels = jax.tree_util.tree_map_with_path(kind, MODEL)
    optimiser = optax.multi_transform({"moves": optax.sgd(0.01), "still": optax.set_to_zero()}, labels)
    measured, (finding,) = check(squared, rehearsed=True, optimiser=optimiser)
    assert (finding.code, finding.level) == ("GW303", "error")
    assert finding.where.startswith("first.")
    assert {one.name for one in measured.still} == {"first.w", "first.b"}
    assert check(squared, rehearsed=True, optimiser=optimiser, frozen="first.*")[1] == ()
    nothing = check(squared, rehearsed=True, optimiser=optax.sgd(0.0))[1]
    assert [(f.code, f.level) for f in nothing] == [("GW303", "warning")]


@pytest.mark.slow
def test_inputs_without_effect_are_named():
    def blind(model, inputs):
        return apply(model, inputs.at[:, 1].set(0.0))

    def rounded(model, inputs):
        """No slope, but an effect."""
        return apply(model, jnp.round(inputs))

    def deaf(model, inputs):
        return apply(model, 0.0 * inputs)

    def loss_of(forward):
        return lambda model, x, y: jnp.mean((forward(model, x) - y) ** 2)

    measured, (finding,) = check(loss_of(blind), apply=blind)
    assert (finding.code, finding.level, finding.where) == ("GW304", "warning", "height")
    assert measured.columns_unused == (1,)
    assert "GW304" not in [f.code for f in check(loss_of(rounded), apply=rounded)[1]]
    every = [f for f in check(loss_of(deaf), apply=deaf)[1] if f.code == "GW304"]
    assert [f.level for f in every] == ["error"]
    zero = {**MODEL, "last": {"w": jnp.zeros((8, 1)), "b": jnp.zeros(1)}}  # outputs that begin at 0
    assert check(squared, zero)[1] == ()


def test_whole_numbers_are_exchanged_instead():
    tokens = np.random.default_rng(1).integers(0, 6, size=(24, 3))
    model = {"table": jr.normal(KEY, (6, 4)), "v": jr.normal(jr.key(1), (4,))}

    def read(places):
        def forward(model, inputs):
            return model["table"][inputs[:, places]].mean(1) @ model["v"]

        return forward

    def columns(forward):
        measured, findings = check(
            lambda model, x, y: jnp.mean((forward(model, x) - y) ** 2),
            model,
            (tokens, NUMBERS),
            apply=forward,
            columns=(),
        )
        return measured.columns_unused, [(f.code, f.where) for f in findings]

    assert columns(read(slice(0, 2))) == ((2,), [("GW304", "inputs[:, 2]")])
    assert columns(read(slice(0, 3))) == ((), [])


@pytest.mark.parametrize("penalty", [0.0, 100.0])
def test_a_sum_is_told_from_a_mean_whatever_the_penalty(penalty):
    def decay(model):
        return penalty * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(model))

    def summed(model, x, y):
        return jnp.sum((apply(model, x) - y) ** 2) + decay(model)

    def averaged(model, x, y):
        return squared(model, x, y) + decay(model)

    _, (finding,) = check(summed)
    assert (finding.code, finding.level) == ("GW309", "warning")
    assert finding.evidence["power"] == pytest.approx(1.0, abs=1e-6)
    assert finding.evidence["constant"] == pytest.approx(float(decay(MODEL)), rel=1e-5, abs=1e-4)
    assert check(averaged)[1] == ()


def test_contrastive_gradwise_and_noisy_losses_are_no_sums():
    def contrastive(model, x, key):
        codes = jax.nn.relu(x @ model["first"]["w"])
        views = codes * jr.bernoulli(key, 0.8, codes.shape)
        return -jnp.mean(jnp.diag(jax.nn.log_softmax(codes @ views.T, axis=1)))

    measured, findings = check(contrastive, {"first": {"w": MODEL["first"]["w"]}}, ROWS, apply=None)
    assert findings == ()
    assert np.diff(measured.sized) == pytest.approx(np.log(2), abs=0.5)

    def contract(model, batch, key):
        return jnp.sum(batch.weights * (apply(model, batch.inputs) - batch.targets) ** 2) / batch.weights.shape[0]

    ones = np.ones(24, "float32")
    assert check(contract, MODEL, Batch(ROWS, NUMBERS, ones, ones, jnp.asarray(24.0)))[1] == ()


class Dropping(eqx.Module):
    mlp: eqx.nn.MLP
    dropout: eqx.nn.Dropout

    def __call__(self, x, key=None):
        return self.mlp(self.dropout(x, key=key))


@pytest.mark.slow
def test_an_equinox_network_with_dropout_is_sound():
    model = Dropping(eqx.nn.MLP(5, "scalar", 8, 2, key=KEY), eqx.nn.Dropout(0.5))

    def loss(model, batch, key):
        outputs = jax.vmap(model)(batch[0], jr.split(key, len(batch[0])))
        return jnp.mean((outputs - batch[1]) ** 2)

    measured, findings = check(loss, model, apply=None, rehearsed=True, optimiser=optax.adam(1e-2))
    assert findings == ()
    assert measured.columns_asked == 4
    assert measured.sized_noise == 0.0  # the noise was switched off


def test_numbers_alone_decide():
    assert find_wiring(WiringMeasured()) == ()
    lost = WiringMeasured(still=(UnmovedParameter("w", 1e-9, 1e-12),), trained=3)
    assert [f.level for f in find_wiring(lost)] == ["warning"]
    some = WiringMeasured(
        columns_asked=40, columns_unused=(1, 2, 3, 5), columns_untold=6, column_names=("a", "b", "c", "d")
    )
    (finding,) = find_wiring(some)
    assert "10 of 40 inputs do not affect the outputs: `a`, `b`, `c` and 7 more" in finding.what
    assert [f.code for f in find_wiring(WiringMeasured(sized=(1.0, 2.0, 4.0)))] == ["GW309"]
    assert find_wiring(WiringMeasured(sized=(1.0, 2.0, 4.0), sized_noise=0.2)) == ()
    assert find_wiring(WiringMeasured(sized=(1.0, 1.7, 2.4))) == ()  # a logarithm
    leaking = WiringMeasured(mixing=MixingMeasured(evaluation=Leak(0.5)), modes=ModesMeasured(reference=0.3))
    assert [f.code for f in find_wiring(leaking)] == ["GW305"]
    assert [f.code for f in find_wiring(dataclasses.replace(leaking, mixing=MixingMeasured()))] == ["GW307"]
