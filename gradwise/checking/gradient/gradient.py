"""Is the gradient that of the loss? Differences at every parameter, then at intermediate values, to find the line (F1).

    measured = measure_gradient(subject, key=key)
    measured.leaves[0].error, measured.central            per entry; the U-curve over epsilon
    find_gradient(measured)                               GW101 ... GW107, wrong signs first

Differences are taken in 64 bits on a few examples; whether loss and gradient are finite is tested on the whole batch.
A parameter's gradient is wrong only if it disagrees at every epsilon, beyond rounding and kinks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ...records.evidence.check_evidence import GradientEvidence, ParameterGradient
from ...records.finding import Finding
from ...runtime import keys
from ..codes import found
from ..subject import Subject
from .finite_differences import UNKNOWN, Differences, curve
from .intermediate_gradients import SiteChecked
from .parameter_gradients import Leaf, measure_leaves
from .repeated_evaluation import LossEvaluation, evaluate_twice
from .wrong_derivatives import Culprit, culprits_of, explained

_SAME = 1e-4  # relative difference allowed between two evaluations: a device may sum in another order
_SURE = 1e-2  # a custom derivative that is off by less may be an intended approximation


def _differ(seen: LossEvaluation) -> bool:
    return bool(abs(seen.loss - seen.again) > _SAME * max(abs(seen.loss), abs(seen.again)))


@dataclass(frozen=True)
class GradientMeasured:
    """All measurements; `leaves` and `sites` are empty if the loss is NaN or not deterministic."""

    seen: LossEvaluation
    leaves: tuple[Leaf, ...] = ()
    sites: tuple[SiteChecked, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    epsilons: np.ndarray = field(default_factory=lambda: np.zeros(0))
    forward: np.ndarray = field(default_factory=lambda: np.zeros(0))
    central: np.ndarray = field(default_factory=lambda: np.zeros(0))
    epsilon: float = math.nan
    coarse: str = ""  # the type of the least precise value between parameters and loss
    coarse_line: str = ""

    def evidence(self) -> GradientEvidence:
        leaves = (
            ParameterGradient(leaf.name, leaf.worst, len(leaf.entries), int(np.sum(leaf.wrong)), leaf.turned)
            for leaf in self.leaves
        )
        epsilons, forward, central = (tuple(line.tolist()) for line in (self.epsilons, self.forward, self.central))
        return GradientEvidence(epsilons, forward, central, tuple(leaves))


# --- measuring


def _steepest(differences: Differences, leaves: Sequence[Leaf]) -> np.ndarray:
    """The steepest entry of each of the four steepest leaves: for the U-curve."""
    offsets = np.cumsum([0, *(leaf.size for leaf in leaves)])
    slopes = [np.nan_to_num(np.abs(leaf.analytic)) for leaf in leaves]
    order = np.argsort([-float(np.max(slope)) for slope in slopes])[: 4 if differences.evaluations > 300 else 1]
    return np.asarray([offsets[i] + leaves[i].entries[np.argmax(slopes[i])] for i in order if not leaves[i].zero], int)


def measure_gradient(subject: Subject, *, key: Key[Array, ""], elements: int = 24) -> GradientMeasured:
    """Tests `elements` entries of each large parameter and all of a small one, chosen by the key alone."""
    noise = keys.named(key, "gradient")
    generator = keys.generator(keys.named(key, "entries"))
    seen = evaluate_twice(subject, noise)
    if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(subject.parameters)):
        return GradientMeasured(seen)  # complex parameters are not supported
    if not math.isfinite(seen.loss) or _differ(seen):
        return GradientMeasured(seen)
    differences = Differences.of(subject, key=noise)
    leaves = explained(differences, measure_leaves(differences, elements, generator))
    epsilons, forward, central = curve(differences, _steepest(differences, leaves))
    culprits, sites = culprits_of(differences, leaves, generator)
    return GradientMeasured(
        seen=seen,
        leaves=tuple(leaves),
        sites=sites,
        culprits=culprits,
        epsilons=epsilons,
        forward=forward,
        central=central,
        epsilon=differences.epsilon,
        coarse=differences.coarse,
        coarse_line=differences.coarse_line,
    )


# --- finding


def _words(ratio: float, error: float) -> str:
    """How a derivative is wrong, in words."""
    known = {-1.0: "has the wrong sign", 0.0: "is 0 where it should not be", 0.5: "is half of what it should be"}
    known |= {2.0: "is twice what it should be"}
    for value, words in known.items():
        if abs(ratio - value) <= 0.01:
            return words
    if math.isfinite(ratio):
        return f"is {ratio:.3g} times what it should be"
    return f"is wrong (relative error {error:.2g})" if math.isfinite(error) else "is wrong"


def _shown(leaf: Leaf) -> dict[str, Any]:
    """The numbers of a leaf's worst wrong entry."""
    rows = np.flatnonzero(leaf.wrong)
    row = rows[np.argmax(np.abs(leaf.analytic[rows] - leaf.numeric[rows]))] if len(rows) else 0
    numbers = {"analytic": leaf.analytic[row], "numeric": leaf.numeric[row], "error": leaf.worst, "ratio": leaf.ratio}
    counts = {"wrong": int(np.sum(leaf.wrong)), "looked_at": len(leaf.entries)}
    return (
        {"parameter": leaf.name, "entry": int(leaf.entries[row])} | {k: float(v) for k, v in numbers.items()} | counts
    )


