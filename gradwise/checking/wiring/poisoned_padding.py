"""Padding and buffers that should not be read, tested with NaN (row F4), and weights that are ignored.

    measured = measure_poison(subject, key=key)
    find_poison(measured)                      GW301 where padding is read, GW310 where the weights are ignored

A batch marks which of its slots are unused (`padding_masks.py`). They are set to other finite values, then to NaN. A
loss that changes with the first reads them; one that only turns NaN multiplies by 0.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ...records.finding import Finding
from ...runtime import keys
from ...specs.contracts import Batch
from ...specs.paths import Buffer, named_leaves
from ...tracing.program import Program, trace
from ..batch_access import inputs_of, stacked, targets_of, with_inputs, with_targets
from ..codes import found
from ..padding_masks import Mark, mark_of, other_mark, padded
from ..probes import attempt, bits_of, change_of, few_rows, magnitude_of, tolerance
from ..subject import Subject, is_nnx

_STATISTICS = ("mean", "var", "moment", "running", "statistic", "batch_stat")
_ROWS = 16


@dataclass(frozen=True)
class PoisonMeasured:
    """The relative change of the loss when unused slots hold other values or NaN; None: not tested.

    `spread` is how much the outputs of *used* slots change with the inputs of unused ones (batch statistics).
    """

    mark: str = ""
    kind: str = ""
    named: bool = True
    tail: bool = True
    sequence: bool = False
    made: bool = False  # no slot was unused: some were marked so for the test
    ours: bool = False  # a `gradwise` batch, whose unused slots hold real examples by contract
    unused: int = 0
    bits: int = 64
    inputs_read: float | None = None
    targets_read: float | None = None
    inputs_poisoned: bool | None = None
    targets_poisoned: bool | None = None
    spread: float | None = None
    mark_read: float | None = None
    buffers: tuple[str, ...] = ()  # statistics of the model that the training loss reads
    place: str = ""


def _others(leaf: Any, used: np.ndarray, generator: np.random.Generator) -> tuple[Any, Any]:
    """The leaf with its unused slots filled with other finite values, and with NaN; None where it cannot be."""
    value = np.asarray(leaf)
    if value.shape[: used.ndim] != used.shape:
        return None, None
    spread = used.reshape(used.shape + (1,) * (value.ndim - used.ndim))
    pool = value[used]
    drawn = pool[generator.integers(len(pool), size=used.shape)]
    if not np.issubdtype(value.dtype, np.floating):
        other = np.where(spread, value, drawn)
        return (None if np.array_equal(other, value) else other), None
    noise = generator.normal(size=value.shape) * (np.nanstd(pool) or 1.0)
    other = np.where(spread, value, drawn + noise).astype(value.dtype)
    return other, np.where(spread, value, np.nan).astype(value.dtype)


def _variants(batch: Any, mark: Mark, generator: np.random.Generator) -> dict[str, Any]:
    """The batches to test, by name; all of the same form."""
    given: dict[str, Any] = {"base": batch, "mark": other_mark(batch, mark, generator)}
    other, poison = _others(inputs_of(batch), mark.used, generator)
    given |= {} if other is None else {"inputs": with_inputs(batch, other)}
    given |= {} if poison is None else {"inputs_nan": with_inputs(batch, poison)}
    targets = targets_of(batch)
    if targets is not None and hasattr(targets, "dtype"):
        other, poison = _others(targets, mark.used, generator)
        given |= {} if other is None else {"targets": with_targets(batch, other)}
        given |= {} if poison is None else {"targets_nan": with_targets(batch, poison)}
    return given


def _few(subject: Subject, mark: Mark) -> Subject:
    """At most sixteen rows, with used and unused ones among them."""
    whole = mark.used if mark.used.ndim == 1 else mark.used.all(axis=1)
    unused, used = np.flatnonzero(~whole), np.flatnonzero(whole)
    rows = np.sort(np.concatenate([unused[: max(_ROWS // 2, _ROWS - len(used))], used[:_ROWS]])[:_ROWS])
    return few_rows(subject, rows)


def _ask(subject: Subject, given: dict[str, Any], bits: int, key: Key[Array, ""]) -> dict[str, Any] | None:
    """Loss, whether its gradient is finite, and the outputs, for each variant: one program."""
    names = list(given)

    def question(parameters: Any, batches: Any) -> Any:
        def one(batch: Any) -> Any:
            value, gradient = jax.value_and_grad(subject.value)(parameters, batch, key)
            sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradient)]))
            shown = () if subject.outputs is None else subject.outputs(parameters, inputs_of(batch), key)
            return value, sound, shown

        return jax.lax.map(one, batches)

    answer = attempt(question, subject.parameters, stacked(list(given.values())), bits=bits)
    if answer is None:
        return None
    values, sound, shown = answer
    return {name: (values[i], bool(sound[i]), jax.tree.map(lambda a, i=i: a[i], shown)) for i, name in enumerate(names)}


def _buffers_read(subject: Subject, key: Key[Array, ""]) -> tuple[str, ...]:
    """The statistics kept in the model that the training loss reads: poisoned by NaN, they make it NaN."""
    model = subject.model_of(subject.parameters)
    if is_nnx(model):
        from flax import nnx

        kept = named_leaves(nnx.to_pure_dict(nnx.state(model, nnx.BatchStat)))
    else:
        nodes = jax.tree_util.tree_leaves_with_path(model, is_leaf=lambda node: isinstance(node, Buffer))
        kept = [
            (".".join(str(getattr(entry, "name", getattr(entry, "idx", entry))) for entry in path), leaf)
            for path, node in nodes
            if isinstance(node, Buffer)
            for leaf in jax.tree.leaves(node)
        ]
        kept = [(name, leaf) for name, leaf in kept if any(word in name.lower() for word in _STATISTICS)]
    kept = [(name, np.asarray(leaf)) for name, leaf in kept if jnp.issubdtype(np.asarray(leaf).dtype, jnp.floating)]
    if not kept:
        return ()
    program = trace(subject.value, subject.parameters, subject.batch, key)
    named: dict[int, str] = {}
    for place, constant in enumerate(program.closed.consts):
        matching = [
            name for name, value in kept if np.shape(constant) == value.shape and np.array_equal(constant, value)
        ]
        if matching:
            named[place] = matching[0]
    if not named:
        return ()
    poisoned = [np.full_like(c, np.nan) if i in named else c for i, c in enumerate(program.closed.consts)]
    other = Program(program.closed.replace(consts=poisoned), program.sites, program.structure)
    answer = attempt(lambda p, b: other.run(p, b, key)[0], subject.parameters, subject.batch, bits=32)
    return tuple(dict.fromkeys(named.values())) if answer is not None and np.isnan(answer) else ()


def measure_poison(subject: Subject, *, key: Key[Array, ""]) -> PoisonMeasured:
    """Replaces the unused slots of the batch, and the model's stored statistics."""
    blank = PoisonMeasured(buffers=_buffers_read(subject, keys.named(key, "buffers")), place=subject.place)
    mark = mark_of(subject.batch)
    if mark is None or not mark.used.any():
        return blank
    few = _few(subject, mark)
    mark = mark_of(few.batch)
    if mark is None or not mark.used.any():
        return blank
    made = bool(mark.used.all())
    batch = few.batch
    if made:
        batch, mark = padded(batch, mark)
    bits = bits_of(few)
    given = _variants(batch, mark, keys.generator(keys.named(key, "padding")))
    answer = _ask(few, given, bits, keys.named(key, "poison"))
    if answer is None:
        return replace(blank, mark=mark.path)
    base, sound, shown = answer["base"]

    def moved(name: str) -> float | None:
        return float(change_of(base, answer[name][0])) / max(magnitude_of(base), 1e-12) if name in answer else None

    def poisoned(name: str) -> bool | None:
        return None if name not in answer or not sound else not (np.isfinite(answer[name][0]) and answer[name][1])

    spread = None
    rows = mark.used if mark.used.ndim == 1 else mark.used.all(axis=1)
    if hasattr(shown, "shape") and "inputs" in answer and np.shape(shown)[:1] == rows.shape and rows.any():
        spread = float(change_of(shown, answer["inputs"][2])[rows].max()) / max(magnitude_of(shown), 1e-12)
    return replace(
        blank,
        mark=mark.path,
        kind=mark.kind,
        named=mark.named,
        tail=mark.tail,
        sequence=mark.used.ndim == 2,
        made=made,
        ours=isinstance(batch, Batch),
        unused=int((~mark.used).sum()),
        bits=bits,
        inputs_read=moved("inputs"),
        targets_read=moved("targets"),
        inputs_poisoned=poisoned("inputs_nan"),
        targets_poisoned=poisoned("targets_nan"),
        spread=spread,
        mark_read=moved("mark"),
    )


