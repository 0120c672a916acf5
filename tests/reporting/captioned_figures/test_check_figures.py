"""Figures from the evidence of a check: what they say, and what is left out."""

import dataclasses
import math

from gradwise.records.evidence.check_evidence import (
    ChoicesEvidence,
    CopiedRows,
    GradientEvidence,
    OverfitEvidence,
    ParameterGradient,
    StartEvidence,
)
from gradwise.reporting.blocks import Cell, Table
from gradwise.reporting.captioned_figures import check_figures, data_figures
from gradwise.reporting.svg import picture
from tests.reporting.made_up import data, gradient, growth, rates


def only(blocks, name):
    (figure,) = (block for block in blocks if getattr(block, "name", "") == name)
    return figure


def test_a_wrong_gradient_comes_first_and_its_sign_is_told():
    figures = tuple(check_figures.gradient_figures(gradient()))
    assert [figure.name for figure in figures] == ["differences", "gradient-errors"]
    errors = figures[1]
    assert errors.table.rows[0][0] == "layers.1.weight"
    assert errors.table.rows[0][-1] == "wrong sign"
    assert errors.table.rows[1][-1] == "right"
    assert "1 of 2 parameters have a wrong gradient" in errors.description
    assert "1 of them with the wrong sign" in errors.description


def test_a_wrong_factor_is_no_wrong_sign():
    wrong = ParameterGradient("layers.1.weight", 0.5, 3, wrong=3)
    errors = only(check_figures.gradient_figures(GradientEvidence(parameters=(wrong,))), "gradient-errors")
    assert errors.table.rows[0][-1] == "wrong"
    assert "sign" not in errors.description


def test_right_gradients_are_said_to_agree():
    errors = only(check_figures.gradient_figures(gradient(wrong=False)), "gradient-errors")
    assert errors.description.startswith("All 2 agree")


def test_the_best_step_is_named():
    told = only(check_figures.gradient_figures(gradient()), "differences").description
    assert "at a step of 1 × 10⁻⁵" in told or "at a step of 1 × 10⁻⁴" in told or "0.0001" in told


def test_growth_says_what_twice_the_examples_would_give():
    figure = only(check_figures.growth_figures(growth()), "growth")
    assert "Validation goes from 26.4\u202f% to 8.1\u202f%." in figure.description
    assert (
        "With twice the examples expect 7.4\u202f% (90\u202f% confidence interval 6.0\u202f% to 9.0\u202f%)"
        in figure.description
    )
    assert figure.table.rows[-1] == ("1,000", "3.5\u202f%", "8.1\u202f%")


def test_growth_without_a_law_promises_nothing():
    figure = only(check_figures.growth_figures(dataclasses.replace(growth(), law=None, predicted=math.nan)), "growth")
    assert "Twice" not in figure.description


def test_the_ladder_leaves_out_factors_that_fail_or_end_far_above_the_start():
    blocks = tuple(check_figures.learning_rate_figures(rates()))
    ladder = only(blocks, "ladder")
    assert "lowest at 10 times your learning rate" in ladder.description
    assert "beyond 10 times training fails" in ladder.description
    assert [row[1] for row in ladder.table.rows] == ["2.2", "2", "0.5", "failed", "failed"]


def test_ratios_far_from_the_rule_come_first_and_unjudged_ones_not_at_all():
    ratios = only(check_figures.learning_rate_figures(rates()), "ratios")
    assert [row[0] for row in ratios.table.rows] == ["layers.1.weight", "layers.0.weight"]


def test_noise_and_curvature_are_told_in_numbers():
    (table,) = (block for block in check_figures.learning_rate_figures(rates()) if isinstance(block, Table))
    facts = dict(table.rows)
    assert facts["gradient noise scale, in examples"] == "52.5 (38.9 to 74.4)"
    assert facts["your mini-batch size"] == "32"
    assert "your learning rate" not in facts  # it is not known


def test_leaks_are_set_off_in_the_table():
    blocks = tuple(data_figures.data_figures(data()))
    classes = only(blocks, "classes")
    assert classes.table.rows == (("cat", "80", "30"), ("dog", "20", "10"))
    assert "4 times as many" in classes.description
    (table,) = (block for block in blocks if isinstance(block, Table))
    facts = dict(table.rows)
    assert facts["rows of test also in training"] == Cell("12 of 40", strong=True)
    assert facts["constant inputs"] == "2"
    assert facts["groups of test also in training"] == Cell("3", strong=True)
    assert facts["score of the best single input"] == "41.0\u202f%"
    clean = dataclasses.replace(data(), copied=(CopiedRows("test", 40, 0, 0.0),))
    (table,) = (block for block in data_figures.data_figures(clean) if isinstance(block, Table))
    assert dict(table.rows)["rows of test also in training"] == "0 of 40"


def test_choices_are_a_sentence():
    (said,) = check_figures.choice_blocks(ChoicesEvidence("softmax", 0.0025, 2.31))
    assert (
        said.text
        == "The loss was recognised as the cross-entropy of a softmax. Its penalty is 0.0025, beside 2.31 of the rest."
    )
    assert tuple(check_figures.choice_blocks(ChoicesEvidence())) == ()


def test_losses_that_are_not_finite_are_left_out():
    losses = (3.0, 2.0, math.nan, 1.0, math.inf)
    (figure,) = check_figures.start_figures(StartEvidence(losses))
    assert figure.description.startswith("The loss goes from 3 to 1 in 5 updates.")
    figure.draw()
    one = OverfitEvidence(4, False, (1.0,), (0.1,), ((1.0, math.nan, 0.1),))
    (figure,) = check_figures.overfit_figures(one)
    assert figure.description.startswith("4 examples are not memorised: the loss goes from 1 to 0.1.")
    assert tuple(check_figures.start_figures(StartEvidence((math.nan,) * 9))) == ()


def test_hostile_names_are_drawn_as_they_are():
    hostile = ParameterGradient("<script>$\\frac{1}{</script>" + "x" * 200, 0.5, 3)
    svg = picture(only(check_figures.gradient_figures(GradientEvidence(parameters=(hostile,))), "gradient-errors"))
    assert "<script>" not in svg
