"""Do examples mix? One may leak into another's output, or the loss may compare it with another's target (row F4).

    measured = measure_mixing(subject, key=key)
    find_mixing(measured)                      GW305 examples leak, GW311 the loss pairs them wrongly

One example is replaced; the outputs of the others must not change. If they do, the program is run site by site, and
the first site at which they change is reported. For pairs, inputs and targets are replaced one at a time and together:
their interaction shows which output is compared with which target.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from ...records.finding import Finding
from ...runtime import keys
from ...tracing.program import Program, Site, trace
from ..batch_access import inputs_of, stacked, targets_of, with_inputs, with_targets
from ..codes import found
from ..padding_masks import used_rows
from ..probes import attempt, bits_of, change_of, few_rows, magnitude_of, points, prime_rows, tolerance
from ..subject import Subject, in_64_bits

_ELEMENTWISE = ("sub", "add", "add_any", "mul", "div", "max", "min", "pow", "atan2", "eq", "ne", "select_n")
_MOST = 20_000  # numbers in an example, above which fewer pairs are tested
_EXACT = 1e-6


@dataclass(frozen=True)
class Leak:
    """The relative change of the others' outputs when one example is replaced, and where it begins."""

    size: float
    primitive: str = ""
    layer: str = ""
    line: str = ""


@dataclass(frozen=True)
class MixingMeasured:
    """`pairs` (i, j): the interaction of input i and target j in the loss; `rolled`: the effect of rolled targets.

    Both are relative: `pairs` to the loss, `rolled` to the largest pair. `met` is the site at which outputs and targets
    of different examples meet, `contrast` whether outputs also meet other outputs; `across` is a softmax over examples.
    """

    count: int = 0
    bits: int = 64
    evaluation: Leak | None = None
    training: Leak | None = None
    pairs: Float[np.ndarray, "n n"] | None = None
    whole: bool = False  # all examples were tested
    rolled: float | None = None
    met: Leak | None = None
    met_shape: tuple[int, ...] = ()
    contrast: bool = False
    across: Leak | None = None
    place: str = ""


def exchanged(tree: Any, count: int, row: int, source: int) -> Any:
    """The same arrays with one row replaced by another."""

    def one(leaf: Any) -> Any:
        value = np.array(leaf)
        if value.ndim and value.shape[0] == count:
            value[row] = value[source]
        return value

    return jax.tree.map(one, tree)


def _mixing_site(program: Program, kept: dict[int, np.ndarray], count: int, row: int, bits: int) -> Site | None:
    """The first site at which other rows moved, or the sum over rows just before it."""
    moved: set[int] = set()  # sites without rows that changed at all
    others = np.arange(count) != row
    for number, values in kept.items():
        site = program.sites[number]
        change = change_of(values[0], values[1])
        limit = 10 * tolerance(bits) * max(magnitude_of(values[0]), 1e-12)
        if count not in site.shape:
            if change.max(initial=0.0) > limit:
                moved.add(number)
        elif np.moveaxis(change, site.shape.index(count), 0)[others].max(initial=0.0) > limit:
            first, reads = number, set(site.reads)
            while reads:
                read = reads.pop()
                if read in moved:
                    first = min(first, read)
                    reads |= set(program.sites[read].reads)
            return program.sites[first]
    return None


def _pinned(function: Any, subject: Subject, inputs: Any, row: int, source: int, bits: int, size: float) -> Leak:
    """The leak with its site: the program is run with and without the exchange, every value kept."""
    count = subject.count
    with jax.enable_x64(bits == 64):
        wide = in_64_bits if bits == 64 else lambda tree: tree
        program = trace(lambda p, x, _: function(p, x), wide(subject.parameters), wide(inputs), jr.key(0))
    asked = [
        site.number
        for site in program.sites
        if "batch" in site.depends and jnp.issubdtype(site.dtype, jnp.number) and site.shape.count(count) <= 1
    ]

    def question(parameters: Any, both: Any) -> Any:
        return jax.lax.map(lambda x: program.run(parameters, x, jr.key(0), keep=asked)[1], both)

    both = stacked([inputs, exchanged(inputs, count, row, source)])
    kept = attempt(question, subject.parameters, both, bits=bits)
    site = None if kept is None else _mixing_site(program, dict(sorted(kept.items())), count, row, bits)
    return Leak(size) if site is None else Leak(size, site.title, site.layer, site.line)


