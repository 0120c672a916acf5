"""One bug, one error: a finding that only follows from another becomes a note that names its cause.

    demote_consequences(findings)          consequences become notes that name the finding they follow from

One NaN in the data makes every gradient NaN, the loss rise and every small set unlearnable; reporting all of that with
equal weight would hide the row to correct. The table below lists what follows from what.
"""

from collections.abc import Iterable
from dataclasses import replace

from ...records.finding import LEVELS, Finding, worst_first

_LEARNING = frozenset({"GW401", "GW402", "GW403", "GW404", "GW405"})
_LATER = _LEARNING - {"GW404"}  # what is seen once training has begun
_RATES = frozenset({"GW501", "GW502", "GW503"})
_FLOW = frozenset({"GW601", "GW602", "GW603", "GW604", "GW605", "GW606"})
_GRADIENT = frozenset({"GW101", "GW102", "GW103", "GW104", "GW105"})
_VERDICT = frozenset({"GW801", "GW802", "GW803", "GW806"})
_WIRING = frozenset({"GW301", "GW302", "GW303", "GW304", "GW305", "GW307", "GW310", "GW311"})

# The possible consequences of each finding; earlier rows are closer to the root cause.
FOLLOWS: dict[str, frozenset[str]] = {
    "GW209": _GRADIENT | _LEARNING | _RATES | _FLOW | _WIRING | _VERDICT | {"GW201", "GW204", "GW210", "GW213"},
    "GW107": _GRADIENT | _WIRING | {"GW306", "GW308", "GW401"},
    "GW211": _GRADIENT | _LEARNING | _VERDICT | {"GW305", "GW311", "GW709", "GW210"},
    "GW104": _LEARNING | _RATES | _FLOW | _WIRING | _VERDICT,
    "GW101": _LEARNING | _RATES | _FLOW | _VERDICT | {"GW102"},
    "GW103": _LEARNING | _RATES | _FLOW | _VERDICT | {"GW302", "GW303"},
    "GW102": _LEARNING | _RATES | _FLOW | _VERDICT,
    "GW105": _LEARNING | _VERDICT | {"GW302", "GW303", "GW304"},
    "GW404": frozenset({"GW405", "GW503", "GW601", "GW602", "GW606"}),
    "GW603": _LATER | _VERDICT | {"GW302", "GW304", "GW604", "GW606", "GW503", "GW502"},
    "GW602": _LATER | _VERDICT | {"GW302", "GW303", "GW304", "GW604", "GW606", "GW502"},
    "GW601": _LATER | _VERDICT | {"GW604", "GW606", "GW502"},
    "GW605": _LEARNING | _RATES | {"GW601", "GW606"},
    "GW604": _LEARNING | {"GW502", "GW503", "GW606"},
    "GW311": _LEARNING | _VERDICT | {"GW305"},
    "GW305": _LEARNING | _VERDICT | {"GW306", "GW307", "GW311"},
    "GW306": frozenset({"GW307"}),
    "GW304": _LEARNING | _VERDICT | {"GW210"},
    "GW303": _LEARNING | _VERDICT | {"GW503"},
    "GW709": _LEARNING | _VERDICT | {"GW302", "GW304", "GW604"},
    "GW702": _LEARNING | _VERDICT | {"GW604"},
    "GW705": _LEARNING | _VERDICT,
    "GW501": frozenset({"GW405", "GW503", "GW601", "GW602", "GW604", "GW605"}) | _VERDICT,
    "GW502": frozenset({"GW405", "GW503"}) | _VERDICT,
    "GW204": frozenset({"GW404", "GW501", "GW601", "GW605", "GW606", "GW401"}),
}


def _cause(finding: Finding, present: set[str]) -> str:
    """The code of the finding from which this one follows, if any."""
    for code, consequences in FOLLOWS.items():
        if code == finding.code:
            mutual = consequences  # if either may cause the other, the earlier row is the root
            present = {one for one in present if one not in mutual}
        elif code in present and finding.code in consequences:
            return code
    return ""


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The first of each code at each place; findings without a code are compared by their text."""
    first: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        first.setdefault((finding.code or finding.what, finding.where), finding)
    return tuple(first.values())


def demote_consequences(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, worst first, consequences as notes; of several with one code at one place only the worst.

    A cause must be at least a warning, and as serious as its consequence unless it is closer to the root.
    """
    given = _once(worst_first(findings))
    present = {finding.code for finding in given if finding.level != "note"}
    told = []
    for finding in given:
        cause = _cause(finding, present) if finding.level != "note" else ""
        rank = {one.code: LEVELS.index(one.level) for one in reversed(given)}
        if cause and rank[cause] <= LEVELS.index(finding.level):
            what = f"{finding.what} This follows from {cause}."
            finding = replace(finding, level="note", what=what)
        told.append(finding)
    return worst_first(told)
