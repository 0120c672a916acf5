"""From a traced function to a program of array operations.

    program, output = translate(closed)                 of any function of one array

Calls, functions with a derivative of their own and short loops are opened. What has no translation is refused by the
name of its primitive.
"""

from typing import Any

import numpy as np

from ..runtime.errors import RequestError
from ..tracing.program import OWN_DERIVATIVE, inner, is_literal
from .array_program import ArrayProgram, Value, as_numpy, plain_shape
from .primitives import RULES


class _Translation:
    """Walks through a program and writes its steps."""

    def __init__(self, program: ArrayProgram) -> None:
        self.program = program

    def walk(self, jaxpr: Any, constants: Any, given: list[Value], scope: str = "") -> list[Value]:
        values: dict[Any, Value] = dict(zip(jaxpr.invars, given, strict=True))
        for variable, constant in zip(jaxpr.constvars, constants, strict=True):
            values[variable] = self.program.constant(as_numpy(constant))

        def of(variable: Any) -> Value:
            if not is_literal(variable):
                return values[variable]
            return self.program.constant(np.asarray(variable.val, variable.aval.dtype))  # whose value may be Python's

        for equation in jaxpr.eqns:
            operands = [of(variable) for variable in equation.invars]
            stack = "/".join(filter(None, (scope, str(equation.source_info.name_stack))))
            opened = self._inside(equation)
            results = self.walk(*opened, operands, stack) if opened else self._translated(equation, operands, stack)
            values.update(zip(equation.outvars, results, strict=True))
        return [of(variable) for variable in jaxpr.outvars]

    @staticmethod
    def _inside(equation: Any) -> tuple[Any, Any] | None:
        if equation.primitive.name not in OWN_DERIVATIVE:
            return inner(equation)
        found = equation.params.get("call_jaxpr", equation.params.get("fun_jaxpr"))
        return getattr(found, "jaxpr", found), getattr(found, "consts", ())

    def _translated(self, equation: Any, operands: list[Value], scope: str) -> list[Value]:
        name = equation.primitive.name
        self.program.scope = scope
        if name not in RULES:
            raise RequestError(
                f"the network uses `{name}`, which cannot be exported to ONNX or NumPy. Use operations of jax.numpy "
                "that do without it, or export to .stablehlo, which holds any network."
            )
        found = RULES[name](self.program, equation, operands)
        return list(found) if isinstance(found, list) else [found]


def translate(closed: Any) -> tuple[ArrayProgram, Value]:
    """The program of a closed function of one array, and its output."""
    (rows,) = closed.jaxpr.invars
    program = ArrayProgram(plain_shape(rows.aval.shape), np.dtype(rows.aval.dtype))
    (output,) = _Translation(program).walk(closed.jaxpr, closed.consts, [program.input])
    return program, program.expand(output, closed.jaxpr.outvars[0].aval.shape)
