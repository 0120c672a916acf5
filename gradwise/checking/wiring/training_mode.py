"""Checks of training mode and evaluation mode (rows F4, J3).

    measured = measure_modes(subject, key=key)
    find_modes(measured)        GW306 evaluation is random, GW307 it differs from training, GW308 dropout is off

Evaluation is traced twice, to catch numbers drawn in Python. Numbers drawn inside the program are replaced by others:
if that changes the outputs of a stochastic model, the noise was left on, with a fixed key or not. The user's own
`evaluate` is compared with the training network in its noise-free mode.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from ...records.finding import Finding
from ...runtime import keys
from ...tracing.program import Program, is_same, trace
from ..batch_access import inputs_of
from ..codes import found
from ..padding_masks import used_rows
from ..probes import (
    attempt,
    bits_of,
    change_of,
    dropouts,
    few_rows,
    has_switches,
    in_evaluation_mode,
    magnitude_of,
    prime_rows,
    tolerance,
)
from ..subject import Subject, in_64_bits, is_nnx
from .example_mixing import exchanged

_DRAWS = ("random_bits", "threefry2x32")


@dataclass(frozen=True)
class ModesMeasured:
    """All changes are relative to the size of the outputs (or of the loss); None: not tested.

    `unequal`: between two evaluations; `draws`: evaluation with other random numbers; `noisy`: training outputs with
    another key; `switched`: evaluation of the model with its noise turned off; `reference`: the user's evaluation
    against training without noise, `scale` if they differ only by this factor, `link` if one follows from the
    other (softmax, a change of units); `noise`: the training loss with another key; `dropout`: the layers that should
    make a difference, `off` whether they are turned off in the model.
    """

    bits: int = 64
    unequal: float | None = None
    draws: float | None = None
    draws_line: str = ""
    noisy: float | None = None
    switched: float | None = None
    reference: float | None = None
    reference_leak: float | None = None
    scale: float | None = None
    link: bool = False
    noise: float | None = None
    dropout: dict[str, float] = field(default_factory=dict)
    off: bool = False
    line: str = ""
    place: str = ""


def _centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean(axis=-1, keepdims=True)


def _proportional(one: np.ndarray, other: np.ndarray) -> float | None:
    """The factor between two arrays, where there is one."""
    square = float(np.sum(other * other))
    factor = float(np.sum(one * other)) / square if square > 0 else 0.0
    return factor if factor and magnitude_of(one - factor * other) <= 1e-6 * magnitude_of(one) else None


def linked(judged: np.ndarray, reference: np.ndarray) -> bool:
    """Whether one follows from the other: a monotone map of each column, or a softmax."""
    a, b = (np.asarray(v, float).reshape(-1, v.shape[-1] if v.ndim > 1 else 1) for v in (judged, reference))
    if not np.all(np.isfinite(a)) or not np.all(np.isfinite(b)):
        return False
    if a.shape[1] > 1:
        logs = [_centred(np.log(a))] if np.all(a > 0) else []
        if any(_proportional(one, _centred(b)) is not None for one in (_centred(a), *logs)):
            return True
    order = np.argsort(b, axis=0)
    sorted_by = np.diff(np.take_along_axis(a, order, 0), axis=0)
    gaps = np.diff(np.take_along_axis(b, order, 0), axis=0) > 1e-9 * max(magnitude_of(b), 1e-12)
    monotone = np.all((sorted_by > 0) | ~gaps, axis=0) | np.all((sorted_by < 0) | ~gaps, axis=0)
    return bool(np.all(monotone) and gaps.any())


def _reference(subject: Subject) -> Any:
    """The training network in its noise-free mode, as a function of parameters, inputs and key."""
    if is_nnx(subject.model_of(subject.parameters)):

        def evaluating(parameters: Any, inputs: Any, key: Any) -> Any:
            model = subject.model_of(parameters)
            model.eval()
            return model(inputs)

        return evaluating
    if subject.outputs is None:
        return None
    outputs = subject.outputs
    return lambda parameters, inputs, key: outputs(in_evaluation_mode(subject, parameters), inputs, key)


def _ask(subject: Subject, program: Program, draws: list[int], bits: int, key: Key[Array, ""]) -> dict[str, Any]:
    """The outputs in all modes that apply, as one program."""
    inputs = inputs_of(subject.batch)
    generator = keys.generator(keys.named(key, "draws"))
    sites = {number: program.sites[number] for number in draws}
    other = {n: generator.integers(np.iinfo(s.dtype).max, size=s.shape, dtype=s.dtype) for n, s in sites.items()}
    one, two = jr.split(keys.named(key, "noise"))
    reference = _reference(subject) if subject.own_evaluation else None
    switches = subject.own_evaluation and has_switches(subject)

    def question(parameters: Any, given: Any, exchanged_given: Any) -> dict[str, Any]:
        assert subject.evaluated is not None
        answer = {"judged": program.run(parameters, given, one)[0]}
        if draws:
            nudges = {number: jnp.asarray(values) for number, values in other.items()}
            answer["drawn"] = program.run(parameters, given, one, nudges=nudges)[0]
        if subject.outputs is not None and (draws or reference):
            answer |= {name: subject.outputs(parameters, given, k) for name, k in (("noisy", one), ("noisier", two))}
        if switches:
            answer["switched"] = subject.evaluated(in_evaluation_mode(subject, parameters), given)
        if reference is not None:
            answer["reference"] = reference(parameters, given, one)
            answer["reference again"] = reference(parameters, given, two)
            answer["reference leak"] = reference(parameters, exchanged_given, one)
        return answer

    return attempt(question, subject.parameters, inputs, exchanged(inputs, subject.count, 0, 1), bits=bits) or {}


def _compared(answer: dict[str, Any], count: int, limit: float) -> dict[str, Any]:
    """The user's evaluation against training without noise, if that is deterministic and of the same form."""
    judged, reference = answer.get("judged"), answer.get("reference")
    if judged is None or reference is None:
        return {}
    shapes = [np.shape(value) for value in (judged, reference)]
    floating = all(np.issubdtype(np.asarray(value).dtype, np.floating) for value in (judged, reference))
    if shapes[0] != shapes[1] or not floating or shapes[0][:1] != (count,):
        return {}
    size = max(magnitude_of(reference), 1e-12)
    if magnitude_of(change_of(reference, answer["reference again"])) > limit * size:
        return {}  # noise that cannot be switched off: there is nothing to compare with
    leak = change_of(reference, answer["reference leak"])[1:].max(initial=0.0) / size
    change = float(change_of(reference, judged).max()) / size
    factor = _proportional(np.asarray(judged, float), np.asarray(reference, float)) if np.isfinite(change) else None
    return {
        "reference": change,
        "reference_leak": float(leak),
        "scale": factor,
        "link": change > limit and linked(np.asarray(judged), np.asarray(reference)),
    }


