"""The remedies come in the chapter's order, and the commands among them work."""

import contextlib
import dataclasses
import io
import math
import re
import shlex

import pytest

from gradwise.checking.verdict.remedies import of_optimisation, of_overfitting
from gradwise.cli.main import run_program
from gradwise.records.evidence.verdict import Present, RunNumbers

PRESENT = Present(
    "gradwise fit digits --seed 1",
    "digits",
    rate_path="optimiser.optimiser.learning_rate",
    rate=0.0015,
    widths=(256, 256),
    dropout=0.1,
    decay_path="criterion.penalties.0.coefficient",
)
RUN = RunNumbers(train=0.0, test=0.3, train_count=1000, test_count=300, chance=0.9, best_share=0.01, present=PRESENT)


def _commands(remedies: list[str]) -> list[str]:
    return [one for told in remedies for one in re.findall(r"`(gradwise fit [^`]*)`", told)]


def _dry(command: str) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run_program([*shlex.split(command)[1:], "--dry-run"])
    return code, said.getvalue()


def test_every_command_is_accepted() -> None:
    slow = dataclasses.replace(RUN, train=0.5, still_improving=True)
    both = [*of_optimisation(slow, ()), *of_overfitting(RUN)]
    off = dataclasses.replace(PRESENT, early_stopping=False)
    numbers = dataclasses.replace(PRESENT, command="gradwise fit diabetes", task="numbers")
    both += [told for told in of_overfitting(dataclasses.replace(RUN, present=off)) if "early stopping" in told]
    both += [told for told in of_overfitting(dataclasses.replace(RUN, present=numbers)) if "term" in told]
    commands = [*_commands(both), PRESENT.estimate, dataclasses.replace(PRESENT, pretrained=True).estimate]
    assert len(commands) == 13
    for command in commands:
        code, said = _dry(command)
        assert code == 0, (command, said)
    assert _dry("gradwise fit digits --set model.widdths=3")[0] != 0  # the oracle can say no


def test_the_order_is_the_chapters() -> None:
    opens = [told.partition(":")[0] for told in of_overfitting(RUN)]
    wanted = ["more training data", "weight decay", "dropout", "multi-task learning", "unsupervised pre-training"]
    wanted += ["an unsupervised term", "another architecture", "smaller steps"]
    assert all(told.startswith(word) for told, word in zip(opens, wanted, strict=True))
    tried = of_optimisation(dataclasses.replace(RUN, train=0.4), ())
    assert [("check" in told, "learning_rate" in told, "widths" in told) for told in tried] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert "model.widths=512,512" in tried[-1]


@pytest.mark.parametrize(
    ("changes", "rates"),
    [
        ({}, ["0.0045", "0.0005"]),
        ({"train_falling": True}, ["0.0045"]),
        ({"train_noisy": True}, ["0.0005"]),
        ({"rate_factor": 10.0}, ["0.015"]),
        ({"diverged": True}, ["0.0005"]),
    ],
)
def test_the_rate_follows_from_the_present_one(changes: dict[str, float], rates: list[str]) -> None:
    told = " ".join(of_optimisation(dataclasses.replace(RUN, **changes), ()))  # type: ignore[arg-type]
    assert re.findall(r"learning_rate=([\d.e-]+)", told) == rates


def test_a_growth_curve_says_what_more_data_would_give() -> None:
    assert (
        "-1.2 points with twice as many (2,000 examples)"
        in of_overfitting(dataclasses.replace(RUN, gain_at_twice=0.012))[0]
    )
    assert "no gain" in of_overfitting(dataclasses.replace(RUN, gain_at_twice=-0.01))[0]
    assert of_overfitting(RUN)[0] == "more training data"


def test_without_a_command_remedies_are_code() -> None:
    mine = dataclasses.replace(RUN, present=Present(command="", rate_path="", data="loss"))
    told = [*of_optimisation(mine, ()), *of_overfitting(mine), mine.present.estimate]
    assert not any("--" in one or "gradwise fit" in one for one in told)
    assert any("optax.adamw" in one for one in told)
    assert math.isnan(mine.present.rate)
