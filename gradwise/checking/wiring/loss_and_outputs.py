"""Mismatched choices of outputs, loss, targets and penalties (rows D2, D5, D6, D7).

    find_recipe_choices(recipe, "classes")                          a gradwise recipe: pure, nothing is run
    find_choices(measure_choices(subject, key=key))                 a user's loss: its program read, its values compared

A softmax or sigmoid applied twice is found in the program: probabilities that reach another exponential with
no parameter or factor in between. The loss is identified by its value: that of a known loss of these outputs, without
penalties. Penalties are scalars that depend on parameters alone and are added to the rest.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key
from scipy.special import log_softmax

from ...criteria.code_sparsity import KlToTarget, code_activation, code_range
from ...criteria.losses import AbstractLoss
from ...pretraining.stack import Pretrained
from ...records.finding import Finding
from ...runtime import keys
from ...runtime.compilation import compile_quickly
from ...specs.knobs import Spec, is_off
from ...specs.paths import knobs, parts
from ...specs.priors import LogUniform, ZeroOr
from ...specs.recipe import Recipe
from ...tracing.program import Program, Site, trace
from ..batch_access import inputs_of, targets_of
from ..codes import found
from ..subject import Subject
from .loss_structure import HARD, STEPS, bounds_of, end_of, links_twice, penalties_of

_CALLED = {
    **dict.fromkeys(("logaddexp", "softplus", "log_sigmoid"), "logistic"),
    **dict.fromkeys(("_softmax", "log_softmax"), "softmax"),
    **dict.fromkeys(("max", "min", "clamp", "select_n"), "a clip"),
}
_LOSSES = {"softmax": "cross-entropy", "logistic": "logistic loss", "squared": "squared error"}
_MEASURED = 256  # examples, at most
_OUTWEIGHS = (0.25, 2.0)  # of the rest of the loss by value, and of its gradient
_BEYOND = 0.1  # more targets out of reach than this are not just clipped outliers
_ORDINAL = 20  # more distinct integers than this are counts rather than classes


@dataclass(frozen=True)
class ChoicesMeasured:
    """All measurements. Empty strings and None: absent or undecided.

    `link` and `again` are a link and the one after it; `kind` is the loss by value ("softmax", "logistic", "squared",
    with a minus if it is the negative of that); `end` is the non-linearity on the outputs, `hard` the same if it is a
    hard one, and `clipped` the share of outputs in its flat region; `penalty` and `rest` are the two terms of the loss,
    `pull` the size of the penalty's gradient relative to the rest's; `blind` means that the targets do not affect the
    loss.
    """

    loss: float
    outputs: tuple[int, ...] = ()
    classes: int = 0
    task: str = ""
    link: str = ""
    again: str = ""
    link_line: str = ""
    again_line: str = ""
    kind: str = ""
    are_probabilities: bool = False
    hard: str = ""
    end: str = ""
    end_line: str = ""
    clipped: float = 0.0
    off: int = 0
    beyond: float = 0.0  # the share of targets that no output can reach
    blind: bool | None = None
    penalty: float = 0.0
    rest: float = math.nan
    pull: float = 0.0
    penalty_line: str = ""
    place: str = ""


def _weighed(subject: Subject, program: Program, key: Key[Array, ""]) -> tuple[float, float, float, float, str]:
    """The loss, its penalties, the rest of it, the penalties' gradient against the rest's, and the largest's line."""
    sites = penalties_of(program)
    if not sites:
        loss = float(compile_quickly(subject.value, subject.size)(subject.parameters, subject.batch, key))
        return loss, 0.0, loss, 0.0, ""
    numbers = [site.number for site in sites]

    def size(tree: Any) -> Array:
        return jnp.sqrt(sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(())))

    @partial(compile_quickly, size=subject.size)
    def measure(parameters: Any, batch: Any) -> Any:
        def loss(moved: Any, nudges: Any) -> Any:
            return program.run(moved, batch, key, nudges=nudges, keep=numbers)

        zeros = program.zeros(numbers)
        (value, kept), slopes = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(parameters, zeros)
        of_loss, of_nudges = slopes
        # What each counts in the loss: its value by what the loss gains from one more of it.
        counts = jnp.stack([kept[number] * of_nudges[number] for number in numbers])

        def penalty(moved: Any) -> Array:
            told = program.run(moved, batch, key, keep=numbers)[1]
            return sum((told[number] * of_nudges[number] for number in numbers), start=jnp.zeros(()))

        of_penalty = jax.grad(penalty)(parameters)
        of_rest = optax.tree.sub(of_loss, of_penalty)
        return value, counts, size(of_penalty) / jnp.maximum(size(of_rest), 1e-30)

    value, counts, pull = measure(subject.parameters, subject.batch)
    largest = sites[int(np.argmax(np.abs(counts)))]
    penalty = float(np.sum(counts))
    return float(value), penalty, float(value) - penalty, float(pull), largest.line


