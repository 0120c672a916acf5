"""Learning rates by kind of parameter (row C10): factors on one optimiser's updates, by what a parameter is for.

    RatesByKind(AdamW(0.04), bias=0.1, embedding=0.1, input_factor=6.0, activation=0.1)

`Grouped` gives each group its own optimiser; here there is one optimiser with one learning rate to tune, and each kind
moves that many times as fast. A decay inside the optimiser is multiplied together with its step.

| kind         | parameters                                                              |
|--------------|-------------------------------------------------------------------------|
| bias         | those called `bias`                                                     |
| embedding    | everything under `inputs.numbers`, `inputs.tables` and `inputs.texts`   |
| input factor | those called `factor`                                                   |
| activation   | those called `slope`                                                    |
"""

from typing import Any

import optax
from jaxtyping import PyTree, Scalar

from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob
from ...specs.paths import map_named
from ...specs.priors import LogUniform

_FACTOR: dict[str, Any] = {"allowed": "[0, inf)", "prior": LogUniform(0.01, 10.0), "row": "C10"}


def kind_of(name: str) -> str:
    """What the parameter of this path is for: "bias", "embedding", "input_factor", "activation" or "weight"."""
    words = name.split(".")
    if words[:1] == ["inputs"] and words[1:2] in (["numbers"], ["tables"], ["texts"]):
        return "embedding"
    return {"bias": "bias", "factor": "input_factor", "slope": "activation"}.get(words[-1], "weight")


class RatesByKind(AbstractOptimiser):
    """Multiplies an optimiser's updates by a factor for each kind of parameter."""

    optimiser: AbstractOptimiser
    bias: float = knob(0.1, **_FACTOR, about="factor on the learning rate of biases")
    embedding: float = knob(0.1, **_FACTOR, about="factor on the learning rate of embeddings of numbers and words")
    input_factor: float = knob(6.0, **_FACTOR, about="factor on the learning rate of the input factors")
    activation: float = knob(0.1, **_FACTOR, about="factor on the learning rate of activation slopes")

    def factor(self, name: str) -> Any:
        """What the update of the parameter at this path is multiplied by."""
        kind = kind_of(name)
        return 1.0 if kind == "weight" else getattr(self, kind)

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = self.optimiser.build()

        def update(updates: PyTree, state: PyTree, parameters: PyTree = None, **extra: Any) -> Any:
            moved, state = inner.update(updates, state, parameters, **extra)
            return map_named(lambda name, move: self.factor(name) * move, moved), state

        return optax.GradientTransformationExtraArgs(inner.init, update)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return self.optimiser.judged(parameters, state)

    def rate(self, state: PyTree) -> Scalar:
        """The rate of the weights."""
        return self.optimiser.rate(state)
