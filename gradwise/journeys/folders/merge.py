"""`gradwise merge`: merges studies of the same data into one and concludes it (row E9).

gradwise merge runs/a runs/b --out runs/both
"""

import contextlib
import dataclasses
import shutil
from pathlib import Path
from typing import Any

from ...records.readings import READINGS
from ...records.study import Study
from ...runtime.errors import RequestError
from ...runtime.files import write_whole
from ...searching.search import EFFORT
from ...searching.selection.committee_members import ANSWERS
from ...searching.storage.backend import is_url
from ...searching.storage.merge import merge_studies
from ...searching.storage.study_definition import read_store, write_study_file
from ...searching.storage.study_store import Store
from ...searching.strategies.population_based_training import PopulationBasedTraining
from ..progress import SILENT, AbstractProgress
from ..requests.strategies import parse_strategy
from ..requests.study_requests import STUDY_FILE, MergeRequest, SearchRequest
from ..search import search_and_write
from ..search_request import prepare_search
from . import run_folder as folders
from .study_folder import find_loss, find_record


def _store_of(source: str) -> str | Path:
    """The location of a study's trials: its folder's journal, a journal, or a database address."""
    if is_url(source):
        return source
    path = Path(source)
    if path.is_dir():
        journal, file = path / folders.JOURNAL, path / STUDY_FILE
        if journal.is_file():
            found = find_record(path)
            lost = "" if found is None else find_loss(path, found)
            if lost:
                raise RequestError(f"merge: {lost}. gradwise search --out {source} --resume runs them again.")
            return journal
        store = read_store(file)[0] if file.is_file() else None
        if store is not None:
            raise RequestError(f"merge {source}: its trials are in {store}. Give that address instead of the folder.")
        raise RequestError(f"merge {source}: the folder has no {folders.JOURNAL}. Give the folder of a study.")
    if not path.is_file():
        raise RequestError(
            f"merge {source}: no study there. Give a study's folder, its journal, or a database address."
        )
    return path


def _join(sources: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Writes the merged journal, study file and the first study's networks to a new folder; returns its settings."""
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(Store.open(_store_of(source), write=False)) for source in sources]
        folder.mkdir(parents=True)
        with merge_studies(stores, folder / folders.JOURNAL) as both:
            settings = dict(both.about.settings)
    first = Path(sources[0]) / "contenders"
    if first.is_dir():  # the others' networks learned from other splits: some of these test examples
        shutil.copytree(first, folder / "contenders")
    for name in (EFFORT, READINGS):  # its test set stays what it is, and has been read as often
        if (first.parent / name).is_file():
            shutil.copy(first.parent / name, folder)
    return settings


def _count(journal: Path) -> int:
    with Store.open(journal, write=False) as store:
        return sum(trial.phase == "search" for trial in store.trials())


def run_merge(request: MergeRequest, progress: AbstractProgress = SILENT) -> folders.Written[Study]:
    """Merges studies, then concludes the merged one: finalists of all of them, a committee, a report."""
    sources = request.studies
    if len(sources) < 2:
        raise RequestError("merge needs at least two studies: give their folders, and --out for the new one.")
    folder = folders.choose_folder(request.out, "merged")
    for source in sources:
        _store_of(source)
    try:
        settings = _join(sources, folder)
        if "data" not in settings:
            raise RequestError(f"merge {sources[0]}: the study does not record its data.")
        if isinstance(parse_strategy(settings.get("strategy")), PopulationBasedTraining):
            raise RequestError(
                "merge: settings of population-based training change during training, so they cannot be retrained. "
                "Add members to one of the studies instead: --resume --trials +16."
            )
        plain = {name: value for name, value in settings.items() if name not in {"command", "study_file"}}
        trials = _count(folder / folders.JOURNAL)
        write_whole(folder / STUDY_FILE, write_study_file({**plain, "budget": f"{max(1, trials)} trials"}).encode())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    chosen = {name: getattr(request, name) for name in ("finalists", "on") if getattr(request, name) is not None}
    there = {"out": str(folder), "resume": True, "nested": False, "no_report": request.no_report}
    again = SearchRequest.of({**chosen, **there})
    progress.phase(f"reading {again.data}")
    prepared = prepare_search(again)
    # No ensemble has networks of several studies: the best settings of all are trained again.
    finals = "seeds" if prepared.plan.committee in ANSWERS else prepared.plan.committee
    plan = dataclasses.replace(prepared.plan, refine=False, borders=False, committee=finals)
    study = search_and_write(dataclasses.replace(prepared, plan=plan), folder, progress)
    return folders.Written(study, folder)
