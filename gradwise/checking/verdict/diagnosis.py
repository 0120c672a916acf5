"""Diagnoses a finished run or search from its record: the verdict and what went wrong. Pure: no network is run.

    judgement, findings = diagnose(record)            a `Fit`: its metrics, history, recipe and evidence
    findings = diagnose_study(study)                  a `Study`: its trials

Nothing is reported twice: a finding is dropped if the record already has one with its code.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...criteria.embedding.embed_neighbours import EmbedNeighbours
from ...criteria.penalties import L2
from ...criteria.semi_supervised import SemiSupervised
from ...evaluation.metrics import COUNTED, HIGHER_IS_BETTER
from ...evaluation.run_findings import learning_rate_of
from ...pretraining.stack import Pretrained
from ...records.commands import as_check, as_search, with_options
from ...records.evidence.fit_evidence import Baseline, ErrorRate
from ...records.evidence.verdict import Judgement, Present, RunNumbers
from ...records.finding import Finding
from ...records.fit import Fit
from ...records.score_scale import in_metric, metric_name, percent
from ...records.study import Study
from ...specs.paths import knobs, parts
from ...training.stopping import Off
from ..codes import found
from .verdict import judge_run

_QUARTERS = 4  # the least number of intervals in which a trend can be seen
_FALLING = 0.05  # of the loss, from one quarter of the run to the next
_TURNED = 0.05  # above the least validation loss
_NOISE = 0.15  # of the whole fall of the training loss
_WIDE = 0.2  # of chance: an interval this wide decides little
_HIGH = 0.3  # of chance: a training error high enough to comment on the rate
_CHANCE = 0.9  # of chance: nothing was learned
_RARE = 0.1  # the share of a rare class
_MANY = 0.3  # of the trials


@dataclass(frozen=True)
class Course:
    """The facts of a history that a verdict needs."""

    intervals: int = 0
    train_falling: float = 0.0  # the fall of the loss from the third quarter to the last, relative
    valid_falling: float = 0.0
    train_left: float = math.nan  # the last training loss against the first
    steady: bool = False  # it fell nearly all the time
    gap_opening: bool = False
    noisy: bool = False
    rising: bool = False
    best_share: float = math.nan  # the age of the best model against that of the end
    best_is_last: bool = False


def _finite(column: Sequence[Any]) -> np.ndarray:
    values = np.asarray([math.nan if value is None else value for value in column], np.float64)
    return np.asarray(values[np.isfinite(values)])


def _fall(values: np.ndarray) -> float:
    """How much lower the last quarter is than the one before, relative to it."""
    quarter = len(values) // _QUARTERS
    if quarter == 0:
        return 0.0
    before, after = values[-2 * quarter : -quarter].mean(), values[-quarter:].mean()
    if abs(before - after) < 0.01 * (values[0] - values.min()):
        return 0.0  # next to nothing of what there was to fall
    return float((before - after) / max(abs(before), 1e-30))


def _smooth(values: np.ndarray) -> np.ndarray:
    width = max(1, len(values) // 8)
    return np.convolve(values, np.ones(width) / width, mode="valid")


def _opened(train: np.ndarray, valid: np.ndarray) -> bool:
    """Whether the validation loss rose, beyond its noise, while the training loss kept falling."""
    if min(len(train), len(valid)) < 2 * _QUARTERS or len(train) != len(valid):
        return False
    calm, fitted = _smooth(valid), _smooth(train)
    turn = int(calm.argmin())
    noise = float(np.std(np.diff(valid))) / math.sqrt(max(1, len(valid) // 8))
    rise = calm[-1] - calm[turn]
    return bool(rise > max(_TURNED * abs(calm[turn]), 4 * noise) and fitted[-1] < (1 - _FALLING) * fitted[turn])


def read_course(history: dict[str, list[Any]]) -> Course:
    """The facts of a history; a short one gives few."""
    train, valid = (_finite(history.get(name, ())) for name in ("train_loss", "valid_loss"))
    ages, best = history.get("age_examples", []), history.get("best", [])
    last_best = max((age for age, one in zip(ages, best, strict=False) if one), default=math.nan)
    if len(train) < 2:
        return Course(intervals=len(train))
    late = train[len(train) // 2 :]
    fall = float(train[0] - train.min())
    # Noise is what remains of a curve when its slope is taken away.
    spread = float(np.std(np.diff(late)) / math.sqrt(2)) if len(late) > 2 else 0.0
    enough = len(train) >= 2 * _QUARTERS
    return Course(
        intervals=len(train),
        train_falling=_fall(train),
        valid_falling=_fall(valid),
        train_left=float(train[-1] / train[0]) if train[0] > 0 else math.nan,
        steady=bool(np.mean(np.diff(train) < 0) >= 0.75),
        gap_opening=_opened(train, valid),
        noisy=bool(enough and fall > 0 and spread > _NOISE * fall),
        rising=bool(
            enough and _smooth(train)[-1] > train.min() + 0.5 * max(fall, 1e-30) and train.argmin() < len(train) - 2
        ),
        best_share=float(last_best / ages[-1]) if len(ages) and ages[-1] else math.nan,
        best_is_last=bool(len(best) and best[-1]),
    )


def chance_of(record: Fit) -> float:
    """The test error of the best constant prediction, if the record has it."""
    evidence, metric = record.evidence, record.metric
    if record.task == "several":
        return 1.0 if metric == "relative_error" else math.nan
    if record.task == "classes" and evidence.classes.confusion:
        counts = np.asarray(evidence.classes.confusion).sum(1)
        shares = counts[counts > 0] / max(1, counts.sum())
        entropy = float(-(shares * np.log(shares)).sum())
        largest, count = float(shares.max(initial=0.0)), max(1, len(shares))
        of = {
            "error_rate": 1.0 - largest,
            "accuracy": largest,
            "balanced_error_rate": 1.0 - 1.0 / count,
            "f1_macro": 2.0 * largest / (1.0 + largest) / count,
            "precision_macro": largest / count,
            "recall_macro": 1.0 / count,
            "average_precision": 1.0 / count,  # of each class its share
        }
        return {**of, "log_loss": entropy, "auc": 0.5}.get(metric, math.nan)
    if record.task == "labels" and metric in COUNTED and evidence.labels:
        shares = np.asarray([one.count for one in evidence.labels]) / max(1, record.data.rows.test)
        error = float(np.minimum(shares, 1 - shares).mean())
        return 1.0 - error if metric == "accuracy" else error
    if record.task == "numbers":
        told = record.metrics.get("test", {})
        r2, rmse = told.get("r2", math.nan), told.get("rmse", math.nan)
        if metric == "r2":
            return 0.0
        if metric == "rmse" and math.isfinite(r2) and r2 < 1:
            return rmse / math.sqrt(1.0 - r2)  # 1 - R² is the squared error against the variance
        if metric == "mae" and evidence.numbers.targets:
            targets = np.asarray(evidence.numbers.targets)
            return float(np.abs(targets - np.median(targets, axis=0)).mean())
    return math.nan


def present_of(record: Fit) -> Present:
    """The command and the knobs that remedies start from."""
    recipe = record.recipe
    data = record.data.name or "DATA"
    rate_path, rate = learning_rate_of(recipe)
    known = {path: value for path, _, value in knobs(recipe)}
    decay = next((f"{path}.coefficient" for path in _penalties(recipe)), "")
    widths = known.get("model.widths", ())
    command = record.data.command or f"gradwise fit {data}"
    return Present(
        command=command,
        data=data,
        task=record.task,
        rate_path=rate_path,
        rate=rate,
        widths=tuple(int(width) for width in widths),
        dropout=float(known.get("model.dropout", known.get("model.mlp.dropout", math.nan))),
        decay_path=decay,
        decay=float(known.get(decay, 0.0)),
        pretrained=isinstance(recipe.model, Pretrained),
        early_stopping=not isinstance(recipe.stopping, Off),
        unlabelled_term=isinstance(recipe.criterion, SemiSupervised | EmbedNeighbours),
    )


def _penalties(recipe: Any) -> list[str]:
    """The paths of the L2 penalties of a recipe."""
    return [path for path, one in parts(recipe) if path.startswith("criterion.penalties.") and isinstance(one, L2)]


def _rate_change(record: Fit, course: Course, numbers: RunNumbers) -> tuple[float, str, str] | None:
    """The factor by which the learning rate should change, why, and the level of that finding; None if it is fine."""
    share = judge_run(numbers).share_in_training
    if record.outcome.failed:
        what = f"the loss became NaN after {record.outcome.age_examples:,} examples: the run diverged."
        return 1 / 3, what, ""
    if not (share > _HIGH and math.isfinite(numbers.chance)):
        return None
    error, left = in_metric(record.metric, numbers.train), 100 * course.train_left
    if course.rising or course.noisy:
        seen = "rose again after its minimum" if course.rising else "fluctuated until the end"
        what = f"the training loss {seen}, and the training error stayed at {error}."
        return 1 / 3, what, "warning"
    if share > _CHANCE and course.train_left < 1 / 3:
        what = f"the training loss fell to {left:.2g} % of its first value, but the training error is still {error}"
        return 0.1, f"{what}: the first updates were too large.", "warning"
    slow = course.train_falling > 0.01 and (course.train_left > 0.5 or course.best_is_last)
    slow = slow or (course.steady and course.train_left > _CHANCE)
    if not slow or course.gap_opening:
        return None
    what = f"the training loss was still at {left:.0f} % of its first value and falling at the end"
    return 10.0 if left > 50 else 3.0, f"{what}, and the training error at {error}.", ""


def _of_rate(record: Fit, course: Course, numbers: RunNumbers) -> list[Finding]:
    """A learning rate that should change, with the command that does it."""
    change = _rate_change(record, course, numbers)
    if change is None:
        return []
    (factor, what, level), present = change, numbers.present
    code = "GW502" if factor > 1 else "GW501"
    next_ = present.with_knobs(f"{present.rate_path}={present.rate * factor:.2g}") if present.rate_path else ""
    return [found(code, what, where=present.rate_path, next=next_, level=level, rate=present.rate, factor=factor)]


def numbers_of(record: Fit, course: Course) -> RunNumbers:
    """The numbers of a record that the verdict needs."""
    metrics, rows = record.metrics, record.data.rows
    values = {part: metrics.get(part, {}).get(record.metric, math.nan) for part in ("train", "valid", "test")}
    rated = values["test"] if math.isfinite(values["test"]) else values["valid"]
    numbers = RunNumbers(
        train=values["train"],
        valid=values["valid"],
        test=rated,  # without a test set, the validation set is used
        train_count=rows.train,
        test_count=rows.test or rows.valid,
        test_interval=record.test_interval,
        metric=record.metric,
        chance=chance_of(record),
        train_falling=course.train_falling > _FALLING,
        train_noisy=course.noisy or course.rising,
        gap_opening=course.gap_opening,
        still_improving=course.best_is_last and record.outcome.name != "patience",
        diverged=record.outcome.failed,
        best_share=course.best_share,
        present=present_of(record),
    )
    change = _rate_change(record, course, numbers)
    return dataclasses.replace(numbers, rate_factor=change[0]) if change else numbers


def _of_patience(record: Fit, course: Course, numbers: RunNumbers) -> list[Finding]:
    if record.outcome.name != "patience" or isinstance(record.recipe.stopping, Off):
        return []
    short = course.intervals < 2 * _QUARTERS and course.best_is_last
    falling = course.valid_falling > _FALLING and course.train_falling > _FALLING
    if not (short or falling):
        return []
    age = record.outcome.age_examples
    seen = f"after {course.intervals} validations"
    seen = f"by {100 * course.valid_falling:.0f} % in the last quarter" if falling else seen
    what = f"patience ended the run after {age:,} examples, but the validation loss was still falling, {seen}."
    path, wanted = "stopping.initial_examples", 3 * max(age, 1000)
    step = numbers.present.with_knobs(f"{path}={wanted}", "stopping.growth.factor=3")
    falls: dict[str, Any] = {name: getattr(course, name) for name in ("valid_falling", "train_falling")}
    return [found("GW706", what, where=path, next=step, **falls)]


def _of_rare_classes(classes: Sequence[ErrorRate], overall: float, command: str) -> list[Finding]:
    """Classes that are rare and mostly misclassified, on the test set of a training or a search."""
    total, largest = sum(one.count for one in classes), max((one.count for one in classes), default=0)
    # With many classes each is rare: only one much rarer than the others counts.
    rare = [one for one in classes if 0 < one.count < min(_RARE * total, largest / 5)]
    rare = [one for one in rare if one.low > max(overall, 0.3) and one.errors >= 3]
    if not rare:
        return []
    worst = max(rare, key=lambda one: one.rate)
    what = (
        f"class {worst.name} is {percent(worst.count / total)} of the examples, and {worst.errors} of "
        f"its {worst.count} are misclassified, compared with {percent(overall)} overall."
    )
    step = with_options(command, "--class-weight balanced", "--metric balanced_error_rate") if command else ""
    return [found("GW207", what, where=worst.name, next=step, classes=[one.name for one in rare])]


def _of_data(record: Fit, numbers: RunNumbers) -> list[Finding]:
    told: list[Finding] = []
    constant = [one.name for one in record.data.columns if one.constant]
    if constant:
        what = f"{len(constant)} of {len(record.data.columns)} columns are constant, first `{constant[0]}`."
        drop = numbers.present.with_options(f"--drop {constant[0]}") if len(record.data.shape) < 2 else ""
        told.append(found("GW205", what, where=constant[0], next=drop, columns=constant[:20]))
    overall = record.metrics.get("test", {}).get("error_rate", math.nan)
    return told + _of_rare_classes(record.evidence.classes.rates, overall, numbers.present.command)


def _of_test(record: Fit, numbers: RunNumbers) -> list[Finding]:
    low, high = record.test_interval
    square = record.metric == "rmse"
    ends = [value * value if square else value for value in (low, high, numbers.chance)]
    if not all(math.isfinite(value) for value in ends) or abs(ends[1] - ends[0]) <= _WIDE * abs(ends[2]):
        return []
    count = record.data.rows.test
    what = (
        f"the test set has only {count} examples: the {record.metric} lies between "
        f"{in_metric(record.metric, low)} and {in_metric(record.metric, high)} (95 % confidence interval)."
    )
    return [found("GW804", what, next=numbers.present.estimate, low=low, high=high, count=count)]


def _of_baselines(baselines: Sequence[Baseline], metric: str, own: float, command: str) -> list[Finding]:
    """The best of the simple models, if it is clearly better than the network on the same test rows."""
    better = [one for one in baselines if one.is_better]
    if not better:
        return []
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    best = min(better, key=lambda one: sign * one.metrics[metric])
    value, low, high = best.metrics[metric], *best.gain_interval
    what = (
        f"on the same test rows the {best.name} baseline is clearly better: {metric_name(metric)} "
        f"{in_metric(metric, value)}, the network's {in_metric(metric, own)}."
    )
    search = f"search other settings, `{with_options(as_search(command), '--budget 10min')}`, or " if command else ""
    next_ = f"{search}use that baseline."
    return [found("GW808", what, where=best.name, next=next_, baseline=value, network=own, low=low, high=high)]


def diagnose(record: Fit) -> tuple[Judgement, tuple[Finding, ...]]:
    """The verdict on a run, and the findings that its record does not have yet, including the verdict's own."""
    course = read_course(record.history)
    numbers = numbers_of(record, course)
    command = numbers.present.command
    known = {one.code for one in record.findings if one.code}
    told = [*_of_rate(record, course, numbers), *_of_patience(record, course, numbers), *_of_data(record, numbers)]
    told += _of_baselines(
        record.evidence.baselines, record.metric, record.metrics.get("test", {}).get(record.metric, math.nan), command
    )
    told = [one for one in told if one.code not in known]
    judged = judge_run(numbers, (*record.findings, *told))
    if judged.kind != "unsure":
        told += _of_test(record, numbers)
    return judged, (*told, *(one for one in judged.findings if one.code not in known))