def _known_losses(outputs: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """The usual losses of these outputs, example by example."""
    flat = outputs.reshape(len(outputs), -1).astype(np.float64)
    width = flat.shape[1]
    given: dict[str, np.ndarray] = {}
    whole = targets.dtype.kind in "iub" and targets.reshape(len(targets), -1).shape[1] == 1
    logs = log_softmax(flat, axis=1)
    if whole and width > 1:
        labels = targets.reshape(-1).astype(int)
        if labels.min() >= 0 and labels.max() < width:
            given["softmax"] = -logs[np.arange(len(flat)), labels]
    rows = targets.reshape(len(targets), -1).astype(np.float64)
    if rows.shape == flat.shape:
        given["squared"] = ((flat - rows) ** 2).mean(1)
        if np.isin(rows, (0.0, 1.0)).all():
            given["logistic"] = (np.logaddexp(0.0, flat) - rows * flat).mean(1)
            if width > 1 and (rows.sum(1) == 1).all():
                given["softmax"] = -(rows * logs).sum(1)
    return given


def _kind_of(rest: float, outputs: np.ndarray, targets: np.ndarray) -> str:
    """The known loss whose mean or sum (or half of it) this value is; after a minus where it is the negative."""
    width = int(np.prod(outputs.shape[1:])) or 1
    for name, each in _known_losses(outputs, targets).items():
        values = [f * v for v in (each.mean(), each.sum()) for f in (1.0, 0.5, width, 0.5 * width)]
        near = 1e-4 * max(abs(rest), 1e-6)
        for sign in ("", "-"):
            if any(abs(rest - (-value if sign else value)) <= near for value in values) and abs(rest) > 1e-6:
                return sign + name
    return ""


def _end(outputs: np.ndarray, site: Site, scaled: bool) -> tuple[dict[str, Any], tuple[float, float]]:
    """What the values show about the non-linearity on the outputs, and its bounds."""
    lowest, highest = float(outputs.min()), float(outputs.max())
    low, high = outputs == lowest, outputs == highest
    flat = low if low.sum() >= high.sum() else high
    least = max(1.0, 0.01 * outputs.size)
    named = site.name in HARD
    if not named and (site.primitive not in STEPS or flat.sum() <= least or lowest == highest):
        return {"end": _CALLED.get(site.title, site.title)}, bounds_of(site) if not scaled else (-math.inf, math.inf)
    told = {
        "hard": _CALLED.get(site.title, site.title),
        "end_line": site.line,
        "clipped": float(flat.mean()),
        "off": int(flat.reshape(len(flat), -1).all(0).sum()),
    }
    if named and not scaled:
        return told, bounds_of(site)
    return told, (lowest if low.sum() > least else -math.inf, highest if high.sum() > least else math.inf)


def _outputs(subject: Subject, key: Key[Array, ""]) -> np.ndarray | None:
    """The outputs on the batch, if the model can be called on inputs alone."""
    inputs, apply = inputs_of(subject.batch), subject.outputs
    if apply is None or inputs is None:
        return None
    try:
        jax.eval_shape(lambda p, x: apply(p, x, key), subject.parameters, inputs)
    except Exception:  # the model wants more than its inputs (a mask, a state): its outputs cannot be looked at
        return None
    outputs = np.asarray(compile_quickly(lambda p, x: apply(p, x, key), subject.size)(subject.parameters, inputs))
    return outputs if outputs.dtype.kind == "f" and outputs.ndim and len(outputs) == subject.count else None


def _of_values(subject: Subject, rest: float, key: Key[Array, ""]) -> dict[str, Any]:
    """What outputs and targets tell."""
    outputs, apply = _outputs(subject, key), subject.outputs
    if outputs is None or apply is None:
        return {}
    told: dict[str, Any] = {"outputs": outputs.shape}
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        told["are_probabilities"] = bool(outputs.min() >= 0 and np.abs(outputs.sum(1) - 1).max() < 1e-4)
    program = trace(lambda p, x, k: apply(p, x, k), subject.parameters, inputs_of(subject.batch), key)
    end, bounds = end_of(program, outputs.shape), (-math.inf, math.inf)
    if end is not None:
        seen, bounds = _end(outputs, *end)
        told |= {"end_line": end[0].line, **seen}
    targets = targets_of(subject.batch)
    known = np.asarray(targets) if hasattr(targets, "dtype") else np.zeros(0)
    if known.dtype.kind not in "iubf" or len(known) != len(outputs):
        return told
    told["kind"] = _kind_of(rest, outputs, known)
    told["classes"] = len(np.unique(known)) if known.dtype.kind in "iub" and known.ndim == 1 else 0
    if outputs.size == known.size:
        told["beyond"] = float(((known < bounds[0]) | (known > bounds[1])).mean())
    return told


def _is_blind(subject: Subject, key: Key[Array, ""]) -> bool | None:
    """Whether other targets leave the loss unchanged, also at other parameters: all outputs may be 0 here."""
    targets = targets_of(subject.batch)
    known = np.zeros(0) if targets is None else np.asarray(targets)
    if len(np.unique(known)) < 2:
        return None
    order = keys.generator(keys.named(key, "targets")).permutation(len(known))
    other = jax.tree.map(lambda leaf: leaf[order] if leaf is targets else leaf, subject.batch)

    draw = keys.generator(keys.named(key, "moved"))
    moved = jax.tree.map(lambda leaf: leaf + 0.3 * draw.normal(size=leaf.shape).astype(leaf.dtype), subject.parameters)
    value = compile_quickly(subject.value, subject.size)
    return bool(value(moved, subject.batch, key) == value(moved, other, key))


def measure_choices(subject: Subject, *, key: Key[Array, ""]) -> ChoicesMeasured:
    """Reads the programs of the loss and of the outputs, and compares values on at most 256 examples."""
    subject = subject.smaller(_MEASURED)
    noise = jr.fold_in(keys.named(key, "choices"), 0)
    program = trace(subject.value, subject.parameters, subject.batch, noise)
    loss, penalty, rest, pull, line = _weighed(subject, program, noise)
    told = _of_values(subject, rest, noise)
    twice = links_twice(program)
    if twice is not None:
        first, second = twice[:2]
        told |= {"link": twice[2], "again": twice[3], "link_line": first.line, "again_line": second.line}
    one = told.get("outputs", (0, 0))
    single = subject.task == "classes" and (len(one) == 1 or one[-1] == 1)
    return ChoicesMeasured(
        loss=loss,
        penalty=penalty,
        rest=rest,
        pull=pull,
        penalty_line=line,
        task=subject.task,
        blind=_is_blind(subject, noise) if single and told.get("outputs") else None,
        place=subject.place,
        **told,
    )


def _of_links(seen: ChoicesMeasured) -> list[Finding]:
    by_value = seen.are_probabilities and seen.kind == "softmax"
    if not seen.link and not by_value:
        return []
    first, second = seen.link or "softmax", _CALLED.get(seen.again, seen.again) or "softmax"
    where = " and ".join(dict.fromkeys(filter(None, (seen.link_line, seen.again_line)))) or seen.place
    width = seen.outputs[-1] if len(seen.outputs) > 1 else 0
    least = math.log1p((width - 1) / math.e) if width > 1 and "softmax" in second else math.nan
    bound = f": the loss cannot fall below {least:.2f}, however good the network" if math.isfinite(least) else ""
    what = f"the outputs are already probabilities ({first}), but the loss applies a {second} to them again{bound}."
    fix = f"let the network return logits: remove the first {first}."
    return [found("GW702", what, where=where, next=fix, least=least, by_value=by_value)]


def _of_outputs(seen: ChoicesMeasured) -> list[Finding]:
    if not seen.hard:
        return []
    off = f", and {seen.off} of the outputs stay there for every example" if seen.off else ""
    what = (
        f"a hard non-linearity ({seen.hard}) is applied to the outputs: {100 * seen.clipped:.0f} % of them lie in its "
        f"flat region, where the gradient is 0{off}."
    )
    never = seen.beyond > _BEYOND and seen.kind == "squared"
    if never:
        what += f" {100 * seen.beyond:.0f} % of the targets lie outside its range."
    fix = "keep the outputs linear; for positive targets use jax.nn.softplus or jnp.exp."
    evidence: dict[str, Any] = {"clipped": seen.clipped, "beyond": seen.beyond}
    # Targets that no output can reach under a squared error: no choice of parameters makes it right.
    return [found("GW701", what, where=seen.end_line, next=fix, level="error" if never else "", **evidence)]


def _of_targets(seen: ChoicesMeasured) -> list[Finding]:
    if seen.kind.startswith("-"):
        name = _LOSSES[seen.kind[1:]]
        what = f"the loss is {seen.loss:.4g}, the negative of the {name}: minimising it makes predictions worse."
        return [found("GW709", what, where=seen.place, next="flip its sign.", level="error", loss=seen.loss)]
    if not seen.hard and seen.end and seen.beyond > _BEYOND and seen.kind == "squared":
        share = f"{100 * seen.beyond:.0f} %"
        what = f"{share} of the targets lie outside the range of the {seen.end} on the outputs."
        fix = "keep the outputs linear, or scale the targets into its range."
        return [found("GW709", what, where=seen.end_line, next=fix, level="error", beyond=seen.beyond)]
    single = bool(seen.outputs) and (len(seen.outputs) == 1 or seen.outputs[-1] == 1)
    if seen.task != "classes" or not single:
        return []
    if seen.blind:
        what = "the loss does not depend on the labels: a softmax over one output is always 1."
        fix = f"give the network {max(2, seen.classes)} outputs, or use a logistic loss on one output."
        return [found("GW709", what, where=seen.place, next=fix, level="error", loss=seen.loss)]
    if seen.kind == "squared" and 3 <= seen.classes <= _ORDINAL:
        what = (
            f"a squared error on {seen.classes} classes numbered 0, 1, 2, ... treats class 2 as twice class 1, and "
            "confusing neighbouring classes as a small error."
        )
        fix = f"give the network {seen.classes} outputs and use optax.softmax_cross_entropy_with_integer_labels."
        return [found("GW709", what, where=seen.place, next=fix, classes=seen.classes)]
    return []


def _of_penalty(seen: ChoicesMeasured) -> list[Finding]:
    size, pull = _OUTWEIGHS
    if not (seen.penalty > size * abs(seen.rest) and seen.pull > pull):
        return []
    what = (
        f"the penalty on the parameters is {seen.penalty:.3g} of a loss of {seen.loss:.3g}, and its gradient "
        f"{seen.pull:.3g} times that of the rest: the data hardly matter."
    )
    fix = f"divide its coefficient by {10 ** max(1, math.ceil(math.log10(seen.pull))):,}, then tune it on validation."
    evidence: dict[str, Any] = {"penalty": seen.penalty, "rest": seen.rest, "pull": seen.pull}
    return [found("GW705", what, where=seen.penalty_line or seen.place, next=fix, **evidence)]


def find_choices(seen: ChoicesMeasured) -> tuple[Finding, ...]:
    """Mismatched choices in a user's loss."""
    return (*_of_links(seen), *_of_outputs(seen), *_of_targets(seen), *_of_penalty(seen))


def _largest(prior: Any) -> float:
    scale = prior.other if isinstance(prior, ZeroOr) else prior
    return float(scale.high) if isinstance(scale, LogUniform) else math.inf


def find_recipe_choices(recipe: Recipe, task_kind: str = "") -> tuple[Finding, ...]:
    """Mismatched choices in a recipe: those reported by its parts, and those between parts.

    A part's finding is the same here and in a record, so a caller can drop duplicates.
    """
    told: list[Finding] = []
    pretrained = isinstance(recipe.model, Pretrained)
    for path, part in parts(recipe):
        if not isinstance(part, Spec):
            continue
        nested = pretrained and path.startswith("model.layers")  # each layer has a recipe of its own
        own = [*part.findings(), *(() if nested else part.findings_in(recipe))]
        told += [one for one in own if one.code.startswith("GW7") and not (pretrained and one.code == "GW703")]
        activation = code_activation(recipe.model) if isinstance(part, KlToTarget) and not nested else None
        low, high = (0.0, 1.0) if activation is None or not callable(activation) else code_range(activation)
        if low < 0.0 or high > 1.0:
            what = (
                f"KlToTarget treats codes as probabilities, but {type(activation).__name__} units lie in "
                f"[{low:.3g}, {high:.3g}]: the run will be rejected."
            )
            told.append(found("GW704", what, where=path, next="use Sigmoid() for the code, or L1Codes.", level="error"))
    for path, declaration, value in knobs(recipe):
        strong = path.endswith(".coefficient") and not is_off(value) and float(value) > _largest(declaration.prior)
        if strong:
            most = _largest(declaration.prior)
            what = f"`{path}` is {float(value):.3g}, above the largest value of its search range, {most:.3g}."
            fix = f"--set {path}={most / 100:.2g}"
            told.append(found("GW705", what, where=path, next=fix, coefficient=float(value), largest=most))
    loss = dict(parts(recipe)).get("criterion.loss")
    if task_kind and isinstance(loss, AbstractLoss) and loss.task() != task_kind:
        what = f"the loss {type(loss).__name__} is for {loss.task()}, but the targets are {task_kind}."
        fix = f"use the default recipe for {task_kind}: leave `criterion.loss` out."
        told.append(found("GW709", what, where="criterion.loss", next=fix, level="error"))
    return tuple(told)
