"""The walk in `docs/design.md` is short and true: a run executes the modules that it names, hop by hop."""

import re
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
HOUSE = f"{ROOT / 'gradwise'}/"
MOST_MODULES = 25
CO_OPTIMIZED = 1  # set in the code of functions, not of modules and classes, which run when they are imported


def _named() -> list[str]:
    """The modules of the walk, in the order in which it names them first."""
    text = (ROOT / "docs" / "design.md").read_text()
    walk = text[text.index("## The walk of") : text.index("## The tests")]
    steps = walk[walk.index("\n1. ") :]
    return list(dict.fromkeys(re.findall(r"`((?:\w+/)*\w+\.py)`", steps)))


class _Calls:
    """Which of our modules call which, directly or through a library."""

    def __init__(self) -> None:
        self.callers: dict[str, set[str]] = defaultdict(set)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(HOUSE) or not code.co_flags & CO_OPTIMIZED:
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(HOUSE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_flags & CO_OPTIMIZED:
            self.callers[code.co_filename.removeprefix(HOUSE)].add(caller.f_code.co_filename.removeprefix(HOUSE))


def test_the_walk_is_short_and_true_hop_by_hop(here, gradwise):
    named, calls = _named(), _Calls()
    assert 15 < len(named) <= MOST_MODULES
    words = ("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=1", "--out", "mine")
    sys.setprofile(calls)
    try:
        said = gradwise("fit", "digits", *words)
    finally:
        sys.setprofile(None)
    assert said.code == 0, said.err
    assert Path("mine/report.html").is_file()
    assert named[0] == "cli/main.py"
    for number, module in enumerate(named[1:], start=1):
        assert calls.callers[module] & set(named[:number]), f"{module} is called by {sorted(calls.callers[module])}"
