"""Each primitive of JAX means the same in NumPy and in ONNX as in JAX, for any number of rows."""

import textwrap
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax import export, lax
from onnx import helper

from gradwise.exporting.array_program import ArrayProgram, Value
from gradwise.exporting.numpy_expressions import HELPERS
from gradwise.exporting.numpy_module import NumpyLines
from gradwise.exporting.onnx_graph import OnnxGraph
from gradwise.exporting.plain_functions import convolve, erf
from gradwise.exporting.primitives import RULES
from gradwise.exporting.translation import translate
from gradwise.runtime.errors import RequestError

WEIGHTS = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
TABLE = np.random.default_rng(2).normal(size=(5, 3)).astype(np.float32)
KERNEL = np.random.default_rng(3).normal(size=(3, 2, 6)).astype(np.float32)


def translated(function: Callable[[Any], Any], shape: tuple[int, ...]) -> tuple[ArrayProgram, Value]:
    (count,) = export.symbolic_shape("n")
    rows = jax.ShapeDtypeStruct((count, *shape), jnp.float32)
    return translate(jax.jit(jax.vmap(function)).trace(rows).jaxpr)


def in_numpy(program: ArrayProgram, output: Value, x: np.ndarray) -> np.ndarray:
    body = NumpyLines(program, output)
    space: dict[str, Any] = {"np": np, "W": body.weights, **HELPERS}
    exec("def forward(x):\n" + textwrap.indent("\n".join(body.lines), "    "), space)
    with np.errstate(all="ignore"):
        found: np.ndarray = space["forward"](x)
    return found


