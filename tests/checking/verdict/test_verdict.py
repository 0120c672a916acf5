"""The verdict on scripted runs of each kind, with numbers whose answer is known."""

import dataclasses
import math

import numpy as np
import pytest

from gradwise.checking.codes import found
from gradwise.checking.verdict.verdict import judge_findings, judge_run, measure_probes
from gradwise.records.evidence.verdict import Present, Probes, RunNumbers
from gradwise.runtime.errors import RequestError

PRESENT = Present("gradwise fit digits", "digits", rate=0.0015, widths=(256, 256), dropout=0.1)
BASE = RunNumbers(train=0.0, test=0.02, train_count=1000, test_count=1000, chance=0.9, present=PRESENT)

# What is said of a run with these changes, and why.
CASES = [
    ("fine", {"test": 0.02}),
    ("fine", {"train": 0.05, "test": 0.06}),
    ("fine", {"train": 0.2, "test": 0.25, "target": 0.26}),  # the level that was wanted is reached
    ("overfitting", {"train": 0.0, "test": 0.21}),
    ("overfitting", {"train": 0.0, "test": 0.9}),  # random labels, learned by heart
    ("overfitting", {"train": 0.05, "test": 0.3}),
    ("overfitting", {"train": 0.3, "test": 0.4, "gap_opening": True}),
    ("optimisation", {"train": 0.4, "test": 0.42}),
    ("optimisation", {"train": 0.89, "test": 0.9}),
    ("optimisation", {"train": 0.3, "test": 0.31, "target": 0.05}),
    ("both", {"train": 0.2, "test": 0.4}),
    ("both", {"train": 0.15, "test": 0.25, "target": 0.05}),
    ("unsure", {"train": 0.05, "test": 0.2, "test_count": 5}),
    ("unsure", {"train": 0.2, "test": 0.26, "target": 0.24}),  # it may have reached it
    ("unsure", {"train": 0.2, "test": 0.25, "test_count": 4}),
    ("broken", {"test": math.nan}),
    ("broken", {"train": 0.4, "test": 0.4, "diverged": True}),
]


@pytest.mark.parametrize(("kind", "changes"), CASES)
def test_scripted_runs_are_told_apart(kind: str, changes: dict[str, float]) -> None:
    said = judge_run(dataclasses.replace(BASE, **changes))  # type: ignore[arg-type]
    assert said.kind == kind
    assert kind in ("broken", "optimisation", "overfitting", "both", "fine", "unsure")
    code = {"fine": "GW805", "overfitting": "GW802", "optimisation": "GW801", "both": "GW803", "unsure": "GW804"}
    assert [one.code for one in said.findings] == ([code[kind]] if kind in code else [])
    assert (said.remedies == ()) == (kind == "fine")


def test_squared_errors_add_up_and_scores_that_should_rise_are_turned_round() -> None:
    rmse = RunNumbers(train=10.0, test=60.0, train_count=500, test_count=500, metric="rmse", chance=77.0)
    rmse = dataclasses.replace(rmse, test_interval=(57.0, 63.0))
    said = judge_run(rmse)
    assert said.kind == "overfitting"
    assert said.share_in_training == pytest.approx((10 / 77) ** 2)
    assert said.share_of_gap == pytest.approx((60**2 - 10**2) / 77**2)
    same = RunNumbers(0.4, 0.38, train_count=500, test_count=500, metric="r2", chance=0.0, test_interval=(0.33, 0.43))
    assert judge_run(same).kind == "optimisation"
    assert judge_run(dataclasses.replace(same, train=0.99)).kind == "overfitting"


def test_without_numbers_the_findings_speak() -> None:
    error = found("GW102", "the gradient is half.", where="layers.0.weight", next="look at line 3.")
    warning = found("GW204", "inputs are not scaled.", next="scale them.")
    both = judge_findings((error, error, warning), "loss", 3)
    assert both.sentence == "Something is broken: 2 errors, first GW102 at layers.0.weight: the gradient is half."
    assert both.remedies == ("look at line 3.", "scale them.")
    assert judge_findings((warning,), "loss", 3).kind == "unsure"
    assert judge_findings((), "loss", 1).sentence == "Nothing stands out: 1 check of loss passed."


