"""Optimisation or overfitting? One sentence, its numbers, and the chapter's remedies in order (row F3). Pure.

    judged = judge_run(RunNumbers(train=0.0, test=0.21, train_count=60, test_count=1300, chance=0.9))
    judged.kind, judged.sentence, judged.remedies           "overfitting", ...

The test error above the target level (0, unless a `target` is given) is the training error plus the gap between the
two. If one of them accounts for two thirds, that is the difficulty.

| observation | kind |
|---|---|
| errors were found, or all metrics are NaN | broken |
| the test error is a tenth of chance, or at the target | fine |
| most of it is training error | optimisation |
| most of it is the gap; or training kept improving after validation got worse | overfitting |
| neither alone; or the top fits perfectly and the layers below are no better than raw inputs | both |
| the difference that matters is within the noise of the test error | unsure |
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...evaluation.metrics import HIGHER_IS_BETTER, wilson
from ...records.evidence.verdict import Judgement, Probes, RunNumbers
from ...records.finding import Finding
from ...records.score_scale import in_metric, is_in_percent, metric_name, percent
from ...runtime.errors import RequestError
from ..codes import found
from .remedies import of_optimisation, of_overfitting

FINE = 0.1  # of the chance level
MOST = 2 / 3  # of the error belongs to one part
PERFECT = 0.02  # of the chance level, in training
NOTHING_STANDS_OUT = "GW805"
_CODE = {
    "optimisation": "GW801",
    "overfitting": "GW802",
    "both": "GW803",
    "unsure": "GW804",
    "fine": NOTHING_STANDS_OUT,
}
_NAN = math.nan
_TOLD_APART = 0.25  # of a probe's error: a difference this large must be detectable


@dataclass(frozen=True)
class _Parts:
    """The errors on a scale where lower is better and terms add up, divided by chance minus the target level."""

    train: float
    test: float
    low: float
    high: float
    gap_low: float  # the smallest and the largest gap that the noise allows
    gap_high: float
    chance: bool  # whether the scale is known: otherwise everything is relative to the test error


def _scaled(value: float, metric: str) -> float:
    if metric in HIGHER_IS_BETTER:
        return 1.0 - value
    return value * value if metric == "rmse" else value  # squares add up to 1 - R²


def _interval(value: float, count: int, metric: str, like: tuple[float, float, int, float]) -> tuple[float, float]:
    """The 95 % confidence interval of an error: Wilson's for a rate; else scaled from that of another set."""
    if is_in_percent(metric) and count:
        return wilson(value * count, count)
    low, high, other, at = like
    if not (math.isfinite(low) and math.isfinite(high) and count and other and at > 0):
        return value, value
    half = (high - low) / 2 * min(1.0, value / at) * math.sqrt(other / count)
    return max(0.0, value - half), value + half


def _parts_of(numbers: RunNumbers) -> _Parts:
    metric = numbers.metric
    train, test, floor = (_scaled(value, metric) for value in (numbers.train, numbers.test, numbers.target))
    chance = _scaled(numbers.chance, metric)
    floor = floor if math.isfinite(floor) else 0.0
    ends = sorted(_scaled(end, metric) for end in numbers.test_interval)
    if not all(math.isfinite(end) for end in ends):
        ends = list(_interval(test, numbers.test_count, metric, (_NAN, _NAN, 0, _NAN)))
    of_train = _interval(train, numbers.train_count, metric, (ends[0], ends[1], numbers.test_count, test))
    # Newcombe's interval of a difference, from those of its two parts.
    gap = test - train
    least, most = (
        gap - math.hypot(test - ends[0], of_train[1] - train),
        gap + math.hypot(ends[1] - test, train - of_train[0]),
    )
    known = math.isfinite(chance) and chance > floor
    scale = chance - floor if known else max(abs(test - floor), 1e-30)
    return _Parts(
        train=(train - floor) / scale,
        test=(test - floor) / scale,
        low=(ends[0] - floor) / scale,
        high=(ends[1] - floor) / scale,
        gap_low=least / scale,
        gap_high=most / scale,
        chance=known,
    )


