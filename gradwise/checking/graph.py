"""The flow graph: what the loss computes, what its gradient adds, what it costs, and what compilation left of it.

    measured = measure_graph(subject, key=key)
    measured.stages[0].operations, measured.stages[0].backward_operations       of one layer, forward and backward
    find_graph(measured)                                                       constants, lopsided cost, odd precision

A *stage* is a layer, the preparation of the inputs, the loss, or a penalty; a *box* is what is drawn of one: a product,
a loop, or a run of elementwise equations. Products are counted exactly, 2 operations for each multiplied pair.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from ..core.finding import Finding
from ..core.program import BENT, Site, trace
from ..core.tree import named_leaves
from .codes import found
from .operations import MOVES, WHOLE, Compiled, Counting, compiled_program, count
from .subject import Subject

LARGE_CONSTANT = 2**20  # bytes
AROUND = ("inputs", "loss", "penalty")  # the stages that are no layers
LOPSIDED = 0.8  # the share of operations from which one layer is most of the work
MOST_COLUMNS = 24
MOST_IN_STAGE = 3
_HALF = ("bfloat16", "float16")


@dataclass(frozen=True)
class Box:
    """A node as drawn. `kind` is "input", "parameter", "internal", "output" or "loss"."""

    name: str
    kind: str
    stage: str
    shape: tuple[int, ...] = ()
    operations: float = 0.0
    bytes: float = 0.0
    sites: int = 0
    line: str = ""


@dataclass(frozen=True)
class Stage:
    """A layer, or what comes before and after all of them. `products` are the operations within products alone.

    `kept_bytes` are those of its values that the backward pass reads.
    """

    name: str
    kind: str
    sites: int = 0
    operations: float = 0.0
    products: float = 0.0
    bytes: float = 0.0
    backward_sites: int = 0
    backward_operations: float = 0.0
    backward_products: float = 0.0
    kept_bytes: float = 0.0


@dataclass(frozen=True)
class Counts:
    """Equations before compilation. `together` is loss and gradient in one program, whose forward pass they share.

    `unused` reach no result, `repeated` compute what another has computed: compilation drops both.
    """

    loss: int
    gradient: int
    together: int
    unused: int
    repeated: int


@dataclass(frozen=True)
class Constant:
    """An array that the loss closed over."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    line: str


@dataclass(frozen=True)
class GraphMeasured:
    """The graph of the loss and of its gradient. `edges` join numbers of boxes, `back_edges` those of stages.

    `precisions` has, for each floating-point type, equations, operations, and the first line that computes in it.
    """

    stages: tuple[Stage, ...]
    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]
    back_edges: tuple[tuple[int, int], ...]
    counts: Counts
    compiled: Compiled
    constants: tuple[Constant, ...]
    precisions: dict[str, tuple[int, float, str]]

    @property
    def operations(self) -> float:
        return sum(stage.operations for stage in self.stages)

    @property
    def backward_operations(self) -> float:
        return sum(stage.backward_operations for stage in self.stages)

    def plain(self) -> dict[str, Any]:
        return {
            **{name: [asdict(one) for one in getattr(self, name)] for name in ("stages", "boxes", "constants")},
            "edges": [list(edge) for edge in self.edges],
            "back_edges": [list(edge) for edge in self.back_edges],
            "counts": asdict(self.counts),
            "compiled": asdict(self.compiled),
            "precisions": {name: list(one) for name, one in self.precisions.items()},
            "operations": self.operations,
            "backward_operations": self.backward_operations,
        }


def _readers(sites: Sequence[Site]) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in sites]
    for site in sites:
        for number in site.reads:
            readers[number].append(site.number)
    return readers


def _live(sites: Sequence[Site], results: Iterable[int | None]) -> set[int]:
    """The sites on which some result depends."""
    live = {number for number in results if number is not None}
    for site in reversed(sites):
        if site.number in live:
            live.update(site.reads)
    return live


