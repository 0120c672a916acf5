"""A traced program, read equation by equation: what stands where, and what each value is.

Any function of parameters, a batch and a key has one, whatever library its model was written with. Calls and short
loops are opened; functions with a derivative of their own, long loops and conditionals stay whole. Each equation is a
*site*:

    program = trace(loss, parameters, batch, key)
    for site in program.sites: print(site.layer, site.primitive, site.line, site.shape)
    value, kept = program.run(parameters, batch, key, keep=[3, 7])        the values at sites 3 and 7
    value, _ = program.run(parameters, batch, key, nudges={7: step})      with `step` added at site 7

The second form makes an intermediate value an argument: the gradient at a neuron's activation is that at its nudge.
"""

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..specs.paths import named_leaves
from .loops import turn_of, unrolled

CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "remat2")
OWN_DERIVATIVE = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
# Elementwise and bent: what may stand as a non-linearity between two layers.
BENT = (
    *("tanh", "logistic", "erf", "erfc", "max", "clamp", "sin", "cos", "exp", "log1p", "abs", "select_n", "sign"),
    *("round", "floor", "ceil"),
)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # the standard library, and often what is installed
_LIBRARIES = (
    *("jax", "jaxlib", "equinox", "optax", "flax", "jaxtyping", "beartype"),
    *("jaxopt", "optimistix", "lineax", "diffrax"),
)
Visit = Callable[[int, Any, list[Any]], list[Any]]


@dataclass(frozen=True)
class Site:
    """One equation of a program.

    `reads` and `parameters` name the earlier sites and the parameters that go into it directly (reshaped or converted
    parameters count as themselves). `layer` is the last parameter mixed in on the way to it, without its last word:
    `layers.0`. `depends` says on what it depends at all, among "parameters", "batch" and "key". `line` is where the
    user's own code wrote it; `turn` in which turn of a loop ("[3]").
    """

    number: int
    primitive: str
    name: str  # of a function with a derivative of its own, where it has one
    layer: str
    line: str
    shape: tuple[int, ...]
    dtype: Any
    reads: tuple[int, ...]
    parameters: tuple[str, ...]
    depends: frozenset[str]
    turn: str = ""

    @property
    def is_float(self) -> bool:
        return jnp.issubdtype(self.dtype, jnp.floating)

    @property
    def is_activation(self) -> bool:
        """A value between inputs and loss: of the batch and of the parameters, and more than one number."""
        return self.is_float and {"parameters", "batch"} <= self.depends and self.shape != ()

    @property
    def is_bend(self) -> bool:
        """The result of a non-linearity."""
        return self.is_activation and (self.primitive in BENT or self.primitive in OWN_DERIVATIVE)

    @property
    def title(self) -> str:
        """Its name in messages: the primitive, or the function with a derivative of its own."""
        return self.name or self.primitive


