"""The whole page: order, verdicts, failures, hostile names, size, and how it looks in a real browser."""

import dataclasses
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from gradwise.records.data_read import ColumnRead, DataRead
from gradwise.records.evidence.fit_evidence import ErrorRate, FitEvidence, NumberEvidence
from gradwise.records.fit import write_fit
from gradwise.records.outcome import Outcome
from gradwise.reporting.report import report, verdict, write_report
from gradwise.runtime.errors import RequestError, WorkError

HOSTILE = [
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "</svg></table></section><h1>owned</h1>",
    "javascript:alert(1)",
    "\"'><style>*{display:none}</style>",
    "$\\frac{1}{",
    "漢字 🙂 \u202e reversed",
    "x" * 200,
    "\x00\x1b[31m",
    "&lt;b&gt;",
]


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page[page.index("<body>") :]))


def renamed(record, names):
    """The digits under other names, as classes, columns and everything else that comes from outside."""
    seen = record.evidence.classes
    classes = dataclasses.replace(
        seen,
        classes=tuple(names),
        rates=tuple(dataclasses.replace(one, name=name) for one, name in zip(seen.rates, names, strict=True)),
        worst=tuple(dataclasses.replace(one, true=names[0], predicted=names[1]) for one in seen.worst),
    )
    evidence = dataclasses.replace(record.evidence, classes=classes)
    data = dataclasses.replace(
        record.data,
        name=names[0],
        columns=tuple(ColumnRead(name, name, missing=1, categories=3, constant=True) for name in names),
        notes=tuple(names),
        scaling=tuple(names),
        split=names[1],
        command="gradwise fit " + names[1],
    )
    findings = tuple(dataclasses.replace(record.findings[0], what=name, next=name, row=name) for name in names)
    return dataclasses.replace(record, evidence=evidence, data=data, findings=findings, version=names[0])


def with_classes(record, size):
    draw = np.random.default_rng(0)
    true = draw.integers(0, size, 5000)
    guess = np.where(draw.random(5000) < 0.8, true, draw.integers(0, size, 5000))
    counts = np.zeros((size, size), int)
    np.add.at(counts, (true, guess), 1)
    names = [f"class {k}" for k in range(size)]
    rates = tuple(
        ErrorRate(
            name, int(row.sum()), int(row.sum() - row[k]), float(1 - row[k] / row.sum()) if row.sum() else math.nan
        )
        for k, (name, row) in enumerate(zip(names, counts, strict=True))
    )
    by_class = {
        name: [[value[k % 10] for k in range(size)] for value in record.history[name]]
        for name in record.history
        if name.endswith("_by_class")
    }
    seen = dataclasses.replace(
        record.evidence.classes, classes=tuple(names), confusion=tuple(map(tuple, counts.tolist())), rates=rates
    )
    evidence = dataclasses.replace(record.evidence, classes=seen)
    return dataclasses.replace(record, evidence=evidence, history={**record.history, **by_class})


def without_metrics(record):
    metrics = {part: dict.fromkeys(values, math.nan) for part, values in record.metrics.items()}
    return dataclasses.replace(record, metrics=metrics, test_interval=(math.nan, math.nan), evidence=FitEvidence())


def diverged(record):
    history = {name: values[:2] for name, values in record.history.items()}
    history["valid_loss"] = [history["valid_loss"][0], math.nan]
    history["train_loss"] = [1e30, math.nan]
    return dataclasses.replace(record, outcome=Outcome("diverged", 2000), history=history)


def test_the_verdict_of_classes(classes_record):
    said = verdict(classes_record)
    error, (low, high) = classes_record.test, classes_record.test_interval
    assert said.headline == f"Test error {100 * error:.1f}\u202f%"
    assert said.interval.startswith(
        f"95\u202f% confidence interval {100 * low:.1f} – {100 * high:.1f}\u202f% on 359 test"
    )
    best = [a for a, b in zip(classes_record.history["age_examples"], classes_record.history["best"], strict=True) if b]
    assert said.story == f"Stopped by patience at age 32,370 examples, best at {best[-1]:,}, 3.1 s."