def _between(answer: dict[str, Any], one: str, other: str) -> float | None:
    if one not in answer or other not in answer or not hasattr(answer[one], "shape"):
        return None
    return float(change_of(answer[one], answer[other]).max(initial=0.0)) / max(magnitude_of(answer[one]), 1e-12)


def _evaluation(subject: Subject, bits: int, key: Key[Array, ""]) -> dict[str, Any]:
    """All that concerns evaluation."""
    evaluated, inputs = subject.evaluated, inputs_of(subject.batch)
    if evaluated is None or inputs is None:
        return {}
    try:
        first, second = (trace(lambda p, x, _: evaluated(p, x), subject.parameters, inputs, jr.key(0)) for _ in "ab")
    except Exception:  # the user's evaluation cannot be traced on these rows, so it is not checked
        return {}
    draws = [site.number for site in first.sites if site.primitive in _DRAWS]
    said: dict[str, Any] = {"line": next((site.line for site in reversed(first.sites) if site.line), "")}
    said["draws_line"] = first.sites[draws[0]].line if draws else ""
    if not is_same(first, second):

        def both(p: Any, x: Any) -> dict[str, Any]:
            return {name: one.run(p, x, jr.key(0))[0] for name, one in (("first", first), ("second", second))}

        said["unequal"] = _between(attempt(both, subject.parameters, inputs, bits=32) or {}, "first", "second")
    if not draws and not subject.own_evaluation:
        return said  # the same program as in training: there is nothing to compare
    program = first
    if bits == 64:
        with jax.enable_x64(True):
            wide = in_64_bits([subject.parameters, inputs])
            program = trace(lambda p, x, _: evaluated(p, x), wide[0], wide[1], jr.key(0))
        draws = [site.number for site in program.sites if site.primitive in _DRAWS]
    answer = _ask(subject, program, draws, bits, key)
    said["draws"] = _between(answer, "judged", "drawn")
    said["noisy"] = _between(answer, "noisy", "noisier")
    said["switched"] = _between(answer, "judged", "switched")
    return said | _compared(answer, subject.count, tolerance(bits))


