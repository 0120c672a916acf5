"""Why a gradient is wrong (a custom derivative, a `stop_gradient`, a step), and where.

    leaves = explained(differences, leaves)                        which a stop or a step explains
    culprits, sites = culprits_of(differences, leaves, generator)  which places are wrong, and the walk that shows it

A stop is tested by removing it: if the gradient then agrees with the differences, the stop is the cause.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .derivative_sites import broken_sites, name_inside
from .finite_differences import RIGHT, Differences
from .intermediate_gradients import TOLERANCE, OwnChecked, SiteChecked, measure_sites
from .parameter_gradients import Leaf
from .repeated_evaluation import describe_site

_SITES, _LARGEST, _ALONE = 150, 200_000, 12


@dataclass(frozen=True)
class Culprit:
    """A place whose derivative is wrong. `meant` is "identity" or "step" if it may be intended."""

    kind: str  # "own" derivative or "stop"
    title: str
    layer: str
    line: str
    error: float
    ratio: float
    meant: str
    users: bool
    parameters: tuple[str, ...]  # those that reach it

    @property
    def where(self) -> str:
        return ", ".join(filter(None, (self.layer, self.title, self.line)))


def explained(differences: Differences, leaves: Sequence[Leaf]) -> list[Leaf]:
    """Records which leaves a `stop_gradient` explains, and which reach the loss only through a step."""
    places = [place for place in differences.places if place.site.number in differences.used]
    last = differences.result.site
    smooth = differences.places[last].smoothly if last is not None else frozenset(leaf.name for leaf in leaves)
    reach = differences.places[last].above if last is not None else frozenset()
    stops = sorted((p for p in places if p.kind == "stop"), key=lambda p: not p.users)
    steps = [p for p in places if p.above and (p.kind == "step" or not p.site.is_float)]
    doubtful = [leaf for leaf in leaves if np.any(leaf.wrong)]
    opened = [p for p in stops if p.site.primitive == "stop_gradient"]
    free = differences.without_stops() if opened and doubtful else np.zeros(0)
    offsets = np.concatenate([[0], np.cumsum([leaf.size for leaf in leaves])])
    marked = []
    for leaf, first in zip(leaves, offsets[:-1], strict=True):
        stop = step = ""
        mine = [p for p in stops if leaf.name in p.above]
        if mine and np.any(leaf.wrong):
            without = free[first + leaf.entries][leaf.wrong] if len(free) else np.zeros(0)
            wanted = leaf.numeric[leaf.wrong]
            agrees = len(without) and np.abs(without - wanted) <= 0.01 * np.max(np.abs(wanted)) + 1e-12
            closed = any(p.site.primitive != "stop_gradient" for p in mine)  # within a loop it cannot be taken out
            stop = describe_site(mine[0].site) if closed or (len(without) and bool(np.all(agrees))) else ""
        if leaf.name in reach and leaf.name not in smooth and leaf.zero:
            step = next((describe_site(p.site) for p in steps if leaf.name in p.above), "")
        elif np.any(leaf.state != RIGHT):
            step = next((describe_site(p.site) for p in steps if leaf.name in p.above and p.kind == "step"), "")
        marked.append(dataclasses.replace(leaf, stop=stop, step=step))
    return marked


def _sites(differences: Differences, most: int, special: Iterable[int]) -> list[int]:
    """The values to perturb: those next to a custom derivative or a stop first, then activations, then the rest."""
    near: set[int] = set()
    for number in special:
        near |= {number, *(o.site for o in differences.places[number].operands if o.site is not None)}
    sites = [
        place.site
        for place in differences.places
        if place.site.number in differences.used and place.above and place.site.dtype == np.float64
        if 0 < math.prod(place.site.shape) <= _LARGEST
    ]
    order = sorted(sites, key=lambda site: (site.number not in near, not site.is_activation, -site.number))
    return sorted(site.number for site in order[:most])


def _same(differences: Differences, number: int) -> Any:
    """What a place has in common with the other turns of its loop; a place in no loop is itself alone."""
    site = differences.places[number].site
    return (site.primitive, site.title, site.line) if site.turn else number


def _each_first(differences: Differences, numbers: Sequence[int]) -> list[int]:
    """One of each place first, then its other turns: a long loop must not crowd out the rest."""
    seen: Counter[Any] = Counter()
    rank = {}
    for number in numbers:
        same = _same(differences, number)
        rank[number] = seen[same]
        seen[same] += 1
    return sorted(numbers, key=rank.__getitem__)


def _named(differences: Differences, own: Iterable[OwnChecked], walked: frozenset[int]) -> tuple[Culprit, ...]:
    """The places that are wrong: in isolation or, if that is undecided, by the walk back from the loss."""
    alone = {one.number: one for one in own}
    found_at = [number for number, one in alone.items() if one.slope.error > TOLERANCE]
    found_at += [n for n in walked if n not in alone or math.isnan(alone[n].slope.error)]
    culprits: dict[Any, Culprit] = {}
    for number in sorted(set(found_at)):
        place, one = differences.places[number], alone.get(number)
        meant = "" if one is None else "identity" if one.identity else "step" if one.slope.flat else ""
        error, ratio = (math.nan, math.nan) if one is None else (one.slope.error, one.slope.ratio)
        title = place.site.title if place.site.name else name_inside(place.equation, place.kind)
        same = _same(differences, number)
        before = culprits.get(same)
        above = tuple(sorted(place.above.union(() if before is None else before.parameters)))
        if before is not None and before.error >= np.nan_to_num(error):
            culprits[same] = dataclasses.replace(before, parameters=above)
        else:
            where = (place.kind, title, place.site.layer, place.site.line)
            culprits[same] = Culprit(*where, error, ratio, meant, place.users, above)
    return tuple(culprits.values())


def culprits_of(
    differences: Differences, leaves: Sequence[Leaf], generator: np.random.Generator
) -> tuple[tuple[Culprit, ...], tuple[SiteChecked, ...]]:
    """Searches between parameters and loss if something is wrong, or if the user wrote a custom derivative.

    Leaves explained by removing a stop are skipped.
    """
    wrong = [leaf.name for leaf in leaves if np.any(leaf.wrong) and not leaf.stop]
    used = [p for p in differences.places if p.site.number in differences.used and p.kind in ("own", "stop")]
    users = [p.site.number for p in used if p.users and p.kind == "own"]
    if not differences.wide or not (wrong or users):
        return (), ()
    alone = users + [p.site.number for p in used if p.kind == "own" and not p.users and wrong]
    most = min(_SITES if wrong else _SITES // 3, max(8, differences.evaluations // 16))
    chosen = _sites(differences, most, users or [p.site.number for p in used])
    with jax.enable_x64(True):
        arguments = differences.arguments(differences.flat)
        program, places = differences.program, differences.places
        asked = _each_first(differences, alone)[:_ALONE]
        sites, own = measure_sites(program, places, arguments, chosen, asked, generator)
    status = {site.number: site.wrong for site in sites if not math.isnan(site.slope.error)}
    walked = broken_sites(places, status, wrong) & differences.used
    return _named(differences, own, walked), sites