def leak_of(function: Any, subject: Subject, inputs: Any, bits: int) -> Leak | None:
    """How far the outputs of `function(parameters, inputs)` depend on other examples; None if undecided."""
    count = subject.count
    exchanges = [(0, count - 1), (count // 2, 0)]
    variants = stacked([inputs, *(exchanged(inputs, count, *one) for one in exchanges)])
    values = attempt(lambda p, xs: jax.lax.map(lambda x: function(p, x), xs), subject.parameters, variants, bits=bits)
    if not hasattr(values, "shape") or values.ndim < 2 or values.shape[1] != count:
        return None
    scale = max(magnitude_of(values[0]), 1e-12)
    sizes = []
    for (row, _), after in zip(exchanges, values[1:], strict=True):
        change = change_of(values[0], after)[np.arange(count) != row]
        sizes.append(float(change.max(initial=0.0)) / scale)
    worst = int(np.argmax(sizes))
    if sizes[worst] <= 100 * tolerance(bits):
        return Leak(sizes[worst])
    return _pinned(function, subject, inputs, *exchanges[worst], bits, sizes[worst])


def _leaks(subject: Subject, bits: int, key: Key[Array, ""]) -> tuple[Leak | None, Leak | None]:
    """In evaluation and in training; the second is skipped if both are the same program."""
    inputs = inputs_of(subject.batch)
    evaluated, outputs = subject.evaluated, subject.outputs

    def training(parameters: Any, given: Any) -> Any:
        return None if outputs is None else outputs(parameters, given, key)

    if inputs is None:
        return None, None
    judged = None if evaluated is None else leak_of(evaluated, subject, inputs, bits)
    if outputs is None or (evaluated is not None and _same(evaluated, training, subject.parameters, inputs)):
        return judged, judged
    return judged, leak_of(training, subject, inputs, bits)


def _same(one: Any, other: Any, *given: Any) -> bool:
    """Whether two functions are the same program, by its text."""
    try:
        texts = [str(jax.make_jaxpr(function)(*given)) for function in (one, other)]
    except Exception:  # one of them cannot be traced: then they are not the same
        return False
    return texts[0] == texts[1] and " at 0x" not in texts[0]


def _pairs(subject: Subject, bits: int, key: Key[Array, ""]) -> tuple[np.ndarray, float, bool] | None:
    """What exchanging input i and target j does beyond either alone, and what rolling all targets does."""
    inputs, targets = inputs_of(subject.batch), targets_of(subject.batch)
    count = subject.count
    if inputs is None or targets is None or not hasattr(targets, "dtype") or np.shape(targets)[:1] != (count,):
        return None
    rows = np.asarray(targets).reshape(count, -1)
    different = [next((j for j in range(count) if not np.array_equal(rows[i], rows[j])), i) for i in range(count)]
    if all(i == j for i, j in enumerate(different)) or np.array_equal(np.roll(rows, 1, axis=0), rows):
        return None
    large = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(inputs)) > _MOST * count or subject.size > 100 * _MOST
    asked = min(3, count) if large else count
    xs = stacked([inputs, *(exchanged(inputs, count, i, (i + 1) % count) for i in range(asked))])
    ys = [targets, *(exchanged(targets, count, j, different[j]) for j in range(asked)), np.roll(targets, 1, axis=0)]
    places = np.array([(a, b) for a in range(asked + 1) for b in range(asked + 1)] + [(0, asked + 1)])
    # Untrained outputs may all be alike; then no pair shows. Somewhere nearby they differ.
    nearby = jax.tree.map(lambda leaf: leaf[0], points(subject.parameters, (0.3,), key=keys.named(key, "point")))
    noise = keys.named(key, "noise")

    def question(point: Any, batch: Any, xs: Any, ys: Any) -> Any:
        def one(place: Array) -> Array:
            x, y = jax.tree.map(lambda leaf: leaf[place[0]], xs), ys[place[1]]
            return subject.value(point, with_targets(with_inputs(batch, x), y), noise)

        return jax.lax.map(one, jnp.asarray(places))

    values = attempt(question, nearby, subject.batch, xs, stacked(ys), bits=bits)
    if values is None or not np.all(np.isfinite(values)):
        return None
    table = values[:-1].reshape(asked + 1, asked + 1)
    together = np.abs(table[1:, 1:] - table[1:, :1] - table[:1, 1:] + table[0, 0])
    scale = max(magnitude_of(values), 1e-12)
    rolled = float(abs(values[-1] - table[0, 0])) / max(float(together.max()), 1e-300)
    return together / scale, rolled, asked == count


def _meeting(program: Program, count: int) -> tuple[Site | None, bool]:
    """The first site at which single outputs meet single targets of all examples, and whether outputs meet outputs."""
    first, contrast = None, False
    for site in program.sites:
        twice = site.shape.count(count) >= 2 and "parameters" in site.depends
        if not twice or any(program.sites[read].shape.count(count) >= 2 for read in site.reads):
            continue
        reads = [read for read in site.reads if "parameters" in program.sites[read].depends]
        if site.primitive in _ELEMENTWISE and len(reads) == 1:
            first = first or site
        elif site.primitive in ("dot_general", *_ELEMENTWISE):
            contrast = True
    return first, contrast


def _across(program: Program, count: int) -> Site | None:
    """A softmax over the examples instead of over the classes: exponentials summed along the wrong axis alone."""
    across = None
    for site in program.sites:
        if site.primitive != "reduce_sum" or "parameters" not in site.depends or not site.reads:
            continue
        read = program.sites[site.reads[-1]]
        if read.primitive != "exp" or read.shape.count(count) != 1 or len(read.shape) < 2:
            continue
        if count in site.shape:
            return None  # there is one over the classes: another one is meant
        across = site if site.shape and across is None else across
    return across


def _leak_at(site: Site | None) -> Leak | None:
    return None if site is None else Leak(0.0, site.title, site.layer, site.line)


def measure_mixing(subject: Subject, *, key: Key[Array, ""], bits: int | None = None) -> MixingMeasured:
    """On a prime number of examples, so that the batch axis can be recognised."""
    if subject.count < 3:
        return MixingMeasured(place=subject.place)
    few = few_rows(subject, prime_rows(subject, used_rows(subject.batch)))
    bits = bits_of(few) if bits is None else bits
    evaluation, training = _leaks(few, bits, keys.named(key, "leaks"))
    asked = _pairs(few, bits, keys.named(key, "pairs"))
    pairs, rolled, whole = (None, None, False) if asked is None else asked
    met, contrast, across = None, False, None
    if pairs is not None:
        program = trace(few.value, few.parameters, few.batch, jr.key(0))
        met, contrast = _meeting(program, few.count)
        across = _across(program, few.count) if subject.task == "classes" else None
    return MixingMeasured(
        count=few.count,
        bits=bits,
        evaluation=evaluation,
        training=training,
        pairs=pairs,
        whole=whole,
        rolled=rolled,
        met=_leak_at(met),
        met_shape=() if met is None else met.shape,
        contrast=contrast,
        across=_leak_at(across),
        place=subject.place,
    )


def _leaking(m: MixingMeasured) -> tuple[Finding, ...]:
    limit = 100 * tolerance(m.bits)
    for leak, level, mode in ((m.evaluation, "error", "evaluation"), (m.training, "note", "training")):
        if leak is None or leak.size <= limit:
            continue
        after = f" after `{leak.layer}`" if leak.layer else ""
        at = f", first at `{leak.primitive}`{after}" if leak.primitive else ""
        tell = f"in {mode}, replacing one of {m.count} examples changes the outputs of the others by {leak.size:.2g} "
        tell += f"of their size{at}"
        tell += "; batch statistics do this on purpose." if level == "note" else ": predictions depend on the batch."
        step = "x.mean(-1, keepdims=True), jax.nn.softmax(x, axis=-1)   # along the features, not the examples"
        step = f"if it is batch normalisation, nothing; otherwise {step}" if level == "note" else step
        return (found("GW305", tell, where=leak.line or leak.layer, next=step, level=level, change=leak.size),)
    if m.across is not None:
        tell = f"the loss normalises exponentials over the examples (`{m.across.primitive}` along the batch axis) and "
        tell += "not over the classes: its softmax runs along the wrong axis."
        step = "jax.nn.log_softmax(outputs, axis=-1)"
        return (found("GW305", tell, where=m.across.line or m.place, next=step, examples=m.count),)
    return ()


def _pairing(m: MixingMeasured) -> Finding | None:
    if m.pairs is None or m.rolled is None or m.pairs.max(initial=0.0) <= 10 * tolerance(m.bits):
        return None
    pairs = m.pairs / m.pairs.max()
    own, others = np.diag(pairs), pairs[~np.eye(len(pairs), dtype=bool)]
    evidence = {"own": float(own.max()), "others": float(others.max(initial=0.0)), "rolled": m.rolled}
    if m.rolled < _EXACT and not m.contrast:
        where = m.met.line if m.met is not None else m.place
        tell = "the loss does not depend on the order of the targets: every output is compared with the targets of "
        tell += "all examples"
        if m.met is not None:
            shape = " x ".join("B" if size == m.count else str(size) for size in m.met_shape)
            tell += f" in a {shape} `{m.met.primitive}`, by broadcasting"
        level = "error" if m.met is not None else "warning"
        step = "outputs = outputs.squeeze(-1)   # (B,) beside targets (B,)"
        return found("GW311", f"{tell}.", where=where or m.place, next=step, level=level, **evidence)
    if own.max() < _EXACT <= others.max(initial=0.0):
        each = (pairs > _EXACT).sum(0), (pairs > _EXACT).sum(1)
        exchanged_all = m.whole and all(np.all(count == 1) for count in each)
        tell = "every output is compared with the target of another example: the targets are shifted or shuffled."
        step = "compare outputs[i] with targets[i]: look for roll, shift, sort or permutation on one side only"
        level = "error" if exchanged_all else "warning"
        return found("GW311", tell, where=m.place, next=step, level=level, **evidence)
    return None


def find_mixing(measured: MixingMeasured) -> tuple[Finding, ...]:
    """Leakage between examples, then wrong pairs."""
    pairing = _pairing(measured)
    return (*_leaking(measured), *(() if pairing is None else (pairing,)))
