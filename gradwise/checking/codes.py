"""The codes of findings: what each means, how serious it is as a rule, and the chapter's row. One page each.

    found("GW102", "the gradient of `layers.0.weight` is half of what it should be.", where="layers.0.weight")
    page("GW102")                              the text of its page, which `gradwise explain GW102` prints

The first digit is the check: 1 gradient, 2 data, 3 wiring, 4 learning, 5 rates, 6 flow, 7 choices, 8 verdict, 9 graph.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..records.finding import Finding
from ..runtime.errors import RequestError, nearest


@dataclass(frozen=True)
class Code:
    """A kind of finding: its title, its usual level and the chapter's row."""

    title: str
    level: str
    row: str


CODES = {
    "GW101": Code("a gradient has the wrong sign", "error", "F1"),
    "GW102": Code("a gradient is wrong", "error", "F1"),
    "GW103": Code("the loss depends on a parameter that gets no gradient", "error", "F1"),
    "GW104": Code("a gradient is not a number", "error", "F1"),
    "GW105": Code("the loss has steps where a gradient is taken", "warning", "F1"),
    "GW106": Code("the loss is too coarse for its gradient to be checked", "note", "F1"),
    "GW107": Code("the loss is not the same twice", "error", "F1"),
    "GW201": Code("test examples stand in the training set", "error", "E2"),
    "GW202": Code("an input gives the target away", "error", "E2"),
    "GW203": Code("groups are shared between training and test", "warning", "E2"),
    "GW204": Code("inputs are not scaled", "warning", "D10"),
    "GW205": Code("inputs are constant", "note", "D10"),
    "GW206": Code("labels look noisy", "note", "F3"),
    "GW207": Code("classes are very unequal", "warning", "E2"),
    "GW208": Code("examples come in order", "error", "B3"),
    "GW209": Code("the data hold values that are no numbers", "error", "B7"),
    "GW210": Code("the inputs say nothing about the targets", "warning", "F3"),
    "GW211": Code("labels do not fit the outputs", "error", "D7"),
    "GW212": Code("a class is missing from a part", "warning", "E2"),
    "GW213": Code("test examples come from elsewhere", "warning", "E2"),
    "GW301": Code("padding is read", "error", "F4"),
    "GW302": Code("a parameter is not used", "warning", "F4"),
    "GW303": Code("a parameter never changes", "error", "F4"),
    "GW304": Code("an input is not used", "warning", "F4"),
    "GW305": Code("examples leak into one another", "error", "F4"),
    "GW306": Code("evaluation is random", "error", "J3"),
    "GW307": Code("evaluation computes something else than training", "error", "F4"),
    "GW308": Code("the noise of training is switched off", "warning", "J3"),
    "GW309": Code("the loss is summed, not averaged", "warning", "B1"),
    "GW310": Code("the weights of examples are ignored", "error", "F4"),
    "GW311": Code("the loss pairs outputs with the targets of other examples", "error", "D7"),
    "GW401": Code("a handful of examples cannot be learned by heart", "error", "F2"),
    "GW402": Code("training error does not rise gradually with more examples", "warning", "F2"),
    "GW403": Code("validation error does not fall with more examples", "warning", "F2"),
    "GW404": Code("the loss starts far above chance", "warning", "D8"),
    "GW405": Code("the loss does not go down", "warning", "C1"),
    "GW501": Code("the learning rate is too large", "error", "C1"),
    "GW502": Code("the learning rate is too small", "warning", "C1"),
    "GW503": Code("updates are out of proportion to weights", "warning", "F18"),
    "GW504": Code("another mini-batch size would pay", "note", "J5"),
    "GW505": Code("the curvature bounds the learning rate", "note", "H5"),
    "GW601": Code("units are saturated", "warning", "F18"),
    "GW602": Code("units are dead", "warning", "F18"),
    "GW603": Code("units are copies of one another", "error", "D8"),
    "GW604": Code("gradients vanish on the way down", "warning", "F18"),
    "GW605": Code("gradients explode on the way down", "warning", "F18"),
    "GW606": Code("a layer stretches or squeezes", "note", "F18"),
    "GW701": Code("a hard non-linearity stands on the outputs", "warning", "D6"),
    "GW702": Code("a link is applied twice", "error", "D7"),
    "GW703": Code("sigmoids on top of a deep net", "warning", "D6"),
    "GW704": Code("a sparsity penalty does not fit its units", "warning", "D5"),
    "GW705": Code("the regulariser outweighs the loss", "warning", "D2"),
    "GW706": Code("patience is too short", "warning", "C6"),
    "GW707": Code("the best value lies on the border", "warning", "E4"),
    "GW708": Code("a knob was tried at too few values", "note", "E4"),
    "GW709": Code("the loss does not fit the targets", "warning", "D7"),
    "GW801": Code("optimisation is the difficulty", "warning", "F3"),
    "GW802": Code("overfitting is the difficulty", "warning", "F3"),
    "GW803": Code("both are difficulties", "warning", "F3"),
    "GW804": Code("the test is too small to tell", "note", "E2"),
    "GW805": Code("nothing stands out", "note", "F3"),
    "GW806": Code("lower layers are not trained, the top overfits", "warning", "F3"),
    "GW807": Code("bias and variance", "note", "F19"),
    "GW901": Code("a large constant is baked into the program", "warning", "B5"),
    "GW902": Code("most of the work is in one place", "note", "B5"),
    "GW903": Code("part of the program runs in another precision", "note", "B7"),
}


def found(code: str, what: str, *, where: str = "", next: str = "", level: str = "", **evidence: Any) -> Finding:
    """A finding of this kind; its level is the usual one unless another is given."""
    kind = CODES[code]
    return Finding(level or kind.level, what, kind.row, next, code, where, evidence)


def page(code: str) -> str:
    """The page of a code: what it means, how it is measured, what to do, when it is a false alarm."""
    wanted = code.strip().upper()
    if wanted not in CODES:
        raise RequestError(f"there is no finding {code!r}.{nearest(wanted, CODES)}")
    return (Path(__file__).parent / "pages" / f"{wanted}.md").read_text(encoding="utf-8")
