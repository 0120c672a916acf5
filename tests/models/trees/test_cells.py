"""The cells of recursive networks: their biases, and that gates that are open or shut do what they are for."""

import jax.numpy as jnp
import numpy as np

from gradwise.models.trees.cells import TreeGru, TreeLstm

CHILDREN = jnp.asarray([[[0.1, -0.2], [1.0, 2.0]], [[0.3, 0.5], [-3.0, 4.0]]])  # child, vector, unit


def test_open_forget_gates_pass_both_memories_on() -> None:
    driven = jnp.zeros((5, 2)).at[0].set(-99.0).at[1:3].set(99.0)
    state = TreeLstm().join(driven, jnp.zeros((2, 5, 2)), CHILDREN, jnp.asarray(2.0))
    np.testing.assert_allclose(state[1], [-2.0, 6.0])
    one = TreeLstm().join(driven.at[2].set(-99.0), jnp.zeros((2, 5, 2)), CHILDREN, jnp.asarray(2.0))
    np.testing.assert_allclose(one[1], [1.0, 2.0])
    np.testing.assert_array_equal(TreeLstm().initial_bias(2), [[0, 0], [1, 1], [1, 1], [0, 0], [0, 0]])


def test_a_gate_that_keeps_gives_the_mean_of_the_children() -> None:
    driven = jnp.zeros((3, 2)).at[1].set(99.0)
    both = TreeGru().join(driven, jnp.zeros((2, 3, 2)), CHILDREN[:, :1], jnp.asarray(2.0))
    np.testing.assert_allclose(both, [[0.2, 0.15]], atol=1e-6)
    alone = CHILDREN[:, :1].at[1].set(0.0)
    one = TreeGru().join(driven, jnp.zeros((2, 3, 2)), alone, jnp.asarray(1.0))
    np.testing.assert_allclose(one, [[0.1, -0.2]], atol=1e-6)
