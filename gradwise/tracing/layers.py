"""The layers of a traced program, whatever library wrote it: a weighted sum, its bias, and its non-linearity.

    program, layers = trace_layers(loss, parameters, batch, key)
    for layer in layers: print(layer.name, layer.kind, program.sites[layer.input].shape)

What the loss does after the last parameter (a softmax, a logarithm) is not a layer. What mixes the units of an example
(a softmax within attention) and noise (dropout) are not non-linearities.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..specs.paths import named_leaves
from .program import CALLS, OWN_DERIVATIVE, Program, Site, bind, inner, readers_of, trace

_TURNS = ("transpose", "reshape", "broadcast_in_dim", "squeeze", "convert_element_type", "copy", "copy_p")
_COMPARES = ("gt", "lt", "ge", "le", "eq", "ne", "and", "or", "not", "select_n", "convert_element_type")
_ELEMENTWISE = frozenset(
    (
        *("add", "add_any", "sub", "mul", "div", "neg", "max", "min", "clamp", "tanh", "logistic", "erf", "erfc"),
        *("exp", "exp2", "log", "log1p", "expm1", "abs", "sign", "round", "floor", "ceil", "integer_pow", "pow"),
        *("sqrt", "rsqrt", "square", "sin", "cos", "stop_gradient", "copy", "copy_p", "is_finite", *_COMPARES),
    )
)
_MATRIX = ("dot_general", "conv_general_dilated")
_STEPS = ("round", "floor", "ceil", "sign")
SMOOTH = ("tanh", "logistic", "erf")


@dataclass(frozen=True)
class TracedLayer:
    """A layer of a program, by its sites: `input` is what its non-linearity reads, `output` what it gives.

    Without a non-linearity the two are one and `kind` is "linear". Else it is "tanh", "logistic" or "erf" where that
    function stands alone at `bend`, "hard" where it is flat on both sides, "step" for a jump, "other" for all
    others (rectifiers). `examples` and `units` are axes of the values there; other axes are places, as in a
    convolution. `above` are the layers it leads to, by their places in the list.
    """

    name: str
    input: int
    output: int
    bend: int
    kind: str
    matrix: bool
    line: str
    examples: int = 0
    units: int | None = None
    above: tuple[int, ...] = ()
    which: str = ""  # of several with one name: the turn of its loop "[3]", its place among the others " (2)"
    shared: bool = False  # the same weights at every turn: a step of a recurrent network, not one of stacked layers

    @property
    def title(self) -> str:
        """Its name in messages: no two layers of a program have the same."""
        return f"{self.name or self.line}{self.which}"


def _equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of the sites, in their order."""
    for equation in jaxpr.eqns:
        opened = inner(equation)
        if opened is None:
            yield equation
        else:
            yield from _equations(opened[0])


def _is_elementwise(equation: Any) -> bool:
    name = equation.primitive.name
    if name in OWN_DERIVATIVE or name in CALLS:
        called = equation.params.get("call_jaxpr", equation.params.get("fun_jaxpr", equation.params.get("jaxpr")))
        within = getattr(called, "jaxpr", called)
        return all(_is_elementwise(one) or one.primitive.name == "broadcast_in_dim" for one in within.eqns)
    return name in _ELEMENTWISE


def _words(equation: Any) -> set[str]:
    """The primitives of an equation: those within it where its derivative is its own."""
    called = equation.params.get("call_jaxpr", equation.params.get("fun_jaxpr", equation.params.get("jaxpr")))
    within = getattr(called, "jaxpr", called)
    return {equation.primitive.name}.union(*(_words(one) for one in getattr(within, "eqns", ())))


def _parent(name: str) -> str:
    return name.rpartition(".")[0] or name


