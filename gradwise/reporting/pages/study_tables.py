"""The tables of a study: its space and its trials, best first; a script of the page sorts them by other columns."""

from typing import Any

from ...records.study import Study
from ...records.trial import Trial
from ...specs.priors import AbstractPrior, Choice, LogInteger, LogUniform, Uniform, ZeroOr
from ...specs.search_space import Space, label
from .. import wording
from ..blocks import Cell, Row, Table
from ..captioned_figures.study_figures import short_path_names, sortable_setting

SHOWN_TRIALS = 2000


def _prior(prior: AbstractPrior) -> str:
    """A prior as one says it."""
    match prior:
        case Uniform():
            return f"{prior.low:g} – {prior.high:g}"
        case LogUniform():
            return f"{prior.low:g} – {prior.high:g}, logarithmic"
        case LogInteger():
            return f"{prior.low} – {prior.high}, whole, logarithmic"
        case Choice():
            total = sum(prior.weights) if prior.weights else 0.0
            shares = [f" ({wording.short_percent(weight / total)})" for weight in prior.weights]
            shares = shares or [""] * len(prior.values)
            return ", ".join(
                f"{sortable_setting(label(v))}{share}" for v, share in zip(prior.values, shares, strict=True)
            )
        case ZeroOr():
            return f"0 ({wording.short_percent(prior.zero)}), or {_prior(prior.other)}"
        case _:
            return wording.clean(prior)


def _range(space: Space, path: str) -> str:
    return _prior(space[path].prior) if path in space.paths else wording.NOTHING


def space_table(study: Study) -> Table | None:
    """What was searched: each knob's prior as asked and as it became, how many values it took, and the winner's."""
    if not study.space.dimensions:
        return None
    winner = study.winner or study.best
    best: dict[str, Any] = winner.values if winner is not None else {}
    changed = any(_range(study.asked, path) != _range(study.space, path) for path in study.space.paths)
    rows: list[Row] = []
    for dimension in study.space.dimensions:
        path = dimension.path
        asked, now = _range(study.asked, path), _range(study.space, path)
        tried = {str(trial.values[path]) for trial in study.trials if path in trial.values}
        became = (Cell(now if now != asked else "", strong=now != asked),) if changed else ()
        chosen = sortable_setting(best[path]) if path in best else wording.NOTHING
        rows.append((Cell(path, code=True), asked, *became, f"{len(tried):,}", chosen, dimension.row))
    header = ("knob", "searched", *(("extended to",) if changed else ()), "values tried", "best", "row")
    note = "A letter with a number is the row of the chapter that a knob comes from."
    return Table("The space", header, tuple(rows), (3 if changed else 2,), note)


def _outcome(trial: Trial) -> str:
    return {"out_of_time": "out of time"}.get(trial.outcome, wording.clean(trial.outcome))


def _is_number(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def trial_table(study: Study) -> Table | None:
    """Every trial, best first: what was tried, how it ended, what it cost."""
    if not study.trials:
        return None
    order = sorted(study.trials, key=lambda t: (not t.ok, t.score if t.ok else 0.0, t.loss if t.ok else 0.0, t.number))
    shown, names, best = order[:SHOWN_TRIALS], short_path_names(study), study.best
    phases, reasons = ({getattr(trial, name) for trial in shown} for name in ("phase", "reason"))
    columns: list[tuple[str, list[str | Cell], bool]] = [
        ("trial", [Cell(str(trial.number), strong=trial is best) for trial in shown], True),
        (study.scale.name, [study.scale.precise(t.score) if t.ok else wording.NOTHING for t in shown], True),
        *((("phase", [wording.clean(trial.phase) for trial in shown], False),) if len(phases) > 1 else ()),
    ]
    for path, name in names.items():
        cells: list[str | Cell] = [
            sortable_setting(t.values[path]) if path in t.values else wording.NOTHING for t in shown
        ]
        columns.append((name, cells, _is_number([t.values[path] for t in shown if path in t.values])))
    columns += [
        ("age", [wording.whole(trial.age_examples) for trial in shown], True),
        ("seconds", [f"{trial.seconds:.2f}" for trial in shown], True),
        (
            "parameters",
            [wording.whole(trial.parameters) if trial.parameters else wording.NOTHING for trial in shown],
            True,
        ),
        ("ended by", [_outcome(trial) for trial in shown], False),
    ]
    if reasons - {""}:
        columns.append(("reason", [wording.short(trial.reason, 160) for trial in shown], False))
    left_out = len(order) - len(shown)
    note = f"The best {len(shown):,} of {len(order):,}; all of them are in `trials.parquet`." if left_out else ""
    numbers = tuple(place for place, (_, _, number) in enumerate(columns) if number)
    rows = tuple(zip(*(cells for _, cells, _ in columns), strict=True))
    return Table("", tuple(name for name, _, _ in columns), rows, numbers, note)
