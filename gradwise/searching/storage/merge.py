"""Merges studies of the same data into one, so that no trial is wasted (row E9).

    with merge([one, other], "both.journal") as both:
        origin(both.about, 40)            (3, 8): what the study of seed 3 calls trial 8

A trial's randomness comes from its study's seed and its number, so both must stay known. The first study keeps its
numbers; another's are shifted past all before by an offset, which the new study notes in its settings, under `merged`.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...records.trial import Trial
from ...runtime.errors import RequestError
from .backend import without_password
from .study_identity import StudyIdentity, difference_of
from .study_store import Store
from .trial_codec import recipe_differences


@dataclass(frozen=True)
class _Origin:
    """Where a range of a study's numbers comes from: number n is what (seed, n - offset) gives."""

    seed: int
    offset: int


def _origins(about: StudyIdentity) -> list[_Origin]:
    written = about.settings.get("merged") or [{"seed": about.seed, "offset": 0}]
    return [_Origin(item["seed"], item["offset"]) for item in written]


def origin(about: StudyIdentity, number: int) -> tuple[int, int]:
    """The seed and the number that a trial's randomness came from, in the study that it was made for."""
    found = max((item for item in _origins(about) if item.offset <= number), key=lambda item: item.offset)
    return found.seed, number - found.offset


def _join(
    source: Store,
    joined: dict[int, Trial],
    known: dict[tuple[int, int], list[tuple[int, str]]],
    origins: list[_Origin],
) -> list[_Origin]:
    """Adds the trials of one study to those joined so far; what it adds to the origins."""
    base = source.about.space.recipe
    moved: dict[int, int] = {}
    fresh: list[tuple[Trial, tuple[int, int], str]] = []
    for trial in source.trials():
        born, recipe = origin(source.about, trial.number), json.dumps(dict(recipe_differences(base, trial.recipe)))
        again = next((number for number, text in known.get(born, []) if text == recipe), None)
        if again is None:
            fresh.append((trial, born, recipe))
        else:
            moved[trial.number] = again
    theirs = _origins(source.about)
    stays = not joined or (origins == theirs and not any(trial.number in joined for trial, _, _ in fresh))
    offset = 0 if stays else max(joined) + 1
    for trial, _, _ in fresh:
        moved[trial.number] = trial.number + offset
    for trial, born, recipe in fresh:
        number = moved[trial.number]
        continues = None if trial.continues is None else moved.get(trial.continues, trial.continues + offset)
        # Another study's finalists were judged by another split: here their settings must be run again.
        phase = "repeat" if offset and trial.phase == "finalist" else trial.phase
        joined[number] = dataclasses.replace(trial, number=number, continues=continues, phase=phase)
        known.setdefault(born, []).append((number, recipe))
    if stays and origins:
        return []
    return [_Origin(item.seed, item.offset + offset) for item in theirs]


def merge_studies(sources: Sequence[Store], where: str | Path, name: str | None = None) -> Store:
    """A new study with the trials of several, which must be of the same data, task, metric and space.

    The first study keeps its numbers. Those of another are shifted past all numbers before, by an offset that
    `origin` takes away again; a study with the same seed keeps its numbers where they are free, so that a study and its
    extended copy join to the extended one. A trial that is in several (same seed, same number, same recipe) comes once.
    """
    first, plain = sources[0], sources[0].about.to_plain()
    for other in sources[1:]:
        difference = difference_of(other.about.to_plain(), plain, ("data", "task", "metric", "space"))
        if difference:
            names = f"{without_password(other.where)} and {without_password(first.where)}"
            raise RequestError(f"{names} cannot be merged: of the first of these, {difference}.")
    joined: dict[int, Trial] = {}
    known: dict[tuple[int, int], list[tuple[int, str]]] = {}
    origins: list[_Origin] = []
    for source in sources:
        origins += _join(source, joined, known, origins)
    settings = {**first.about.settings, "merged": [dataclasses.asdict(item) for item in origins]}
    store = Store.open(where, name, create=True, about=dataclasses.replace(first.about, settings=settings))
    try:
        for number in sorted(joined):
            store.add(joined[number])
        store.spend(sum(source.seconds for source in sources))
    except BaseException:
        store.close()
        raise
    return store
