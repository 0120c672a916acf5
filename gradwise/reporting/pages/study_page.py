"""The page of a study: the space, the winner and its error, whether to continue, and which knobs matter.

    render(study_page(study))      HTML text

Every conclusion is optional: a study that was interrupted, or whose trials all diverged, has a page too.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from ...evaluation.trials.failures import group_failures, why_all_failed
from ...evaluation.trials.knob_marginals import Marginal
from ...evaluation.trials.knob_relevance import Relevance
from ...records.finding import Finding
from ...records.score_scale import confidence_interval, is_missing
from ...records.study import Study
from ...specs.dataset import FEW_ROWS
from .. import wording
from ..blocks import Block, CodeLines, Items, Notice, Page, Prose, Row, Section, Table, Verdict
from ..captioned_figures import (
    feature_figures,
    importance_figures,
    knob_figures,
    population_figures,
    race_figures,
    run_figures,
    study_figures,
    threshold_figures,
)
from .provenance import chapter_row, data_blocks, finding_notice, recipe_blocks
from .study_tables import space_table, trial_table

_SHOWN_REASONS = 12


def finding_blocks(findings: Sequence[Finding]) -> tuple[Block, ...]:
    """Findings as notices, the most serious first."""
    order = {"error": 0, "warning": 1}
    found = sorted(findings, key=lambda finding: order.get(finding.level, 2))
    if not found:
        return (Prose("No findings."),)
    return tuple(map(finding_notice, found))


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _asks(study: Study) -> bool:
    """Whether its trials answer a question (a challenge, a comparison, seeds) and were not a search for a winner."""
    return bool(study.analysis.answers) and not study.searched


def _count_trials(study: Study) -> str:
    """How many trials there are: those of the strategy, and those that followed from them."""
    if _asks(study):
        return _counted(len(study.trials), "trial")
    how = wording.clean(study.settings.get("strategy") or study.strategy)
    later = sum(trial.phase not in {"search", "size"} for trial in study.trials)
    after = f" and {wording.whole(later)} more at borders, around the best or in finals" if later else ""
    return f"{_counted(len(study.searched), 'trial')} by {how} search{after}"


def _story(study: Study) -> str:
    sizes = sum(trial.phase == "size" for trial in study.trials)
    ended = {name: sum(trial.outcome == name for trial in study.trials) for name in ("diverged", "failed")}
    bad = "".join(f", {wording.whole(number)} {name}" for name, number in ended.items() if number)
    beside = f", {_counted(sizes, 'run')} to compare mini-batch sizes" if sizes else ""
    return f"{_count_trials(study)}{beside}{bad}, {wording.duration(study.seconds)}."


def _few_rows(study: Study) -> str:
    """Why so few rows give no estimate, with the error of the test set, if there is one; empty if there are enough."""
    rows, on_training = study.data.rows, study.data.judged_on == "train"
    total = rows.train + rows.test if on_training else rows.total
    if total >= FEW_ROWS:
        return ""
    metric, found, scale = study.metric, study.estimates, study.scale
    if not is_missing(found.test):
        value, ends = wording.in_metric(metric, found.test), confidence_interval(metric, found.test_interval)
        on = f"{ends}{wording.tested_on(study.data)}" if ends else f"on {rows.test} examples"
        return f"{total} rows are too few: test {wording.metric_name(metric)} {value}, {on}."
    if on_training and study.best is not None:
        seen = scale.say(study.best.score)
        return f"{total} rows are too few to hold any out; {seen} is the error on the rows that were trained on."
    return f"{total} rows are too few."


def study_verdict(study: Study) -> Verdict:
    """What was reached, how sure that is, and what it took."""
    metric, found, story = study.metric, study.estimates, _story(study)
    name, scale = wording.metric_name(metric), study.scale
    if _asks(study):
        return Verdict(wording.sentence(study.strategy), " ".join(map(wording.sentence, study.analysis.answers)), story)
    few = _few_rows(study)
    if few and study.best is not None:
        return Verdict("No estimate of the error", few, story)
    if not is_missing(found.test):
        members = 1 if study.committee is None else study.committee.members
        ends = confidence_interval(metric, found.test_interval)
        on = wording.tested_on(study.data) if ends else ""
        who = f"a committee of {members} networks" if members > 1 else "one network"
        said = "; ".join(filter(None, (ends + on, who)))
        return Verdict(f"Test {name} {wording.in_metric(metric, found.test)}", wording.sentence(said) + ".", story)
    if found.nested is not None:
        ends = confidence_interval(metric, found.nested.interval)
        said = "; ".join(filter(None, (ends, "by nested cross-validation, which repeats the search in each fold")))
        return Verdict(
            f"Test {name} {wording.in_metric(metric, found.nested.mean)}", wording.sentence(said) + ".", story
        )
    if study.data.judged_on == "train" and study.best is not None:
        said = "Measured on training rows: optimistic, and nothing was held out to tell by how much."
        return Verdict(f"Training {scale.quantity} {scale.say(study.best.score)}", said, story)
    if study.committee is not None and study.committee.honest is not None:
        said = "Of the ensemble, on held-out rows; not yet measured on a test set."
        return Verdict(f"{wording.sentence(name)} {wording.in_metric(metric, study.committee.honest)}", said, story)
    if study.best is not None:
        value, why = study.best.score, "it was used to choose the winner, so it is optimistic"
        if study.winner is not None and study.winner.corrected is not None:
            value, why = study.winner.corrected.score, "corrected for selection bias"
        headline = f"{wording.sentence(scale.name)} {scale.say(value)}"
        return Verdict(headline, f"Not yet measured on the test set; {why}.", story)
    outcomes = {trial.outcome for trial in study.trials}
    if not outcomes:
        return Verdict("No trial has ended", "", story)
    many = "Every trial" if len(study.trials) > 1 else "The only trial"
    return Verdict(f"{many} diverged" if outcomes == {"diverged"} else "No trial produced a model", "", story)


def _advice(study: Study) -> Iterator[Notice]:
    """What the reader must know before any picture."""
    if study.trials and study.best is None:
        why = why_all_failed(study.space, study.trials)
        if why is not None:
            yield Notice("error", why.sentence, "", chapter_row("C1") if why.path else "")
    if study.outcome == "interrupted":
        yield Notice(
            "warning",
            "The search was interrupted; these are its results so far.",
            "continue with the same command and `--resume`.",
        )


def _searched(study: Study, marginals: Sequence[Marginal]) -> Iterator[Block]:
    budget = study.settings.get("budget")
    count = len(study.space.dimensions)
    within = f", with a budget of {wording.clean(budget)}" if budget else ""
    yield from knob_figures.parallel_figures(study, marginals)
    yield from study_figures.trial_curve_figures(study)
    yield from study_figures.short_run_figures(study)
    yield Prose(f"{_counted(count, 'knob')}, {_count_trials(study)}{within}.")
    if table := space_table(study):
        yield table


def _metric_table(study: Study) -> Table | None:
    metrics = study.estimates.metrics
    titles = {"train": "training", "valid": "validation", "test": "test"}
    parts = [part for part in titles if metrics.get(part)]
    names = list(dict.fromkeys(name for part in parts for name in metrics[part]))
    if not names:
        return None
    rows: tuple[Row, ...] = tuple(
        (
            wording.metric_name(name) + (" (chosen)" if name == study.metric else ""),
            *(wording.in_metric(name, metrics[part].get(name)) for part in parts),
        )
        for name in names
    )
    note = wording.optimism(study.metric, metrics, study.data.judged_on)
    return Table("Every metric", ("", *(titles[part] for part in parts)), rows, tuple(range(1, len(parts) + 1)), note)


def _winner(study: Study) -> Iterator[Block]:
    yield from study_figures.estimate_figures(study)
    yield from study_figures.committee_figures(study)
    if table := _metric_table(study):
        yield table
    members = 1 if study.committee is None else study.committee.members
    if beside := run_figures.baseline_table(study.estimates.evidence, study.metric, study.estimates.test, members):
        yield beside
    winner = study.winner or study.best
    if winner is None:
        yield Prose("There is no winner: no trial produced a model.")
    elif winner.values:
        short, values = study_figures.short_path_names(study), winner.values.items()
        rows = tuple((short.get(path, path), study_figures.sortable_setting(value)) for path, value in values)
        yield Table(f"The winner, trial {winner.number}", ("knob", "value"), rows)


def _features(study: Study) -> Iterator[Block]:
    yield from feature_figures.feature_figures(study.estimates.evidence.features)


def _errors(study: Study) -> Iterator[Block]:
    """What the model got wrong on the test set, as in the report of a fit."""
    estimates, evidence = study.estimates, study.estimates.evidence
    yield from run_figures.confusion_figures(evidence)
    yield from run_figures.residual_figures(evidence)
    yield from run_figures.error_rate_figures(evidence, estimates.metrics.get("test", {}).get("error_rate"))
    yield from threshold_figures.threshold_figures(evidence, estimates.metrics.get("test", {}))
    yield from run_figures.reliability_figures(evidence)
    yield from filter(None, (run_figures.residual_table(evidence), run_figures.worst_table(evidence)))


def _going_on(study: Study) -> Iterator[Block]:
    advice = study.analysis.advice
    if advice is not None:
        yield Prose(f"{'Yes' if advice.go_on else 'No'}. {wording.sentence(advice.sentence)}")
    yield from study_figures.progress_figures(study)
    yield from study_figures.seed_figures(study)


def _matters(study: Study, found: Relevance | None, marginals: Sequence[Marginal]) -> Iterator[Block]:
    yield from knob_figures.relevance_figures(study, found)
    yield from knob_figures.knob_figures(study, marginals)
    yield from knob_figures.pair_figures(study, marginals)


def _borders(study: Study) -> Iterator[Block]:
    if study.analysis.borders:
        yield Items(tuple(map(wording.sentence, study.analysis.borders)))


def _failures(study: Study, marginals: Sequence[Marginal]) -> Iterator[Block]:
    found = group_failures(study.trials)
    if all(trial.ok for trial in study.trials):
        return
    yield from knob_figures.failure_figures(study, marginals)
    yield Prose(wording.sentence(found.sentence))
    if len(found.reasons) > 1:  # the sentence names the commonest
        rows = tuple((wording.short(text, 200), f"{count:,}") for text, count in found.reasons[:_SHOWN_REASONS])
        yield Table("Why trials failed", ("reason", "trials"), rows, (1,))


def _cost(study: Study) -> Iterator[Block]:
    yield from study_figures.cost_figures(study)
    yield from study_figures.batch_figures(study)
    phases = list(dict.fromkeys(trial.phase for trial in study.trials))
    rows: list[Row] = []
    for phase in phases:
        these = [trial for trial in study.trials if trial.phase == phase]
        seconds, examples = sum(trial.seconds for trial in these), sum(trial.age_examples for trial in these)
        rows.append((wording.clean(phase), f"{len(these):,}", wording.whole(examples), wording.duration(seconds)))
    if rows:
        yield Table("Cost", ("for", "trials", "examples", "training time"), tuple(rows), (1, 2, 3))


def _said(study: Study) -> Iterator[Block]:
    """Conclusions that are a sentence each, and the race of optimisers."""
    for found in (study.analysis.challenge, study.analysis.comparison):
        if found is not None:
            yield Prose(wording.sentence(found.sentence))
    yield from race_figures.race_figures(study)


def _repeat(study: Study) -> Iterator[Block]:
    settings = study.settings
    if settings.get("command"):
        yield CodeLines("In the shell", str(settings["command"]))
    if settings.get("study_file"):
        yield CodeLines("As a study file, study.toml", str(settings["study_file"]))
    machine = {name: wording.clean(value) for name, value in study.machine.items() if value}
    facts = [f"seed {study.seed}", f"gradwise {wording.clean(study.version)}"]
    for name, form in (("jax", "JAX {}"), ("python", "Python {}"), ("cores", "{} cores")):
        facts += [form.format(machine[name])] if name in machine else []
    facts += [wording.device(machine["device"])] if "device" in machine else []
    yield Prose("With " + ", ".join(facts) + ". A trial depends on the seed, its number and its recipe alone.")


def _sections(study: Study) -> Iterator[Section]:
    """Every part of the page that has something to say."""
    relevance = knob_figures.study_relevance(study)
    marginals = knob_figures.marginals_of(study, relevance)
    shuffled = study.estimates.evidence.importance
    parts: tuple[tuple[str, str, str, Iterator[Block]], ...] = (
        ("searched", "Search space", "Searched", _searched(study, marginals)),
        ("winner", "The winner and its expected error", "Winner", _winner(study)),
        ("errors", "Errors on the test set", "Errors", _errors(study)),
        ("importance", "Which columns matter", "Columns", importance_figures.importance_figures(shuffled)),
        ("population", "How the knobs changed", "Population", population_figures.population_figures(study)),
        ("features", "The winner's features", "Features", _features(study)),
        ("going-on", "Are more trials worth it?", "Continue?", _going_on(study)),
        ("knobs", "Which knobs matter", "Knobs", _matters(study, relevance, marginals)),
        ("borders", "Borders", "Borders", _borders(study)),
        ("failures", "Failures", "Failures", _failures(study, marginals)),
        ("cost", "Cost", "Cost", _cost(study)),
        ("comparisons", "Comparisons", "Comparisons", _said(study)),
    )
    for name, title, short, blocks in parts:
        if found := tuple(blocks):
            yield Section(name, title, found, short)
    if table := trial_table(study):
        yield Section("trials", "Every trial", (table,), "Trials")
    count = f" ({len(study.findings)})" if study.findings else ""
    yield Section("findings", "Findings", finding_blocks(study.findings), f"Findings{count}")
    if data := tuple(data_blocks(study.data)):
        yield Section("data", "The data as read", data, "Data")
    if study.best is not None:
        yield Section("recipe", "The winner's recipe", tuple(recipe_blocks(cast(Any, study.best))), "Recipe")
    yield Section("repeat", "How to repeat it", tuple(_repeat(study)), "Repeat")


def study_page(study: Study) -> Page:
    """The report of a study."""
    said = study_verdict(study)
    name = wording.short(study.data.name or study.settings.get("data") or "data", 80)
    total = study.data.rows.total
    about = [_counted(total, "example")] if total else []
    about.append(("" if _asks(study) else "a search of ") + _counted(len(study.trials), "trial"))
    date = wording.clean(study.machine.get("date") or "")
    made = f"Made by gradwise {wording.clean(study.version)}" + (f" on {date}" if date else "") + "."
    title = f"{name}: {said.headline[:1].lower()}{said.headline[1:]}"
    return Page(
        title, name, " · ".join(about), said, tuple(_advice(study)), tuple(_sections(study)), made, "sort_trials.js"
    )
