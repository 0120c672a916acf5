"""Tables of a study: the space in words, trials best first, and a script that sorts them in a real browser."""

import base64
import dataclasses
import hashlib
import math
import re

import pytest

from gradwise.reporting.blocks import Cell, Page, Prose, Section, Verdict
from gradwise.reporting.html import render
from gradwise.reporting.pages.study_page import study_page
from gradwise.reporting.pages.study_tables import SHOWN_TRIALS, space_table, trial_table
from gradwise.specs.priors import Choice
from tests.reporting.planted import RATE, make_study


@pytest.fixture(scope="module")
def study():
    return make_study()


def text(cell):
    return cell.text if isinstance(cell, Cell) else cell


def column(table, name):
    place = table.header.index(name)
    return [text(row[place]) for row in table.rows]


def page(*blocks, script="sort_trials.js"):
    sections = (Section("trials", "Every trial", blocks),)
    return Page("title", "name", "about", Verdict("headline", "", ""), (), sections, "", script)


def test_the_space_says_what_was_asked_and_what_it_became(study):
    table = space_table(study)
    assert dict(zip(column(table, "knob"), column(table, "searched"), strict=True)) == {
        "model.widths.count": "1, 2, 3",
        "model.widths.each": "16 – 512, whole, logarithmic",
        "model.widths.2": "16 – 256, whole, logarithmic",
        "model.activation": "Tanh, Rectifier",
        "model.dropout": "0 (50\u202f%), or 0 – 0.8",
        RATE: "0.0001 – 0.1, logarithmic",
    }
    assert column(table, "extended to")[-1] == "0.0001 – 10, logarithmic"
    assert set(column(table, "extended to")[:-1]) == {""}
    assert column(table, "best")[-1] == f"{study.best.values[RATE]:.4g}"
    assert column(table, "row")[-1] == "C1"


def test_a_space_that_stayed_as_it_was_has_no_second_column(study):
    same = space_table(dataclasses.replace(study, asked=study.space))
    assert "extended to" not in same.header
    assert space_table(dataclasses.replace(study, space=dataclasses.replace(study.space, dimensions=()))) is None


def test_weights_of_a_choice_are_said(study):
    weighted = study.space.with_priors({"model.widths.count": Choice((1, 2, 3), (6.0, 3.0, 1.0))})
    table = space_table(dataclasses.replace(study, space=weighted, asked=weighted))
    assert column(table, "searched")[0] == "1 (60\u202f%), 2 (30\u202f%), 3 (10\u202f%)"


def test_trials_stand_best_first_and_those_without_a_model_last(study):
    table = trial_table(study)
    assert len(table.rows) == 60
    scores = column(table, "validation error")
    found = [float(score.removesuffix("\u202f%")) for score in scores if score != "–"]
    assert found == sorted(found)
    assert scores[len(found) :] == ["–"] * sum(not trial.ok for trial in study.trials)
    assert table.rows[0][0].strong
    assert set(column(table, "ended by")) == {"patience", "diverged", "failed"}
    assert "the data could not be placed: no memory left" in column(table, "reason")
    third = column(table, "widths.2")
    assert third.count("–") == sum("model.widths.2" not in trial.values for trial in study.trials)


def test_columns_of_numbers_are_marked_as_such_and_words_are_not(study):
    table = trial_table(study)
    numbers = {table.header[place] for place in table.numbers}
    assert {"trial", "validation error", "learning_rate", "widths.2", "seconds"} <= numbers
    assert not {"activation", "ended by", "reason"} & numbers


def test_beyond_two_thousand_the_best_are_listed_and_the_rest_said(study):
    few = study.trials[:50]
    many = tuple(dataclasses.replace(few[n % 50], number=n) for n in range(2500))
    table = trial_table(dataclasses.replace(study, trials=many))
    assert len(table.rows) == SHOWN_TRIALS == 2000
    assert table.note == "The best 2,000 of 2,500; all of them are in `trials.parquet`."
    assert trial_table(dataclasses.replace(study, trials=())) is None


def test_other_phases_get_a_column(study):
    refined = dataclasses.replace(study.trials[0], number=60, phase="refine")
    table = trial_table(dataclasses.replace(study, trials=(*study.trials, refined)))
    assert column(table, "phase").count("refine") == 1
    assert "phase" not in trial_table(study).header


def test_the_policy_lets_this_script_run_and_nothing_else(study):
    assert study_page(study).script == "sort_trials.js"
    plain = render(page(trial_table(study), script=""))
    found = render(page(trial_table(study)))
    (script,) = re.findall(r"<script>(.*?)</script>", found, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in found
    assert "default-src 'none'" in found
    assert "script-src" not in plain
    assert "<script" not in plain
    assert "unsafe-inline" not in found.partition("script-src")[2].partition(";")[0]
    assert not re.search(r"https?:|//[a-z]|import|fetch|eval", script)


LOOK = """(() => { const d = w.document, column = (k) => [...d.querySelectorAll('#trials tbody tr')].map(
  (row) => row.cells[k].textContent); const heads = [...d.querySelectorAll('#trials thead th')];
  const out = {start: column(0)}; for (const k of %s) { const b = heads[k].querySelector('button'); b.click();
  out[k] = [column(k), heads[k].getAttribute('aria-sort')]; b.click();
  out[-k] = [column(k), heads[k].getAttribute('aria-sort')]; }
  out.marked = heads.filter((h) => h.hasAttribute('aria-sort')).length; out.title = d.title; return out; })()"""


def number(cell):
    value = cell.replace(",", "").replace("\u202f%", "").replace("−", "-")
    return math.nan if value == "–" else float(value)


def test_a_click_on_a_header_sorts_by_it_and_a_second_click_the_other_way(study, browser):
    odd = dataclasses.replace(study.trials[0], reason="<script>document.title='owned'</script>", outcome="failed")
    shown = dataclasses.replace(study, trials=(odd, *study.trials[1:]))
    table = trial_table(shown)
    places = [table.header.index(name) for name in ("learning_rate", "age", "widths.2", "ended by")]
    (seen,) = browser.measure([(render(page(table, Prose("x"))), 1000)], LOOK % places)
    assert seen["start"] == [row[0].text for row in table.rows]
    for place in places[:3]:
        for key, direction in ((place, "ascending"), (-place, "descending")):
            cells, said = seen[str(key)]
            assert said == direction
            values = [number(cell) for cell in cells]
            there = [value for value in values if not math.isnan(value)]
            assert there == sorted(there, reverse=key < 0)
            assert all(math.isnan(value) for value in values[len(there) :])  # what is missing stays at the end
            assert sorted(cells) == sorted(column(table, table.header[place]))
    outcomes = seen[str(places[3])][0]
    assert outcomes == sorted(outcomes)
    assert seen["marked"] == 1
    assert seen["title"] == "title"


def test_no_value_is_written_in_a_form_that_does_not_sort(study):
    tiny = dataclasses.replace(study.trials[0], values={**study.trials[0].values, RATE: 1.23456e-12})
    found = column(trial_table(dataclasses.replace(study, trials=(tiny,))), "learning_rate")
    assert found == ["1.235e-12"]
