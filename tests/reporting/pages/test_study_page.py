"""The page of a study: verdicts, order, holes, hostile text, size, and how it looks in a real browser."""

import dataclasses
import functools
import math
import re
import subprocess
import sys

import pytest

from gradwise.records.data_read import DataRead
from gradwise.records.evidence.fit_evidence import CrossValidationEstimate
from gradwise.records.study_analysis import Advice, Analysis, Challenge
from gradwise.records.study_conclusions import CommitteeSummary, CorrectedScore, Estimates, Winner
from gradwise.records.study_files import write_study
from gradwise.reporting.captioned_figures import knob_figures
from gradwise.reporting.report import read_record, report, verdict, write_report
from gradwise.runtime.errors import WorkError
from tests.reporting.planted import RATE, all_diverged, make_study

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202e$\\frac{`"

NESTED = CrossValidationEstimate("error_rate", (0.06, 0.08), 0.07, (0.05, 0.09))


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """One refit of the Gaussian process is enough to have a picture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knob_figures, "study_relevance", functools.partial(knob_figures.study_relevance, refits=1))
        yield


@pytest.fixture(scope="module")
def study():
    return make_study()


@pytest.fixture(scope="module")
def text(study):
    return report(study)


@pytest.fixture(scope="module")
def bare_text():
    return report(make_study(concluded=False))


def words_of(page):
    body = re.sub(r"<script>.*?</script>", "", page[page.index("<body>") :], flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def sections(page):
    return re.findall(r'<section id="([\w-]+)"', page)


def test_the_verdict_is_the_honest_error(study):
    said = verdict(study)
    test, (low, high) = study.estimates.test, study.estimates.test_interval
    assert said.headline == f"Test error {100 * test:.1f}\u202f%"
    assert said.interval.startswith(
        f"95\u202f% confidence interval {100 * low:.1f} – {100 * high:.1f}\u202f% on 359 test examples"
    )
    assert "a committee of 5 networks" in said.interval
    bad = [sum(trial.outcome == name for trial in study.trials) for name in ("diverged", "failed")]
    assert said.story == f"60 trials by random search, {bad[0]} diverged, {bad[1]} failed, 3 min 7 s."


def test_the_verdict_of_numbers_is_in_the_unit_of_the_target():
    study = make_study(20, numbers=True)
    assert verdict(study).headline == f"Test RMSE {study.estimates.test:.3g}"


def test_without_a_test_part_the_verdict_says_what_kind_of_number_it_is(study):
    nested = dataclasses.replace(study, estimates=Estimates(nested=NESTED))
    assert verdict(nested).headline == "Test error 7.0\u202f%"
    assert "nested cross-validation" in verdict(nested).interval
    corrected = dataclasses.replace(study, estimates=Estimates())
    assert verdict(corrected).headline == f"Validation error {100 * study.winner.corrected.score:.1f}\u202f%"
    assert "corrected for selection bias" in verdict(corrected).interval
    raw = dataclasses.replace(study, estimates=Estimates(), winner=None, committee=None)
    assert verdict(raw).headline == f"Validation error {100 * study.best.score:.1f}\u202f%"
    assert "so it is optimistic" in verdict(raw).interval


def test_the_sections_answer_the_readers_questions_in_order(text):
    assert sections(text) == [
        *("searched", "winner", "going-on", "knobs", "borders", "failures", "cost"),
        *("trials", "findings", "data", "recipe", "repeat"),
    ]
    said = words_of(text)
    for phrase in (
        "All knobs at once",
        "Every trial during training",
        "Error estimates",
        "The committee against its members",
        "No. More trials are hardly worth it",
        "The best of N trials",
        "How much each knob matters",
        "was extended to 10",
        "Where trials went wrong",
        "all 7 trials with",
        "Error against time",
        "Batch size",
        "gradwise search digits --trials 60 --seed 7",
        "strategy = &#34;random&#34;",
        "With seed 7, gradwise 0.2.0",
    ):
        assert phrase in said, phrase


def test_pictures_come_before_numbers_before_prose_in_what_was_searched(text):
    start = text.index('<section id="searched"')
    part = text[start : text.index("</section>", start)]
    assert part.index("<svg") < part.index('<p class="prose">') < part.index("<h3>The space</h3>")


def test_every_picture_has_words_and_every_anchor_a_target(text):
    assert text.count("<figure") == text.count("<figcaption") > 15
    assert not re.search(r"<figcaption[^>]*>\s*</figcaption>", text)
    ids = re.findall(r' id="([^"]+)"', text)
    assert set(re.findall(r'href="#([\w-]+)"', text)) <= set(ids)
    named = [name for name in ids if name.startswith(("figure-", "section-"))]
    assert len(named) == len(set(named))


def test_the_page_needs_nothing_else(text):
    assert not re.search(r'(src|href)="(?!#)', text)
    assert "http" not in re.sub(r'http-equiv|xmlns="http://www.w3.org/2000/svg"', "", text)
    assert text.count("<script>") == 1
    assert len(text) < 600_000


def test_a_page_without_conclusions_still_shows_what_happened(bare_text):
    assert sections(bare_text) == [
        *("searched", "winner", "going-on", "knobs", "failures", "cost", "trials", "findings", "data", "recipe"),
        "repeat",
    ]
    assert "No findings." in bare_text
    assert "Not yet measured on the test set" in bare_text


def test_a_study_without_trials_has_a_page():
    text = report(make_study(0))
    assert "No trial has ended" in text
    assert sections(text) == ["searched", "winner", "findings", "data", "repeat"]


def test_a_study_in_which_everything_diverged_says_why_and_what_to_try():
    study = all_diverged()
    text = report(study)
    assert verdict(study).headline == "Every trial diverged"
    smallest = min(trial.values[RATE] for trial in study.trials)
    assert 'class="notice error"' in text
    assert f"{RATE}=log(" in text[: text.index("<nav")]
    assert f"({smallest:.2g})" in text[: text.index("<nav")]
    assert "There is no winner" in text
    assert "<svg" not in text


@pytest.mark.parametrize("place", [0, 8])  # one that diverged, and one that did not
def test_one_trial_is_a_study(study, place):
    trial = study.trials[place]
    text = report(dataclasses.replace(make_study(0), trials=(trial,)))
    assert ("The only trial diverged" in text) == (trial.outcome == "diverged")
    assert "a search of 1 trial<" in text


def test_trials_after_the_search_proper_are_counted_apart(study):
    """Numbers of trials on one page must add up: here two of the sixty followed the best over a border."""
    moved = [dataclasses.replace(trial, phase="border") for trial in study.trials[-2:]]
    page = report(dataclasses.replace(study, trials=(*study.trials[:-2], *moved)))
    assert "a search of 60 trials" in page
    assert "58 trials by random search and 2 more at borders, around the best or in finals" in page
    assert "trials before borders, refinement and finals" in page
    assert "more at borders" not in report(study)


def test_a_study_that_was_cut_short_says_how_to_go_on(study):
    few = dataclasses.replace(study, outcome="interrupted", trials=study.trials[:3])
    assert "same command and <code" in report(few)


def test_every_hole_is_survived(study):
    """A search may conclude any part of it alone, and numbers may be NaN."""
    small = dataclasses.replace(study, trials=study.trials[:9])
    lost = dataclasses.replace(
        small,
        winner=Winner(study.best.number, math.nan, corrected=CorrectedScore(math.nan, math.nan, (math.nan, math.nan))),
        committee=CommitteeSummary("seeds", study.best.number, (), 2, 0, honest=math.nan, member_tests=(math.nan,) * 2),
        estimates=Estimates({"test": {"error_rate": math.nan}}, math.nan),
        analysis=Analysis(),
        settings={},
        data=DataRead(),
        machine={},
        chance=math.nan,
    )
    text = report(lost)
    assert "nan" not in words_of(text).lower().split()
    assert "None" not in words_of(text[: text.index('id="recipe"')])


@pytest.mark.slow
def test_hostile_text_stays_text(study, browser):
    odd = dataclasses.replace(study.trials[1], reason=HOSTILE, outcome="failed", phase=HOSTILE)
    advice = Advice(True, HOSTILE, 0.1, 0.1, 60)
    challenge = Challenge(HOSTILE, 1, (), (), HOSTILE)
    hostile = dataclasses.replace(
        study,
        trials=(*(dataclasses.replace(t, values={**t.values, "model.activation": HOSTILE}) for t in study.trials), odd),
        data=dataclasses.replace(study.data, name=HOSTILE),
        settings={"command": HOSTILE, "study_file": HOSTILE, "strategy": HOSTILE, "budget": HOSTILE},
        analysis=dataclasses.replace(study.analysis, borders=(HOSTILE,), advice=advice, challenge=challenge),
        findings=(dataclasses.replace(study.findings[0], what=HOSTILE, next=HOSTILE, row=HOSTILE),),
        version=HOSTILE,
    )
    text = report(hostile)
    assert text.count("<script>") == 1
    assert "<img" not in text
    (seen,) = browser.measure([(text, 1000)], "[w.document.title, w.document.querySelectorAll('img').length]")
    assert not seen[0].startswith("owned")
    assert seen[1] == 0


@pytest.mark.slow
def test_nothing_overflows_the_page_at_any_width(text, bare_text, browser):
    look = (
        "[w.document.documentElement.scrollWidth - w.innerWidth, "
        "[...w.document.querySelectorAll('figure.half svg text')].filter((t) => { const r = t.getBoundingClientRect(), "
        "s = t.ownerSVGElement.getBoundingClientRect(); return r.left < s.left - 3 || r.right > s.right + 6; })"
        ".map((t) => t.textContent)]"
    )
    seen = browser.measure([(page, width) for page in (text, bare_text) for width in (400, 800, 1300)], look)
    assert [wide <= 0 for wide, _ in seen] == [True] * 6
    assert [outside for _, outside in seen] == [[]] * 6


@pytest.mark.slow
def test_dark_and_light_have_their_own_colours(text, browser):
    look = "w.getComputedStyle(w.document.querySelector('#trials tbody th')).backgroundColor"
    (light,) = browser.measure([(text, 800)], look)
    (dark,) = browser.measure([(text, 800)], look, "--blink-settings=preferredColorScheme=0")
    assert light != dark


@pytest.mark.slow
def test_the_folder_of_a_study_gives_the_same_report(study, text, tmp_path):
    write_study(study, tmp_path)
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text() == text
    assert type(read_record(tmp_path)).__name__ == "Study"
    with pytest.raises(WorkError, match=r"could not write .*report\.html"):
        write_report(tmp_path / "missing", make_study(0))


@pytest.mark.slow
def test_equal_studies_give_equal_pages_and_matplotlib_is_not_needed_to_import():
    assert report(make_study(12)) == report(make_study(12))
    program = (
        "import gradwise.reporting, sys; print([n for n in ('matplotlib', 'sklearn', 'pyarrow') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_two_thousand_five_hundred_trials_fit_on_a_page(study):
    few = study.trials
    many = tuple(dataclasses.replace(few[n % 60], number=n) for n in range(2500))
    text = report(dataclasses.replace(study, trials=many))
    assert len(text) < 2_500_000
    assert "The best 2,000 of 2,500" in text
    assert "300 of 2,500 are shown" in text


def test_the_errors_of_the_test_set_are_shown_as_in_the_report_of_a_fit(study, text, classes_record, numbers_record):
    assert "errors" not in sections(text)
    fitted = re.findall(r'<h3 id="(figure-[\w-]+)"', report(classes_record))
    of_classes = ("confusion", "rates", "roc", "precision_recall", "reliability")
    for record, shown in ((classes_record, of_classes), (numbers_record, ("predicted-0",))):
        estimates = dataclasses.replace(study.estimates, evidence=record.evidence)
        page = report(dataclasses.replace(study, estimates=estimates))
        assert sections(page).index("errors") == sections(page).index("winner") + 1
        assert all(f'id="figure-{name}"' in page for name in shown)
        assert "The test examples with the largest errors" in page
    assert {f"figure-{name}" for name in of_classes} <= set(fitted)


def test_a_question_s_page_begins_with_its_answer(study):
    answer = "`model.dropout`: no significant difference between 0 and 0.3"
    asked = Analysis(comparison=Challenge("model.dropout", 0, (), (), answer))
    trials = tuple(dataclasses.replace(trial, phase="comparison") for trial in study.trials)
    parts = {"winner": None, "committee": None, "estimates": Estimates(), "analysis": asked, "trials": trials}
    compared = dataclasses.replace(study, **parts, strategy="compare")
    page = words_of(report(compared))
    assert verdict(compared).headline == "Compare"
    assert page.index("no significant difference") < page.index("Search space")
    assert "compare search" not in page
    assert "at borders" not in page
