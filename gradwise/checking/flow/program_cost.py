"""The cost of a traced program, equation by equation, and of the compiled program.

    counting, results = count(program, parameters, batch, key)
    counting.costs[3]                          the operations at site 3, and those of them in products
    compiled_program(function, *arguments).kernels

Products are exact: 2 operations for each multiplied pair. An elementwise equation is one operation per number, and
moving numbers is free.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ...records.evidence.check_evidence import Compiled
from ...specs.paths import named_leaves
from ...tracing.program import Program, inner, is_literal

MOVES = (
    *("transpose", "reshape", "broadcast_in_dim", "squeeze", "expand_dims", "convert_element_type", "copy", "copy_p"),
    *("slice", "dynamic_slice", "dynamic_update_slice", "concatenate", "gather", "pad", "rev", "iota", "stop_gradient"),
    *("bitcast_convert_type", "random_wrap", "random_unwrap", "split", "optimization_barrier"),
)
PRODUCTS = ("dot_general", "conv_general_dilated")
WHOLE = (*PRODUCTS, "scan", "while", "cond", "sort", "ragged_dot", "pallas_call")
_NO_WORK = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")


def _size(variable: Any) -> int:
    return math.prod(getattr(variable.aval, "shape", ()))


def _bytes(variable: Any) -> int:
    dtype = getattr(variable.aval, "dtype", None)
    return _size(variable) * int(getattr(dtype, "itemsize", 0))


def _product(equation: Any) -> float:
    """The operations of a product of matrices or of a convolution."""
    left, right = (variable.aval.shape for variable in equation.invars[:2])
    out = _size(equation.outvars[0])
    if equation.primitive.name == "dot_general":
        contracted = equation.params["dimension_numbers"][0][0]
        return 2.0 * out * math.prod(left[axis] for axis in contracted)
    kernel = equation.params["dimension_numbers"].rhs_spec
    return 2.0 * out * math.prod(right[axis] for axis in kernel[1:])


def _within(equation: Any) -> list[Any]:
    """The programs inside an equation."""
    found = []
    for name, value in equation.params.items():
        if name in ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "cond_jaxpr"):
            continue
        many = value if isinstance(value, (tuple, list)) else (value,)
        found += [getattr(one, "jaxpr", one) for one in many if hasattr(getattr(one, "jaxpr", one), "eqns")]
    return found


def cost(equation: Any) -> tuple[float, float]:
    """The operations of an equation, and those of them in products. A loop of unknown length counts once."""
    name = equation.primitive.name
    if name in PRODUCTS:
        return (_product(equation),) * 2
    if name in MOVES:
        return 0.0, 0.0
    if programs := _within(equation):
        costs = [tuple(map(sum, zip((0.0, 0.0), *map(cost, p.eqns), strict=True))) for p in programs]
        times = float(equation.params.get("length", 1))
        operations, products = max(costs) if name == "cond" else tuple(map(sum, zip(*costs, strict=True)))
        return times * operations, times * products
    return float(max([_size(v) for v in (*equation.outvars, *equation.invars[:1])], default=0)), 0.0


@dataclass(frozen=True)
class _Value:
    """What is known of a value: its site, its number among different values, the part of the batch it is."""

    site: int | None
    number: int
    batch: str = ""


class Counting:
    """Walks through a program in the order of its sites and counts."""

    def __init__(self) -> None:
        self.costs: list[tuple[float, float]] = []
        self.moved: list[float] = []  # bytes read and written
        self.results: list[float] = []  # bytes written
        self.batch: list[tuple[str, ...]] = []  # the parts of the batch read directly
        self.constants: dict[int, tuple[Any, int]] = {}  # by identity: the array, the first site that reads it
        self.repeated: set[int] = set()
        self._seen: dict[Any, tuple[int, ...]] = {}
        self._values = 0

    def fresh(self, site: int | None = None, batch: str = "") -> _Value:
        self._values += 1
        return _Value(site, self._values, batch)

    def _numbers(self, equation: Any, given: list[_Value], site: int) -> tuple[int, ...]:
        """Values that are computed in the same way from the same values have the same numbers."""
        new = tuple(self.fresh().number for _ in equation.outvars)
        if _within(equation) or not equation.outvars:
            return new
        literals = [repr(v.val) if is_literal(v) else "" for v in equation.invars]
        name = (equation.primitive.name, *(value.number for value in given), *literals)
        told = (*name, repr(sorted(equation.params.items(), key=lambda item: item[0])))
        if told in self._seen:
            self.repeated.add(site)
        return self._seen.setdefault(told, new)

    def walk(self, jaxpr: Any, constants: Sequence[Any], given: list[_Value]) -> list[_Value]:
        known: dict[Any, _Value] = dict(zip(jaxpr.invars, given, strict=True))
        closed = dict(zip(jaxpr.constvars, constants, strict=True))
        known |= {variable: self.fresh() for variable in closed}

        def of(variable: Any) -> _Value:
            return _Value(None, 0) if is_literal(variable) else known[variable]

        for equation in jaxpr.eqns:
            operands = [of(variable) for variable in equation.invars]
            arrays = [v.val if is_literal(v) else closed.get(v) for v in equation.invars]
            for array in arrays:
                if array is not None and np.ndim(array) > 0:
                    self.constants.setdefault(id(array), (array, len(self.costs)))
            opened = inner(equation)
            if opened is not None:
                results = self.walk(opened[0], opened[1], operands)
            else:
                results = self._site(equation, operands)
            known.update(zip(equation.outvars, results, strict=True))
        return [of(variable) for variable in jaxpr.outvars]

    def _site(self, equation: Any, operands: list[_Value]) -> list[_Value]:
        site = len(self.costs)
        self.costs.append(cost(equation))
        self.results.append(float(sum(map(_bytes, equation.outvars))))
        self.moved.append(self.results[-1] + sum(map(_bytes, equation.invars)))
        self.batch.append(tuple(dict.fromkeys(value.batch for value in operands if value.batch)))
        numbers = self._numbers(equation, operands, site)
        # A part of the batch that is only turned or converted is still itself.
        same = operands[0].batch if equation.primitive.name in MOVES[:8] and len(operands) == 1 else ""
        return [_Value(site, number, same) for number in numbers]


def count(program: Program, parameters: PyTree, batch: PyTree, key: Any) -> tuple[Counting, list[int | None]]:
    """The counts of every site, and the sites of the results."""
    counting = Counting()
    given = [counting.fresh() for _ in jax.tree.leaves(parameters)]
    given += [counting.fresh(batch=name or "batch") for name, _ in named_leaves(batch)]
    given += [counting.fresh() for _ in jax.tree.leaves(key)]
    results = counting.walk(program.closed.jaxpr, program.closed.consts, given)
    return counting, [value.site for value in results]


_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = (?:\(.*?\)|\S+) ([a-z][\w-]*)\(")


def read_compiled(text: str) -> Compiled:
    """What a compiled program consists of, from its text."""
    kinds: Counter[str] = Counter()
    entry = fused = 0
    place = ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            place = line
        elif (match := _INSTRUCTION.match(line)) and match[1] not in _NO_WORK:
            kinds[match[1]] += 1
            entry += place.startswith("ENTRY")
            fused += "fused_computation" in place
    return Compiled(sum(kinds.values()), entry, fused, dict(kinds.most_common()))


def _told(ask: Callable[[], Any]) -> Any:
    """What a backend reports about a compiled program; some report nothing."""
    try:
        return ask()
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return None


def compiled_program(function: Callable[..., Any], *arguments: Any) -> Compiled:
    compiled = jax.jit(function).lower(*arguments).compile()
    read = read_compiled(_told(compiled.as_text) or "")
    costs, memory = _told(compiled.cost_analysis) or {}, _told(compiled.memory_analysis)
    costs = costs[0] if isinstance(costs, (list, tuple)) else costs  # one for each device, on some backends
    sizes = [float(getattr(memory, f"{name}_size_in_bytes", math.nan)) for name in ("argument", "output", "temp")]
    return replace(
        read,
        operations=float(costs.get("flops", math.nan)),
        argument_bytes=sizes[0],
        output_bytes=sizes[1],
        temporary_bytes=sizes[2],
    )