def _of(leaves: Sequence[Leaf]) -> tuple[Leaf, str]:
    """The worst of some leaves, and a phrase for them all."""
    worst = max(leaves, key=lambda leaf: (leaf.turned, round(float(np.mean(leaf.wrong)), 1), leaf.size))
    others = f" and of {len(leaves) - 1} other parameter{'s' if len(leaves) > 2 else ''}" if len(leaves) > 1 else ""
    return worst, f"the gradient of `{worst.name}`{others}"


def _numbers(shown: dict[str, Any]) -> str:
    return f"the gradient is {shown['analytic']:.3g}, finite differences give {shown['numeric']:.3g}"


def _own(culprits: Sequence[Culprit], touched: Sequence[Leaf]) -> Finding | None:
    """A function with a custom derivative, wherever it is used, and the parameters whose gradient it affects."""
    worst = max(culprits, key=lambda c: np.nan_to_num(c.error))
    meant = worst.meant
    if meant and not touched:
        return None
    leaf = _of(touched)[0] if touched else None
    ratio = worst.ratio if math.isfinite(worst.ratio) or leaf is None else leaf.ratio
    turned = abs(ratio + 1) <= 0.05 or (leaf is not None and leaf.turned)
    nothing = abs(ratio) <= 1e-6 or (leaf is not None and leaf.zero)
    code = "GW105" if meant == "step" else "GW101" if turned else "GW103" if nothing else "GW102"
    sure = not meant and (leaf is not None or worst.error > _SURE)
    how = "has the wrong sign" if turned else _words(ratio, worst.error)
    what = f"the derivative of `{worst.title}` {how}"
    if meant == "identity":
        what += ", but it returns its argument unchanged: this may be an intended gradient reversal or clipping"
    elif meant == "step":
        what = f"`{worst.title}` is a step function, and its custom derivative replaces one that is 0"
    shown: dict[str, Any] = {"culprit_error": worst.error, "culprit_ratio": worst.ratio}
    if leaf is not None:
        shown |= _shown(leaf)
        what += f"; it affects {_of(touched)[1]}: at entry {shown['entry']} {_numbers(shown)}"
    else:
        what += "; no parameter's gradient is affected in this batch"
    if len(culprits) > 1:
        what += f" (it is used in {len(culprits)} places)"
    step = f"correct the derivative of `{worst.title}`, or delete it and let JAX derive it"
    where = "; ".join(filter(None, ("" if leaf is None else leaf.name, worst.where)))
    level = "" if sure and code != "GW105" else "warning"
    return found(code, what + ".", where=where, next=_then(step, meant), level=level, **shown)