def diagnose_study(study: Study) -> tuple[Finding, ...]:
    """Findings from the trials of a search; those on range edges and too few values are already in the study."""
    trials = study.searched
    known = {one.code for one in study.findings if one.code}
    data = study.data.name or "DATA"
    told = []
    lost = [trial for trial in trials if trial.outcome == "diverged"]
    ok = [trial for trial in trials if trial.ok]
    if len(trials) >= 4 and len(lost) > _MANY * len(trials):
        path, least = _rates_of(study, lost)
        safe = max((rate for rate in _rates_of(study, ok)[1] if not least or rate < min(least)), default=math.nan)
        span = f"'{path}=log({safe / 100:.1g}, {safe:.2g})'"
        command = str(study.settings.get("command", "")) or f"gradwise search {data}"
        next_ = with_options(command, f"--range {span}") if math.isfinite(safe) else ""
        above = f", from a learning rate of {min(least):.2g} upwards" if least else ""
        what, counts = f"{len(lost)} of {len(trials)} trials diverged{above}.", {"diverged": len(lost)}
        told.append(found("GW501", what, where=path, next=next_, level="warning", trials=len(trials), **counts))
    if len(ok) >= 4 and math.isfinite(study.chance) and min(trial.score for trial in ok) >= study.chance:
        learned = [trial for trial in ok if _learned(trial.curve.get("train_loss", []))]
        code = "GW210" if len(learned) * 2 > len(ok) else "GW801"
        why = "although they fit the training set" if code == "GW210" else "and most do not fit the training set"
        what = (
            f"none of {len(ok)} trials is better than a constant prediction "
            f"({in_metric(study.metric, study.scale.shown(study.chance))}), {why}."
        )
        command = str(study.settings.get("command", "")) or f"gradwise search {data}"
        told.append(found(code, what, next=as_check(command), best=min(trial.score for trial in ok)))
    own, seen = study.estimates.test, study.estimates
    overall = seen.metrics.get("test", {}).get("error_rate", math.nan)
    told += _of_rare_classes(seen.evidence.classes.rates, overall, str(study.settings.get("command", "")))
    told += _of_baselines(study.estimates.evidence.baselines, study.metric, math.nan if own is None else own, "")
    return tuple(one for one in told if one.code not in known)


def _learned(curve: Sequence[float]) -> bool:
    values = _finite(curve)
    return bool(len(values) > 1 and values.min() < 0.7 * values[0])


def _rates_of(study: Study, trials: Sequence[Any]) -> tuple[str, list[float]]:
    path = next((one.path for one in study.space.dimensions if one.path.endswith("learning_rate")), "")
    return path, [float(trial.values[path]) for trial in trials if path in trial.values]