def _unsaid_below(numbers: RunNumbers, parts: _Parts) -> bool:
    """Whether the training error is zero while the layers below the top are no better than raw inputs."""
    probes = numbers.probes
    if probes is None or len(probes.errors) < 3 or parts.train > PERFECT or not probes.count:
        return False
    lower = min(probes.errors[1:-1])
    # Without untrained layers to compare with, raw inputs are the baseline; if both are given, both must be beaten.
    marks = [probes.errors[0], *([min(probes.untrained)] if probes.untrained else [])]
    best = min(marks)
    noise = 1.96 * math.sqrt(max(best * (1 - best), 0.0) / probes.count) if best < 1 else 0.05 * best
    told_apart = noise <= _TOLD_APART * best  # few examples could not show what the layers learned
    return told_apart and lower > best - noise


def _kind(numbers: RunNumbers, parts: _Parts, errors: int) -> str:
    if errors or numbers.diverged or not (math.isfinite(parts.train) and math.isfinite(parts.test)):
        return "broken"
    targeted = math.isfinite(numbers.target)
    if parts.chance and parts.test <= (0.0 if targeted else FINE):
        return "fine"
    if targeted and parts.low <= 0.0:  # it may have reached the target
        return "unsure"
    gap = (parts.test - parts.train) / max(parts.test, 1e-30)
    if gap >= MOST:
        told = "overfitting" if parts.gap_low > 0 else "unsure"
        return "both" if told == "overfitting" and _unsaid_below(numbers, parts) else told
    if numbers.gap_opening and not targeted:
        # The training error could have gone lower, but validation stopped it: optimisation is not the difficulty.
        return "overfitting"
    if not parts.chance:
        return "fine" if gap <= 1 - MOST else "both" if parts.gap_low > 0 else "unsure"
    largest = parts.gap_high / max(parts.train + parts.gap_high, 1e-30)
    if gap <= 1 - MOST:
        return "optimisation" if largest < MOST else "unsure"
    return "both" if parts.gap_low > 0 else "unsure"


def _first_of(found: Sequence[Finding], word: str) -> str:
    """How many there are, and the first of them in full."""
    first = found[0]
    name = first.code or word
    several = f"{len(found)} {word}s, first {name}" if len(found) > 1 else f"one {word}, {name}" if first.code else word
    return f"{several}{f' at {first.where}' if first.where else ''}: {first.what}"


def _sentence(kind: str, numbers: RunNumbers, parts: _Parts, errors: Sequence[Finding]) -> str:
    metric = numbers.metric
    train, test = in_metric(metric, numbers.train), in_metric(metric, numbers.test)
    low, high = numbers.test_interval
    if not math.isfinite(low) and is_in_percent(metric) and numbers.test_count:
        low, high = wilson(numbers.test * numbers.test_count, numbers.test_count)
    between = f" ({in_metric(metric, low)} to {in_metric(metric, high)})" if math.isfinite(low) else ""
    level = f", constant prediction {in_metric(metric, numbers.chance)}" if math.isfinite(numbers.chance) else ""
    name = metric_name(metric) if metric in HIGHER_IS_BETTER else "error"
    both = f"training {name} {train}, test {name} {test}{between}"
    if kind == "broken":
        why = "the run diverged." if numbers.diverged else "all metrics are NaN."
        return f"Something is broken: {_first_of(errors, 'error') if errors else why}"
    if kind == "fine":
        return f"Nothing stands out: {both}{level}."
    if kind == "unsure":
        return f"The test set is too small to tell: {both}; the difference is within the noise."
    share = max(0.0, min(1.0, (parts.test - parts.train) / max(parts.test, 1e-30)))
    if kind == "optimisation":
        why = f"training error accounts for {100 * (1 - share):.0f} % of the test error"
        return f"Optimisation is the difficulty: {both}{level}: {why}."
    if kind == "overfitting":
        turned = numbers.gap_opening and share < MOST
        why = (
            "training kept improving after validation got worse"
            if turned
            else f"the gap is {100 * share:.0f} % of the test error"
        )
        return f"Overfitting is the difficulty: {both}{level}: {why}."
    if _unsaid_below(numbers, parts):
        return f"Both are difficulties: {both}: the top overfits, and the layers below are no better than raw inputs."
    why = f"the gap is {100 * share:.0f} % of the test error"
    return f"Both optimisation and overfitting are difficulties: {both}{level}: {why}."


