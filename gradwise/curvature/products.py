"""Second derivatives without the matrix (row B6): products of Jacobian, Hessian and Gauss-Newton matrix with a vector.

A vector is a tree like the parameters. Each product costs a few passes through the function, and no memory beyond them.

    jacobian_vector(outputs, parameters, v)              J v: forward
    vector_jacobian(outputs, parameters, u)              J' u: backward
    hessian_vector(loss, parameters, v)                  H v: forward over backward (the R-operator)
    gauss_newton_vector(outputs, loss, parameters, v)    J' (d2 loss / d outputs2) J v

They take any functions of the user's. An optimiser that needs many products at one point asks for the linear map once:

    product = gauss_newton_map(outputs, loss, parameters)
    product(v), product(w)
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree, Scalar


def jacobian_vector(outputs: Callable[[PyTree], Any], parameters: PyTree, vector: PyTree) -> Any:
    """How the outputs change along a direction of the parameters."""
    return jax.jvp(outputs, (parameters,), (vector,))[1]


def vector_jacobian(outputs: Callable[[PyTree], Any], parameters: PyTree, vector: Any) -> PyTree:
    """The gradient in the parameters of `vector . outputs`."""
    return jax.vjp(outputs, parameters)[1](vector)[0]


def hessian_vector(loss: Callable[[PyTree], Scalar], parameters: PyTree, vector: PyTree) -> PyTree:
    """How the gradient changes along a direction: forward differentiation of the backward pass."""
    return jax.jvp(jax.grad(loss), (parameters,), (vector,))[1]


def hessian_map(loss: Callable[[PyTree], Scalar], parameters: PyTree) -> Callable[[PyTree], PyTree]:
    """The Hessian as a linear map; the gradient's own pass is made once for all products."""
    return jax.linearize(jax.grad(loss), parameters)[1]


def gauss_newton_map(
    outputs: Callable[[PyTree], Any], loss: Callable[[Any], Scalar], parameters: PyTree
) -> Callable[[PyTree], PyTree]:
    """J' H J as a linear map, H the Hessian of the loss in the outputs: never negative where the loss is convex."""
    point, forward = jax.linearize(outputs, parameters)
    backward = jax.linear_transpose(forward, parameters)
    curvature = hessian_map(loss, point)

    def product(vector: PyTree) -> PyTree:
        return backward(curvature(forward(vector)))[0]

    return product


def gauss_newton_vector(
    outputs: Callable[[PyTree], Any], loss: Callable[[Any], Scalar], parameters: PyTree, vector: PyTree
) -> PyTree:
    """The Gauss-Newton matrix times a vector."""
    return gauss_newton_map(outputs, loss, parameters)(vector)
