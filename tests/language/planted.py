"""A source of words whose entropy is known in closed form, and models that learned it."""

import dataclasses
import functools

import numpy as np

import gradwise as gw
from gradwise import language
from gradwise.language.language_model import LanguageModel

WORDS = tuple("abcde")


@dataclasses.dataclass(frozen=True)
class Source:
    """Each word follows the two before it with these probabilities (5, 5, 5)."""

    chances: np.ndarray

    def pairs(self) -> np.ndarray:
        """The stationary distribution of two neighbours (5, 5)."""
        moves = np.zeros((25, 25))
        for first in range(5):
            for second in range(5):
                for third in range(5):
                    moves[5 * first + second, 5 * second + third] = self.chances[first, second, third]
        values, vectors = np.linalg.eig(moves.T)
        found = np.real(vectors[:, np.argmax(np.real(values))])
        return (found / found.sum()).reshape(5, 5)

    def perplexity(self) -> float:
        """exp of the entropy of a word given the two before it."""
        logs = np.log(np.where(self.chances > 0, self.chances, 1.0))
        return float(np.exp(-np.sum(self.pairs()[:, :, None] * self.chances * logs)))

    def draw(self, count: int, seed: int) -> list[str]:
        random, numbers = np.random.default_rng(seed), [0, 0]
        for _ in range(count + 50):
            numbers.append(int(random.choice(5, p=self.chances[numbers[-2], numbers[-1]])))
        return [WORDS[number] for number in numbers[-count:]]


_DRAW = np.random.default_rng(5)
# Words that follow two others are for the network that reads two; the recurrent one needs more text to learn them.
TRIGRAMS = Source(_DRAW.dirichlet(np.full(5, 0.35), size=(5, 5)))
BIGRAMS = Source(np.tile(_DRAW.dirichlet(np.full(5, 0.35), size=(1, 5)), (5, 1, 1)))
SOURCES = {"feed-forward": TRIGRAMS, "recurrent": BIGRAMS}
TRAIN, VALID, TEST = TRIGRAMS.draw(6000, 1), TRIGRAMS.draw(1000, 2), TRIGRAMS.draw(6000, 3)


@functools.cache
def trained(kind: str) -> LanguageModel:
    """A small model of a source, trained once in this process."""
    models = {
        "feed-forward": gw.FeedForwardLanguageModel(context=2, size=6, units=(24,)),
        "recurrent": gw.RecurrentLanguageModel(cell=gw.Gru(), size=6, units=(12,)),
    }
    train, valid, test = (SOURCES[kind].draw(count, seed) for seed, count in enumerate((6000, 1000, 6000), start=1))
    rate = gw.Adam(0.02, schedule=gw.OneCycle())
    return language.fit(train, valid=valid, test=test, model=models[kind], epochs=8, batch=4, steps=16, optimiser=rate)