def _forward_stages(sites: Sequence[Site], names: Sequence[str]) -> list[str]:
    """The stage of each site of the loss: its layer; "inputs" before, "loss" after the last; "penalty" aside."""
    mixing = [s.number for s in sites if s.parameters and "batch" in s.depends and s.is_float]
    last = max(mixing, default=-1)
    alias: dict[str, str] = {}  # a bias that is a parameter of its own, `b1`, belongs to the layer it is added to
    stages: list[str] = []
    for site in sites:
        both = {"parameters", "batch"} <= site.depends
        before = next((stages[n] for n in reversed(site.reads) if stages[n] not in ("", "inputs")), "")
        layer = site.layer or before
        if site.parameters and layer in names and before and site.primitive in ("add", "sub", "add_any"):
            alias[layer] = before
        stages.append("" if not both else "loss" if site.number > last else alias.get(layer, layer))
    readers = _readers(sites)
    for site in reversed(sites):
        if not stages[site.number]:
            after = next((stages[n] for n in readers[site.number] if stages[n]), "")
            aside = "penalty" if after == "loss" and site.depends == {"parameters"} else after
            stages[site.number] = "inputs" if "batch" in site.depends and after not in ("", "loss") else aside
    return [stage or "loss" for stage in stages]


def _in_order(sites: Sequence[Site], stages: Sequence[str]) -> list[str]:
    """The stages in the order in which the batch reaches them: weights may be prepared long before."""
    ordered = sorted(sites, key=lambda site: ("batch" not in site.depends, site.number))
    return list(dict.fromkeys(stages[site.number] for site in ordered))


def _owners(sites: Sequence[Site], stages: Sequence[str]) -> dict[str, str]:
    """The stage that each parameter belongs to: the first that uses it, penalties aside."""
    owner: dict[str, str] = {}
    for aside in (False, True):
        for site in sites:
            if (stages[site.number] in AROUND) == aside:
                owner |= {name: stages[site.number] for name in site.parameters if name not in owner}
    return owner


def _backward_stages(
    sites: Sequence[Site],
    first: int,
    results: Sequence[int | None],
    owner: dict[str, str],
    names: Sequence[str],
    order: Sequence[str],
) -> dict[int, str]:
    """The stage of each site after the first pass: of the parameter it reads, or of the last layer it leads to.

    What reads a value of the loss, or leads to such a site, is the loss's own.
    """
    forward = _forward_stages(sites[: first + 1], names)
    reach = [-1] * len(sites)
    for name, number in zip(names, results, strict=True):
        if number is not None and name in owner:
            reach[number] = max(reach[number], order.index(owner[name]))
    readers = _readers(sites)
    stages: dict[int, str] = {}
    for site in reversed(sites[first + 1 :]):
        for number in site.reads:
            reach[number] = max(reach[number], reach[site.number])
        direct = [owner[name] for name in site.parameters if name in owner]
        own = any(number <= first and forward[number] == "loss" for number in site.reads)
        led = any(stages[number] == "loss" for number in readers[site.number])
        reached = order[reach[site.number]] if reach[site.number] >= 0 else "loss"
        stages[site.number] = direct[-1] if direct else "loss" if own or led else reached
    return stages