def _then(step: str, meant: str = "") -> str:
    asked = "`gradwise.testing.assert_gradients(loss, model, batch)`"
    return f"if this is intended, nothing; otherwise {step}" if meant else f"{step}; then run {asked}"


def _stopped(place: str, leaves: Sequence[Leaf]) -> Finding:
    """A `stop_gradient` and what it keeps from learning, wholly (an error) or in part (perhaps intended)."""
    cut = [leaf for leaf in leaves if leaf.zero]
    leaf, named = _of(cut or leaves)
    shown = _shown(leaf)
    if cut:
        what = f"{named} is 0, but the loss depends on it: a stop_gradient blocks it; finite differences give "
        what += f"{shown['numeric']:.3g} at entry {shown['entry']}."
        step = f"remove `stop_gradient` at {place}, or declare that it is intended: `frozen={leaf.name!r}`"
        return found("GW103", what, where=f"{leaf.name}; {place}", next=step, **shown)
    if leaf.step:
        what = f"{named} bypasses a step ({leaf.step}) with a stop_gradient, as a straight-through estimator does: "
        return found(
            "GW105", what + _numbers(shown) + ".", where=f"{leaf.name}; {place}", level="warning",
            next="if this is intended, nothing; otherwise remove the step from the loss", **shown,
        )  # fmt: skip
    what = f"a stop_gradient blocks part of {named}: {_numbers(shown)}. This is right for bootstrapped targets and "
    what += "contrastive divergence, wrong if it is a leftover."
    step = _then(f"remove `stop_gradient` at {place}", "meant")
    return found("GW103", what, where=f"{leaf.name}; {place}", next=step, level="warning", **shown)


def _unexplained(leaves: Sequence[Leaf]) -> list[Finding]:
    """Wrong for no known reason: an error only if more than a single entry is wrong."""
    findings = []
    for code in ("GW101", "GW102", "GW103"):
        kind = [x for x in leaves if code == ("GW101" if x.turned else "GW103" if x.zero else "GW102")]
        if not kind:
            continue
        leaf, named = _of(kind)
        shown = _shown(leaf)
        how = "has the wrong sign" if code == "GW101" else _words(leaf.ratio, leaf.worst)
        what = f"{named} {how}: at entry {shown['entry']} {_numbers(shown)}."
        many = any(np.sum(x.wrong) >= min(2, x.size) and np.mean(x.wrong) >= 0.1 for x in kind)
        step = f"test each function that reads `{leaf.name}` with `jax.test_util.check_grads`"
        findings.append(found(code, what, where=leaf.name, next=step, level="" if many else "warning", **shown))
    return findings


def _not_numbers(seen: LossEvaluation) -> list[Finding]:
    finite = math.isfinite(seen.loss)
    if finite and not seen.broken:
        return []
    others = f" and of {len(seen.broken) - 1} others" if len(seen.broken) > 1 else ""
    what = f"the gradient of `{seen.broken[0]}`{others} is NaN or infinite, but the loss is {seen.loss:.4g}"
    what = what if finite else f"the loss is {seen.loss}"
    what += f"; it first occurs at {seen.broken_at}" if seen.broken_at else ""
    what += ". The batch itself contains NaN or infinite values" if seen.bad_batch else ""
    step = "guard the argument before the function, not its result: `jnp.log(jnp.maximum(p, 1e-12))`"
    step = "clean the data: `gradwise check` reports rows and columns under GW209" if seen.bad_batch else step
    where = "; ".join(filter(None, (seen.broken[0] if finite and seen.broken else "", seen.broken_at)))
    level = "warning" if seen.bad_batch else ""  # the data are the cause, and have their own finding
    evidence = {"loss": seen.loss, "parameters": len(seen.broken)}
    return [found("GW104", what + ".", where=where or "loss", next=step, level=level, **evidence)]


def _twice(seen: LossEvaluation) -> Finding:
    what = f"with the same key the loss is first {seen.loss:.6g} and then {seen.again:.6g}: it draws random "
    what += "numbers without using its key, and a compiled program freezes them."
    step = "draw with `jax.random` from the key passed to the loss, not with `numpy.random` or `random`"
    return found("GW107", what, where="loss", next=step, first=seen.loss, second=seen.again)