def _level(m: PoisonMeasured, targets: bool, through: bool) -> str:
    """An error only if nothing but a bug explains it."""
    if through and not targets:
        return "" if m.ours else "note"  # batch statistics, of examples that are real where the batch is ours
    if not m.named or (m.made and m.kind == "weights"):
        return "warning"  # a third part of ones and zeros may be anything; weights of 0 were not there before
    if targets:
        return "error"
    if m.sequence and not m.tail:
        return ""  # zeros amid a sequence choose what is predicted; the inputs there are context
    if m.sequence:
        return "warning" if m.made and m.kind == "mask" else "error"
    return "error" if m.targets_read is None and m.spread is not None else "warning"


def _padding(m: PoisonMeasured) -> Finding | None:
    limit = tolerance(m.bits)
    inputs, targets = (m.inputs_read or 0.0) > limit, (m.targets_read or 0.0) > limit
    through = not m.sequence and (m.spread or 0.0) > limit
    what = "positions" if m.sequence else "slots"
    level = _level(m, targets, through) if inputs or targets else ""
    if level:
        worst = max(m.inputs_read or 0.0, m.targets_read or 0.0)
        parts = " and ".join(part for part, read in (("inputs", inputs), ("targets", targets)) if read)
        tell = f"the loss changed by {worst:.2g} of its size when the {parts} of the {m.unused} {what} that "
        tell += f"`{m.mark}` marks as unused were replaced"
        if (m.mark_read or 0.0) <= limit:
            tell += f"; `{m.mark}` itself has no effect"
        elif through and not targets:
            tell += ": they enter the batch statistics"
        step = "loss = jnp.sum(jnp.where(mask, losses, 0.0)) / jnp.sum(mask)"
        evidence = {"inputs_read": m.inputs_read, "targets_read": m.targets_read, "unused": m.unused, "made": m.made}
        return found("GW301", f"{tell}.", where=m.place or m.mark, next=step, level=level, **evidence)
    if (m.inputs_poisoned or m.targets_poisoned) and not (
        inputs or targets or m.ours or (m.made and m.kind == "weights")
    ):
        parts = " and ".join(p for p, bad in (("inputs", m.inputs_poisoned), ("targets", m.targets_poisoned)) if bad)
        tell = f"NaN in the {parts} of unused {what} makes the loss or its gradient NaN, but other values change "
        tell += "nothing: they are multiplied by 0, and 0 times NaN is NaN."
        step = "inputs = jnp.where(mask[..., None], inputs, 0.0)   # before the network"
        return found("GW301", tell, where=m.place or m.mark, next=step, level="note", unused=m.unused)
    return None