def _findings(
    kind: str, sentence: str, numbers: RunNumbers, parts: _Parts, remedies: Sequence[str]
) -> tuple[Finding, ...]:
    if kind not in _CODE:
        return ()
    told: dict[str, Any] = {"train": numbers.train, "test": numbers.test, "chance": numbers.chance}
    first = remedies[0] if remedies else ""
    given = [found(_CODE[kind], sentence, next=first, **told)]
    if kind == "both" and _unsaid_below(numbers, parts) and numbers.probes is not None:
        probes = numbers.probes
        lower = int(np.argmin(probes.errors[1:-1])) + 1
        what = (
            f"a linear probe has an error of {percent(probes.errors[lower])} on `{probes.names[lower]}`, the best "
            f"lower layer, and of {percent(probes.errors[0])} on raw inputs: the lower layers hardly learned, "
            "and the top fits the training set alone."
        )
        where, next_ = probes.names[lower], next((one for one in remedies if "--pretrain" in one), first)
        given.append(found("GW806", what, where=where, next=next_, errors=list(probes.errors)))
    return tuple(given)


def judge_run(numbers: RunNumbers, findings: Sequence[Finding] = ()) -> Judgement:
    """The verdict on a finished run. Errors among the findings take precedence."""
    errors = [one for one in findings if one.level == "error"]
    parts = _parts_of(numbers)
    kind = _kind(numbers, parts, len(errors))
    remedies: list[str] = []
    if kind in {"broken", "optimisation", "both"}:
        remedies += of_optimisation(numbers, errors)
    if kind in {"overfitting", "both"}:
        remedies += of_overfitting(numbers)
    if kind == "unsure":
        remedies.append(f"a better estimate: `{numbers.present.estimate}`")
    sentence = _sentence(kind, numbers, parts, errors)
    return Judgement(
        sentence,
        kind,
        numbers,
        share_in_training=parts.train,
        share_of_gap=parts.test - parts.train,
        least_gap=parts.gap_low,
        remedies=tuple(remedies),
        findings=_findings(kind, sentence, numbers, parts, remedies),
    )


def judge_findings(findings: Sequence[Finding], subject: str, passed: int) -> Judgement:
    """The verdict from the findings alone: if nothing was trained, or if there are errors."""
    errors, warnings = ([one for one in findings if one.level == level] for level in ("error", "warning"))
    remedies = tuple(dict.fromkeys(one.next for one in (*errors, *warnings) if one.next))
    if errors:
        return Judgement(f"Something is broken: {_first_of(errors, 'error')}", "broken", remedies=remedies)
    if warnings:
        sentence = f"No errors, but a possible problem: {_first_of(warnings, 'warning')}"
        return Judgement(sentence, "unsure", remedies=remedies)
    return Judgement(f"Nothing stands out: {passed} check{'s' * (passed != 1)} of {subject} passed.", "fine")


def measure_probes(
    layers: Mapping[str, Any], targets: Any, *, untrained: Mapping[str, Any] | None = None, fitted: float = 0.5
) -> Probes:
    """A ridge probe on each layer's outputs, the raw inputs first: {"inputs": x, "layers.0": h1, ...}.

    Integer targets are classes. The probes are fitted on the first rows and evaluated on the rest, so the rows
    must be shuffled.
    """
    import jax
    import jax.numpy as jnp

    from ...criteria.linear_probe import Ridge, probe_scores

    known = np.asarray(targets)
    rows = len(known)
    wrong = next((name for name, codes in layers.items() if len(codes) != rows), "")
    if wrong or rows < 4 or not layers:
        raise RequestError(f"probes need four targets or more, and one row of each layer per target; check `{wrong}`.")
    classes = int(known.max()) + 1 if known.dtype.kind in "iub" else 0
    goals = known.astype(np.int32) if classes else known.reshape(rows, -1).astype(np.float32)
    cut = min(rows - 1, max(1, round(fitted * rows)))

    @jax.jit
    def error(codes: Any) -> Any:
        halves = (jnp.asarray(goals[:cut]), jnp.asarray(goals[cut:]))
        return jnp.mean(probe_scores(Ridge(), (codes[:cut], codes[cut:]), halves, classes)[0])

    def errors(given: Mapping[str, Any]) -> tuple[float, ...]:
        return tuple(float(error(np.asarray(codes, np.float32).reshape(rows, -1))) for codes in given.values())

    return Probes(tuple(layers), errors(layers), rows - cut, errors(untrained) if untrained else ())
