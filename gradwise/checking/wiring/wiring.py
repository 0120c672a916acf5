"""Checks of the wiring of the user's own code (row F4): parameters, inputs, examples, modes, batch size.

    measured = measure_wiring(subject, rehearsal, key=key)
    find_wiring(measured)                      GW302-GW309 and GW311

Unused parameters, parameters that never change, inputs without effect, losses that grow with the batch. Effects are
tested at several random points, so that dead rectifiers and outputs that start at 0 are not reported. Examples that
mix: `example_mixing.py`; training against evaluation: `training_mode.py`; padding: `poisoned_padding.py`.
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
from ..batch_access import inputs_of, take, with_inputs
from ..codes import found
from ..padding_masks import used_rows
from ..probes import attempt, bits_of, change_of, few_rows, in_evaluation_mode, magnitude_of, points, tolerance
from ..rehearsal import Rehearsal
from ..subject import Subject
from .example_mixing import MixingMeasured, find_mixing, measure_mixing
from .training_mode import ModesMeasured, find_modes, measure_modes
from .unread_inputs import Unread, unread

_ROWS, _MORE_ROWS = 16, 64
_SIZES = (0.0, 1.0, 1.0)  # how far from the given parameters effects are tested
_COLUMNS = 16  # candidates that are tried one by one
_TILED = (1, 2, 4)
_SHOWN = 3


@dataclass(frozen=True)
class UnmovedParameter:
    """A parameter that the rehearsal did not change: the sizes of its gradient and of its updates."""

    name: str
    gradient: float
    update: float


@dataclass(frozen=True)
class WiringMeasured:
    """Parameters and inputs without effect, parameters that never change, and how the loss grows with the batch.

    `columns_asked` are the inputs that vary in the batch, `columns_unused` those of them without effect. `sized` are
    the losses on the same examples once, twice and four times; `sized_noise` is the change of the first with the key.
    """

    bits: int = 64
    unused: tuple[str, ...] = ()
    still: tuple[UnmovedParameter, ...] = ()
    trained: int = 0  # parameters whose change in the rehearsal counts; 0 where no optimiser was given
    columns_asked: int = 0
    columns_unused: tuple[int, ...] = ()
    columns_untold: int = 0  # further ones without gradient that were not tested one by one
    column_names: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()
    sized: tuple[float, ...] = ()
    sized_noise: float = 0.0
    mixing: MixingMeasured = field(default_factory=MixingMeasured)
    modes: ModesMeasured = field(default_factory=ModesMeasured)
    place: str = ""


def _limited(subject: Subject, most: int) -> Subject:
    """At most so many rows in use, spread over the batch."""
    rows = used_rows(subject.batch)
    rows = np.arange(subject.count) if rows is None else rows
    return few_rows(subject, rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))])


def _unused(subject: Subject, bits: int, key: Key[Array, ""]) -> tuple[str, ...]:
    """Parameters without gradient at every point, and without which the loss is the same to the last bit."""
    few = _limited(subject, _ROWS)

    near, noises = points(subject.parameters, _SIZES, key=key), jr.split(key, len(_SIZES))

    def gradients(near: Any, batch: Any) -> Any:
        def one(point: tuple[Any, Array]) -> Array:
            gradient = jax.grad(few.value)(point[0], batch, point[1])
            return jnp.stack([jnp.max(jnp.abs(leaf), initial=0.0) for leaf in jax.tree.leaves(gradient)])

        return jax.lax.map(one, (near, noises))

    sizes = attempt(gradients, near, few.batch, bits=bits)
    if sizes is None:
        return ()
    large = np.array([np.size(leaf) > 0 for leaf in jax.tree.leaves(subject.parameters)])
    named = np.array([name not in subject.frozen_names for name in subject.names])
    candidates = np.flatnonzero(np.all(sizes == 0, axis=0) & large & named)
    if not len(candidates):
        return ()
    more = _limited(subject, _MORE_ROWS)
    away = points(subject.parameters, [1.0] * len(_SIZES), key=jr.fold_in(key, 1))

    def differences(near: Any, away: Any, batch: Any) -> Any:
        def one(asked: tuple[Array, Array]) -> Array:
            at, other = (jax.tree.leaves(jax.tree.map(lambda leaf: leaf[asked[1]], tree)) for tree in (near, away))
            moved = [jnp.where(asked[0] == i, b, a) for i, (a, b) in enumerate(zip(at, other, strict=True))]
            both = (jax.tree.unflatten(jax.tree.structure(near), leaves) for leaves in (at, moved))
            return jnp.stack([more.value(p, batch, noises[asked[1]]) for p in both])

        number, point = np.meshgrid(candidates, np.arange(len(_SIZES)), indexing="ij")
        return jax.lax.map(one, (jnp.asarray(number.ravel()), jnp.asarray(point.ravel())))

    values = attempt(differences, near, away, more.batch, bits=bits)
    if values is None:
        return ()
    change = change_of(values[:, 0], values[:, 1]).reshape(len(candidates), -1)
    return tuple(subject.names[c] for c, moved in zip(candidates, change, strict=True) if moved.max() == 0)


def _still(subject: Subject, rehearsal: Rehearsal | None) -> tuple[tuple[UnmovedParameter, ...], int]:
    """The parameters that have a gradient but did not change."""
    if rehearsal is None or rehearsal.stand_in:
        return (), 0
    still, trained = [], 0
    for place, name in enumerate(rehearsal.names):
        gradient = float(np.max(rehearsal.gradients[:, place], initial=0.0))
        if name in subject.frozen_names or not gradient > 0:
            continue
        trained += 1
        if rehearsal.moved[place] == 0:
            update = float(np.max(rehearsal.updates[:, place], initial=0.0))
            still.append(UnmovedParameter(name, gradient, update))
    return tuple(still), trained


def _forward(subject: Subject, key: Key[Array, ""]) -> Any:
    """The network without noise, if possible."""
    outputs, evaluated = subject.outputs, subject.evaluated
    if outputs is not None:
        return lambda parameters, inputs: outputs(in_evaluation_mode(subject, parameters), inputs, key)
    if evaluated is not None or inputs_of(subject.batch) is None:
        return evaluated
    # A model that needs more than its inputs: the loss itself shows whether they matter.
    return lambda parameters, inputs: subject.value(parameters, with_inputs(subject.batch, inputs), key)


def _columns(subject: Subject, bits: int, key: Key[Array, ""]) -> tuple[int, tuple[int, ...], int]:
    """How many inputs vary; those of them without effect; and how many more have no gradient."""
    few = _limited(subject, _ROWS)
    inputs, forward = inputs_of(few.batch), _forward(few, keys.named(key, "noise"))
    if forward is None or not hasattr(inputs, "dtype") or np.ndim(inputs) < 2 or len(inputs) < 2:
        return 0, (), 0
    rows = np.asarray(inputs).reshape(len(inputs), -1)
    varying = np.flatnonzero(np.any(rows != rows[:1], axis=0))
    candidates = varying
    near = points(few.parameters, _SIZES, key=key)
    if jnp.issubdtype(inputs.dtype, jnp.floating):

        def slopes(near: Any, given: Any) -> Any:
            def one(point: Any) -> Array:
                def projected(x: Array) -> Array:
                    shown = jnp.asarray(jax.tree.leaves(forward(point, x))[0])
                    return jnp.sum(shown * np.random.default_rng(0).normal(size=shown.shape).astype(shown.dtype))

                slope = jax.grad(projected)(given)
                return jnp.max(jnp.abs(slope.reshape(len(rows), -1)), axis=0)

            return jax.lax.map(one, near)

        sizes = attempt(slopes, near, np.asarray(inputs), bits=bits)
        if sizes is None:
            return 0, (), 0
        candidates = varying[np.all(sizes[:, varying] == 0, axis=0)]
    if not len(candidates):
        return len(varying), (), 0
    tried = candidates[np.unique(np.linspace(0, len(candidates) - 1, min(_COLUMNS, len(candidates))).astype(int))]

    def exchanges(near: Any, given: Any) -> Any:
        def one(asked: tuple[Array, Array]) -> Array:
            at = jax.tree.map(lambda leaf: leaf[asked[1]], near)
            flat = given.reshape(len(rows), -1)
            other = flat.at[:, asked[0]].set(jnp.roll(flat[:, asked[0]], 1)).reshape(given.shape)
            before, after = jax.lax.map(lambda x: jax.tree.leaves(forward(at, x))[0], jnp.stack([given, other]))
            return jnp.any((before != after) & ~(jnp.isnan(before) & jnp.isnan(after)))

        number, point = np.meshgrid(tried, np.arange(len(_SIZES)), indexing="ij")
        return jax.lax.map(one, (jnp.asarray(number.ravel()), jnp.asarray(point.ravel())))

    moved = attempt(exchanges, near, np.asarray(inputs), bits=bits)
    if moved is None:
        return 0, (), 0
    without = tried[~moved.reshape(len(tried), -1).any(axis=1)]
    floating = jnp.issubdtype(inputs.dtype, jnp.floating)
    untold = len(candidates) - len(tried) if floating and len(without) == len(tried) else 0
    asked = len(varying) if floating else len(tried)
    return asked, tuple(int(column) for column in without), untold


def _sized(subject: Subject, bits: int, key: Key[Array, ""]) -> tuple[tuple[float, ...], float]:
    """The loss on a few examples, and on the same ones twice and four times: a mean stays the same, a sum grows."""
    rows = used_rows(subject.batch)
    rows = (np.arange(subject.count) if rows is None else rows)[:5]
    batches = tuple(take(subject.batch, np.tile(rows, times)) for times in _TILED)
    first, *others = jr.split(key, 4)

    def question(parameters: Any, batches: Any) -> Any:
        at = in_evaluation_mode(subject, parameters)
        again = jax.lax.map(lambda noise: subject.value(at, batches[0], noise), jnp.stack(others))
        return jnp.stack([subject.value(at, batch, first) for batch in batches]), again

    answer = attempt(question, subject.parameters, batches, bits=bits)
    if answer is None or not np.all(np.isfinite(answer[0])):
        return (), 0.0
    return tuple(float(value) for value in answer[0]), float(change_of(answer[1], answer[0][0]).max())


def measure_wiring(subject: Subject, rehearsal: Rehearsal | None = None, *, key: Key[Array, ""]) -> WiringMeasured:
    """All wiring checks except padding, including those that need a rehearsal if there is one."""
    bits = bits_of(subject)
    still, trained = _still(subject, rehearsal)
    asked, without, untold = _columns(subject, bits, keys.named(key, "columns"))
    sized, noise = _sized(subject, bits, keys.named(key, "sizes"))
    return WiringMeasured(
        bits=bits,
        unused=_unused(subject, bits, keys.named(key, "parameters")),
        still=still,
        trained=trained,
        columns_asked=asked,
        columns_unused=without,
        columns_untold=untold,
        column_names=tuple(_column_name(subject, column) for column in without),
        unread=unread(subject, bits=bits, key=keys.named(key, "arrays")),
        sized=sized,
        sized_noise=noise,
        mixing=measure_mixing(subject, key=keys.named(key, "mixing"), bits=bits),
        modes=measure_modes(subject, key=keys.named(key, "modes"), bits=bits),
        place=subject.place,
    )


def _column_name(subject: Subject, column: int) -> str:
    """The name of an input, or its place in an example."""
    shape = np.shape(inputs_of(subject.batch))[1:]
    if len(subject.columns) == int(np.prod(shape)):
        return subject.columns[column]
    place = ", ".join(str(int(index)) for index in np.unravel_index(column, shape))
    return f"inputs[:, {place}]"


def _told(names: tuple[str, ...], more: int = 0) -> str:
    """The first few, and how many more."""
    rest = len(names) - _SHOWN + more
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    return shown + (f" and {rest} more" if rest > 0 else "")


def _parameters(m: WiringMeasured) -> list[Finding]:
    findings = []
    if m.unused:
        tell = f"the loss does not depend on {_told(m.unused)}: no gradient and no change at {len(_SIZES)} points."
        step = f"remove it, use it, or declare that it is intended: check(..., frozen={m.unused[0]!r})"
        findings.append(found("GW302", tell, where=m.unused[0], next=step, parameters=len(m.unused)))
    if not m.still:
        return findings
    worst = max(m.still, key=lambda one: one.gradient)
    names = (worst.name, *(one.name for one in m.still if one is not worst))
    given = all(one.update == 0 for one in m.still)
    tell = f"{_told(names)} did not change in training, but its gradient is up to {worst.gradient:.2g}: "
    tell += "the optimiser returns no update" if given else "its updates are lost in rounding"
    level = "error" if given and len(m.still) < m.trained else "warning"
    step = f"if intended, check(..., frozen={worst.name!r}); otherwise look for mask, multi_transform or set_to_zero"
    step = step if given and len(m.still) < m.trained else "check the learning rate and its schedule"
    evidence = {"parameters": len(m.still), "gradient": worst.gradient, "update": worst.update}
    return [*findings, found("GW303", f"{tell}.", where=worst.name, next=step, level=level, **evidence)]


def _inputs(m: WiringMeasured) -> Finding | None:
    if not m.columns_unused:
        return None
    count = len(m.columns_unused) + m.columns_untold
    every = count == m.columns_asked
    tell = f"none of the {count} inputs that vary affects the outputs: they are always the same."
    if not every:
        tell = f"{count} of {m.columns_asked} inputs do not affect the outputs: "
        tell += f"{_told(m.column_names, m.columns_untold)}."
    step = "jax.jacobian(model)(x)   # follow a column of zeros back: slices, reshapes, strides, stop_gradient"
    where, level = (m.place, "error") if every else (m.column_names[0], "warning")
    return found("GW304", tell, where=where, next=step, level=level, unused=count, asked=m.columns_asked)


def _arrays(m: WiringMeasured) -> Finding | None:
    if not m.unread:
        return None
    names = tuple(one.name for one in m.unread if one.an_input) or tuple(one.name for one in m.unread)
    an_input = any(one.an_input for one in m.unread)
    tell = f"the loss does not read {_told(names)} of the batch: permuting it across examples changes nothing."
    step = f"use it, or remove it from the batch: search the loss and the model for {names[0]!r}."
    unread = [one.name for one in m.unread]
    return found("GW304", tell, where=names[0], next=step, level="warning" if an_input else "note", unread=unread)


def _summed(m: WiringMeasured) -> Finding | None:
    if len(m.sized) < 3:
        return None
    first, second = np.diff(m.sized)
    scale = max(magnitude_of(np.asarray(m.sized)), 1e-12)
    if abs(first) <= max(20 * m.sized_noise, 10 * tolerance(m.bits) * scale) or first * second <= 0:
        return None
    power = float(np.log2(second / first))
    if power < 0.8:
        return None  # a logarithm of the number of negatives has power 0
    growth = "like a sum" if power < 1.2 else f"with its size to the power {power:.1f}"
    losses = "{:.4g}, {:.4g} and {:.4g}".format(*m.sized)
    tell = f"the loss grows with the batch {growth}: {losses} on the same examples once, twice and four times. "
    tell += "The right learning rate then depends on the batch size."
    step, constant = "jnp.mean(losses) instead of jnp.sum(losses)", float(m.sized[0] - first)
    return found("GW309", tell, where=m.place, next=step, power=power, constant=constant)


def find_wiring(measured: WiringMeasured) -> tuple[Finding, ...]:
    """Parameters, inputs, the batch size, examples, modes."""
    modes = find_modes(measured.modes)
    mixing = find_mixing(measured.mixing)
    if any(finding.code == "GW305" and finding.level == "error" for finding in mixing):
        modes = tuple(finding for finding in modes if finding.code != "GW307")  # the leak is why they differ
    single = [one for one in (_inputs(measured), _arrays(measured), _summed(measured)) if one is not None]
    return (*_parameters(measured), *single, *mixing, *modes)
