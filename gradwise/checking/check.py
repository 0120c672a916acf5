"""What is wrong, where, and what to do next.

    check_problem(loss, model, batch)                     any loss of the user's: Equinox, Flax NNX, plain pytrees
    check_problem(recipe, dataset)                        what `fit` would train
    check_problem(record)                                 what `fit` has trained: from its record alone

One area after another measures and reports findings; a finding that only follows from another becomes a note; the
verdict is one sentence with its evidence and what to do next. An area that cannot be run on this problem reports why,
and the others still run. With a folder, finished areas are saved there and an interrupted check can be resumed.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from .. import __version__
from ..records.check import Checked, Ran
from ..records.evidence.check_evidence import CheckedEvidence
from ..records.evidence.verdict import Judgement
from ..records.finding import Finding
from ..records.fit import Fit
from ..records.plain_values import from_values, to_values
from ..runtime import compilation, keys, machine_description
from ..runtime.errors import RequestError, WorkError, nearest
from ..runtime.files import write_whole
from ..runtime.progress import silent
from ..specs.dataset import Dataset
from ..specs.recipe import Recipe
from ..specs.serialisation import to_plain
from ..training.checkpoint import digest
from .areas import OF_RECIPE, OF_SUBJECT, ON_REQUEST, Area, Case, NotApplicable, can_report
from .codes import reported_codes
from .data.as_read import refuse_unlearnable
from .fingerprint import fingerprint
from .recipe_subject import prepare_recipe
from .rehearsal import trainer
from .subject import ARGUMENTS, Subject, describe_user_error
from .verdict.consequences import demote_consequences
from .verdict.diagnosis import diagnose
from .verdict.verdict import judge_findings, judge_run

PARTIAL = "check.partial.json"


@dataclasses.dataclass(frozen=True)
class CheckRunOptions:
    """How to run, as opposed to what to check: `folder` stores finished areas, `watch` is called as each one starts."""

    folder: Path | None = None
    resume: bool = False
    watch: Callable[[str], None] = silent


@dataclasses.dataclass(frozen=True)
class AreaResult:
    """What one area came to: how it ran, what it found, and the numbers it shows."""

    ran: Ran
    findings: tuple[Finding, ...] = ()
    evidence: CheckedEvidence = CheckedEvidence()


@dataclasses.dataclass(frozen=True)
class PartialCheck:
    """The areas that a check of one problem has finished; `about` is the problem's fingerprint."""

    about: str
    areas: dict[str, AreaResult]


Names = str | Sequence[str]


def _chosen(areas: dict[str, Area], only: Names, codes: frozenset[str]) -> dict[str, Area]:
    """The areas to run: those named, or all but those on request, that can find one of these codes."""
    only = [only] if isinstance(only, str) else only
    for name in only:
        if name not in areas:
            raise RequestError(f"unknown check {name!r}.{nearest(name, areas)}")
    wanted = only or [name for name in areas if name not in ON_REQUEST]
    chosen = {name: area for name, area in areas.items() if name in wanted and can_report(name, codes)}
    if not chosen:
        raise RequestError("nothing to check: `only`, `select` and `ignore` together leave no finding to look for.")
    return chosen


def _left(findings: Iterable[Finding], codes: frozenset[str]) -> tuple[Finding, ...]:
    return tuple(one for one in findings if one.code in codes)


def _reported(result: AreaResult, codes: frozenset[str]) -> AreaResult:
    """The result without the findings that are not to be reported."""
    ran, left = result.ran, _left(result.findings, codes)
    quiet = ran.outcome == "found" and all(one.level == "note" for one in left)
    return AreaResult(dataclasses.replace(ran, outcome="passed") if quiet else ran, left, result.evidence)


def _kept(keeping: CheckRunOptions, about: str) -> dict[str, AreaResult]:
    """The areas that an earlier check of the same problem finished."""
    path = None if keeping.folder is None else keeping.folder / PARTIAL
    if path is None or not keeping.resume or not path.is_file():
        return {}
    try:
        kept = from_values(PartialCheck, json.loads(path.read_text()))
        return kept.areas if kept.about == about else {}
    except ValueError as problem:
        raise WorkError(f"{path} is damaged ({type(problem).__name__}): run without --resume to start again.") from None


