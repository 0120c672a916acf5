"""The summary of a study on the terminal: the winner, its error estimates, and what to do next."""

from pathlib import Path

from ...records.study import Study
from ...reporting import wording
from ...reporting.captioned_figures.study_figures import short_path_names
from ...reporting.report import verdict
from ...searching.selection.finalists import chosen_from
from .output import console, estimate, grid, show_findings


def _validation(study: Study) -> str:
    """The winner's validation score, and the score to expect on new data."""
    winner, scale = study.winner, study.scale
    if winner is None:
        return ""
    chosen = scale.say(winner.score)
    if winner.corrected is None:
        return chosen
    tried = chosen_from(study.trials)
    how = "best" if winner.number == tried[0].number else "one of the best"
    return f"{chosen} ({how} of {len(tried)} trials); expected on new data {scale.say(winner.corrected.score)}"


def _committee(study: Study) -> str:
    """The committee and its average member on the test set."""
    found = study.committee
    if found is None or found.members < 2:
        return ""
    several = "1 trial" if len(found.weights) == 1 else f"{len(found.weights)} trials"
    said = f"{found.members} networks " + (f"of {several}, weighted" if found.weights else f"({found.kind})")
    if found.member_tests:
        together, alone = (wording.in_metric(study.metric, x) for x in (study.estimates.test, found.mean_member_test))
        said += f": {together} together, {alone} alone on average"
    return said


def _ensemble(study: Study) -> str:
    """The ensemble and the best trial on held-out rows."""
    found = study.committee
    if found is None or found.honest is None:
        return ""
    together, best = (wording.in_metric(study.metric, value) for value in (found.honest, found.best_trial))
    return f"{together} on held-out rows; the best trial alone {best}"


def _weighted(study: Study) -> str:
    found, scale = study.estimates.weighted, study.scale
    if found is None:
        return ""
    spread = f" ± {scale.say(found.deviation)}" if study.task != "numbers" else ""
    return f"{scale.say(found.mean)}{spread}, weighted over {len(found.weights)} contenders"


def _values(study: Study) -> list[tuple[str, str]]:
    short, values = short_path_names(study), study.winner.values if study.winner is not None else {}
    return [(short.get(path, path), wording.setting(value)) for path, value in values.items()]


def answers(study: Study) -> list[str]:
    """The answers to questions asked instead of a search, or beside it."""
    return [wording.sentence(line) for line in study.analysis.answers]


def show_study(study: Study, folder: Path, report: Path | None) -> None:
    """Prints the summary of a study: verdict, winner, estimates, advice, findings and files."""
    from rich.text import Text

    out = console()
    said = verdict(study)
    failed = study.best is None
    if study.winner or failed:
        out.print(Text(said.headline, "bold red" if failed else "bold green"))
        for line in (said.interval, estimate(study), said.story):
            if line:
                out.print(Text(line))
    for line in answers(study):
        out.print(Text(line, "" if study.winner or failed else "bold green"))
    rows = [
        *([("winner", f"trial {study.winner.number}")] if study.winner else []),
        *((f"  {name}", value) for name, value in _values(study)),
        ("validation", _validation(study)),
        ("ensemble", _ensemble(study)),
        ("committee", _committee(study)),
        ("test", _weighted(study)),
    ]
    told = [(Text(name, "dim"), value) for name, value in rows if value]
    if told:
        out.print()
        out.print(grid(told))
    members = 1 if study.committee is None else study.committee.members
    beside = wording.baselines(study.estimates.evidence.baselines, study.metric, study.estimates.test, members)
    if beside and study.winner:
        out.print(Text(beside))
    out.print()
    advice, short = study.analysis.advice, study.analysis.short_runs
    if advice is not None and study.winner:
        out.print(Text(wording.sentence(advice.sentence)))
    if short is not None and short.useful and study.winner:
        out.print(Text(wording.sentence(short.sentence)))
    # The advice and the correction are said above; as findings they would be said twice.
    above = "" if advice is None else advice.sentence
    show_findings(out, [one for one in study.findings if one.what != above and "corrected" not in one.evidence])
    if report is not None:
        out.print(Text(f"report   {report}"), soft_wrap=True)
    if study.predictor is not None or (folder / "model.safetensors").is_file():
        out.print(Text(f"predict  gradwise predict {folder} NEW_DATA"), soft_wrap=True)
    if study.winner:
        out.print(Text(f"resume   gradwise search --out {folder} --resume --trials +50"), soft_wrap=True)
