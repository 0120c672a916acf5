"""By default nobody hears of progress."""

from gradwise.runtime.progress import silent


def test_any_report_is_taken_and_nothing_said(capsys) -> None:
    assert silent({"age": 3}) is silent("starting") is silent(1, 2) is None
    assert capsys.readouterr().out == ""
