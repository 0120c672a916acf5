"""The summary of a study on the terminal: the winner, its error estimates, and what to do next."""

import math
from pathlib import Path
from typing import Any

from ...records.study import Study
from ...reporting import wording
from ...reporting.captioned_figures.study_figures import short_path_names
from ...reporting.report import verdict
from ...searching.selection.finalists import chosen_from
from .output import console, estimate, grid, show_findings

_SAID = ("challenge", "comparison", "seeds", "batch_size")


def _finite(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _validation(study: Study) -> str:
    """The winner's validation score, and the score to expect on new data."""
    winner, scale = study.winner, study.scale
    if not _finite(winner.get("score")):
        return ""
    if not _finite(winner.get("corrected")):
        return scale.say(winner["score"])
    chosen, corrected = scale.say(winner["score"]), scale.say(winner["corrected"])
    tried = chosen_from(study.trials)
    how = "best" if winner.get("number") == tried[0].number else "one of the best"
    return f"{chosen} ({how} of {len(tried)} trials); expected on new data {corrected}"


def _committee(study: Study) -> str:
    """The committee and its average member on the test set."""
    found = study.committee
    members = found.get("members") or 0
    if members < 2:
        return ""
    weights = found.get("weights") or {}
    several = "1 trial" if len(weights) == 1 else f"{len(weights)} trials"
    said = f"{members} networks of {several}, weighted" if weights else f"{members} networks ({found.get('kind')})"
    alone, together = found.get("mean_member_test"), found.get("test")
    if _finite(alone) and _finite(together):
        metric = study.metric
        said += f": {wording.in_metric(metric, together)} together, {wording.in_metric(metric, alone)} alone on average"
    return said


def _ensemble(study: Study) -> str:
    """The ensemble and the best trial on held-out rows."""
    honest, best = (study.committee.get(name) for name in ("honest", "best_trial"))
    if not (_finite(honest) and _finite(best)):
        return ""
    together = f"{wording.in_metric(study.metric, honest)} on held-out rows"
    return f"{together}; the best trial alone {wording.in_metric(study.metric, best)}"


def _weighted(study: Study) -> str:
    found = study.estimates.get("weighted") or {}
    if not _finite(found.get("mean")) or not found.get("contenders"):
        return ""
    scale = study.scale
    spread = (
        f" ± {scale.say(found['deviation'])}" if _finite(found.get("deviation")) and study.task != "numbers" else ""
    )
    return f"{scale.say(found['mean'])}{spread}, weighted over {found['contenders']} contenders"


def _values(study: Study) -> list[tuple[str, str]]:
    short = short_path_names(study)
    return [(short.get(path, path), wording.setting(value)) for path, value in study.winner.get("values", {}).items()]


def answers(study: Study) -> list[str]:
    """The answers to questions asked instead of a search, or beside it."""
    said = [(study.analysis.get(name) or {}).get("sentence") for name in _SAID]
    return [line[:1].upper() + line[1:] for line in said if line]


def show_study(study: Study, folder: Path, report: Path | None) -> None:
    """Prints the summary of a study: verdict, winner, estimates, advice, findings and files."""
    from rich.text import Text

    out = console()
    said = verdict(study)
    aside = answers(study)
    failed = study.best is None
    if study.winner or failed:
        out.print(Text(said.headline, "bold red" if failed else "bold green"))
        for line in (said.interval, estimate(study), said.story):
            if line:
                out.print(Text(line))
    for line in aside:
        out.print(Text(line, "" if study.winner or failed else "bold green"))
    rows = [
        *([("winner", f"trial {study.winner['number']}")] if study.winner else []),
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
    out.print()
    advice = (study.analysis.get("advice") or {}).get("sentence")
    if advice and study.winner:
        out.print(Text(advice[:1].upper() + advice[1:]))
    short = study.analysis.get("short_runs") or {}
    if short.get("useful") and study.winner:
        out.print(Text(short["sentence"][:1].upper() + short["sentence"][1:]))
    # The advice and the correction are said above; as findings they would be said twice.
    show_findings(out, [one for one in study.findings if one.what != advice and "corrected" not in one.evidence])
    if report is not None:
        out.print(Text(f"report   {report}"), soft_wrap=True)
    if study.predictor is not None or (folder / "model.safetensors").is_file():
        out.print(Text(f"predict  gradwise predict {folder} NEW_DATA"), soft_wrap=True)
    if study.winner:
        out.print(Text(f"resume   gradwise search --out {folder} --resume --trials +50"), soft_wrap=True)