def _keep(keeping: CheckRunOptions, about: str, results: dict[str, AreaResult]) -> None:
    if keeping.folder is not None:
        write_whole(keeping.folder / PARTIAL, json.dumps(to_values(PartialCheck(about, results))).encode())


def _run(name: str, area: Area, case: Case) -> AreaResult:
    """Runs one area. If it fails on this problem, the reason is recorded and the other areas still run."""
    begun = time.monotonic()
    try:
        with np.errstate(all="ignore"):  # NaN and infinite values are findings here, not warnings
            found, evidence = area(case)
    except NotApplicable as reason:
        return AreaResult(Ran(name, "skipped", time.monotonic() - begun, str(reason)))
    except Exception as problem:  # of the user's program, whatever it is
        first = str(problem).strip().partition("\n")[0]
        return AreaResult(Ran(name, "not run", time.monotonic() - begun, f"{type(problem).__name__}: {first}"))
    found = tuple(found)
    outcome = "found" if any(one.level != "note" for one in found) else "passed"
    return AreaResult(Ran(name, outcome, time.monotonic() - begun), found, evidence)


def _together(results: Iterable[AreaResult]) -> CheckedEvidence:
    """What all areas saw."""
    names = [field.name for field in dataclasses.fields(CheckedEvidence)]
    seen = [(name, getattr(result.evidence, name)) for result in results for name in names]
    return CheckedEvidence(**{name: value for name, value in seen if value is not None})


def _said(case: Case, findings: tuple[Finding, ...], ran: Sequence[Ran], seen: CheckedEvidence) -> Judgement:
    """The verdict, and which checks could not be run."""
    left_out = [one.name for one in ran if one.outcome == "not run"]
    numbers = case.numbers(seen)
    if numbers is not None and not any(one.level == "error" for one in findings):
        said = judge_run(numbers, findings)
    else:
        passed = sum(one.outcome in ("passed", "found") for one in ran)
        said = judge_findings(findings, case.subject.name, passed)
    without = f" Not run: {', '.join(left_out)}." if left_out else ""
    return dataclasses.replace(said, sentence=said.sentence + without)


def _checked(
    name: str,
    case: Case,
    areas: dict[str, Area],
    codes: frozenset[str],
    keeping: CheckRunOptions,
    mark: Callable[[], str],
    seed: int,
) -> Checked:
    compilation.use_compilation_cache()
    begun = time.monotonic()
    about = mark() if keeping.folder else ""
    kept = _kept(keeping, about)
    for area_name, area in areas.items():
        if area_name not in kept:
            keeping.watch(area_name)
            kept[area_name] = _run(area_name, area, case)
            _keep(keeping, about, kept)
    results = {area_name: _reported(kept[area_name], codes) for area_name in areas}
    findings = demote_consequences(finding for result in results.values() for finding in result.findings)
    ran = [result.ran for result in results.values()]
    said = _said(case, findings, ran, _together(results.values()))
    said = dataclasses.replace(said, findings=_left(said.findings, codes))
    seconds = sum(one.seconds for one in ran) if keeping.resume else time.monotonic() - begun
    return _record(name, said, findings, results, seconds, seed)


def _record(
    name: str, said: Judgement, findings: tuple[Finding, ...], results: dict[str, AreaResult], seconds: float, seed: int
) -> Checked:
    known = {finding.code for finding in findings}
    return Checked(
        subject=name,
        verdict=said.sentence,
        findings=(*findings, *(finding for finding in said.findings if finding.code not in known)),
        remedies=said.remedies,
        ran=tuple(result.ran for result in results.values()),
        evidence=dataclasses.replace(_together(results.values()), verdict=dataclasses.replace(said, findings=())),
        seconds=seconds,
        seed=seed,
        version=__version__,
        machine=machine_description.describe_machine(),
    )