def find_poison(measured: PoisonMeasured) -> tuple[Finding, ...]:
    """GW301: padding that is read; GW310: weights that are not."""
    m, findings = measured, []
    limit = tolerance(m.bits)
    ignored = m.mark_read is not None and m.mark_read <= limit
    padding = _padding(m) if m.mark_read is not None else None
    # One cause, one finding: ignored weights count every slot, an ignored mask lets padding in.
    if ignored and (m.kind == "weights" or m.made or padding is None):
        tell = f"the loss does not depend on `{m.mark}`: every example counts equally, whatever its weight."
        step, level = "loss = jnp.sum(weights * losses) / jnp.sum(weights)", "error" if m.named else "warning"
        findings.append(found("GW310", tell, where=m.place or m.mark, next=step, level=level, change=m.mark_read))
    elif padding is not None:
        findings.append(padding)
    if m.buffers:
        rest = f" and {len(m.buffers) - 1} more" if len(m.buffers) > 1 else ""
        tell = f"the training loss reads the stored statistics `{m.buffers[0]}`{rest}, but in training mode a layer "
        tell += "normalises by the current batch."
        step = "model.train()   # before the loss; model.eval() before evaluation"
        findings.append(found("GW301", tell, where=m.buffers[0], next=step, level="note", buffers=len(m.buffers)))
    return tuple(findings)