class _Map:
    """A program with what the search for layers needs to know about its sites."""

    def __init__(self, program: Program):
        self.sites = program.sites
        equations = list(_equations(program.closed.jaxpr))
        self.elementwise = [_is_elementwise(equation) for equation in equations]
        self.words = [_words(equation) for equation in equations]
        # Of several results only the first can be kept and nudged.
        self.single = [len(equation.outvars) == 1 for equation in equations]
        self.mixing = [self._mixes(site) for site in self.sites]
        self.leads = [False] * len(self.sites)  # whether a parameter is mixed in later
        self.readers = [0] * len(self.sites)
        for site in reversed(self.sites):
            for read in site.reads:
                self.readers[read] += 1
                self.leads[read] |= self.mixing[site.number] or self.leads[site.number]

    def _mixes(self, site: Site) -> bool:
        own = any(self.sites[read].depends == {"parameters"} for read in site.reads)
        return site.is_activation and self.single[site.number] and (bool(site.parameters) or own)

    def cut_out(self, site: Site) -> bool:
        """Whether a site reads a part of a parameter that was cut out in its own turn of a loop."""
        own = [self.sites[read] for read in site.reads if self.sites[read].depends == {"parameters"}]
        return any(one.turn == site.turn and (one.primitive == "slice" or self.cut_out(one)) for one in own)

    def alive(self, site: Site) -> list[int]:
        """The values that a site reads and that depend on the batch and the parameters."""
        return [read for read in site.reads if {"parameters", "batch"} <= self.sites[read].depends]

    def is_link(self, site: Site) -> bool:
        """Works on each entry alone and mixes in nothing: no parameter, no noise, no other part of the batch."""
        others = set(site.reads) - set(self.alive(site))
        free = all(not self.sites[read].depends for read in others)
        if site.primitive == "select_n":  # it bends where the choice hangs on the value; else it is a mask (dropout)
            free &= any(self.sites[read].dtype == bool for read in self.alive(site))
        return self.elementwise[site.number] and not self.mixing[site.number] and free

    def root(self, bend: Site) -> tuple[int, set[int]] | None:
        """The one value that a non-linearity is a function of, and the sites between."""
        chain, roots, stack = {bend.number}, set[int](), list(self.alive(bend))
        while stack:
            number = stack.pop()
            site = self.sites[number]
            if self.is_link(site) and site.shape == bend.shape and self.alive(site):
                if number not in chain:
                    chain.add(number)
                    stack.extend(self.alive(site))
            else:
                roots.add(number)
        if len(roots) > 1 or not self.single[min(roots)]:
            chain, roots = {bend.number}, set(self.alive(bend))
        root = min(roots)
        usable = len(roots) == 1 and self.single[root] and not self.sites[root].primitive.startswith("reduce_")
        return (root, chain) if usable else None

    def onwards(self, root: int, chain: set[int]) -> tuple[int, set[int]]:
        """The last value that is still a function of the root alone, entry by entry, and all sites on the way."""
        chain = set(chain)
        for site in self.sites[root + 1 :]:
            read = self.alive(site)
            if read and site.shape == self.sites[root].shape and self.is_link(site) and {*read} <= {*chain, root}:
                chain.add(site.number)
        floats = [number for number in chain if self.sites[number].is_float and self.leads[number]]
        return max(floats, default=root), chain

    def kind(self, root: int, chain: set[int], output: int) -> tuple[str, int]:
        """The kind of a non-linearity, and the site at which it bends."""
        bends = [number for number in sorted(chain) if self.sites[number].is_bend]
        words = set[str]().union(*(self.words[number] for number in chain))
        smooth = [number for number in bends if self.sites[number].primitive in SMOOTH]
        if len(bends) == 1 and smooth and not self._passes(root, output, smooth[0], chain):
            return self.sites[smooth[0]].primitive, smooth[0]
        if words & {*_STEPS}:
            return "step", bends[0]
        selects = sum(self.sites[number].primitive == "select_n" for number in chain)
        hard = "clamp" in words or {"max", "min"} <= words or (words <= {*_COMPARES} and selects >= 2)
        return ("hard" if hard else "other"), bends[0]

    def _passes(self, root: int, output: int, bend: int, chain: set[int]) -> bool:
        """Whether the root reaches the output beside the bend, as in x sigmoid(x)."""
        reached = {root}
        for number in sorted(chain - {bend}):
            if set(self.sites[number].reads) & reached:
                reached.add(number)
        return output in reached and output != bend


