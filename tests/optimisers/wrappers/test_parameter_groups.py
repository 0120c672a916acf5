"""Knobs per layer and per kind of parameter (row C10)."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradwise as gw
from gradwise.cli.main import run_program
from gradwise.optimisers.adaptive.adam import Adam, AdamW
from gradwise.optimisers.averaging.parameter_average import MovingAverage, PolyakAverage
from gradwise.optimisers.first_order.schedules import SelfTimed
from gradwise.optimisers.first_order.sgd import HeavyBall, Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.paths import named_leaves

LAYER = {"weight": jnp.asarray([[1.0, 2.0]]), "bias": jnp.asarray([3.0])}
START = {
    "layers": (LAYER, {"weight": jnp.asarray([[4.0]]), "bias": jnp.asarray([5.0])}),
    "output": {"weight": jnp.ones(2)},
}
NAMES = [name for name, _ in named_leaves(START)]


@eqx.filter_jit
def run(optimiser: AbstractOptimiser, updates: int = 8):
    """All points, judged points and rates; the gradient is the point itself."""

    def body(carry, _):
        point, state = carry
        value = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(point)) / 2
        moves, state = optimiser.build().update(point, state, point, value=value)
        point = optax.apply_updates(point, moves)
        return (point, state), (point, optimiser.judged(point, state), optimiser.rate(state))

    return jax.lax.scan(body, (START, optimiser.build().init(START)), None, length=updates)[1]


def leaves(tree) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in named_leaves(tree)}


def test_each_group_has_its_own_rate_and_the_first_match_wins() -> None:
    groups = (ParameterGroup("layers.0.*", Sgd(0.1)), ParameterGroup("*.bias", Sgd(0.02)))
    points, _, rates = run(Grouped(Sgd(0.01), groups=groups))
    expected = {
        "layers.0.weight": 0.1,
        "layers.0.bias": 0.1,  # both groups match: the first takes it
        "layers.1.weight": 0.01,
        "layers.1.bias": 0.02,
        "output.weight": 0.01,
    }
    assert sorted(expected) == sorted(NAMES)
    for name, found in leaves(points).items():
        np.testing.assert_allclose(found[-1], leaves(START)[name] * (1 - expected[name]) ** 8, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(rates, 0.01, rtol=1e-6)  # the base optimiser's


def test_groups_may_follow_different_rules() -> None:
    """Each group moves as it would under its optimiser alone."""
    groups = (ParameterGroup("*.bias", HeavyBall(0.05)), ParameterGroup("output.*", AdamW(0.1, decay=0.2)))
    mixed = leaves(run(Grouped(Adam(0.03), groups=groups))[0])
    alone = {
        "bias": leaves(run(HeavyBall(0.05))[0]),
        "output": leaves(run(AdamW(0.1, decay=0.2))[0]),
        "base": leaves(run(Adam(0.03))[0]),
    }
    for name, found in mixed.items():
        whose = "bias" if name.endswith("bias") else "output" if name.startswith("output") else "base"
        np.testing.assert_allclose(found, alone[whose][name], rtol=1e-5, err_msg=name)


def test_an_average_inside_a_group_is_judged_there() -> None:
    """The biases are averaged, the others stand as they are; and the other way round."""
    for base, group, averaged in (
        (Sgd(0.1), PolyakAverage(Sgd(0.1)), lambda name: name.endswith("bias")),
        (MovingAverage(Sgd(0.1), decay=0.99), Sgd(0.1), lambda name: not name.endswith("bias")),
    ):
        points, judged, rates = run(Grouped(base, groups=(ParameterGroup("*.bias", group),)))
        for name, found in leaves(judged).items():
            seen = leaves(points)[name]
            means = np.cumsum(seen, 0) / np.arange(1, 9).reshape(-1, *[1] * (seen.ndim - 1))
            np.testing.assert_allclose(found, means if averaged(name) else seen, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(rates, 0.1, rtol=1e-6)


def test_an_average_around_groups_takes_in_all_of_them() -> None:
    points, judged, rates = run(PolyakAverage(Grouped(Sgd(0.1), groups=(ParameterGroup("*.bias", Sgd(0.3)),))))
    for name, found in leaves(judged).items():
        np.testing.assert_allclose(found[-1], leaves(points)[name].mean(0), rtol=1e-5)
    np.testing.assert_allclose(rates, 0.1, rtol=1e-6)


def test_the_criterion_reaches_the_schedules_of_groups() -> None:
    """A self-timed schedule sees the training criterion through the groups: at a rate of 1e-6 nothing improves."""
    still = Sgd(1e-6, schedule=SelfTimed(window_updates=2.0))
    rates = run(Grouped(still, groups=(ParameterGroup("*.bias", Sgd(1e-6)),)))[2]
    np.testing.assert_allclose(rates, 1e-6 * np.asarray([1, 1, 1, 1, 3 / 4, 3 / 5, 3 / 6, 3 / 7]), rtol=1e-5)


def test_a_group_that_matches_nothing_is_refused_with_the_paths() -> None:
    with pytest.raises(RequestError, match=r"no parameter matches the group `layer\.\*`.*layers\.0\.bias") as refusal:
        run(Grouped(Sgd(), groups=(ParameterGroup("layer.*", Sgd()),)))
    assert "\n" not in str(refusal.value)
    assert all(name in str(refusal.value) for name in NAMES)


def test_groups_may_take_everything() -> None:
    points, judged, _ = run(Grouped(Sgd(0.5), groups=(ParameterGroup("*", Sgd(0.1)),)))
    for name, found in leaves(points).items():
        np.testing.assert_allclose(found[-1], leaves(START)[name] * 0.9**8, rtol=1e-5)
        np.testing.assert_array_equal(leaves(judged)[name], found)


class Asking(AbstractOptimiser):
    """An optimiser that reads the objective."""

    needs_objective = True

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(optax.sgd(0.1))

    def rate(self, state):
        return jnp.asarray(0.1)


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: Grouped(Asking(), groups=(ParameterGroup("*.bias", Sgd()),)), "base"),
        (lambda: Grouped(Sgd(), groups=(ParameterGroup("*.bias", Asking()),)), "groups.0.optimiser"),
        (
            lambda: Grouped(Sgd(), groups=(ParameterGroup("*.bias", PolyakAverage(Asking())),)),
            "groups.0.optimiser.optimiser",
        ),
    ],
    ids=["base", "group", "inside an average"],
)
def test_an_optimiser_that_asks_has_no_group_of_its_own(make, path: str) -> None:
    """It speaks of all parameters at once, and a group sees some."""
    with pytest.raises(RequestError, match=rf"`Grouped\.{path}` is Asking.*all parameters at once") as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_an_average_may_stand_around_an_optimiser_that_asks() -> None:
    points, judged, _ = run(PolyakAverage(Asking()))
    for name, found in leaves(judged).items():
        np.testing.assert_allclose(found[-1], leaves(points)[name].mean(0), rtol=1e-5)


SMALL = ("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=1", "--set", "model.dropout=0")
FIRST = ("--set", "optimiser=Grouped", "--set", "optimiser.groups.0.where=layers.0.*")


def weights(model: gw.Model) -> dict[str, np.ndarray]:
    return leaves(model.predictor.network)


def test_groups_are_written_from_the_shell_and_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three spellings of one recipe train the same network, and it is not that of the base alone."""
    base = MovingAverage(Adam(0.003))
    groups = (ParameterGroup("layers.0.*", MovingAverage(Adam(0.02))), ParameterGroup("*.bias", Sgd(0.05)))
    knobs = {"model.widths": 8, "stopping": "Off", "stopping.epochs": 1, "model.dropout": 0}
    asked = {
        path: weights(gw.fit("digits", optimiser=one, set=knobs))
        for path, one in (("grouped", Grouped(base, groups=groups)), ("base", base))
    }
    monkeypatch.chdir(tmp_path)
    words = (
        "optimiser.base.learning_rate=0.003",
        "optimiser.groups.1.optimiser=Sgd",
        "optimiser.groups.1.where=*.bias",
        "optimiser.groups.1.learning_rate=0.05",
        "optimiser.groups.0.learning_rate=0.02",
    )
    said = [word for one in words for word in ("--set", one)]
    assert run_program(["fit", "digits", *SMALL, *FIRST, *said, "--no-report", "-q", "--out", "shell"]) == 0
    Path("run.toml").write_text(
        """
        [model]
        widths = 8
        dropout = 0
        [stopping]
        class = "Off"
        epochs = 1
        [optimiser]
        class = "Grouped"
        base.learning_rate = 0.003
        [[optimiser.groups]]
        where = "layers.0.*"
        learning_rate = 0.02
        [[optimiser.groups]]
        where = "*.bias"
        class = "ParameterGroup"
        optimiser.class = "Sgd"
        optimiser.learning_rate = 0.05
        """
    )
    assert run_program(["fit", "digits", "--config", "run.toml", "--no-report", "-q", "--out", "file"]) == 0
    for folder in ("shell", "file"):
        found = weights(gw.load(folder))
        for name, expected in asked["grouped"].items():
            np.testing.assert_array_equal(found[name], expected, err_msg=f"{folder} {name}")
            assert np.abs(expected - asked["base"][name]).max() > 1e-3, name