def test_a_kept_network_that_is_not_the_best_is_not_called_so(classes_record):
    history = {**classes_record.history, "best": [True] * len(classes_record.history["best"])}
    history["valid_score"] = [0.01, *history["valid_score"][1:-1], 0.02]
    said = verdict(dataclasses.replace(classes_record, history=history))
    assert said.story == "Stopped by patience at age 32,370 examples, kept at 32,370, 3.1 s."


def test_the_verdict_of_numbers_has_r2_beside_it(numbers_record):
    said = verdict(numbers_record)
    assert said.headline == f"Test RMSE {numbers_record.test:.3g}"
    assert f"R² {numbers_record.metrics['test']['r2']:.3g}" in said.interval


def test_pictures_come_before_numbers_before_prose(classes_record):
    text = text_of(report(classes_record))
    order = [
        "Test error",
        "Learning curves",
        "Confusion matrix",
        "Error of each class",
        "Are the probabilities calibrated?",
        "Every metric",
        "has room to spare",
        "The data as read",
        "The recipe",
        "How to repeat it",
        "gradwise fit digits --seed 0",
    ]
    # The list of sections at the top holds some of these words too, so each is looked for after the one before.
    place = 0
    for words in order:
        assert words in text[place:], f"{words!r} is missing, or out of order"
        place = text.index(words, place)


def test_no_test_part_is_told(classes_record):
    metrics = {**classes_record.metrics, "test": dict.fromkeys(classes_record.metrics["test"], math.nan)}
    blind = dataclasses.replace(
        classes_record, metrics=metrics, test_interval=(math.nan, math.nan), evidence=FitEvidence()
    )
    said = verdict(blind)
    assert said.headline.startswith("Validation error ")
    assert "No test set" in said.interval
    assert "Errors on the test set" not in report(blind)
    # Where the validation rows are the training rows, it is a training error.
    same = verdict(dataclasses.replace(blind, data=dataclasses.replace(blind.data, judged_on="train")))
    assert same.headline == said.headline.replace("Validation", "Training")
    assert same.interval == "No test set: this number was measured on training rows, so it is optimistic."


def test_how_often_the_test_set_was_read_stands_beside_its_score(classes_record):
    for count, words in ((1, ", read once"), (3, ", read 3 times")):
        read = dataclasses.replace(classes_record, data=dataclasses.replace(classes_record.data, test_readings=count))
        assert f"on 359 test examples{words}" in verdict(read).interval


def test_a_diverged_run_says_so_on_top_with_what_to_do(classes_record):
    broken = without_metrics(diverged(classes_record))
    text = text_of(report(broken))
    assert verdict(broken).headline == "The run diverged"
    top = text[: text.index("Learning curves")]
    assert "Diverged at age 2,000 examples" in top
    assert "--set optimiser.learning_rate=0.001" in top


def test_a_diverged_run_whose_best_parameters_serve_says_what_they_reach(classes_record):
    assert "The best parameters before that: test error" in verdict(diverged(classes_record)).interval


@pytest.mark.parametrize("outcome", ["interrupted", "out_of_time"])
def test_a_run_cut_short_can_go_on(classes_record, outcome):
    text = text_of(report(dataclasses.replace(classes_record, outcome=Outcome(outcome, 1079))))
    assert "--resume" in text[: text.index("Learning curves")]


def test_findings_are_told_worst_first(classes_record):
    text = text_of(report(classes_record))
    assert text.index("The training error is far below") < text.index("1 column is constant")
    assert "No findings" in report(dataclasses.replace(classes_record, findings=()))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: dataclasses.replace(record, history={k: v[:1] for k, v in record.history.items()}),
        lambda record: dataclasses.replace(record, history={k: [None] * len(v) for k, v in record.history.items()}),
        lambda record: dataclasses.replace(record, history={}),
        lambda record: dataclasses.replace(
            record, evidence=FitEvidence(), data=DataRead(), machine={}, findings=(), metrics={}
        ),
        without_metrics,
        lambda record: without_metrics(diverged(record)),
    ],
    ids=["one interval", "nothing measured", "no interval", "bare", "no metrics", "diverged at once"],
)
def test_a_report_is_made_of_whatever_there_is(classes_record, numbers_record, change):
    for record in (classes_record, numbers_record):
        page = report(change(record))
        assert page.endswith("</body></html>\n")
        assert "nan" not in text_of(page).replace("became NaN or infinite", "").lower().replace("finance", "")
        assert "None" not in text_of(page)