def _sums(chart: _Map) -> tuple[dict[int, TracedLayer], dict[int, int]]:
    """The weighted sums with their biases, by the site each begins at; and to which of them a value belongs.

    Two that are only added to one another (of an input and of a state) are one, known by the later name.
    """
    found: dict[int, TracedLayer] = {}
    owner: dict[int, int] = {}
    for site in chart.sites:
        at, alive = site.number, chart.alive(site)
        owned = [owner[read] for read in alive if owner.get(read) in found]
        owners, whole = set(owned), bool(alive) and len(owned) == len(alive)
        adds = site.primitive in ("add", "add_any", "sub")
        if whole and adds and len(owners) == 2 and all(chart.readers[read] == 1 for read in alive):
            del found[min(owners)]
            owners = {max(owners)}
        elif chart.mixing[at] and not (whole and adds and len(owners) == 1):
            name = _parent(site.parameters[-1]) if site.parameters else site.layer
            turn = {"which": site.turn, "shared": bool(site.turn) and not chart.cut_out(site)}
            found[at] = TracedLayer(name, at, at, at, "linear", site.primitive in _MATRIX, site.line, **turn)  # type: ignore[arg-type]
            owner[at] = at
            continue
        elif not (whole and len(owners) == 1 and (chart.mixing[at] or site.primitive in _TURNS)):
            continue
        (same,) = owners
        owner[at] = same
        if adds:
            found[same] = replace(found[same], input=at, output=at, bend=at)
    return found, owner


def _with_bends(chart: _Map, layers: dict[int, TracedLayer], owner: dict[int, int]) -> list[TracedLayer]:
    """The layers with their non-linearities; one on a value that is not a weighted sum (a norm) is a layer too."""
    seen: set[int] = set()
    for site in chart.sites:
        number = site.number
        unit = site.is_bend and site.primitive != "exp"  # which belongs to a softmax, or to a variance
        if number in seen or not (unit and chart.is_link(site) and chart.leads[number]):
            continue
        found = chart.root(site)
        if found is None:
            continue
        output, chain = chart.onwards(*found)
        seen |= chain
        kind, bend = chart.kind(found[0], chain, output)
        what = {"input": found[0], "output": output, "bend": bend, "kind": kind, "line": site.line}
        place = owner.get(found[0], -1)
        if place not in layers:
            what |= {"which": site.turn, "shared": bool(site.turn)}
            layers[number] = TracedLayer(name=site.layer, matrix=False, **what)  # type: ignore[arg-type]
        elif layers[place].kind == "linear":
            layers[place] = replace(layers[place], **what)  # type: ignore[arg-type]
    return sorted(layers.values(), key=lambda layer: layer.input)


def _unit_axis(shape: tuple[int, ...], examples: int, sizes: Sequence[tuple[int, ...]]) -> int | None:
    """The axis of the units: the one along which the layer's last parameter differs; the last one in doubt."""
    axes = [axis for axis in range(len(shape)) if axis != examples]
    for size in reversed(sizes):
        whole = [axis for axis in axes if shape[axis] == math.prod(size)]
        part = [axis for axis in axes if shape[axis] in size]
        if whole or part:
            return (whole or part)[-1]
    return axes[-1] if axes else None


def _sources(chart: _Map, layers: Sequence[TracedLayer], cut: bool) -> list[int]:
    """For each layer, as bits, the layers that it depends on; with `cut`, without going through another one."""
    place = {layer.input: number for number, layer in enumerate(layers)}
    arriving = [0] * len(chart.sites)
    emitted = [0] * len(chart.sites)
    for site in chart.sites:
        for read in site.reads:
            arriving[site.number] |= emitted[read]
        here = 1 << place[site.number] if site.number in place else 0
        emitted[site.number] = here if cut and here else arriving[site.number] | here
    return [arriving[layer.input] for layer in layers]


def _alike(program: Program, other: Program) -> int:
    """How many sites two programs have in common from the beginning."""
    for one, two in zip(program.sites, other.sites, strict=False):
        if one.primitive != two.primitive or len(one.shape) != len(two.shape):
            return one.number
    return min(len(program.sites), len(other.sites))


def layers_of(program: Program, other: Program, parameters: PyTree, count: int) -> tuple[TracedLayer, ...]:
    """The layers of a program in the order of the flow, for a batch of `count` examples.

    `other` is the same program for another number of examples: the axis that differs is theirs, and a value without
    such an axis (batch statistics) is not an activation. Where the two programs differ, the first axis of that size is.
    """
    chart = _Map(program)
    common = _alike(program, other)
    shapes = {name: jnp.shape(leaf) for name, leaf in named_leaves(parameters)}
    found = []
    for layer in _with_bends(chart, *_sums(chart)):
        shape = program.sites[layer.input].shape
        axes = [axis for axis, size in enumerate(shape) if size == count][:1]
        if layer.input < common:
            longer = other.sites[layer.input].shape
            axes = [axis for axis, size in enumerate(shape) if size != longer[axis]]
        if len(axes) == 1:
            sizes = [size for name, size in shapes.items() if _parent(name) == layer.name]
            found.append(replace(layer, examples=axes[0], units=_unit_axis(shape, axes[0], sizes)))
    told: Counter[str] = Counter()
    for place, layer in enumerate(found):
        told[layer.title] += 1
        if told[layer.title] > 1:
            found[place] = replace(layer, which=f"{layer.which} ({told[layer.title]})")
    above = _sources(chart, found, cut=False)
    return tuple(
        replace(layer, above=tuple(place for place, bits in enumerate(above) if bits >> number & 1))
        for number, layer in enumerate(found)
    )


