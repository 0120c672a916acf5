"""`gradwise search`: read the data, search, estimate, write, report. The library does all the work.

Everything is validated before anything is created: options, then the folder, the data, the space and the device.
`study_folder.py` describes the folder's contents during and after a search.
"""

import json
from pathlib import Path
from typing import Any

from ...records.study import Study
from ...records.study_files import is_study, read_study
from ...runtime.errors import RequestError
from .. import run_folder as folders
from ..options.search_options import Asked, is_layerwise, read_request
from ..terminal.output import Progress, show_plan
from .search_plan import make_search_plan
from .search_request import prepare_search
from .study_folder import announce_study
from .study_run import search_and_write


def _finished(folder: Path, asked: Asked) -> Study | None:
    """The study in the folder, if it already answers this request."""
    work = folders.working(folder)
    if work != folder or not (folder / folders.RESULT).is_file():
        return None
    if not is_study(folder):
        raise RequestError(f"--resume: {folder} holds no study. Choose another folder, or replace it with --overwrite.")
    if asked.sets or asked.more_ranges or asked.options.budget.more:
        return None  # whether that is the same study, the study's own record must tell
    found = read_study(folder)
    same = all(found.settings.get(name) == value for name, value in asked.options.settings().items())
    return found if same and found.outcome == "finished" else None


def run_search(
    given: dict[str, Any], study: str | None, sets: list[str], ranges: list[str], begun: float | None = None
) -> int:
    """The command, started at this time; returns its exit code."""
    asked = read_request(given, study, sets, ranges)
    options = asked.options
    if is_layerwise(options.strategy):
        from .layerwise import run_layerwise

        return run_layerwise(asked)
    folder = folders.choose_folder(options.out, options.name_of_data)
    folders.check_folder(folder, resume=options.resume, overwrite=options.overwrite)
    plan: dict[str, Any] = {}
    with Progress(not options.quiet) as progress:
        found = _finished(folder, asked) if options.resume and not options.dry_run else None
        if found is None:
            progress.phase(f"reading {options.data}")
            prepared = prepare_search(asked)
            if options.dry_run:
                progress.phase("planning")
                plan = make_search_plan(prepared, folder)
            else:
                found = search_and_write(prepared, folder, progress, begun)
    if options.dry_run and options.json:
        print(json.dumps(plan, default=str))
    elif options.dry_run:
        show_plan(plan)
    if options.dry_run:
        return 0
    assert found is not None
    return announce_study(found, folder, options)
