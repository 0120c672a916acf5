"""The codes of findings: title, usual level, and the chapter's row. Each has a page.

    found("GW102", "the gradient of `layers.0.weight` is half of what it should be.", where="layers.0.weight")
    page("GW102")                              the text of its page, which `gradwise explain GW102` prints
    reported_codes("GW2", ["GW204"])           the codes that begin with GW2, without GW204

The first digit is the check: 1 gradient, 2 data, 3 wiring, 4 learning, 5 rates, 6 flow, 7 choices, 8 verdict, 9 graph.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..records.finding import Finding
from ..runtime.errors import RequestError, nearest


@dataclass(frozen=True)
class FindingCode:
    """A kind of finding: its title, its usual level and the chapter's row."""

    title: str
    level: str
    row: str


CODES = {
    "GW101": FindingCode("a gradient has the wrong sign", "error", "F1"),
    "GW102": FindingCode("a gradient is wrong", "error", "F1"),
    "GW103": FindingCode("the loss depends on a parameter that gets no gradient", "error", "F1"),
    "GW104": FindingCode("a gradient is NaN or infinite", "error", "F1"),
    "GW105": FindingCode("a step function lies between a parameter and the loss", "warning", "F1"),
    "GW106": FindingCode("the loss is too imprecise to check its gradient", "note", "F1"),
    "GW107": FindingCode("the loss is not deterministic", "error", "F1"),
    "GW201": FindingCode("test examples appear in the training set", "error", "E2"),
    "GW202": FindingCode("an input leaks the target", "error", "E2"),
    "GW203": FindingCode("the training and test sets share groups", "warning", "E2"),
    "GW204": FindingCode("inputs are not scaled", "warning", "D10"),
    "GW205": FindingCode("inputs are constant", "note", "D10"),
    "GW206": FindingCode("labels look noisy", "note", "F3"),
    "GW207": FindingCode("classes are highly imbalanced", "warning", "E2"),
    "GW208": FindingCode("examples are not shuffled", "error", "B3"),
    "GW209": FindingCode("the data contain NaN or infinite values", "error", "B7"),
    "GW210": FindingCode("the inputs do not predict the targets", "warning", "F3"),
    "GW211": FindingCode("labels do not match the outputs", "error", "D7"),
    "GW212": FindingCode("a class is missing from the training or test set", "warning", "E2"),
    "GW213": FindingCode("the test set has a different distribution", "warning", "E2"),
    "GW214": FindingCode("there are too few rows to estimate an error", "warning", "E2"),
    "GW215": FindingCode("training contradicts some labels", "note", "F6"),
    "GW301": FindingCode("padding affects the loss", "error", "F4"),
    "GW302": FindingCode("a parameter is not used", "warning", "F4"),
    "GW303": FindingCode("a parameter never changes", "error", "F4"),
    "GW304": FindingCode("an input is not used", "warning", "F4"),
    "GW305": FindingCode("examples leak into one another", "error", "F4"),
    "GW306": FindingCode("evaluation is random", "error", "J3"),
    "GW307": FindingCode("evaluation computes something different from training", "error", "F4"),
    "GW308": FindingCode("dropout is off during training", "warning", "J3"),
    "GW309": FindingCode("the loss is summed, not averaged", "warning", "B1"),
    "GW310": FindingCode("example weights are ignored", "error", "F4"),
    "GW311": FindingCode("the loss compares outputs with other examples' targets", "error", "D7"),
    "GW401": FindingCode("the network cannot memorise a handful of examples", "error", "F2"),
    "GW402": FindingCode("training error does not rise gradually with more examples", "warning", "F2"),
    "GW403": FindingCode("validation error does not fall with more examples", "warning", "F2"),
    "GW404": FindingCode("the loss starts far above chance", "warning", "D8"),
    "GW405": FindingCode("the loss does not decrease", "warning", "C1"),
    "GW501": FindingCode("the learning rate is too large", "error", "C1"),
    "GW502": FindingCode("the learning rate is too small", "warning", "C1"),
    "GW503": FindingCode("updates are out of proportion to the weights", "warning", "F18"),
    "GW504": FindingCode("another mini-batch size would be more efficient", "note", "J5"),
    "GW505": FindingCode("the learning rate exceeds the curvature limit", "note", "H5"),
    "GW506": FindingCode("the largest learning rate that does not diverge", "note", "B2"),
    "GW507": FindingCode("whether a learning rate serves other widths", "note", "J7"),
    "GW601": FindingCode("units are saturated", "warning", "F18"),
    "GW602": FindingCode("units are dead", "warning", "F18"),
    "GW603": FindingCode("units are copies of one another", "error", "D8"),
    "GW604": FindingCode("gradients vanish in the lower layers", "warning", "F18"),
    "GW605": FindingCode("activations or gradients explode", "warning", "F18"),
    "GW606": FindingCode("a layer amplifies or attenuates the signal", "note", "F18"),
    "GW607": FindingCode("gradients vanish along a sequence", "warning", "F18"),
    "GW701": FindingCode("a hard non-linearity is applied to the outputs", "warning", "D6"),
    "GW702": FindingCode("softmax or sigmoid is applied twice", "error", "D7"),
    "GW703": FindingCode("sigmoid units in a deep network", "warning", "D6"),
    "GW704": FindingCode("a sparsity penalty does not suit its units", "warning", "D5"),
    "GW705": FindingCode("the regulariser outweighs the loss", "warning", "D2"),
    "GW706": FindingCode("patience is too short", "warning", "C6"),
    "GW707": FindingCode("the best value lies at the edge of its search range", "warning", "E4"),
    "GW708": FindingCode("too few values of a knob were tried", "note", "E4"),
    "GW709": FindingCode("the loss does not match the targets", "warning", "D7"),
    "GW801": FindingCode("optimisation is the difficulty", "warning", "F3"),
    "GW802": FindingCode("overfitting is the difficulty", "warning", "F3"),
    "GW803": FindingCode("optimisation and overfitting are both difficulties", "warning", "F3"),
    "GW804": FindingCode("the test set is too small to tell", "note", "E2"),
    "GW805": FindingCode("nothing stands out", "note", "F3"),
    "GW806": FindingCode("lower layers are untrained and the top layer overfits", "warning", "F3"),
    "GW807": FindingCode("bias and variance", "note", "F19"),
    "GW808": FindingCode("a simpler model is better", "warning", "F3"),
    "GW901": FindingCode("a large constant is baked into the program", "warning", "B5"),
    "GW902": FindingCode("one layer dominates the computation", "note", "B5"),
    "GW903": FindingCode("part of the program runs in a different precision", "note", "B7"),
}


