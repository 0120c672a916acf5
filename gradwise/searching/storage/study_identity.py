"""The identity of a study: the data, the space, the strategy, the seed.

It is saved with the study and compared when the study is resumed: with another seed or other data the trials would not
belong together. The settings, including the budget, may differ, since a study may be extended.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import __version__
from ...runtime.errors import RequestError
from ...specs.search_space import Space, space_from_plain, space_to_plain
from ...specs.serialisation import from_plain, to_plain

FORMAT = 1


@dataclass(frozen=True)
class StudyIdentity:
    """What makes a study this study. `data` is a digest of the data; `settings` is what a study file holds."""

    space: Space
    seed: int
    strategy: Any
    data: str
    task: str
    metric: str
    settings: dict[str, Any] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values. A model that is already built is told by its class and shapes alone."""
        dimensions = space_to_plain(Space(None, self.space.dimensions))["dimensions"]
        return {
            "format": FORMAT,
            "version": __version__,
            "data": self.data,
            "task": self.task,
            "metric": self.metric,
            "seed": self.seed,
            "strategy": to_plain(self.strategy),
            "space": {"recipe": to_plain(self.space.recipe, {}), "dimensions": dimensions},
            "settings": self.settings,
        }


def identity_from_plain(where: str, plain: dict[str, Any], classes: tuple[Any, ...]) -> StudyIdentity:
    try:
        space, strategy = space_from_plain(plain["space"], classes), from_plain(plain["strategy"], classes=classes)
    except RequestError as problem:
        raise RequestError(f"{where}: {problem}") from None
    given = (plain[name] for name in ("data", "task", "metric", "settings"))
    return StudyIdentity(space, plain["seed"], strategy, *given)


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _space_difference(stored: dict[str, Any], given: dict[str, Any]) -> str:
    """Where two spaces differ, in a few words."""
    ours = {item["path"]: item for item in stored["dimensions"]}
    theirs = {item["path"]: item for item in given["dimensions"]}
    for path in (*ours, *theirs):
        if path not in theirs:
            return f"there `{path}` is searched too"
        if path not in ours:
            return f"there `{path}` is not searched"
        if not _same(ours[path], theirs[path]):
            return f"there `{path}` has another range"
    same = _same(stored["recipe"], given["recipe"])
    return "its dimensions are in another order" if same else "its recipe is different"


def _strategy_word(plain: Any) -> str:
    return str(plain.get("class", plain)).rpartition(":")[2] if isinstance(plain, dict) else str(plain)


def difference_of(stored: dict[str, Any], given: dict[str, Any], names: Sequence[str]) -> str:
    """What makes the stored study another one than the given, or nothing."""
    for name in names:
        if _same(stored[name], given[name]):
            continue
        if name == "space":
            return _space_difference(stored[name], given[name])
        if name == "strategy":
            return f"its strategy is {_strategy_word(stored[name])}, or has other settings"
        return "its data are different" if name == "data" else f"its {name} is {stored[name]}"
    return ""


def check_identity(where: str, name: str, stored: Any) -> dict[str, Any]:
    """What the study says about itself; refuses one that is not ours or of another format."""
    if not isinstance(stored, dict) or "format" not in stored:
        raise RequestError(f"the study {name!r} in {where} was not written by gradwise. Use another store or name.")
    if stored["format"] != FORMAT:
        raise RequestError(
            f"the study {name!r} in {where} has format {stored['format']}, written by gradwise "
            f"{stored.get('version', '?')}; this version reads format {FORMAT}. Use that version, or another store."
        )
    return stored


def check_same(where: str, name: str, stored: dict[str, Any], given: dict[str, Any]) -> None:
    difference = difference_of(stored, given, ("data", "task", "metric", "seed", "strategy", "space"))
    if difference:
        raise RequestError(
            f"the study {name!r} in {where} differs: {difference}. Repeat that request, or use another store."
        )
