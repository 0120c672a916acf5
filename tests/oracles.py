"""Reference implementations in plain NumPy and 64 bits, written to be read: what compiled parts are compared with.

    points = heavy_ball(lambda point, update: curvature * point, start, 20, rate=0.1, momentum=0.9)
    gradient = net_gradient(parameters, inputs, targets)

An optimiser's oracle takes a gradient (a function of the point and of the update's number, from 0), a starting point
and a number of updates; it returns all points, the start first.
"""

from collections.abc import Callable

import numpy as np

Gradient = Callable[[np.ndarray, int], np.ndarray]
Parameters = dict[str, np.ndarray]


def sgd(gradient: Gradient, start: np.ndarray, updates: int, *, rate: float) -> np.ndarray:
    """theta <- theta - rate g."""
    points = [np.asarray(start, np.float64)]
    for update in range(updates):
        points.append(points[-1] - rate * gradient(points[-1], update))
    return np.stack(points)


def smoothed(gradient: Gradient, start: np.ndarray, updates: int, *, rate: float, beta: float) -> np.ndarray:
    """The chapter's momentum: g_bar <- (1 - beta) g_bar + beta g, theta <- theta - rate g_bar."""
    points = [np.asarray(start, np.float64)]
    mean = np.zeros_like(points[0])
    for update in range(updates):
        mean = (1.0 - beta) * mean + beta * gradient(points[-1], update)
        points.append(points[-1] - rate * mean)
    return np.stack(points)


def heavy_ball(gradient: Gradient, start: np.ndarray, updates: int, *, rate: float, momentum: float) -> np.ndarray:
    """theta_{t+1} = theta_t - rate g_t + momentum (theta_t - theta_{t-1}): Polyak's own form."""
    points = [np.asarray(start, np.float64)]
    before = points[0]
    for update in range(updates):
        here = points[-1]
        points.append(here - rate * gradient(here, update) + momentum * (here - before))
        before = here
    return np.stack(points)


def nesterov(gradient: Gradient, start: np.ndarray, updates: int, *, rate: float, momentum: float) -> np.ndarray:
    """Nesterov's own form: the gradient is taken one step of momentum ahead.

    v <- momentum v - rate g(theta + momentum v), theta <- theta + v; returned are the points theta + momentum v where
    the gradients are taken, since those are the points an optimiser fed with present gradients stands at.
    """
    theta = np.asarray(start, np.float64)
    velocity = np.zeros_like(theta)
    points = [theta]
    for update in range(updates):
        velocity = momentum * velocity - rate * gradient(theta + momentum * velocity, update)
        theta = theta + velocity
        points.append(theta + momentum * velocity)
    return np.stack(points)


def adam(
    gradient: Gradient,
    start: np.ndarray,
    updates: int,
    *,
    rate: float,
    first: float = 0.9,
    second: float = 0.999,
    epsilon: float = 1e-8,
    decay: float | np.ndarray = 0.0,
) -> np.ndarray:
    """Adam as published; with `decay` (a number for each parameter) AdamW: the shrinking stands outside the moments."""
    points = [np.asarray(start, np.float64)]
    mean = np.zeros_like(points[0])
    square = np.zeros_like(points[0])
    for update in range(updates):
        here = points[-1]
        slope = gradient(here, update)
        mean = first * mean + (1.0 - first) * slope
        square = second * square + (1.0 - second) * slope**2
        unbiased_mean = mean / (1.0 - first ** (update + 1))
        unbiased_square = square / (1.0 - second ** (update + 1))
        points.append(here - rate * (unbiased_mean / (np.sqrt(unbiased_square) + epsilon) + decay * here))
    return np.stack(points)


def softmax(outputs: np.ndarray) -> np.ndarray:
    """Row by row."""
    powers = np.exp(outputs - outputs.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def net_gradient(parameters: Parameters, inputs: np.ndarray, targets: np.ndarray) -> tuple[float, Parameters]:
    """Loss and gradient, *summed* over the examples, of a net with one tanh layer and softmax outputs.

    `parameters` holds V (hidden, inputs), b (hidden), W (classes, hidden), c (classes); without V and b the net is
    linear. Derived by hand: delta = p - onehot at the outputs, (W^T delta)(1 - h^2) below.
    """
    hidden = np.tanh(inputs @ parameters["V"].T + parameters["b"]) if "V" in parameters else inputs
    chances = softmax(hidden @ parameters["W"].T + parameters["c"])
    loss = -float(np.log(chances[np.arange(len(targets)), targets]).sum())
    delta = chances - np.eye(chances.shape[1])[targets]
    gradient = {"W": delta.T @ hidden, "c": delta.sum(0)}
    if "V" in parameters:
        below = (delta @ parameters["W"]) * (1.0 - hidden**2)
        gradient |= {"V": below.T @ inputs, "b": below.sum(0)}
    return loss, gradient


def net_epoch(
    parameters: Parameters, inputs: np.ndarray, targets: np.ndarray, order: np.ndarray, size: int, rate: float
) -> tuple[Parameters, list[float]]:
    """One epoch of mini-batch gradient descent (row B1): the parameters after it, and the loss before each update.

    Every update divides by the size B, in the short last batch too, so that each example counts alike in the epoch.
    """
    losses = []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        loss, gradient = net_gradient(parameters, inputs[rows], targets[rows])
        losses.append(loss / len(rows))
        parameters = {name: value - rate * gradient[name] / size for name, value in parameters.items()}
    return parameters, losses


def layer_norm(a: np.ndarray, gain: np.ndarray, shift: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    """Each row has mean 0 and variance 1, then gain and shift."""
    return (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + epsilon) * gain + shift


def batch_norm(a: np.ndarray, gain: np.ndarray, shift: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    """Each column has mean 0 and variance 1, then gain and shift."""
    return (a - a.mean(0)) / np.sqrt(a.var(0) + epsilon) * gain + shift
