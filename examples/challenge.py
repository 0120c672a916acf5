"""To be tried and challenged: is this learning rate really better than others, on these very data?"""

import gradwise
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime import keys
from gradwise.searching.comparison import challenge
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executors import LocalExecutor
from gradwise.training.stopping import Patience

recipe = gradwise.defaults.classification(
    model=Mlp(widths=(32,)),
    optimiser=Sgd(learning_rate=0.1),
    stopping=Patience(initial_examples=20_000, initial_epochs=0, epochs=30),
)
ground = EvaluationData.of(gradwise.read("digits"), recipe.split, metric="error_rate", key=keys.from_seed(0))

# Each rate trains with the same six seeds; the n-th runs share initial weights and the order of the examples.
with LocalExecutor(ground) as executor:
    found = challenge(recipe, "optimiser.learning_rate", (0.01, 0.12), ground, executor, seeds=6)

for rate, scores in found.scores.items():
    print(f"{rate:<5g}", "  ".join(f"{score:.1%}" for score in scores))
print(found.sentence)
