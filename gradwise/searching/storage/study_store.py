"""The store of a study: every trial is saved once, when it ends, by one process (rows E9, E16).

    with Store.open("study.journal", create=True, about=about) as store:
        store.add(trial)                          saved from here on, whatever happens to this process
    Store.open("study.journal", about=about)      resumes; raises if it is a different study
    Store.open("study.journal", write=False)      read-only, even while another process writes

The storage is Optuna's, so `optuna.load_study` and `optuna-dashboard` open it: a trial that left a model is COMPLETE
with its validation score, every other one FAIL. What Optuna has no place for stands in the attribute `gradwise` of
trial and study, and is all that is read back. Optuna numbers trials as they end; ours are numbered as proposed.
"""

import contextlib
import dataclasses
import datetime
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from ...records.finding import Finding
from ...records.trial import Trial
from ...runtime.errors import RequestError, WorkError, nearest
from ...runtime.files import new_file_beside
from ...runtime.progress import silent
from . import backend
from .backend import (
    RENEW_SECONDS,
    DatabaseOwner,
    FileOwner,
    check_place,
    explain_errors,
    file_of,
    is_url,
    may_come_back,
    open_storage,
    quiet_storage,
    without_password,
)
from .journal import Damage, describe_damage, free_journal, mend_journal, repair_journal
from .study_identity import StudyIdentity, check_identity, check_same, identity_from_plain
from .trial_codec import read_trial, write_trial

NAME = "gradwise"  # of a study that was given none
_ABOUT, _SECONDS = "gradwise", "gradwise:seconds"


def _choose_study(where: str, storage: Any, name: str | None) -> Any:
    """The study of that name, or the only one."""
    studies = {study.study_name: study for study in storage.get_all_studies()}
    if not studies:
        raise RequestError(f"{where} contains no study. Start one, or give the store of one.")
    if name is None and len(studies) > 1:
        raise RequestError(
            f"{where} contains {len(studies)} studies: {', '.join(sorted(studies))}. Choose one by its name."
        )
    if name is not None and name not in studies:
        raise RequestError(f"{where} contains no study {name!r}.{nearest(name, studies)}")
    return studies[name] if name is not None else next(iter(studies.values()))


def _empty_study(where: str, storage: Any, name: str) -> int | None:
    """The study of that name that a killed process left empty, if there is one; refuses one with anything in it."""
    for study in storage.get_all_studies():
        if study.study_name == name:
            if study.user_attrs.get(_ABOUT) or storage.get_n_trials(study._study_id):
                raise RequestError(
                    f"{where} already contains a study {name!r}. Resume it, or use another store or name."
                )
            return int(study._study_id)
    return None


def _close_storage(storage: Any) -> None:
    if hasattr(storage, "engine"):
        storage.remove_session()
        storage.engine.dispose()


def _create_in(place: str | Path, where: str, name: str, plain: dict[str, Any]) -> None:
    from optuna.exceptions import DuplicatedStudyError
    from optuna.study import StudyDirection

    storage = open_storage(place, create=True)
    try:
        number = _empty_study(where, storage, name)
        if not is_url(place):
            mend_journal(Path(place))
        if number is None:
            number = storage.create_new_study([StudyDirection.MINIMIZE], name)
        storage.set_study_user_attr(number, _ABOUT, plain)
    except DuplicatedStudyError:
        raise RequestError(f"another process has just started the study {name!r} in {where}.") from None
    finally:
        _close_storage(storage)


def _create(where: str | Path, name: str, about: StudyIdentity) -> None:
    """An empty study. A new journal is there at once or not at all: it is written beside and then renamed."""
    plain = about.to_plain()
    path = Path(where)
    if is_url(where) or (path.exists() and path.stat().st_size):
        _create_in(where, without_password(where), name, plain)
        return
    with new_file_beside(path) as (beside, _):
        _create_in(beside, without_password(where), name, plain)
        os.replace(beside, path)


def _containing(distribution: Any, value: Any) -> Any:
    """The distribution, as wide as it must be to hold the value; None where it cannot be."""
    if not hasattr(distribution, "low") or distribution.low <= value <= distribution.high:
        return distribution
    if not math.isfinite(value) or (distribution.log and value <= 0):
        return None
    return type(distribution)(min(distribution.low, value), max(distribution.high, value), log=distribution.log)


