"""Your own optimiser: it measures the curvature along the gradient and steps towards the minimum on that line."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gradwise as gw


class SteepestDescent(gw.AbstractOptimiser):
    """theta <- theta - eta g with eta = caution g'g / g'Gg, G the batch's Gauss-Newton matrix: no learning rate."""

    needs_objective = True
    caution: float = gw.knob(
        0.5, allowed="(0, 1]", prior=gw.LogUniform(0.05, 1.0), row="H2", about="the share of the step taken"
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        def init(parameters: Any) -> jax.Array:
            return jnp.ones(())

        def update(
            gradient: Any, state: jax.Array, parameters: Any = None, *, objective: gw.Objective, **_: Any
        ) -> Any:
            curved = gw.gauss_newton_vector(objective.outputs, objective.loss_of, parameters, gradient)
            along = optax.tree.vdot(gradient, curved)
            eta = jnp.where(
                along > 0, self.caution * optax.tree.norm(gradient) ** 2 / jnp.where(along > 0, along, 1.0), 0.0
            )
            return jax.tree.map(lambda g: -eta * g, gradient), jnp.maximum(eta, 1e-12)

        return optax.GradientTransformationExtraArgs(init, update)

    def rate(self, state: jax.Array) -> jax.Array:
        return state


def main() -> None:
    # It must descend, compile only once, and train in a population exactly as it does alone.
    gw.check_optimiser(SteepestDescent())
    inputs, targets = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(inputs, targets, random_state=0)
    network = gw.Classifier(optimiser=gw.MovingAverage(SteepestDescent()), max_time=20, random_state=0)
    print(f"accuracy {network.fit(train_x, train_y).score(test_x, test_y):.3f}")


if __name__ == "__main__":
    main()