def test_the_interval_of_the_gap_is_newcombes() -> None:
    # Newcombe 1998, method 10, his example (a): 56/70 against 48/80 gives 0.0524 to 0.3339.
    said = judge_run(RunNumbers(48 / 80, 56 / 70, train_count=80, test_count=70, chance=1.0))
    assert said.least_gap == pytest.approx(0.0524, abs=5e-5)


def test_errors_come_before_any_other_reading() -> None:
    error = found("GW102", "the gradient is half.", where="layers.0.weight", next="look at line 3.")
    warning = found("GW204", "inputs are not scaled.")
    said = judge_run(dataclasses.replace(BASE, test=0.3), (warning, error))
    assert said.kind == "broken"
    assert said.sentence == "Something is broken: one error, GW102 at layers.0.weight: the gradient is half."
    assert said.remedies[0] == "GW102 at layers.0.weight: look at line 3."
    assert judge_run(dataclasses.replace(BASE, test=0.3), (warning,)).kind == "overfitting"


def test_the_sentence_has_its_numbers() -> None:
    said = judge_run(dataclasses.replace(BASE, test=0.21))
    assert said.sentence.startswith("Overfitting is the difficulty: training error 0\u202f%, test error 21.0\u202f%")
    assert "(18.6\u202f% to 23.6\u202f%)" in said.sentence  # Wilson's for 210 of 1000
    assert "100 %" in said.sentence


LAYERS = ("inputs", "layers.0", "layers.1", "layers.2")


@pytest.mark.parametrize(
    ("errors", "untrained", "kind"),
    [
        ((0.3, 0.31, 0.3, 0.2), (), "both"),
        ((0.3, 0.2, 0.1, 0.08), (), "overfitting"),
        ((0.3, 0.2, 0.2, 0.15), (0.2, 0.21, 0.2), "both"),  # better than raw, no better than before training
        ((0.3, 0.1, 0.1, 0.1), (0.2, 0.21, 0.2), "overfitting"),
        ((0.3, 0.29), (), "overfitting"),  # one layer alone has none below it
    ],
)
def test_probes_tell_whether_lower_layers_were_trained(
    errors: tuple[float, ...], untrained: tuple[float, ...], kind: str
) -> None:
    probes = Probes(LAYERS[: len(errors)], errors, 500, untrained)
    said = judge_run(dataclasses.replace(BASE, test=0.2, probes=probes))
    assert said.kind == kind
    assert [one.code for one in said.findings] == (["GW803", "GW806"] if kind == "both" else ["GW802"])
    # While training is not perfect the top does not hide what is below.
    assert judge_run(dataclasses.replace(BASE, train=0.05, test=0.3, probes=probes)).kind == "overfitting"


def test_probes_read_what_is_there() -> None:
    draw = np.random.default_rng(0)
    targets = draw.integers(0, 2, 400)
    signs = 2 * targets - 1
    noise = draw.normal(size=(400, 6)).astype(np.float32)
    halves = np.sign(noise[:, :1])
    hidden = np.hstack([halves, halves * signs[:, None], noise[:, 1:]])  # the product tells, no single column does
    layers = {"inputs": hidden, "layers.0": np.hstack([hidden, hidden[:, :1] * hidden[:, 1:2]])}
    seen = measure_probes(layers, targets, untrained={"layers.0": hidden})
    assert seen.count == 200
    assert seen.errors[0] == pytest.approx(0.5, abs=0.11)  # three standard errors of a coin
    assert seen.errors[1] < 0.02
    assert seen.untrained == (seen.errors[0],)


def test_a_probe_of_numbers_is_least_squares() -> None:
    from sklearn.linear_model import LinearRegression

    draw = np.random.default_rng(1)
    codes = draw.normal(size=(300, 4))
    targets = codes @ draw.normal(size=4) + 0.5 * draw.normal(size=300)
    seen = measure_probes({"inputs": codes}, targets)
    line = LinearRegression().fit(codes[:150], targets[:150])
    assert seen.errors[0] == pytest.approx(np.mean((line.predict(codes[150:]) - targets[150:]) ** 2), rel=0.01)


def test_a_layer_with_other_rows_is_refused() -> None:
    with pytest.raises(RequestError, match=r"check `layers\.0`"):
        measure_probes({"inputs": np.ones((9, 2)), "layers.0": np.ones((8, 2))}, np.arange(9))