def _fewer(stages: list[str], most: int) -> list[str]:
    """Stage names with their last words left out until there are few enough; then neighbours are put together."""
    most += len(set(stages) & set(AROUND))
    while len(set(stages)) > most and any("." in stage for stage in stages):
        longest = max(stage.count(".") for stage in stages)
        stages = [stage.rpartition(".")[0] if stage.count(".") == longest else stage for stage in stages]
    if len(set(stages)) <= most:
        return stages
    order = list(dict.fromkeys(stage for stage in stages if stage not in AROUND))
    each = -(-len(order) // most)
    chunk = {name: order[i // each * each] for i, name in enumerate(order)}
    named = {chunk[name]: f"{chunk[name]} …" for name in order if chunk[name] != name}
    return [stage if stage in AROUND else named.get(chunk[stage], chunk[stage]) for stage in stages]


def _title(sites: Sequence[Site], counting: Counting) -> str:
    """The names of what a box computes, in order: of many those that bend, then those that cost most."""
    costs: dict[str, tuple[bool, float]] = {}
    for site in sites:
        if site.primitive not in MOVES:
            _, before = costs.get(site.title, (False, 0.0))
            bends = site.primitive in BENT[:5] or bool(site.name)
            costs[site.title] = (bends, before + counting.costs[site.number][0])
    kept = sorted(costs, key=lambda name: costs[name], reverse=True)[:3]
    named = [name for name in costs if name in kept] or ["rearrange"]
    return ", ".join(named) + (", …" if len(costs) > len(named) else "")


def _runs(sites: Sequence[Site], stages: Sequence[str]) -> list[list[Site]]:
    """The sites of each box: products and loops alone, other neighbours of a stage together."""
    runs: list[list[Site]] = []
    for stage in _in_order(sites, stages):
        mine: list[list[Site]] = []
        for site in (s for s in sites if stages[s.number] == stage):
            alone = site.primitive in WHOLE
            if mine and not alone and mine[-1][0].primitive not in WHOLE:
                mine[-1].append(site)
            elif mine and not alone and site.primitive in MOVES:
                mine[-1].append(site)  # a turned product is still the product
            else:
                mine.append([site])
        # What only rearranges before a product goes with it.
        joined: list[list[Site]] = []
        for run in mine:
            if joined and all(s.primitive in MOVES for s in joined[-1]):
                joined[-1] = [*joined[-1], *run]
            else:
                joined.append(run)
        if len(joined) > MOST_IN_STAGE:
            joined = [*joined[: MOST_IN_STAGE - 1], [s for run in joined[MOST_IN_STAGE - 1 :] for s in run]]
        runs += joined
    return runs


def _kind(stage: str, last: bool) -> str:
    return (
        "loss" if stage in ("loss", "penalty") else "input" if stage == "inputs" else "output" if last else "internal"
    )


def _boxes(
    sites: Sequence[Site], stages: list[str], counting: Counting, sizes: dict[str, int]
) -> tuple[list[Box], list[tuple[int, int]]]:
    """The boxes of the loss with its inputs and parameters, and the edges between them."""
    runs = _runs(sites, stages)
    layers = [stage for stage in dict.fromkeys(stages) if stage not in AROUND]
    boxes: list[Box] = []
    home: dict[int, int] = {}
    for run in runs:
        stage, numbers = stages[run[0].number], [site.number for site in run]
        home |= dict.fromkeys(numbers, len(boxes))
        heavy = max(run, key=lambda site: counting.costs[site.number][0])
        final = bool(layers) and stage == layers[-1] and run is [r for r in runs if stages[r[0].number] == stage][-1]
        boxes.append(
            Box(
                _title([s for s in run if s.primitive in WHOLE] or run, counting),
                _kind(stage, final),
                stage,
                max(run, key=lambda site: ("batch" in site.depends, site.number)).shape,
                sum(counting.costs[n][0] for n in numbers),
                sum(counting.moved[n] for n in numbers),
                len(run),
                heavy.line,
            )
        )
    edges = {(home[read], home[site.number]) for site in sites for read in site.reads}
    for name, first in _first_readers(sites, counting, home).items():
        kind, _, rest = name.partition(":")
        if kind == "parameter":
            stage = boxes[min(first)].stage
            known = next((i for i, box in enumerate(boxes) if box.kind == kind and box.stage == stage), None)
            if known is None:
                known = len(boxes)
                boxes.append(Box("", kind, stage))
            box = boxes[known]
            boxes[known] = replace(box, sites=box.sites + 1, shape=(sum(box.shape) + sizes.get(rest, 0),))
        else:
            known = len(boxes)
            boxes.append(Box({"0": "inputs", "1": "targets"}.get(rest, rest), "input", "inputs"))
        edges |= {(known, target) for target in first}
    return boxes, sorted(edge for edge in edges if edge[0] != edge[1])


def _first_readers(sites: Sequence[Site], counting: Counting, home: dict[int, int]) -> dict[str, set[int]]:
    """For each parameter and part of the batch the boxes that read it."""
    found: dict[str, set[int]] = {}
    for site in sites:
        for name in site.parameters:
            found.setdefault(f"parameter:{name}", set()).add(home[site.number])
        for name in counting.batch[site.number]:
            found.setdefault(f"batch:{name}", set()).add(home[site.number])
    return found


def _constants(counting: Counting, sites: Sequence[Site], subject: Subject) -> tuple[Constant, ...]:
    """The arrays that the loss closed over, largest first. The model's own buffers are no such: it is an argument."""
    own = [leaf for leaf in jax.tree.leaves(subject.model_of(subject.parameters)) if hasattr(leaf, "shape")]

    def is_own(array: Any) -> bool:
        like = [leaf for leaf in own if leaf.shape == array.shape and leaf.dtype == array.dtype]
        return any(leaf is array or np.array_equal(np.asarray(leaf), np.asarray(array)) for leaf in like)

    large = sorted(counting.constants.values(), key=lambda one: -one[0].nbytes)
    return tuple(
        Constant(tuple(array.shape), str(array.dtype), int(array.nbytes), sites[site].line if site < len(sites) else "")
        for array, site in large
        if array.nbytes >= LARGE_CONSTANT // 64 and not is_own(array)
    )


def _precisions(sites: Sequence[Site], counting: Counting) -> dict[str, tuple[int, float, str]]:
    """How much is computed in which type; single numbers do not count."""
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
    seen = dict.fromkeys([*_in_order(sites, stages), *backward.values()])
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
                _kind(stage, bool(layers) and stage == layers[-1]),
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
    each = _forward_stages(loss.sites, names)
    stages = _fewer(each, MOST_COLUMNS)
    used = [site for site in loss.sites if site.number in _live(loss.sites, value)]
    function = jax.value_and_grad(subject.value)
    both = trace(function, *arguments)
    counted, results = count(both, *arguments)
    owner = _owners(used, stages)
    first = len(both.sites) if results[0] is None else results[0]
    backward = _backward_stages(both.sites, first, results[1:], owner, names, _in_order(used, stages))
    shorter = dict(zip(each, stages, strict=True))
    forward = [shorter.get(stage, stage) for stage in _forward_stages(both.sites[: first + 1], names)]
    table = _stage_table(used, stages, counting, backward, forward, both.sites, counted)
    place = {stage.name: number for number, stage in enumerate(table)}
    back_edges = {
        (place[backward[read]], place[stage])
        for number, stage in backward.items()
        for read in both.sites[number].reads
        if read in backward and backward[read] != stage
    }
    sizes = {name: int(np.size(leaf)) for name, leaf in named_leaves(subject.parameters)}
    boxes, edges = _boxes(used, stages, counting, sizes)
    return GraphMeasured(
        stages=table,
        boxes=tuple(boxes),
        edges=tuple(edges),
        back_edges=tuple(sorted(back_edges)),
        counts=Counts(
            loss=len(loss.sites),
            gradient=len(_live(both.sites, results[1:])),
            together=len(both.sites),
            unused=len(both.sites) - len(_live(both.sites, results)),
            repeated=len(counted.repeated),
        ),
        compiled=compiled_program(function, *arguments) if compile else Compiled(),
        constants=_constants(counting, loss.sites, subject),
        precisions=_precisions(used, counting),
    )


def _islands(measured: GraphMeasured) -> tuple[str, list[str]]:
    """The type of most operations, and those of a smaller part that are not the custom beside it."""
    told = measured.precisions
    main = max(told, key=lambda name: (told[name][1], told[name][0]), default="")
    # A half-precision program with sums and losses in single precision is as it should be.
    return main, [name for name in told if name != main and (name == "float64" or main not in _HALF)]


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"


def find_graph(measured: GraphMeasured) -> tuple[Finding, ...]:
    """Large constants, one layer that is most of the work, and parts in another precision."""
    findings = []
    large = [one for one in measured.constants if one.bytes > LARGE_CONSTANT]
    if large:
        worst = large[0]
        more = f" and {len(large) - 1} more" if len(large) > 1 else ""
        findings.append(
            found(
                "GW901",
                f"the loss closes over an array of shape {worst.shape} ({_megabytes(worst.bytes)}){more}: it becomes a "
                "part of the compiled program, is copied at each compilation and cannot change.",
                where=worst.line,
                next="pass it as an argument: `loss(model, (x, y, table), key)`, or make it a field of the model.",
                bytes=sum(one.bytes for one in large),
                constants=len(large),
            )
        )
    total = measured.operations
    layers = [stage for stage in measured.stages if stage.kind in ("internal", "output")]
    if len(layers) > 1 and total > 0:
        heavy = max(layers, key=lambda stage: stage.operations)
        share = heavy.operations / total
        if share > LOPSIDED:
            findings.append(
                found(
                    "GW902",
                    f"{100 * share:.0f} % of the loss's operations are in `{heavy.name}`.",
                    where=heavy.name,
                    next=f"to train faster, make `{heavy.name}` smaller first: nothing else would save more than "
                    f"{100 * (1 - share):.0f} %.",
                    share=share,
                    operations=heavy.operations,
                )
            )
    main, islands = _islands(measured)
    for name in islands:
        count, operations, line = measured.precisions[name]
        findings.append(
            found(
                "GW903",
                f"{count} of the loss's steps compute in {name}, while most of it is in {main}.",
                where=line,
                next=f"if that is not meant, convert the array where it enters: `x.astype(jnp.{main})`.",
                steps=count,
                share=operations / max(sum(one[1] for one in measured.precisions.values()), 1.0),
            )
        )
    return tuple(findings)
