"""The cost of a program against closed forms, and what compilation leaves against programs whose waste is planted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.checking.flow.program_cost import compiled_program, count, read_compiled
from gradwise.tracing.program import trace


def counted(function, parameters, batch):
    program = trace(function, parameters, batch, jax.random.key(0))
    return program, *count(program, parameters, batch, jax.random.key(0))


def test_products_are_counted_exactly():
    weights = jnp.ones((3, 4, 5))

    def function(w, x, key):  # (3, 4, 5) by (3, 2, 4): 3 products of (2, 4) and (4, 5)
        return jnp.einsum("bij,bki->bkj", w, x)

    program, counting, _ = counted(function, weights, jnp.ones((3, 2, 4)))
    assert sum(products for _, products in counting.costs) == 2 * 3 * 2 * 4 * 5
    assert len(counting.costs) == len(program.sites)


@pytest.mark.parametrize(("groups", "stride"), [(1, 1), (2, 1), (1, 2)])
def test_convolutions_are_counted_exactly(groups, stride):
    kernel = jnp.ones((6, 4 // groups, 3, 3))

    def function(w, x, key):
        return jax.lax.conv_general_dilated(x, w, (stride, stride), "VALID", feature_group_count=groups)

    out = jax.eval_shape(function, kernel, jnp.ones((2, 4, 9, 9)), None)
    _, counting, _ = counted(function, kernel, jnp.ones((2, 4, 9, 9)))
    assert counting.costs[0] == (2.0 * out.size * 3 * 3 * 4 // groups,) * 2


def test_a_loop_costs_its_length():
    def function(w, x, key):
        return jax.lax.scan(lambda carry, row: (jnp.tanh(w @ carry + row), None), jnp.zeros(3), x)[0]

    _, counting, _ = counted(function, jnp.ones((3, 3)), jnp.ones((7, 3)))
    assert tuple(map(sum, zip(*counting.costs, strict=True))) == (7 * (2 * 9 + 3 + 3), 7 * 2 * 9)
    program, counting, _ = counted(function, jnp.ones((3, 3)), jnp.ones((700, 3)))  # too long to be opened
    (scan,) = (site.number for site in program.sites if site.primitive == "scan")
    assert counting.costs[scan] == (700 * (2 * 9 + 3 + 3), 700 * 2 * 9)


def test_the_dearer_branch_of_a_choice_counts():
    def function(w, x, key):
        return jax.lax.cond(x[0] > 0, lambda v: w @ v, lambda v: 2 * v, x)

    program, counting, _ = counted(function, jnp.ones((3, 3)), jnp.ones(3))
    (choice,) = (site.number for site in program.sites if site.primitive == "cond")
    assert counting.costs[choice] == (18.0, 18.0)


def test_elementwise_is_one_each_and_moving_is_free():
    def function(w, x, key):
        return jnp.sin(x).T.reshape(-1)[:4]

    program, counting, _ = counted(function, jnp.ones(1), jnp.ones((5, 6)))
    costs = {site.primitive: counting.costs[site.number][0] for site in program.sites}
    assert costs.pop("sin") == 30
    assert set(costs.values()) == {0.0}


def test_what_is_computed_twice_is_seen():
    def twice(w, x, key):
        return jnp.sum(jnp.sin(w * x)) + jnp.sum(jnp.sin(w * x)) + jnp.sum(jnp.sin(w * x + 1))

    _, counting, _ = counted(twice, jnp.ones(4), jnp.ones(4))
    assert len(counting.repeated) == 4  # mul, sin, sum; and the third's mul


def test_closed_over_arrays_are_found_where_they_are_read():
    table = jnp.asarray(np.arange(400.0, dtype=np.float32).reshape(20, 20))

    def function(w, x, key):
        hidden = jnp.tanh(w * x)
        return jax.jit(lambda h: h @ table)(hidden)

    program, counting, _ = counted(function, jnp.ones(20), jnp.ones((2, 20)))
    ((array, site),) = [(a, s) for a, s in counting.constants.values() if a.size == 400]
    assert np.array_equal(np.asarray(array), np.asarray(table))
    assert program.sites[site].primitive == "dot_general"


def test_compilation_fuses_and_drops():
    def function(x):
        dead = jnp.sin(x) @ jnp.ones((50, 60))
        del dead
        return jnp.sum(jnp.tanh(x) * 2 + 1)

    compiled = compiled_program(function, jnp.ones((40, 50)))
    assert "sine" not in compiled.kinds
    assert "dot" not in compiled.kinds
    assert compiled.kinds["fusion"] >= 1
    assert compiled.fused >= 3
    assert compiled.argument_bytes == 4 * 40 * 50
    assert compiled.output_bytes == 4
    assert compiled.operations < 2 * 40 * 50 * 60  # the product is gone


TEXT = """HloModule jit_f, is_scheduled=true

%fused_computation (param_0: f32[4]) -> f32[4] {
  %param_0 = f32[4]{0} parameter(0)
  %constant.1 = f32[] constant(2)
  %mul.1 = f32[4]{0} multiply(%param_0, %param_0), metadata={op_name="a (b) c"}
  ROOT %add.1 = f32[4]{0:T(128)} add(%mul.1, %mul.1)
}

ENTRY %main.1 (x.1: f32[4]) -> (f32[4], f32[4]) {
  %x.1 = f32[4]{0} parameter(0)
  %both = (f32[4]{0}, f32[4]{0}) fusion(%x.1), kind=kLoop, calls=%fused_computation
  %part = f32[4]{0} get-tuple-element(%both), index=0
  %dot.3 = f32[4]{0} dot(%part, %part), lhs_contracting_dims={0}
  ROOT %tuple.1 = (f32[4]{0}, f32[4]{0}) tuple(%part, %dot.3)
}
"""


def test_the_text_of_a_program_is_read():
    read = read_compiled(TEXT)
    assert read.kinds == {"multiply": 1, "add": 1, "fusion": 1, "dot": 1}
    assert (read.instructions, read.kernels, read.kinds["fusion"], read.fused) == (4, 2, 1, 2)
    assert read_compiled("").instructions == 0
