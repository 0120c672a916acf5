"""The flow graph: the operations of the loss and its gradient, their cost, and the compiled program.

    measured = measure_graph(subject, key=key)
    measured.stages[0].operations, measured.stages[0].backward_operations       of one layer, forward and backward
    find_graph(measured)                                                       constants, lopsided cost, odd precision

Equations belong to stages (`stages`): a layer, the preparation of the inputs, the loss, or a penalty. A stage is drawn
as boxes (`boxes`). Products are counted exactly, 2 operations for each multiplied pair.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from ...records.evidence.check_evidence import CapturedConstant, Compiled, Counts, GraphMeasured, Stage
from ...records.finding import Finding
from ...specs.paths import named_leaves
from ...tracing.program import Site, trace
from ..codes import found
from ..subject import Subject
from .graph_boxes import boxes_of
from .graph_stages import AROUND, backward_stages, fewer, forward_stages, in_order, live, owners, stage_kind
from .program_cost import Counting, compiled_program, count

LARGE_CONSTANT = 2**20  # bytes
LOPSIDED = 0.8  # the share of operations from which one layer is most of the work
MOST_COLUMNS = 24
_HALF = ("bfloat16", "float16")


def _constants(counting: Counting, sites: Sequence[Site], subject: Subject) -> tuple[CapturedConstant, ...]:
    """The arrays that the loss closes over, largest first. The model's buffers do not count: it is an argument."""
    own = [leaf for leaf in jax.tree.leaves(subject.model_of(subject.parameters)) if hasattr(leaf, "shape")]

    def is_own(array: Any) -> bool:
        like = [leaf for leaf in own if leaf.shape == array.shape and leaf.dtype == array.dtype]
        return any(leaf is array or np.array_equal(np.asarray(leaf), np.asarray(array)) for leaf in like)

    known = [(array, np.asarray(array).nbytes, site) for array, site in counting.constants.values()]
    return tuple(
        CapturedConstant(tuple(array.shape), str(array.dtype), size, sites[site].line if site < len(sites) else "")
        for array, size, site in sorted(known, key=lambda one: -one[1])
        if size >= LARGE_CONSTANT // 64 and not is_own(array)
    )


def _precisions(sites: Sequence[Site], counting: Counting) -> dict[str, tuple[int, float, str]]:
    """How much is computed in which type; scalars do not count."""
    found: dict[str, tuple[int, float, str]] = {}
    for site in sites:
        if site.is_float and site.shape != () and site.depends:
            count, operations, line = found.get(str(site.dtype), (0, 0.0, ""))
            more = operations + counting.costs[site.number][0]
            found[str(site.dtype)] = (count + 1, more, line or site.line or site.layer)
    return found


def _stage_table(
    sites: Sequence[Site],
    stages: list[str],
    counting: Counting,
    backward: dict[int, str],
    forward: Sequence[str],
    both: Sequence[Site],
    counted: Counting,
) -> tuple[Stage, ...]:
    seen = dict.fromkeys([*in_order(sites, stages), *backward.values()])
    order = sorted(seen, key=lambda name: {"inputs": -1, "penalty": 1, "loss": 2}.get(name, 0))
    layers = [stage for stage in order if stage not in AROUND]
    kept: dict[str, float] = dict.fromkeys(order, 0.0)
    for source in {read for number in backward for read in both[number].reads if read not in backward}:
        if both[source].depends and forward[source] in kept:
            kept[forward[source]] += counted.results[source]
    found = []
    for stage in order:
        mine = [site.number for site in sites if stages[site.number] == stage]
        back = [number for number, name in backward.items() if name == stage]
        found.append(
            Stage(
                stage,
                stage_kind(stage, bool(layers) and stage == layers[-1]),
                len(mine),
                sum(counting.costs[n][0] for n in mine),
                sum(counting.costs[n][1] for n in mine),
                sum(counting.moved[n] for n in mine),
                len(back),
                sum(counted.costs[n][0] for n in back),
                sum(counted.costs[n][1] for n in back),
                kept[stage],
            )
        )
    return tuple(found)