class Store:
    """The trials of one study. Made by `Store.open`.

    `mended` says that the journal ended in a line that a killed process had not written to its end; it is gone.
    `findings` tell of lines that were left out because they had been damaged.
    """

    def __init__(self, where: str | Path, storage: Any, study: Any, about: StudyIdentity, owner: Any) -> None:
        import optuna

        self.where, self.name, self.about, self.mended = where, study.study_name, about, False
        self.findings: tuple[Finding, ...] = ()
        self.notice: Callable[[str], None] = silent
        self._patient = True
        self._storage, self._id, self._owner = storage, study._study_id, owner
        self._study = optuna.Study(self.name, storage)
        self._seconds = self._written_seconds = float(study.user_attrs.get(_SECONDS, 0.0))
        self._written_at = time.monotonic()
        self._classes: tuple[Any, ...] = ()
        self._trials: dict[int, Trial] | None = None
        self._in_order: tuple[Trial, ...] | None = None
        self._distributions: dict[str, Any] = {}

    @classmethod
    def open(
        cls,
        where: str | Path,
        name: str | None = None,
        *,
        create: bool = False,
        about: StudyIdentity | None = None,
        write: bool = True,
        classes: tuple[Any, ...] = (),
    ) -> "Store":
        """The study at a place.

        With `create` a new one, which needs `about`. Otherwise the one that is there; `about`, where it is given, must
        be that of the study, apart from its settings (the budget may grow). Without `write` nothing is held or
        changed. Classes from outside gradwise are passed in.
        """
        check_place(where, create=create)
        path, place = file_of(where), without_password(where)
        damage: list[Damage] = []
        with contextlib.ExitStack() as undo, quiet_storage(), explain_errors(where, working=False):
            owner: Any = None
            if write and path is not None:
                owner = FileOwner(path)
                undo.callback(owner.release)
            if create:
                assert about is not None
                name = name or NAME
                _create(where, name, about)
            elif write and not is_url(where):
                damage = repair_journal(Path(where))
            storage = open_storage(where, create=False)
            undo.callback(_close_storage, storage)
            study = _choose_study(place, storage, name)
            stored = check_identity(place, study.study_name, study.user_attrs.get(_ABOUT))
            if about is not None:
                check_same(place, study.study_name, stored, about.to_plain())
            known = about or identity_from_plain(place, stored, classes)
            if write and owner is None:
                owner = DatabaseOwner(where, storage, study._study_id)
                undo.callback(owner.release)
            store = cls(where, storage, study, known, owner)
            store._classes = classes
            if damage:
                what = f"{where} was damaged: {describe_damage(damage)}. What is missing is run again within the budget"
                store.findings = (Finding("warning", f"{what}; a copy of the file is in {where}.damaged.", "E9"),)
            if write and not is_url(where):
                store.mended = mend_journal(Path(where))
                free_journal(Path(where))
            undo.pop_all()
            return store

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def seconds(self) -> float:
        """The time spent on the study so far, by all who worked on it."""
        return self._seconds

    def __len__(self) -> int:
        return len(self._loaded())

    def trials(self) -> tuple[Trial, ...]:
        """Every trial, in the order of their numbers. Trials that other programs added are ignored."""
        if self._in_order is None:
            loaded = self._loaded()
            self._in_order = tuple(loaded[number] for number in sorted(loaded))
        return self._in_order

    def _loaded(self) -> dict[int, Trial]:
        if self._trials is None:
            with explain_errors(self.where, working=False):
                frozen = self._storage.get_all_trials(self._id, deepcopy=False)
            lines = (trial.user_attrs[_ABOUT] for trial in frozen if _ABOUT in trial.user_attrs)
            found: dict[int, Trial] = {}
            for line in lines:
                trial = read_trial(line, self.about.space.recipe, self._classes)
                found.setdefault(trial.number, trial)
            self._trials = found
        return self._trials

    def add(self, trial: Trial) -> None:
        """Saves a finished trial. When this returns, it is on disk or in the database."""
        from optuna.trial import FrozenTrial, TrialState

        loaded = self._loaded()
        if trial.number in loaded:
            raise ValueError(f"trial {trial.number} is already in the study")
        params, known = self._params(trial)
        told_as: dict[str, Any] = {"number": trial.number, "outcome": trial.outcome, "phase": trial.phase}
        now = datetime.datetime.now()
        frozen = FrozenTrial(
            number=-1,  # the storage gives it one, and an id
            trial_id=-1,
            state=TrialState.COMPLETE if trial.ok else TrialState.FAIL,
            value=float(trial.score) if trial.ok else None,
            datetime_start=now - datetime.timedelta(seconds=float(trial.seconds)),
            datetime_complete=now,
            params=params,
            distributions=known,
            user_attrs={
                **told_as,
                **({"reason": trial.reason} if trial.reason else {}),
                _ABOUT: write_trial(trial, self.about.space.recipe),
            },
            system_attrs={},
            intermediate_values={},
        )
        self._write(lambda: self._study.add_trial(frozen))
        loaded[trial.number] = trial
        self._in_order = None

    def _params(self, trial: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
        """What Optuna shows of a trial. A value that lies beyond its range widens it; one that fits nowhere is left
        out: the trial itself says it in any case."""
        from ..strategies.optuna_sampler import distributions, to_params

        space = self.about.space
        if not self._distributions:
            self._distributions = distributions(space)
        try:
            params = to_params(space, trial.values)
        except RequestError:
            params = {}
            for path, value in trial.values.items():
                with contextlib.suppress(RequestError):
                    params.update(to_params(space, {path: value}))
        known = {name: _containing(self._distributions[name], value) for name, value in params.items()}
        fitting = {name: found for name, found in known.items() if found is not None}
        return {name: params[name] for name in fitting}, fitting

    def spend(self, seconds: float) -> None:
        """Counts time that was spent; written now and then, and when the store is closed."""
        self._seconds += seconds
        if time.monotonic() - self._written_at >= RENEW_SECONDS:
            self._write_seconds()

    def renew(self) -> None:
        """Says that this process is still at work; to be called between intervals, and cheap."""
        self._write(lambda: None)

    def settle(self, settings: dict[str, Any]) -> None:
        """Notes other settings, such as a larger budget."""
        self.about = dataclasses.replace(self.about, settings=settings)
        self._write(lambda: self._storage.set_study_user_attr(self._id, _ABOUT, self.about.to_plain()))

    def _write_seconds(self) -> None:
        self._write(lambda: self._storage.set_study_user_attr(self._id, _SECONDS, self._seconds))
        self._written_seconds, self._written_at = self._seconds, time.monotonic()

    def _write(self, action: Callable[[], Any]) -> None:
        """Writes; before that the owner renews its mark. A server that does not answer is waited for, once.

        What was written although the answer got lost is written again: of two trials with one number the first counts.
        """
        assert self._owner is not None, "the study was opened read-only"
        began = time.monotonic()
        while True:
            try:
                with explain_errors(self.where, working=True):
                    self._owner.renew()
                    action()
                return
            except WorkError as problem:
                cause = problem.__cause__ or problem
                waited = time.monotonic() - began
                if not self._patient or not may_come_back(self.where, cause) or waited > backend.OUTAGE_SECONDS:
                    self._patient = self._patient and waited <= backend.OUTAGE_SECONDS
                    self._mend()
                    raise
                if waited < 1.0:
                    place = without_password(self.where)
                    self.notice(f"{place} does not answer: waiting for it for {backend.OUTAGE_SECONDS:.0f} seconds")
            time.sleep(1.0)

    def _mend(self) -> None:
        """Takes away a line that could not be ended."""
        if not is_url(self.where):
            with explain_errors(self.where, working=True):
                mend_journal(Path(self.where))

    def close(self) -> None:
        """Releases the lock. The store cannot be used afterwards."""
        if self._owner is None:
            _close_storage(self._storage)
            return
        try:
            if self._seconds != self._written_seconds:
                self._write_seconds()
        finally:
            owner, self._owner = self._owner, None
            with explain_errors(self.where, working=True):
                owner.release()
                _close_storage(self._storage)
