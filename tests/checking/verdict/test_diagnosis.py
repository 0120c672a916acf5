"""Records diagnosed: made-up histories with known answers, and real trainings of each kind."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import pytest

import gradwise
from gradwise import defaults
from gradwise.checking.codes import found
from gradwise.checking.verdict.diagnosis import chance_of, diagnose, diagnose_study, numbers_of, read_course
from gradwise.data.splits import HoldOut
from gradwise.evaluation.metrics import METRICS, measure, wilson
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.records.data_read import ColumnRead, DataRead, SetSizes
from gradwise.records.evidence.fit_evidence import Baseline, ClassEvidence, ErrorRate, FitEvidence
from gradwise.records.fit import Fit
from gradwise.records.outcome import Outcome
from gradwise.records.study import Study
from gradwise.records.study_conclusions import Estimates
from gradwise.records.trial import Trial
from gradwise.specs.dataset import Classes
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Dimension, Space
from gradwise.training.stopping import Off, Patience
from tests.marks import parametrize_one_quick

RECIPE = defaults.classification(optimiser=Adam(learning_rate=0.01))
RATE = "optimiser.learning_rate"
PARTS = ("train", "valid", "test")


def _of_classes(confusion: Any, counts: list[int] = [], errors: list[int] = []) -> FitEvidence:  # noqa: B006
    rates = [ErrorRate(str(k), n, e, e / n, *wilson(e, n)) for k, (n, e) in enumerate(zip(counts, errors, strict=True))]
    return FitEvidence(ClassEvidence(confusion=confusion, rates=tuple(rates)))


def _record(
    train: float, test: float, curve: Any = (), valid: Any = None, outcome: str = "finished", **changes: Any
) -> Fit:
    """A run on two classes of 500 test examples each, with these losses."""
    curve = list(curve)
    valid = curve if valid is None else list(valid)
    best = [loss == min(valid[: k + 1]) for k, loss in enumerate(valid)]
    history = {
        "age_examples": [1000 * (k + 1) for k in range(len(curve))],
        "train_loss": curve,
        "valid_loss": valid,
        "best": best,
    }
    made = Fit(
        recipe=RECIPE,
        outcome=Outcome(outcome, 1000 * len(curve)),
        task="classes",
        metric="error_rate",
        metrics={part: {"error_rate": value} for part, value in zip(PARTS, (train, test, test), strict=True)},
        test_interval=(math.nan, math.nan),
        history=history,
        evidence=_of_classes([[500, 0], [0, 500]], [500, 500], [1, 1]),
        data=DataRead("mine", rows=SetSizes(5000, 1000, 1000), shape=(3,)),
        findings=(),
        seconds=1.0,
        seed=0,
        version="0",
        machine={},
    )
    return dataclasses.replace(made, **changes)


STEPS = np.arange(40)
FALLING = np.exp(-STEPS / 4.0) + 0.01
SLOW = 1.0 - 0.005 * STEPS
FLAT = np.full(40, 0.5)


def _codes(record: Fit) -> list[tuple[str, str]]:
    return [(one.level, one.code) for one in diagnose(record)[1]]


def test_a_good_run_is_only_called_so() -> None:
    assert _codes(_record(0.0, 0.01, FALLING, outcome="patience")) == [("note", "GW805")]


def test_divergence_names_a_smaller_rate_and_is_said_once() -> None:
    judged, told = diagnose(_record(math.nan, math.nan, [1.0], outcome="diverged"))
    assert judged.kind == "broken"
    assert [(one.level, one.code, one.where) for one in told] == [("error", "GW501", RATE)]
    assert told[0].next == f"gradwise fit mine --set {RATE}=0.0033"
    known = found("GW501", "the run diverged.")
    judged, told = diagnose(_record(math.nan, math.nan, [1.0], outcome="diverged", findings=(known,)))
    assert told == ()
    assert judged.kind == "broken"


def test_a_slow_run_names_a_larger_rate() -> None:
    judged, told = diagnose(_record(0.45, 0.45, SLOW))
    assert [one.code for one in told] == ["GW502", "GW801"]
    assert told[0].next == f"gradwise fit mine --set {RATE}=0.1"
    assert any(f"{RATE}=0.1`" in remedy for remedy in judged.remedies)


@pytest.mark.parametrize(
    "curve", [0.5 + 0.4 * (-1.0) ** STEPS, np.where(STEPS < 12, 1.0 - 0.07 * STEPS, 0.9)], ids=["jumping", "rising"]
)
def test_a_curve_that_jumps_or_rises_names_a_smaller_rate(curve: Any) -> None:
    told = diagnose(_record(0.4, 0.41, curve))[1]
    assert ("warning", "GW501") in [(one.level, one.code) for one in told]
    quiet = diagnose(_record(0.0, 0.01, curve))[1]  # it learned all the same
    assert [one.code for one in quiet] == ["GW805"]


def test_a_plateau_says_nothing_of_the_rate() -> None:
    assert _codes(_record(0.4, 0.41, FLAT, outcome="patience")) == [("warning", "GW801")]


@pytest.mark.parametrize(
    ("curve", "outcome", "told"),
    [
        (np.exp(-STEPS / 40.0), "patience", True),
        ([1.0, 0.8, 0.6], "patience", True),
        (FLAT, "patience", False),
        (np.exp(-STEPS / 40.0), "finished", False),  # its own finding says so, where the run is made
    ],
)
def test_patience_that_is_too_short_is_told(curve: Any, outcome: str, told: bool) -> None:
    record = _record(0.0, 0.02, curve, outcome=outcome)
    assert ("GW706" in [code for _, code in _codes(record)]) == told
    known = dataclasses.replace(record, findings=(found("GW706", "still improving."),))
    assert "GW706" not in [code for _, code in _codes(known)]
    off = dataclasses.replace(record, recipe=dataclasses.replace(RECIPE, stopping=Off()))
    assert "GW706" not in [code for _, code in _codes(off)]


def test_a_gap_that_opens_is_overfitting() -> None:
    valid = np.where(STEPS < 10, 1.0 - 0.05 * STEPS, 0.55 + 0.01 * (STEPS - 10))
    record = _record(0.2, 0.24, FALLING, valid, outcome="patience")
    assert read_course(record.history).gap_opening
    judged, _ = diagnose(record)
    assert judged.kind == "overfitting"
    noise = 0.5 + 0.05 * np.random.default_rng(0).normal(size=40)
    assert not read_course(_record(0.2, 0.24, FALLING, noise).history).gap_opening
    assert diagnose(_record(0.2, 0.24, FALLING, noise, outcome="patience"))[0].kind == "optimisation"


def test_a_rare_class_that_suffers_is_told() -> None:
    evidence = _of_classes([[940, 10], [40, 10]], [950, 50], [10, 40])
    metrics = {part: {"error_rate": 0.05} for part in ("train", "valid", "test")}
    told = diagnose(_record(0.05, 0.05, FALLING, evidence=evidence, metrics=metrics))[1]
    (rare,) = [one for one in told if one.code == "GW207"]
    assert "class 1 is 5.0\u202f%" in rare.what
    assert "--class-weight balanced" in rare.next
    fair = _of_classes([[940, 10], [40, 10]], [950, 50], [10, 3])
    assert "GW207" not in [one.code for one in diagnose(_record(0.01, 0.01, FALLING, evidence=fair))[1]]


def test_a_rare_class_that_suffers_is_told_of_a_search_too() -> None:
    evidence = _of_classes([[940, 10], [40, 10]], [950, 50], [10, 40])
    estimates = Estimates({"test": {"error_rate": 0.05}}, test=0.05, evidence=evidence)
    study = dataclasses.replace(
        _study([0.1], ["finished"], [1.0]),
        estimates=estimates,
        settings={"command": "gradwise search mine.csv --seed 0"},
    )
    (rare,) = diagnose_study(study)
    assert (rare.code, rare.where) == ("GW207", "1")
    assert rare.next == ("gradwise search mine.csv --seed 0 --class-weight balanced --metric balanced_error_rate")


def test_columns_that_never_change_and_a_small_test_are_told() -> None:
    columns = (ColumnRead("a", constant=True), ColumnRead("b"))
    data = DataRead("mine", columns=columns, shape=(2,), rows=SetSizes(100, test=40), command="gradwise fit x")
    evidence = _of_classes([[20, 0], [0, 20]], [20, 20], [0, 0])
    record = _record(0.0, 0.02, FALLING, data=data, evidence=evidence, test_interval=(0.01, 0.2))
    told = {one.code: one for one in diagnose(record)[1]}
    assert told["GW205"].next == "gradwise fit x --drop a"
    assert told["GW804"].next == "gradwise fit x --folds 10"
    assert set(told) == {"GW205", "GW804", "GW805"}


def _beside(*baselines: Baseline) -> FitEvidence:
    return dataclasses.replace(_of_classes([[500, 0], [0, 500]], [500, 500], [1, 1]), baselines=baselines)


def test_a_simple_model_that_is_clearly_better_is_told_with_what_to_try() -> None:
    linear = Baseline("linear model", {"error_rate": 0.015}, 100, (0.001, 0.009))
    trees = Baseline("gradient boosting", {"error_rate": 0.01}, 100, (0.004, 0.016))
    data = DataRead("mine", rows=SetSizes(5000, 1000, 1000), command="gradwise fit mine.csv --target y --seed 0")
    record = _record(0.0, 0.02, FALLING, data=data, evidence=_beside(linear, trees))
    told = {one.code: one for one in diagnose(record)[1]}["GW808"]
    assert told.level == "warning"
    assert told.what.replace("\u202f", " ") == (
        "on the same test rows the gradient boosting baseline is clearly better: error 1.0 %, the network's 2.0 %."
    )
    assert "gradwise search mine.csv --target y --seed 0 --budget 10min" in told.next
    assert (told.evidence["baseline"], told.evidence["low"]) == (0.01, 0.004)
    folded = dataclasses.replace(data, command=f"{data.command} --folds 5")  # which means another thing to a search
    again = {one.code: one for one in diagnose(dataclasses.replace(record, data=folded))[1]}["GW808"]
    assert again.next == told.next


def test_a_simple_model_within_the_noise_is_not_told() -> None:
    close = Baseline("linear model", {"error_rate": 0.01}, 100, (-0.001, 0.02))
    assert "GW808" not in {one.code for one in diagnose(_record(0.0, 0.02, FALLING, evidence=_beside(close)))[1]}


def test_a_study_is_compared_too_and_the_higher_auc_is_the_better_one() -> None:
    worse = Baseline("gradient boosting", {"auc": 0.91}, 100, (0.01, 0.02))
    better = Baseline("linear model", {"auc": 0.95}, 100, (0.01, 0.09))
    estimates = Estimates(test=0.9, evidence=FitEvidence(baselines=(worse, better)))
    study = dataclasses.replace(_study([0.1], ["finished"], [1.0]), metric="auc", estimates=estimates)
    (told,) = diagnose_study(study)
    assert (told.code, told.where) == ("GW808", "linear model")
    assert "AUC 0.950, the network's 0.900" in told.what


def test_chance_is_that_of_a_constant() -> None:
    record = _record(0.1, 0.1, evidence=_of_classes([[5, 5, 0], [0, 20, 0], [10, 0, 20]]))
    shares = np.array([10, 20, 30]) / 60
    assert chance_of(record) == pytest.approx(0.5)
    loss = dataclasses.replace(record, metric="log_loss")
    assert chance_of(loss) == pytest.approx(-(shares * np.log(shares)).sum())
    assert chance_of(dataclasses.replace(record, metric="balanced_error_rate")) == pytest.approx(2 / 3)
    targets = np.repeat(range(3), [10, 20, 30])
    always = np.tile([0.2, 0.3, 0.5], (60, 1))  # the constant prediction of the largest class
    told = measure(Classes(np.arange(3)), always, targets, None)
    for metric in set(METRICS["classes"]) - {"log_loss"}:
        assert chance_of(dataclasses.replace(record, metric=metric)) == pytest.approx(told[metric]), metric
    numbers = dataclasses.replace(record, task="numbers", metric="rmse", metrics={"test": {"rmse": 3.0, "r2": 0.75}})
    assert chance_of(numbers) == pytest.approx(6.0)


def test_an_unsupervised_run_is_judged_by_its_gap_alone() -> None:
    metrics = {"train": {"loss": 0.30}, "valid": {"loss": 0.31}, "test": {"loss": 0.31}}
    record = _record(0, 0, FALLING, task="inputs", metric="loss", metrics=metrics, evidence=FitEvidence())
    assert diagnose(record)[0].kind == "fine"


def _study(scores: list[float], outcomes: list[str], curve: list[float], chance: float = 0.5) -> Study:
    space = Space(RECIPE, (Dimension(RATE, LogUniform(1e-4, 10.0)),))
    rates = [1e-3 * 4**k for k in range(len(scores))]
    trials = tuple(
        Trial(k, RECIPE, {RATE: rate}, outcome, score, curve={"train_loss": curve})
        for k, (rate, score, outcome) in enumerate(zip(rates, scores, outcomes, strict=True))
    )
    given = {"settings": {}, "data": DataRead("mine"), "seed": 0, "seconds": 1.0, "version": "0", "machine": {}}
    return Study("classes", "error_rate", space, space, "random", True, trials, chance=chance, **given)  # type: ignore[arg-type]


def test_a_study_whose_trials_diverge_or_learn_nothing_says_so() -> None:
    ok, lost = ["finished"] * 4, ["finished", "finished", "diverged", "diverged"]
    assert diagnose_study(_study([0.1, 0.2, 0.3, 0.4], ok, [1.0, 0.5])) == ()
    (rate,) = diagnose_study(_study([0.1, 0.2, math.nan, math.nan], lost, [1.0, 0.5]))
    assert (rate.code, rate.level, rate.where) == ("GW501", "warning", RATE)
    assert "from a learning rate of 0.016 upwards" in rate.what
    assert rate.next == f"gradwise search mine --range '{RATE}=log(4e-05, 0.004)'"
    for curve, code in (([1.0, 0.99], "GW801"), ([1.0, 0.1], "GW210")):
        (told,) = diagnose_study(_study([0.5, 0.51, 0.5, 0.6], ok, curve))
        assert told.code == code
        known = dataclasses.replace(_study([0.5] * 4, ok, curve), findings=(told,))
        assert diagnose_study(known) == ()


SMALL = Mlp(widths=(64,), dropout=0.0)
REAL = {
    "optimisation": defaults.classification(
        model=SMALL, optimiser=Adam(learning_rate=1e-6), stopping=Patience(epochs=20.0)
    ),
    "overfitting": defaults.classification(split=HoldOut(0.2, 0.766), model=SMALL, stopping=Patience(epochs=100.0)),
    "fine": defaults.classification(model=SMALL),
    "capacity": defaults.classification(
        model=Mlp(widths=(2,), dropout=0.0), optimiser=Adam(learning_rate=0.01), stopping=Patience(epochs=100.0)
    ),
}


@parametrize_one_quick("name", REAL)
def test_real_trainings_are_told_apart(name: str) -> None:
    record = gradwise.train(REAL[name], gradwise.read("digits"), key=jax.random.key(0))
    judged, told = diagnose(record)
    assert judged.kind == {"capacity": "optimisation"}.get(name, name)
    codes = [one.code for one in (*record.findings, *told)]
    assert ("GW502" in codes) == (name == "optimisation") or name == "capacity"  # which was cut short
    assert not any(one.level == "error" for one in told)
    assert numbers_of(record, read_course(record.history)).chance == pytest.approx(0.9, abs=0.02)
    if name == "capacity":
        assert any("model.widths=4" in remedy for remedy in judged.remedies)
    if name == "optimisation":
        assert "learning_rate=1e-05" in judged.remedies[1]