def test_the_knobs_of_a_group_are_searched(tmp_path: Path) -> None:
    words = ("--range", "optimiser.groups.0.learning_rate=log(1e-3, 1e-2)", "--trials", "3", "--strategy", "random")
    rest = ("--set", "optimiser.base.learning_rate=0.02", "--set", "criterion.penalties.0.coefficient=0", "--no-nested")
    quick = ("--finalists", "1", "--seeds", "2", "--folds", "1", "--on", "here", "--no-report", "-q")
    folder = tmp_path / "study"
    assert run_program(["search", "digits", *SMALL, *FIRST, *rest, *words, *quick, "--out", str(folder)]) == 0
    study = gw.load(folder)
    path = "optimiser.groups.0.optimiser.optimiser.learning_rate"
    tried = study.trials[path].to_numpy(dtype=float)
    assert len(set(tried)) >= 3
    assert ((tried >= 1e-3) & (tried <= 1e-2)).all()
    assert study.record.space.recipe.optimiser.groups[0].where == "layers.0.*"
    assert float(study.record.space.recipe.optimiser.base.optimiser.learning_rate) == 0.02
    scores = [trial.score for trial in study.record.trials]
    assert len(set(scores)) > 1  # the rate reaches the training


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0.where=layer.0.*"], "no parameter matches the group `layer.0.*`. The paths are: layers.0.weight, "),
        (["0.where=*", "1.where=*.bias"], "the group `*.bias` gets no parameter: earlier groups took layers.0.bias, "),
        (["1.where=*.bias"], "--set optimiser.groups.1.where: `optimiser.groups` has 0 items, so the next is "),
        (["0.learning_rate=0.1"], "a new ParameterGroup needs `where`: set optimiser.groups.0.where too."),
        (["0.where=*.bias", "0.rate=1"], "unknown knob `optimiser.groups.0.rate`. Did you mean "),
        (["0.where=*.bias", "0.learning_rate=-1"], "`Adam.learning_rate` must lie in (0, inf); got -1.0."),
        (["0.where=*.bias", "0.optimiser=Lbfgs"], "`Grouped.groups.0.optimiser` is Lbfgs, which works on all "),
    ],
    ids=["no match", "taken", "number", "where", "misspelt", "range", "objective"],
)
def test_a_bad_group_is_one_line(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    said = [word for one in words for word in ("--set", f"optimiser.groups.{one}")]
    assert run_program(["fit", "digits", *SMALL, "--set", "optimiser=Grouped", *said, "--dry-run"]) == 2
    answer = capfd.readouterr().err
    assert answer.startswith("error: ")
    assert message in answer
    assert answer.count("\n") == 1