def found(code: str, what: str, *, where: str = "", next: str = "", level: str = "", **evidence: Any) -> Finding:
    """A finding of this kind, with its usual level unless another is given."""
    kind = CODES[code]
    return Finding(level or kind.level, what, kind.row, next, code, where, evidence)


def page(code: str) -> str:
    """The page of a code: what it means, how it is measured, what to do, when it is a false alarm."""
    wanted = code.strip().upper()
    if wanted not in CODES:
        raise RequestError(f"unknown finding {code!r}.{nearest(wanted, CODES)}")
    return (Path(__file__).parent / "pages" / f"{wanted}.md").read_text(encoding="utf-8")


def _matching(words: str | Iterable[str]) -> set[str]:
    """The codes that these codes and prefixes mean; each may hold several, separated by commas."""
    found: set[str] = set()
    for word in ",".join([words] if isinstance(words, str) else words).split(","):
        prefix = word.strip().upper()
        matching = {code for code in CODES if prefix and code.startswith(prefix)}
        if prefix and not matching:
            raise RequestError(f"unknown finding {word.strip()!r}.{nearest(prefix, CODES)}")
        found |= matching
    return found


def reported_codes(select: str | Iterable[str] = (), ignore: str | Iterable[str] = ()) -> frozenset[str]:
    """The codes to report: those that `select` names, or all, without those that `ignore` names.

    Findings without a code ("") are reported unless some are selected.
    """
    selected = _matching(select) or {"", *CODES}
    return frozenset(selected - _matching(ignore))