def _try_update(subject: Subject) -> None:
    """Rejects an optimiser that cannot make a single update: no check that trains could run."""
    if subject.optimiser is None:
        return
    optimiser, update = trainer(subject)
    try:
        jax.eval_shape(lambda p: update(p, optimiser.init(p), subject.batch, jax.random.key(0)), subject.parameters)
    except Exception as problem:  # of the optimiser, whatever it is
        raise RequestError(f"the optimiser cannot update these parameters: {describe_user_error(problem)}") from problem


def check_subject(
    subject: Subject,
    *,
    key: Key[Array, ""],
    only: Names = (),
    select: Names = (),
    ignore: Names = (),
    keeping: CheckRunOptions = CheckRunOptions(),
) -> Checked:
    """All checks of a loss, a model and a batch."""
    codes = reported_codes(select, ignore)
    areas = _chosen(OF_SUBJECT, only, codes)
    _try_update(subject)
    seed = keys.seed_of(key)
    return _checked(subject.name, Case(subject, key), areas, codes, keeping, lambda: fingerprint(subject, seed), seed)


def check_recipe(
    recipe: Recipe,
    dataset: Dataset,
    *,
    key: Key[Array, ""],
    only: Names = (),
    select: Names = (),
    ignore: Names = (),
    keeping: CheckRunOptions = CheckRunOptions(),
    command: str = "",
) -> Checked:
    """All checks of what `fit` would train with this key, then a training, for the verdict.

    `command` is the command line of the training; the remedies begin with it.
    """
    codes = reported_codes(select, ignore)
    areas = _chosen({**OF_RECIPE, **ON_REQUEST}, only, codes)
    keeping.watch("preparing")
    refuse_unlearnable(dataset)
    prepared = prepare_recipe(recipe, dataset, key=key)
    seed = keys.seed_of(key)
    case = Case(prepared.subject, key, prepared, dataset, command)

    def mark() -> str:
        return fingerprint(prepared.subject, seed, command, to_plain(recipe), digest(dataset))

    return _checked(dataset.name, case, areas, codes, keeping, mark, seed)


def check_record(record: Fit, *, select: Names = (), ignore: Names = ()) -> Checked:
    """The check of a finished run, from its record: nothing is run."""
    begun = time.monotonic()
    codes = reported_codes(select, ignore)
    said, found = diagnose(record)
    said = dataclasses.replace(said, findings=_left(said.findings, codes))
    findings = demote_consequences(_left((*record.findings, *found), codes))
    ran = Ran("record", "found" if any(one.level != "note" for one in findings) else "passed")
    results = {"record": AreaResult(ran, findings)}
    name = record.data.name or "run"
    return _record(name, said, findings, results, time.monotonic() - begun, record.seed)


def check_problem(
    loss: Any,
    model: Any = None,
    batch: Any = None,
    *,
    key: Key[Array, ""] | int | None = None,
    only: Names = (),
    select: Names = (),
    ignore: Names = (),
    keeping: CheckRunOptions = CheckRunOptions(),
    **more: Any,
) -> Checked:
    """Checks a loss with its model and a batch; or a recipe and its data set; or the record of a run.

    `only` names the checks to run. `select` and `ignore` name the findings to report, by code or by the beginning of
    one ("GW2"); a check none of whose findings are reported is not run.

    For a loss, `more` describes its training (see `Subject.of`): `apply`, `evaluate`, `train`, `valid`, `test`,
    `batches`, `optimiser`, `frozen`, `task`, `columns`.
    """
    key = jax.random.key(key or 0) if key is None or isinstance(key, int) else key
    for name in more:
        if name not in ARGUMENTS:
            raise RequestError(f"check has no argument `{name}`.{nearest(name, ARGUMENTS)}")
    if isinstance(loss, Fit):
        return check_record(loss, select=select, ignore=ignore)
    if isinstance(loss, Recipe):
        if not isinstance(model, Dataset):
            raise RequestError(f"a recipe needs its data set: check(recipe, dataset); got {type(model).__name__}.")
        return check_recipe(loss, model, key=key, only=only, select=select, ignore=ignore, keeping=keeping)
    subject = loss if isinstance(loss, Subject) else Subject.of(loss, model, batch, **more)
    return check_subject(subject, key=key, only=only, select=select, ignore=ignore, keeping=keeping)