def in_onnx(program: ArrayProgram, output: Value, x: np.ndarray) -> np.ndarray:
    graph = OnnxGraph()
    graph.count_rows("x")
    inner = graph.add_program(program, output, "x")
    rows = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), ["n", *x.shape[1:]])
    kind = helper.np_dtype_to_tensor_dtype(output.dtype)
    found = helper.make_tensor_value_info("found", kind, [None] * output.ndim)
    graph.nodes.append(helper.make_node("Identity", [inner], ["found"]))
    made = helper.make_graph(graph.nodes, "g", [rows], [found], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def attend(x: Any) -> Any:
    """Attention of four pieces of an example to one another."""
    pieces = x.reshape(2, 4)[:, :2] @ WEIGHTS[:2]
    return (jax.nn.softmax(pieces @ pieces.T, axis=-1) @ pieces).ravel()


def convolved(x: Any, **given: Any) -> Any:
    lhs = x.reshape(1, 2, 4)
    kernel = jnp.asarray(KERNEL[:, : 2 // given.get("feature_group_count", 1), :2])
    kernel = kernel[:2] if "feature_group_count" in given else kernel
    return lax.conv_general_dilated(lhs, kernel, **given).ravel()


def recurrent(x: Any) -> Any:
    def turn(state: Any, piece: Any) -> Any:
        state = jnp.tanh(WEIGHTS[:2, :2] @ state + piece)
        return state, state.sum()

    state, sums = lax.scan(turn, jnp.zeros(2), x.reshape(4, 2), reverse=True)
    return jnp.concatenate([state, sums])


def window(combine: Any, start: float) -> Callable[[Any], Any]:
    return lambda x: lax.reduce_window(x.reshape(2, 4), start, combine, (1, 2), (1, 2), ((0, 0), (1, 1))).ravel()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: jnp.stack(
        [*map(jnp.sum, (jnp.exp(x), jnp.expm1(x), jnp.log1p(abs(x)), lax.rsqrt(1 + x * x), x**3, x**-2, abs(x) ** 0.7))]
    ),
    "waves": lambda x: jnp.sin(x) + jnp.cos(2 * x) + jnp.tan(x / 9) + jnp.arctan(x) + jnp.tanh(x),
    "hyperbolic": lambda x: jnp.sinh(x / 9) + jnp.cosh(x / 9) + jnp.arcsinh(x) + jnp.arctanh(x / 9),
    "inverse": lambda x: jnp.arcsin(x / 9) + jnp.arccos(x / 9) + jnp.arccosh(1.1 + abs(x)),
    "rounding": lambda x: jnp.round(x) + jnp.floor(x) + jnp.ceil(x) + jnp.trunc(x) + lax.round(x) + jnp.sign(x),
    "remainder": lambda x: lax.rem(x, jnp.float32(0.7)) + (x.astype(int) // 2) + lax.div(x.astype(int), 2),
    "selection": lambda x: jnp.where(x > 0.1, x, -1.0) + lax.select_n((x > 0).astype(jnp.int32) + 1, x, 2 * x, 3 * x),
    "logic": lambda x: ((x > 0) & ~(x < 1)) | ((x >= 2) ^ (x <= -2)) | (x == 0) | (x != x),
    "finite": lambda x: jnp.isfinite(1 / (x - x[0])) & ~jnp.isnan(x) & jnp.isfinite(x / x),
    "bounds": lambda x: jnp.clip(x, -0.5, 0.5) + lax.clamp(-1.0, x, 1.0) + jnp.maximum(x, 0.2) + jnp.minimum(x, x[1]),
    "gelu": lambda x: (
        jax.nn.gelu(x, approximate=False) + lax.erf(x) + jax.nn.gelu(x) + jax.nn.sigmoid(x) + jax.nn.softplus(x)
    ),
    "activations": lambda x: jax.nn.selu(x) + jax.nn.silu(x) + jax.nn.mish(x) + jax.nn.relu6(x) + jax.nn.soft_sign(x),
    "softmax": lambda x: jax.nn.log_softmax(x) + jax.nn.softmax(x) + jax.nn.logsumexp(x),
    "moments": lambda x: jnp.stack([x.mean(), x.std(), x.var(), x.prod(), x.max(), x.min(), jnp.linalg.norm(x)]),
    "truths": lambda x: jnp.stack([(x > 0).any(), (x > -9).all(), (x > 0).sum() > 3]),
    "extremes": lambda x: jnp.stack([x.argmax(), x.argmin()]),
    "sums": lambda x: jnp.cumsum(x) + jnp.cumsum(x.reshape(2, 4), axis=1).ravel() + lax.cumsum(x, reverse=True),
    "shapes": lambda x: jnp.concatenate([x.reshape(4, 2).T.ravel(), x[::-1], x[1:7:2], jnp.pad(x, (2, 1))]),
    "pieces": lambda x: jnp.concatenate([*reversed(jnp.split(x, [3, 5])), jnp.roll(x, 3), jnp.tile(x, 2), x[-2:]]),
    "grids": lambda x: (jnp.repeat(x[:, None], 3, axis=1) * jnp.arange(3.0) + jnp.linspace(0, 1, 3)).ravel(),
    "weights": lambda x: jnp.tanh(0.5 * (WEIGHTS @ x[:4]) + 1.0) @ WEIGHTS + WEIGHTS[0] @ x[4:],
    "products": lambda x: jnp.einsum("ab,cb->ca", x.reshape(2, 4), WEIGHTS).ravel() + jnp.outer(x[:6], x[:2]).ravel(),
    "batched": lambda x: jnp.einsum("cf,cfs->cs", x.reshape(4, 2), jnp.asarray(KERNEL[:1].repeat(4, 0))).ravel(),
    "attention": attend,
    "lookup": lambda x: jnp.asarray(TABLE)[(abs(x) * 2).astype(jnp.int32)].ravel(),
    "take": lambda x: jnp.take(jnp.asarray(TABLE[:, 0]), (3 * x).astype(jnp.int32), mode="fill"),
    "gather": lambda x: jnp.concatenate([x[jnp.array([3, 0, 3])], x.reshape(2, 4)[:, jnp.array([1, 1])].ravel()]),
    "one hot": lambda x: jax.nn.one_hot(jnp.clip(x, 0, 3).astype(jnp.int32), 4).ravel(),
    "slices": lambda x: lax.dynamic_slice(x, (2,), (3,)) + lax.dynamic_index_in_dim(x, 20, keepdims=False),
    "recurrence": recurrent,
    "convolution": lambda x: convolved(x, window_strides=(1,), padding="SAME"),
    "strided": lambda x: convolved(x, window_strides=(2,), padding=((1, 2),), rhs_dilation=(2,)),
    "grouped": lambda x: convolved(x, window_strides=(1,), padding="VALID", feature_group_count=2),
    "max pool": window(lax.max, -np.inf),
    "min pool": window(lax.min, np.inf),
    "sum pool": window(lax.add, 0.0),
    "constant": lambda x: jnp.arange(4.0),
    "derivative": jax.grad(lambda x: (jnp.tanh(WEIGHTS @ x[:4]) ** 2).sum()),
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(x) * lax.optimization_barrier(lax.stop_gradient(x))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_means_the_same_in_numpy_and_in_onnx(name: str) -> None:
    function = FUNCTIONS[name]
    program, output = translated(function, (8,))
    draw = np.random.default_rng(0)
    for rows in (5, 1):
        x = draw.normal(size=(rows, 8)).astype(np.float32)
        x[0, :2] = (0.0, 2.5)
        wanted = np.asarray(jax.vmap(function)(jnp.asarray(x)))
        for found in (in_numpy(program, output, x), in_onnx(program, output, x)):
            assert found.shape == wanted.shape
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_every_rule_is_tried() -> None:
    """Each primitive with a translation stands in one of the functions above."""
    seen: set[str] = set()

    def note(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            seen.add(equation.primitive.name)
            for value in equation.params.values():
                for inner in value if isinstance(value, (tuple, list)) else [value]:
                    if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                        note(getattr(inner, "jaxpr", inner))

    for function in FUNCTIONS.values():
        note(jax.make_jaxpr(jax.vmap(function))(jnp.ones((5, 8))).jaxpr)
    assert set(RULES) - seen == set()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (jnp.sort, "uses `sort`"),
        (lambda x: lax.while_loop(lambda v: v.sum() < 9, lambda v: v + 1, abs(x)), "uses `while`"),
        (lambda x: x[(abs(x)).astype(jnp.int32)], "uses `gather` with indices into several axes"),
        (lambda x: x.at[0].set(1.0), "uses `scatter`"),
    ],
)
def test_what_has_no_translation_is_refused_by_name(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        translated(function, (8,))


def test_operations_on_weights_alone_are_done_at_export() -> None:
    program, output = translated(lambda x: x[:4] @ (jnp.asarray(WEIGHTS).T * 2.0 + 1.0), (8,))
    assert [step.operation for step in program.useful_steps(output)] == ["slice", "matmul"]


def test_a_layer_is_one_product_one_sum_and_its_activation() -> None:
    """Transpositions that vectorising adds around a weight matrix are gone, with a scale on the weights too."""
    program, output = translated(lambda x: jnp.tanh(0.5 * (WEIGHTS @ x) + 1.0), (4,))
    assert [step.operation for step in program.useful_steps(output)] == ["matmul", "multiply", "add", "tanh"]


def test_what_is_computed_twice_is_computed_once() -> None:
    program, output = translated(lambda x: jnp.where(x > 0.0, x, 0.0) + jnp.where(x > 0.0, 1.0, x), (4,))
    assert [step.operation for step in program.useful_steps(output)].count("greater") == 1


def test_the_error_function_and_convolutions_agree_with_scipy() -> None:
    from scipy import special

    x = np.linspace(-4, 4, 50).astype(np.float32)
    np.testing.assert_allclose(erf(x), special.erf(x), atol=1e-7)
    image, kernel = np.ones((1, 1, 5, 5)), np.ones((1, 1, 3, 3))
    found = convolve(image, kernel, strides=(2, 2), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1)
    np.testing.assert_array_equal(found[0, 0], [[4, 6, 4], [6, 9, 6], [4, 6, 4]])
