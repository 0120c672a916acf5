"""Challenge a choice: is this learning rate really better than others on this data set?"""

import jax

import gradwise as gw

recipe = gw.defaults.classification(
    model=gw.Mlp(widths=(32,)),
    optimiser=gw.Sgd(learning_rate=0.1),
    stopping=gw.Patience(initial_examples=20_000, initial_epochs=0, epochs=30),
)
data = gw.EvaluationData.of(gw.read("digits"), recipe.split, metric="error_rate", key=jax.random.key(0))

# Each rate trains with the same six seeds; runs with the same seed share initial weights and the order of examples.
with gw.LocalExecutor(data) as executor:
    found = gw.challenge(recipe, "optimiser.learning_rate", (0.01, 0.12), data, executor, seeds=6)

for rate, scores in found.scores.items():
    print(f"{rate:<5g}", "  ".join(f"{score:.1%}" for score in scores))
print(found.sentence)
