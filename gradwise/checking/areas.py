"""The areas of a check, in the order in which they are run: each measures, reports findings, and keeps its numbers.

| area | tests |
|---|---|
| data | leakage, order, scale, labels: before any network |
| gradient | is the gradient that of the loss? |
| wiring | unused parameters and inputs, examples that leak into one another |
| padding | is padding read? |
| start | the loss of the initial weights against chance |
| overfit | can a handful of examples be memorised? |
| rates | the learning rate, the size of updates, the batch |
| flow | activations and gradients, layer by layer, and along sequences |
| choices | outputs, loss and penalties that do not match |
| graph | the program: its operations, its cost, the compiled result |
| growth | errors against the number of examples |
| training | for a recipe: a whole training, and its verdict |

Those that cost more than they tell most people are run for a recipe when they are named:

| area | measures |
|---|---|
| limit | the largest learning rate that does not diverge |
| widths | whether a learning rate serves narrow and wide networks alike |
| variance | bias and variance over resampled training sets: twenty trainings |
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ..records.evidence.check_evidence import CheckedEvidence, ChoicesEvidence, StartEvidence, TrainingEvidence
from ..records.evidence.verdict import Present, Probes, RunNumbers
from ..records.finding import Finding
from ..records.fit import Fit
from ..runtime import keys
from ..runtime.compilation import compile_quickly
from ..specs.dataset import Dataset
from ..specs.paths import get, knobs, replace, trainable
from ..specs.recipe import Recipe
from ..specs.sequences import Sequences
from ..tracing.layers import trace_layers
from ..training.train import train
from .batch_access import count_of, inputs_of, take, targets_of
from .data.as_read import find_as_read, join_findings
from .data.data import find_data, from_dataset, measure_data
from .flow.coordinate_check import coordinate_check, find_widths
from .flow.flow_graph import find_graph, measure_graph
from .flow.memory_span import find_span, measure_span
from .flow.signal_flow import measure_flow
from .flow.signal_flow_findings import find_flow
from .gradient.gradient import find_gradient, measure_gradient
from .learning.bias_variance import find_variance, recipe_variance
from .learning.first_loss import find_fall, find_start, measure_start
from .learning.largest_rate import largest_rate
from .learning.learning_curve import ErrorsBySize, recipe_growth, subject_growth
from .learning.learning_curve_findings import find_growth
from .learning.learning_rate import measure_rates
from .learning.learning_rate_findings import find_limit, find_rates
from .learning.overfit import find_overfit, measure_overfit
from .recipe_subject import PreparedRecipe
from .rehearsal import Rehearsal, rehearse
from .subject import Subject
from .verdict.diagnosis import diagnose, numbers_of, read_course
from .verdict.verdict import judge_run, measure_probes
from .wiring.loss_and_outputs import find_choices, find_recipe_choices, measure_choices
from .wiring.poisoned_padding import find_poison, measure_poison
from .wiring.wiring import find_wiring, measure_wiring

Found = tuple[Iterable[Finding], CheckedEvidence]


class NotApplicable(Exception):
    """An area does not apply to this problem, and why."""


_NARROWEST = 16  # units of a network whose rates are compared with those of a wider one
_PROBED = 1000  # examples that probes are fitted and evaluated on


@dataclasses.dataclass(frozen=True)
class Case:
    """What the areas work on: the subject and, for a recipe, everything that `fit` would start from."""

    subject: Subject
    key: Key[Array, ""]
    prepared: PreparedRecipe | None = None
    dataset: Dataset | None = None
    command: str = ""  # that would train it, for the remedies

    def named(self, name: str) -> Key[Array, ""]:
        return keys.named(self.key, name)

    @cached_property
    def rehearsal(self) -> Rehearsal:
        """A hundred updates, run once and used by several areas."""
        return rehearse(self.subject, key=self.named("rehearsal"))

    def numbers(self, seen: CheckedEvidence) -> RunNumbers | None:
        """The basis of the verdict: a whole training, or the end of the learning curve; None if there is neither."""
        growth = seen.growth
        if seen.training is not None:
            numbers = seen.training.numbers
            command = self.command or numbers.present.command
            present = dataclasses.replace(numbers.present, command=command, checked=True)
            gain = -growth.gain if growth is not None and growth.metric == numbers.metric else math.nan
            return dataclasses.replace(numbers, present=present, gain_at_twice=gain)
        if growth is None or growth.metric != "error_rate":
            return None
        return RunNumbers(
            train=growth.train[-1],
            test=growth.valid[-1],
            train_count=growth.counts[-1],
            test_count=count_of(self.subject.valid),
            gain_at_twice=-growth.gain,
            chance=self.chance,
            present=Present(command="", rate_path="", data=self.subject.name),
        )

    @property
    def chance(self) -> float:
        """The error of always predicting the most common class."""
        targets = np.asarray(targets_of(self.subject.batch if self.subject.train is None else self.subject.train))
        return 1.0 - float(np.bincount(targets).max() / len(targets)) if self.subject.task == "classes" else math.nan


Area = Callable[[Case], Found]


def _data(case: Case) -> Found:
    subject = case.subject
    if case.prepared is not None and case.dataset is not None:
        given = from_dataset(case.dataset, case.prepared.parts)
        # The sets as they are read, and the batches as training will use them.
        batches = [np.asarray(batch.targets) for batch in subject.batches]
    else:
        parts = [subject.batch if subject.train is None else subject.train, subject.valid, subject.test]
        pairs = [None if part is None else (_array(inputs_of(part)), _array(targets_of(part))) for part in parts]
        if pairs[0] is None or pairs[0][0] is None:
            return (), CheckedEvidence()
        given = {"train": pairs[0], "valid": pairs[1], "test": pairs[2], "columns": subject.columns}
        given |= {"outputs": _width(subject), "task": subject.task, "scores": _has_no_value(case)}
        batches = [np.asarray(targets_of(batch)) for batch in subject.batches if targets_of(batch) is not None]
    measured = measure_data(**given, batches=batches, key=case.named("data"))
    as_read = () if case.dataset is None else find_as_read(case.dataset)
    return join_findings(as_read, find_data(measured)), CheckedEvidence(data=measured.evidence())


def _array(part: Any) -> np.ndarray | None:
    """A part of a batch as one array; None where it is none."""
    return np.asarray(part) if hasattr(part, "shape") else None


def _width(subject: Subject) -> int | None:
    """How many outputs there are, for classes."""
    if subject.evaluated is None or subject.task != "classes":
        return None
    shape = jax.eval_shape(subject.evaluated, subject.parameters, inputs_of(subject.batch)).shape
    return int(shape[-1]) if len(shape) == 2 and shape[-1] > 1 else None


def _has_no_value(case: Case) -> bool:
    """Whether the loss is NaN, as the cross-entropy of a label without an output is."""
    value = compile_quickly(case.subject.value, case.subject.size)(
        case.subject.parameters, case.subject.batch, case.key
    )
    return not math.isfinite(float(value))


def _measured(name: str, measure: Callable[..., Any], find: Callable[..., Any], *, rehearsed: bool = False) -> Area:
    """An area that measures the subject (and the rehearsal, if it looks at one), and finds what is wrong with it."""

    def area(case: Case) -> Found:
        given = (case.subject, case.rehearsal) if rehearsed else (case.subject,)
        measured = measure(*given, key=case.named(name))
        return find(measured), CheckedEvidence(**{name: measured.evidence()})

    return area


def _wiring(case: Case) -> Found:
    return find_wiring(measure_wiring(case.subject, case.rehearsal, key=case.named("wiring"))), CheckedEvidence()


def _flow(case: Case) -> Found:
    measured = measure_flow(case.subject, case.rehearsal, key=case.named("flow"))
    findings = find_flow(measured)
    if case.dataset is not None and isinstance(case.dataset.inputs, Sequences):
        findings += find_span(measure_span(case.subject, case.rehearsal, key=case.named("span")))
    return findings, CheckedEvidence(flow=measured.evidence())


def _graph(case: Case) -> Found:
    measured = measure_graph(case.subject, key=case.named("graph"))
    return find_graph(measured), CheckedEvidence(graph=measured)


def _padding(case: Case) -> Found:
    measured = measure_poison(case.subject, key=case.named("padding"))
    if not measured.mark and not measured.buffers:
        raise NotApplicable("the batch has no mask or weights")
    return find_poison(measured), CheckedEvidence()


def _start(case: Case) -> Found:
    measured = measure_start(case.subject, key=case.named("start"))
    falls = find_fall(case.rehearsal, place=case.subject.place)
    seen = StartEvidence(tuple(case.rehearsal.losses.tolist()), measured.seen.constant)
    return (*find_start(measured), *falls), CheckedEvidence(start=seen)


def _overfit(case: Case) -> Found:
    measured = measure_overfit(case.subject, key=case.named("overfit"))
    if measured is None:
        raise NotApplicable("needs several different examples")
    return find_overfit(measured), CheckedEvidence(overfit=measured.evidence())


def _choices(case: Case) -> Found:
    measured = measure_choices(case.subject, key=case.named("choices"))
    recipe = () if case.prepared is None else find_recipe_choices(case.prepared.recipe, case.subject.task)
    seen = ChoicesEvidence(measured.kind, measured.penalty, measured.rest)
    return (*recipe, *find_choices(measured)), CheckedEvidence(choices=seen)


def _growth(case: Case) -> Found:
    grown: ErrorsBySize | None
    if case.prepared is not None and case.dataset is not None:
        grown = recipe_growth(case.prepared.recipe, case.dataset, key=case.key)
    else:
        grown = subject_growth(case.subject, key=case.named("growth"))
    if grown is None:
        raise NotApplicable("needs `train` and `valid`")
    return find_growth(grown, place=case.subject.place), CheckedEvidence(growth=grown.evidence())


def _probed(case: Case, record: Fit) -> Probes:
    """How well a linear probe predicts the classes from each hidden layer, trained and untrained."""
    rows = np.arange(min(_PROBED, count_of(case.subject.valid)))
    batch = take(case.subject.valid, rows)
    trained = trainable(record.predictor.network)[0]
    program, layers = trace_layers(case.subject.value, trained, batch, case.key)
    hidden = {layer.title: layer for layer in layers if layer.above}

    @jax.jit
    def outputs(parameters: Any) -> dict[str, Array]:
        _, kept = program.run(parameters, batch, case.key, keep=[layer.output for layer in hidden.values()])
        return {name: jnp.moveaxis(kept[layer.output], layer.examples, 0) for name, layer in hidden.items()}

    after, before = (jax.device_get(outputs(point)) for point in (trained, case.subject.parameters))
    raw = np.asarray(inputs_of(batch))
    return measure_probes({"inputs": raw, **after}, np.asarray(targets_of(batch)), untrained=before)


def _training(case: Case) -> Found:
    """A whole training as in `fit`, and the findings from its record; the verdict itself waits for all areas."""
    assert case.prepared is not None
    assert case.dataset is not None
    record: Fit = train(case.prepared.recipe, case.dataset, key=case.key)
    _, found = diagnose(record)
    numbers = numbers_of(record, read_course(record.history))
    if case.subject.task == "classes" and judge_run(numbers).kind == "overfitting":
        # Perfect on the training set: is it the top layer alone that learned?
        numbers = dataclasses.replace(numbers, probes=_probed(case, record))
    ages, fitted, judged = (tuple(record.history[name]) for name in ("age_examples", "train_score", "valid_score"))
    seen = CheckedEvidence(training=TrainingEvidence(numbers, ages, fitted, judged, str(record.outcome)))
    return tuple(one for one in (*record.findings, *found) if not one.code.startswith("GW8")), seen


def _sizes(case: Case) -> dict[str, Any]:
    """The examples of a recipe, and what its short trainings are told besides."""
    assert case.prepared is not None
    assert case.dataset is not None
    problem, task = case.prepared.problem, case.dataset.task
    classes = task.outputs if task.kind == "classes" else 0
    return {"train": problem.train, "valid": problem.valid, "outputs": task.outputs, "classes": classes}


def _limit(case: Case) -> Found:
    assert case.prepared is not None
    rates = largest_rate(case.prepared.recipe, **_sizes(case), key=case.named("limit"))
    return find_limit(rates, float(get(case.prepared.recipe, rates.paths[0][0]))), CheckedEvidence()


def _widths(case: Case) -> Found:
    assert case.prepared is not None
    recipe = case.prepared.recipe
    known = {path: value for path, _, value in knobs(recipe) if path.startswith("model.") and path.endswith(".widths")}
    path, depths = next(((path, value) for path, value in known.items() if value), ("", ()))
    if not path:
        raise NotApplicable("the model has no `widths`")
    top = max(depths)
    tried = (top // 4, top // 2, top) if top >= 4 * _NARROWEST else (top, 2 * top, 4 * top)

    def of_width(width: int) -> Recipe:
        return replace(recipe, path, (width,) * len(depths))

    compared = coordinate_check(of_width, tried, **_sizes(case), key=case.named("widths"))
    rates = [path.rpartition(".")[0] for path, _, _ in knobs(recipe) if path.endswith(".learning_rate")]
    return find_widths(compared, *rates[:1]), CheckedEvidence()


def _variance(case: Case) -> Found:
    assert case.prepared is not None
    assert case.dataset is not None
    return find_variance(recipe_variance(case.prepared.recipe, case.dataset, key=case.key)), CheckedEvidence()


OF_SUBJECT: dict[str, Area] = {
    "data": _data,
    "gradient": _measured("gradient", measure_gradient, find_gradient),
    "wiring": _wiring,
    "padding": _padding,
    "start": _start,
    "overfit": _overfit,
    "rates": _measured("rates", measure_rates, find_rates, rehearsed=True),
    "flow": _flow,
    "choices": _choices,
    "graph": _graph,
    "growth": _growth,
}
OF_RECIPE: dict[str, Area] = {**OF_SUBJECT, "training": _training}
ON_REQUEST: dict[str, Area] = {"limit": _limit, "widths": _widths, "variance": _variance}
# The findings of each area, by the beginnings of their codes. A training may report others too, which belong to the
# areas before it, and some without a code.
CODES_OF_AREA: dict[str, tuple[str, ...]] = {
    "data": ("GW2",),
    "gradient": ("GW1",),
    "wiring": ("GW3",),
    "padding": ("GW301", "GW310"),
    "start": ("GW404", "GW405"),
    "overfit": ("GW401",),
    "rates": ("GW501", "GW502", "GW503", "GW504", "GW505"),
    "flow": ("GW6",),
    "choices": ("GW7",),
    "graph": ("GW9",),
    "growth": ("GW402", "GW403", "GW8"),
    "training": ("GW706", "GW8"),
    "limit": ("GW506",),
    "widths": ("GW507",),
    "variance": ("GW807",),
}


def can_report(area: str, codes: frozenset[str]) -> bool:
    """Whether an area can find one of these codes ("": a finding without one)."""
    return any(code.startswith(CODES_OF_AREA[area]) for code in codes) or (area == "training" and "" in codes)