def is_random_key(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def readers_of(sites: Sequence[Site]) -> list[list[int]]:
    """The sites that read each site."""
    readers: list[list[int]] = [[] for _ in sites]
    for site in sites:
        for number in site.reads:
            readers[number].append(site.number)
    return readers


def bind(equation: Any, values: list[Any]) -> list[Any]:
    """Runs one equation; derivatives of its own stay attached."""
    told = equation.primitive.get_bind_params(equation.params)
    functions, settings = told if isinstance(told, tuple) else ((), told)  # before JAX 0.10 the two came apart
    found = equation.primitive.bind(*functions, *values, **settings)
    return list(found) if equation.primitive.multiple_results else [found]


def is_literal(variable: Any) -> bool:
    return hasattr(variable, "val")


def called(equation: Any) -> tuple[Any, Any] | None:
    """The program inside a call and its constants, if this is a call that can be opened."""
    if equation.primitive.name not in CALLS:
        return None
    found = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return getattr(found, "jaxpr", found), getattr(found, "consts", ())


def inner(equation: Any) -> tuple[Any, Any] | None:
    """The program inside a call, or that of all turns of a short loop, and its constants."""
    if (loop := unrolled(equation)) is not None:
        return loop.jaxpr, loop.consts
    return called(equation)


@functools.cache
def is_library(file: str) -> bool:
    """Whether a file belongs to a library rather than to the user: their own line is what they can change."""
    words = file.replace(os.sep, "/").split("/")
    if file.startswith(_PACKAGE) or words[-1].startswith(("<frozen", "<@")):  # what Python and beartype make up
        return True
    if "site-packages" in words or "dist-packages" in words:
        return any(library in words for library in _LIBRARIES)
    return file.startswith(_PYTHON)


def _line(equation: Any) -> str:
    """`model.py:12 in __call__`: the innermost frame that belongs to no library.

    Frames beyond the tracing belong to whatever called it first, because JAX caches traces: they are ignored.
    """
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if frame.function_name == "trace_to_jaxpr_dynamic":  # JAX from 0.10 on leaves out the rest by itself
            break
        if not is_library(frame.file_name):
            function = frame.function_name.rpartition(".")[2]
            return f"{os.path.basename(frame.file_name)}:{frame.line_num} in {function}"
    return ""


def _name(equation: Any) -> str:
    if equation.primitive.name not in OWN_DERIVATIVE:
        return ""
    named = equation.params.get("name")
    if named:
        return str(named)
    called = equation.params.get("call_jaxpr", equation.params.get("fun_jaxpr"))
    information = getattr(getattr(called, "jaxpr", called), "debug_info", None)
    return str(getattr(information, "func_name", "") or "").partition(" ")[0]


@dataclass(frozen=True)
class _Known:
    """What is known of a value while reading: from which site, of which parameter, on what it depends."""

    site: int | None = None
    parameter: str | None = None
    layer: str = ""
    depends: frozenset[str] = frozenset()


_KEEPS = (
    *("transpose", "reshape", "broadcast_in_dim", "squeeze", "convert_element_type", "copy", "expand_dims", "copy_p"),
    *("stop_gradient", "slice"),
)


class _Reading:
    """Walks through a program once and writes down its sites."""

    def __init__(self) -> None:
        self.sites: list[Site] = []

    def walk(self, jaxpr: Any, given: list[_Known], line: str = "", scope: str = "") -> list[_Known]:
        known: dict[Any, _Known] = dict(zip(jaxpr.invars, given, strict=True))

        def of(variable: Any) -> _Known:
            return _Known() if is_literal(variable) else known.get(variable, _Known())

        for equation in jaxpr.eqns:
            operands = [of(variable) for variable in equation.invars]
            here = _line(equation) or line
            stack = "/".join(filter(None, (scope, str(equation.source_info.name_stack))))
            opened = inner(equation)
            if opened is not None:
                results = self.walk(opened[0], operands, here, stack)
            else:
                results = self._site(equation, operands, here, stack)
            known.update(zip(equation.outvars, results, strict=True))
        return [of(variable) for variable in jaxpr.outvars]

    def _site(self, equation: Any, operands: list[_Known], line: str, scope: str) -> list[_Known]:
        parameters = tuple(dict.fromkeys(o.parameter for o in operands if o.parameter is not None))
        depends = frozenset[str]().union(*(o.depends for o in operands))
        named = [o for o in operands if o.site is not None and o.layer]
        latest = max(named, key=lambda o: o.site or 0, default=_Known())
        mixed = "batch" in depends and bool(parameters)
        layer = parameters[-1].rpartition(".")[0] or parameters[-1] if mixed else latest.layer
        number = len(self.sites)
        result = equation.outvars[0].aval if equation.outvars else None
        self.sites.append(
            Site(
                number=number,
                primitive=equation.primitive.name,
                name=_name(equation),
                layer=layer,
                line=line,
                shape=tuple(getattr(result, "shape", ())),
                dtype=getattr(result, "dtype", None),
                reads=tuple(dict.fromkeys(o.site for o in operands if o.site is not None)),
                parameters=parameters,
                depends=depends,
                turn=turn_of(scope),
            )
        )
        # A parameter that is only turned, spread, cut or converted is still itself.
        same = parameters[0] if depends == {"parameters"} and len(parameters) == 1 and len(operands) == 1 else None
        kept = same if equation.primitive.name in _KEEPS else None
        return [_Known(number, kept, layer, depends)] * len(equation.outvars)


def _plainly(number: int, equation: Any, given: list[Any]) -> list[Any]:
    return bind(equation, given)


class Program:
    """A function of parameters, a batch and a key, traced for arguments of these shapes."""

    def __init__(self, closed: Any, sites: tuple[Site, ...], structure: Any):
        self.closed = closed
        self.sites = sites
        self.structure = structure  # of the result

    def run(
        self,
        parameters: PyTree,
        batch: PyTree,
        key: Any,
        *,
        nudges: Mapping[int, Array] | None = None,
        keep: Iterable[int] = (),
        cut: Iterable[int] = (),
    ) -> tuple[Any, dict[int, Array]]:
        """The function's result, and the values at the sites to keep; nudges are added to the values at theirs.

        What follows a site in `cut` depends on what came before it through its nudge alone: so derivatives from one
        site to another are taken piece by piece, all in one run. There the value is kept as it was before the nudge.
        """
        nudges, wanted, ends = nudges or {}, set(keep), set(cut)
        kept: dict[int, Array] = {}

        def visit(number: int, equation: Any, given: list[Any]) -> list[Any]:
            results = bind(equation, given)
            if number in ends:
                if number in wanted:
                    kept[number] = results[0]
                results = [jax.lax.stop_gradient(results[0]), *results[1:]]
            if number in nudges:
                results = [results[0] + nudges[number], *results[1:]]
            if number in wanted and number not in ends:
                kept[number] = results[0]
            return results

        results = self.evaluate(jax.tree.leaves((parameters, batch, key)), visit)
        return jax.tree.unflatten(self.structure, results), kept

    def evaluate(self, arguments: Sequence[Any], visit: Visit = _plainly) -> list[Any]:
        """The results for these leaves, each equation computed by `visit(number of its site, equation, operands)`."""
        counter = iter(range(len(self.sites)))

        def walk(jaxpr: Any, constants: Any, given: Sequence[Any]) -> list[Any]:
            values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
            values.update(zip(jaxpr.invars, given, strict=True))
            for equation in jaxpr.eqns:
                operands = [v.val if is_literal(v) else values[v] for v in equation.invars]
                opened = inner(equation)
                results = walk(*opened, operands) if opened else visit(next(counter), equation, operands)
                values.update(zip(equation.outvars, results, strict=True))
            return [v.val if is_literal(v) else values[v] for v in jaxpr.outvars]

        return walk(self.closed.jaxpr, self.closed.consts, arguments)

    def zeros(self, sites: Iterable[int]) -> dict[int, Array]:
        """Nudges that change nothing."""
        return {number: jnp.zeros(self.sites[number].shape, self.sites[number].dtype) for number in sites}


def is_same(one: Program, other: Program) -> bool:
    """Whether two traces are the same program with the same constants; addresses of functions do not count."""
    texts = [re.sub(r"0x[0-9a-f]+", "", str(program.closed.jaxpr)) for program in (one, other)]
    pairs = zip(one.closed.consts, other.closed.consts, strict=False)
    numbers = [(np.asarray(a), np.asarray(b)) for a, b in pairs if not is_random_key(a) and not is_random_key(b)]
    return texts[0] == texts[1] and all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in numbers)


def trace(function: Callable[..., Any], parameters: PyTree, batch: PyTree, key: Any) -> Program:
    """The program of `function(parameters, batch, key)`; parameters are named by their paths."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(parameters, batch, key)
    marks = [_Known(parameter=name, depends=frozenset({"parameters"})) for name, _ in named_leaves(parameters)]
    marks += [_Known(depends=frozenset({"batch"})) for _ in jax.tree.leaves(batch)]
    marks += [_Known(depends=frozenset({"key"})) for _ in jax.tree.leaves(key)]
    reading = _Reading()
    reading.walk(closed.jaxpr, marks)
    return Program(closed, tuple(reading.sites), jax.tree.structure(shapes))