def _coarse(measured: GradientMeasured) -> list[Finding]:
    """Undecided: rounding hides the differences."""
    asked = [x for x in measured.leaves if not x.frozen and not x.step and x.name not in measured.seen.broken]
    unknown = [x for x in asked if np.mean(x.state == UNKNOWN) > 0.5]
    blurred = measured.coarse in ("bfloat16", "float16")
    if not blurred and not unknown:
        return []
    if blurred and measured.seen.flat:
        small = ", where numbers below 6e-8 become 0" if measured.coarse == "float16" else ""
        what = f"every gradient is exactly 0 while the loss is {measured.seen.loss:.3g}: part of it is computed in "
        what += f"{measured.coarse}{small}."
        step = "scale the loss up before differentiating and the gradient down after, or compute the end in 32 bits"
        where = f"{measured.coarse}, {measured.coarse_line}" if measured.coarse_line else measured.coarse
        return [found("GW103", what, where=where, next=step, loss=measured.seen.loss)]
    reason = f"the loss is computed partly in {measured.coarse}" if measured.coarse else "differences do not converge"
    what = f"the gradient could not be verified: {reason}"
    what += f" ({measured.coarse_line})" if measured.coarse_line else ""
    where = measured.coarse_line or (unknown[0].name if unknown else "loss")
    step = "run `gradwise check` once without the casts: the same code can be checked in 32 bits"
    return [found("GW106", what + ".", where=where, next=step, precision=measured.coarse, unknown=len(unknown))]


def _stepped(leaves: Sequence[Leaf]) -> list[Finding]:
    findings = []
    for place in dict.fromkeys(leaf.step for leaf in leaves):
        mine = [leaf for leaf in leaves if leaf.step == place]
        leaf, named = _of(mine)
        what = f"{named} is 0: every path to the loss passes a step ({place})" if leaf.zero else ""
        what = what or f"{named} passes a step ({place}): differences are 0 or erratic, so it cannot be checked"
        step = "use a smooth function instead, or a straight-through estimator: `x + stop_gradient(round(x) - x)`"
        findings.append(found("GW105", what + ".", where=f"{leaf.name}; {place}", next=step, **_shown(leaf)))
    return findings


def find_gradient(measured: GradientMeasured) -> tuple[Finding, ...]:
    """One finding per cause; wrong signs first."""
    if _differ(measured.seen):
        return (_twice(measured.seen),)
    findings = _not_numbers(measured.seen)
    left = [x for x in measured.leaves if not x.frozen and x.name not in measured.seen.broken]
    wrong = [leaf for leaf in left if np.any(leaf.wrong)]
    own = [one for one in measured.culprits if one.kind == "own"]
    for title in dict.fromkeys(one.title for one in sorted(own, key=lambda c: (bool(c.meant), not c.users))):
        same = [one for one in own if one.title == title]
        touched = [leaf for leaf in wrong if any(leaf.name in one.parameters for one in same)]
        if touched or any(one.users for one in same):
            told = _own(same, touched)
            findings += [told] if told is not None else []
            wrong = [leaf for leaf in wrong if leaf not in touched]
    for place in dict.fromkeys(leaf.stop for leaf in wrong if leaf.stop):
        findings.append(_stopped(place, [leaf for leaf in wrong if leaf.stop == place]))
    wrong = [leaf for leaf in wrong if not leaf.stop]
    flat = [x for x in left if x.step and (x in wrong or (x.zero and not np.any(x.wrong)) or np.mean(x.state) > 1)]
    findings += _stepped(flat)
    wrong = [leaf for leaf in wrong if not leaf.step]
    findings += _coarse(measured)
    if measured.coarse not in ("bfloat16", "float16"):
        findings += _unexplained(wrong)
    return tuple(sorted(findings, key=lambda finding: (finding.level != "error", finding.code != "GW101")))
