"""One bug, one error: consequences become notes that name their cause."""

from gradwise.checking.codes import CODES, found
from gradwise.checking.verdict.consequences import FOLLOWS, demote_consequences
from gradwise.records.finding import Finding


def test_a_consequence_is_said_quietly() -> None:
    told = demote_consequences([found("GW401", "cannot be learned."), found("GW209", "row 7 holds NaN.")])
    assert [(finding.code, finding.level) for finding in told] == [("GW209", "error"), ("GW401", "note")]
    assert told[1].what.endswith("This follows from GW209.")


def test_what_stands_alone_is_left_as_it_is() -> None:
    given = [found("GW401", "cannot be learned."), found("GW201", "12 rows."), found("GW805", "fine.")]
    assert [(finding.code, finding.level) for finding in demote_consequences(given)] == [
        ("GW401", "error"),
        ("GW201", "error"),
        ("GW805", "note"),
    ]


def test_a_warning_does_not_explain_an_error_away() -> None:
    told = demote_consequences([found("GW705", "heavy."), found("GW401", "cannot be learned.")])
    assert {(finding.code, finding.level) for finding in told} == {("GW705", "warning"), ("GW401", "error")}


def test_a_note_is_no_cause() -> None:
    told = demote_consequences([found("GW209", "missing values are filled.", level="note"), found("GW401", "cannot.")])
    assert [finding.level for finding in told] == ["error", "note"]


def test_the_table_speaks_of_known_codes_and_has_no_circles() -> None:
    assert set(FOLLOWS) | set().union(*FOLLOWS.values()) <= set(CODES)
    order = list(FOLLOWS)
    for cause, consequences in FOLLOWS.items():
        both = [one for one in consequences if cause in FOLLOWS.get(one, ()) and order.index(one) < order.index(cause)]
        for one in both:  # where either may bring the other, the earlier row is the root
            told = demote_consequences([found(cause, "a.", level="error"), found(one, "b.", level="error")])
            assert {finding.code: finding.level for finding in told} == {one: "error", cause: "note"}


def test_one_thing_is_told_once_and_what_has_no_code_by_its_words() -> None:
    worse = found("GW205", "`b` never changes.", where="b", level="warning")
    same, elsewhere = (
        found("GW205", "1 column never changes.", where="b"),
        found("GW205", "`c` never changes.", where="c"),
    )
    plain = [Finding("note", "one thing."), Finding("note", "another thing."), Finding("note", "one thing.")]
    told = demote_consequences([same, worse, elsewhere, *plain])
    assert [(one.level, one.what) for one in told if one.code] == [
        ("warning", "`b` never changes."),
        ("note", "`c` never changes."),
    ]
    assert [one.what for one in told if not one.code] == ["one thing.", "another thing."]