def trace_layers(
    function: Callable[..., Any], parameters: PyTree, batch: PyTree, key: Any
) -> tuple[Program, tuple[TracedLayer, ...]]:
    """The program of a loss, and its layers; the batch's arrays have the examples first."""
    program = trace(function, parameters, batch, key)
    sizes = [jnp.shape(leaf)[0] for leaf in jax.tree.leaves(batch) if jnp.ndim(leaf) > 0]
    count = max(set(sizes), key=sizes.count)

    def longer(leaf: Any) -> Any:
        shape = jnp.shape(leaf)
        more = (2 * count + 1, *shape[1:]) if shape and shape[0] == count else shape
        return jax.ShapeDtypeStruct(more, leaf.dtype)

    try:
        other = trace(function, parameters, jax.tree.map(longer, batch), key)
    except Exception:  # a loss for this number of examples only: sizes must decide
        other = Program(program.closed, (), program.structure)
    return program, layers_of(program, other, parameters, count)


def maps(program: Program, layers: Sequence[TracedLayer]) -> list[tuple[int, int]]:
    """Pairs of weighted sums, one a function of the other alone: not where a way round it exists (residual nets)."""
    sums = [number for number, layer in enumerate(layers) if layer.matrix]
    arriving = _sources(_Map(program), [layers[number] for number in sums], cut=True)
    return [
        (sums[bits.bit_length() - 1], number)
        for number, bits in zip(sums, arriving, strict=True)
        if bits and bits & (bits - 1) == 0
    ]


def unit_output(program: Program, layer: TracedLayer, own: str) -> int:
    """The site of what the units of a layer give: the last value that depends, entry by entry, on its input alone.

    Parameters whose paths begin with `own` may shape it (a learned slope). Dropout, with the division that prepares
    it, and what is added from elsewhere come later.
    """
    chart, readers, last = _Map(program), readers_of(program.sites), layer.input
    within = {layer.input}
    for site in program.sites[layer.input + 1 :]:
        alive = chart.alive(site)
        others = [program.sites[read] for read in site.reads if read not in alive]
        foreign = any(not name.startswith(own) for name in site.parameters)
        foreign |= any(not one.depends <= {"parameters"} for one in others)
        same = site.shape == program.sites[layer.input].shape and {*alive} <= within and bool(alive)
        if not same or foreign or not (chart.elementwise[site.number] or site.primitive in _TURNS):
            continue
        onwards = [program.sites[reader].reads for reader in readers[site.number]]
        drawn = [any(program.sites[read].depends == {"key"} for read in reads) for reads in onwards]
        if site.primitive == "div" and drawn and all(drawn):
            continue
        within.add(site.number)
        last = site.number if site.is_float and chart.leads[site.number] else last
    return last


def values_between(program: Program, start: int, end: int, given: Array) -> Array | None:
    """What stands at the site `end` where the site `start` holds these numbers, if it depends on nothing else.

    Only what lies between is computed; None where a value is needed that is known at run time alone.
    """
    wanted, stack = {start}, [end]
    while stack:
        number = stack.pop()
        if number not in wanted:
            wanted.add(number)
            stack.extend(program.sites[number].reads)
    found: dict[int, Any] = {}

    def visit(number: int, equation: Any, operands: list[Any]) -> list[Any]:
        nothing = [None] * len(equation.outvars)
        if number == start:
            found[number] = jnp.resize(given, program.sites[start].shape)
            return [found[number], *nothing[1:]]
        unknown = any(operand is None or isinstance(operand, jax.core.Tracer) for operand in operands)
        if number not in wanted or end in found or unknown:
            return nothing
        results = bind(equation, operands)
        found[number] = results[0]
        return results

    program.evaluate([None] * len(program.closed.jaxpr.invars), visit)
    return found.get(end)