def measure_graph(subject: Subject, *, key: Key[Array, ""], compile: bool = True) -> GraphMeasured:
    """Reads the loss and its gradient, equation by equation, and compiles the two together once."""
    arguments = (subject.parameters, subject.batch, key)
    names = subject.names
    loss = trace(subject.value, *arguments)
    counting, value = count(loss, *arguments)
    each = forward_stages(loss.sites, names)
    stages = fewer(each, MOST_COLUMNS)
    needed = live(loss.sites, value)
    used = [site for site in loss.sites if site.number in needed]
    function = jax.value_and_grad(subject.value)
    both = trace(function, *arguments)
    counted, results = count(both, *arguments)
    owner = owners(used, stages)
    first = len(both.sites) if results[0] is None else results[0]
    backward = backward_stages(both.sites, first, results[1:], owner, names, in_order(used, stages))
    shorter = dict(zip(each, stages, strict=True))
    forward = [shorter.get(stage, stage) for stage in forward_stages(both.sites[: first + 1], names)]
    table = _stage_table(used, stages, counting, backward, forward, both.sites, counted)
    place = {stage.name: number for number, stage in enumerate(table)}
    back_edges = {
        (place[backward[read]], place[stage])
        for number, stage in backward.items()
        for read in both.sites[number].reads
        if read in backward and backward[read] != stage
    }
    sizes = {name: int(np.size(leaf)) for name, leaf in named_leaves(subject.parameters)}
    boxes, edges = boxes_of(used, stages, counting, sizes)
    return GraphMeasured(
        stages=table,
        boxes=tuple(boxes),
        edges=tuple(edges),
        back_edges=tuple(sorted(back_edges)),
        counts=Counts(
            loss=len(loss.sites),
            gradient=len(live(both.sites, results[1:])),
            together=len(both.sites),
            unused=len(both.sites) - len(live(both.sites, results)),
            repeated=len(counted.repeated),
        ),
        compiled=compiled_program(function, *arguments) if compile else Compiled(),
        constants=_constants(counting, loss.sites, subject),
        precisions=_precisions(used, counting),
    )


def _islands(measured: GraphMeasured) -> tuple[str, list[str]]:
    """The type of most operations, and the other types that are unusual in combination with it."""
    told = measured.precisions
    main = max(told, key=lambda name: (told[name][1], told[name][0]), default="")
    # A half-precision program with sums and losses in single precision is as it should be.
    return main, [name for name in told if name != main and (name == "float64" or main not in _HALF)]


def find_graph(measured: GraphMeasured) -> tuple[Finding, ...]:
    """Large constants, a layer that dominates the cost, and parts in another precision."""
    findings = []
    large = [one for one in measured.constants if one.bytes > LARGE_CONSTANT]
    if large:
        worst = large[0]
        more = f" and {len(large) - 1} more" if len(large) > 1 else ""
        what = f"the loss closes over an array of shape {worst.shape} ({worst.bytes / 1e6:,.1f} MB){more}: it becomes "
        what += "part of the compiled program, is copied at each compilation and cannot change."
        step = "pass it as an argument: `loss(model, (x, y, table), key)`, or make it a field of the model."
        held = sum(one.bytes for one in large)
        findings.append(found("GW901", what, where=worst.line, next=step, bytes=held, constants=len(large)))
    total = measured.operations
    layers = [stage for stage in measured.stages if stage.kind in ("internal", "output")]
    if len(layers) > 1 and total > 0:
        heavy = max(layers, key=lambda stage: stage.operations)
        share = heavy.operations / total
        if share > LOPSIDED:
            what = f"`{heavy.name}` takes {100 * share:.0f} % of the operations of the loss."
            step = f"to train faster, make `{heavy.name}` smaller first: the rest can save no more than "
            step += f"{100 * (1 - share):.0f} %."
            size = heavy.operations
            findings.append(found("GW902", what, where=heavy.name, next=step, share=share, operations=size))
    main, islands = _islands(measured)
    for name in islands:
        count, operations, line = measured.precisions[name]
        what = f"{count} operations of the loss are computed in {name}, most of it in {main}."
        step = f"if this is not intended, convert the array where it enters: `x.astype(jnp.{main})`."
        share = operations / max(sum(one[1] for one in measured.precisions.values()), 1.0)
        findings.append(found("GW903", what, where=line, next=step, steps=count, share=share))
    return tuple(findings)