def measure_modes(subject: Subject, *, key: Key[Array, ""], bits: int | None = None) -> ModesMeasured:
    """Evaluation on a few rows, and the training loss with several keys where the model has dropout."""
    few = few_rows(subject, prime_rows(subject, used_rows(subject.batch)))
    bits = bits_of(few) if bits is None else bits
    model = subject.model_of(subject.parameters)
    layers = dropouts(model)
    said = _evaluation(few, bits, keys.named(key, "modes"))
    if layers and not is_nnx(model):  # a Flax model draws from streams of its own, not from the key
        noises = jr.split(keys.named(key, "loss"), 4)
        values = attempt(
            lambda p, b: jax.lax.map(lambda k: few.value(p, b, k), noises), few.parameters, few.batch, bits=bits
        )
        if values is not None:
            said["noise"] = float(change_of(values, values[:1]).max()) / max(magnitude_of(values), 1e-12)
        said["off"] = has_switches(subject) and not any(leaf is False for leaf in jax.tree.leaves(model))
    return ModesMeasured(bits=bits, dropout=layers, place=subject.place, **said)


def _random(m: ModesMeasured) -> Finding | None:
    limit = tolerance(m.bits)
    if (m.unequal or 0.0) > 1e-6:
        tell = f"two evaluations of the same model on the same inputs differ by {m.unequal:.2g} of their size."
        step = "remove random numbers from evaluation: no numpy.random, no key stored and split in Python"
        return found("GW306", tell, where=m.line or m.place, next=step, change=m.unequal)
    left_on = (m.draws or 0.0) > limit and ((m.noisy or 0.0) > limit or bool(m.dropout))
    if not left_on or (m.switched is not None and m.switched <= limit):
        return None
    rates = f" (dropout in `{next(iter(m.dropout))}`)" if m.dropout else ""
    tell = f"evaluation draws random numbers: with others its outputs change by {m.draws:.2g} of their size{rates}. A "
    tell += "fixed key repeats the noise but does not remove it."
    step = "model = eqx.nn.inference_mode(model)   # Flax: model.eval()"
    return found("GW306", tell, where=m.draws_line or m.line or m.place, next=step, change=m.draws)


def _other(m: ModesMeasured) -> Finding | None:
    limit = 100 * tolerance(m.bits)
    if m.reference is None or m.reference <= limit or (m.reference_leak or 0.0) > limit:
        return None
    tell = f"evaluation outputs differ from noise-free training outputs by {m.reference:.2g} of their size"
    kept = {name: rate for name, rate in m.dropout.items() if m.scale is not None and _is_rescaled(m.scale, rate)}
    level = "error"
    if kept:
        name, rate = next(iter(kept.items()))
        tell += f": a constant factor of {m.scale:.4g}, that of dropout `{name}` at {rate:g}, which training already "
        tell += "corrects for"
    elif m.scale is not None:
        tell += f": a constant factor of {m.scale:.4g}"
        level = "warning"  # a change of units may be intended
    elif m.link:
        return None
    step = "evaluate = lambda model, x: apply(eqx.nn.inference_mode(model), x, None)   # one forward pass for both"
    numbers = {"change": m.reference, "factor": m.scale}
    return found("GW307", f"{tell}.", where=m.line or m.place, next=step, level=level, **numbers)


def _is_rescaled(factor: float, rate: float) -> bool:
    return min(abs(factor - (1 - rate)), abs(factor - 1 / (1 - rate))) < 1e-4 if rate < 1 else False


def find_modes(measured: ModesMeasured) -> tuple[Finding, ...]:
    """At most one finding on evaluation, and one on dropout in training."""
    m = measured
    findings = [_random(m) or _other(m)]
    if m.dropout and m.noise is not None and m.noise <= tolerance(m.bits):
        name, rate = next(iter(m.dropout.items()))
        why = "the model is in evaluation mode" if m.off else "no key reaches it"
        tell = f"the model has dropout (`{name}` at {rate:g}, {len(m.dropout)} in all), but the training loss does "
        step = "model(x, key=key) in the loss" if not m.off else "eqx.nn.inference_mode(model, False)"
        tell += f"not depend on the key: {why}."
        findings.append(found("GW308", tell, where=name, next=step, layers=len(m.dropout)))
    return tuple(finding for finding in findings if finding is not None)