@pytest.mark.slow
def test_equal_records_give_equal_pages_in_memory_and_from_disk(classes_record, numbers_record, tmp_path):
    for name, record in (("a", classes_record), ("b", diverged(classes_record)), ("c", numbers_record)):
        folder = tmp_path / name
        folder.mkdir()
        write_fit(record, folder)
        assert report(folder) == report(record)


def test_write_report_leaves_one_page_in_the_folder(numbers_record, tmp_path):
    write_fit(numbers_record, tmp_path)
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text() == report(numbers_record)
    assert not list(tmp_path.glob("*.partial"))


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path):
    with pytest.raises(RequestError, match="is not the folder of a finished run") as refused:
        write_report(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_folder_that_cannot_be_written_fails_in_one_line(numbers_record, tmp_path):
    with pytest.raises(WorkError, match=r"could not write .*report\.html"):
        write_report(tmp_path / "missing", numbers_record)


def test_hostile_names_stay_text(classes_record):
    page = report(renamed(classes_record, HOSTILE))
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("<h1") == 1
    assert page.count("<style") == 1
    assert "\x00" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("size", [2, 20, 60, 1000])
def test_a_page_stays_small_with_many_classes(classes_record, size):
    assert len(report(with_classes(classes_record, size)).encode()) < 400_000


def test_a_page_stays_small_with_many_numbers_and_long_histories(numbers_record):
    rows = np.random.default_rng(0).normal(size=(2000, 3))
    numbers = NumberEvidence(("a", "b", "c"), rows.tolist(), (rows * 0.9).tolist())
    evidence = dataclasses.replace(numbers_record.evidence, numbers=numbers)
    history = {name: [v for v in values for _ in range(125)] for name, values in numbers_record.history.items()}
    history["age_examples"] = list(range(5000))
    large = dataclasses.replace(numbers_record, evidence=evidence, history=history)
    assert len(report(large).encode()) < 400_000


@pytest.mark.slow
def test_drawing_starts_no_device_and_no_global_state(classes_record, tmp_path):
    """In a fresh process, where matplotlib is not imported before it is needed, and never its global state."""
    write_fit(classes_record, tmp_path)
    code = (
        "import sys\n"
        "from gradwise.reporting import write_report\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"write_report({str(tmp_path)!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge._backends\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_no_page_is_wider_than_a_phone(browser, classes_record, numbers_record):
    made = [
        report(classes_record),
        report(numbers_record),
        report(renamed(classes_record, HOSTILE)),
        report(with_classes(classes_record, 30)),
        report(without_metrics(diverged(classes_record))),
    ]
    pages = [(page, width) for page in made for width in (360, 390, 1200)]
    look = "[w.innerWidth, w.document.documentElement.scrollWidth, w.document.scripts.length, w.document.images.length]"
    for (_, width), (inner, scroll, scripts, images) in zip(pages, browser.measure(pages, look), strict=True):
        assert inner == width
        assert scroll <= inner
        assert (scripts, images) == (0, 0)


@pytest.mark.slow
def test_light_and_dark_follow_the_reader(browser, classes_record):
    page = report(classes_record)
    look = (
        "(() => { const of = (e, p) => w.getComputedStyle(w.document.querySelector(e))[p];"
        "return [of('body', 'backgroundColor'), of('body', 'color'), of('.picture text', 'fill')]; })()"
    )
    (light,) = browser.measure([(page, 390)], look, "--blink-settings=preferredColorScheme=1")
    (dark,) = browser.measure([(page, 390)], look, "--blink-settings=preferredColorScheme=0")
    brightness = [[sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in seen] for seen in (light, dark)]
    assert brightness[0][0] > 600 > 200 > brightness[0][1]
    assert brightness[1][0] < 150 < 600 < brightness[1][1]
    assert light[2] != dark[2]
