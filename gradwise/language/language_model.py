"""A trained language model: exact perplexities, next words, samples, embeddings, files.

model.perplexity("test.txt")              exp of the mean -log P of a word, by all words, the state carried on
model.next_words("the cat", 5)            [("sat", 0.21), ("is", 0.07), ...]
model.sample(words=50, temperature=0.8)
model.nearest("monday")
model.save("runs/words")
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .. import __version__
from ..models.language.network import AbstractLanguageNetwork
from ..records.fit import Fit
from ..runtime.errors import RequestError
from ..runtime.files import write_whole
from ..training.model_files import MODEL, load_predictor, save_predictor
from ..training.predictor import Predictor
from .embeddings import AnalogyScore, SimilarityScore, WordVectors
from .text_windows import window_rows
from .tokens import END, Text, Vocabulary, read_tokens

WORDS = "words.json"  # beside the network, in the folder of a model
_STEPS, _WINDOWS = 32, 32  # words of a window, and windows of one call, where a text is measured


@eqx.filter_jit
def _summed_losses(network: Any, state: PyTree, rows: Float[Array, "n length"]) -> tuple[PyTree, Float[Array, " n"]]:
    """The state after some windows, and the summed -log P of the words of each."""

    def turn(state: PyTree, window: Array) -> tuple[PyTree, Array]:
        features, state = network.read(window, state)
        words = window[-features.shape[0] :].astype(jnp.int32)
        told = network.word_layer.log_probability(features, jnp.maximum(words, 0))
        return state, -jnp.sum(jnp.where(words >= 0, told, 0.0))

    return jax.lax.scan(turn, state, rows)


@eqx.filter_jit
def _step(network: Any, state: PyTree, window: Float[Array, " length"]) -> tuple[PyTree, Float[Array, " words"]]:
    """The state after one more word, and the log-probabilities of the next."""
    features, state = network.read(window, state)
    return state, network.word_layer.log_probabilities(features)[-1]


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A trained network of words with its vocabulary; `record` says how it was trained, if it was in this session."""

    predictor: Predictor
    vocabulary: Vocabulary
    perplexities: dict[str, float] = dataclasses.field(default_factory=dict)
    record: Fit | None = dataclasses.field(default=None, repr=False)

    def __repr__(self) -> str:
        told = ", ".join(f"{name} perplexity {value:.4g}" for name, value in self.perplexities.items())
        kind = type(self.network).__name__.removesuffix("Network")
        return f"LanguageModel({kind} of {len(self.vocabulary):,} words{', ' if told else ''}{told})"

    @property
    def network(self) -> Any:
        """The network that reads numbers of words."""
        return self.predictor.network

    @property
    def embeddings(self) -> WordVectors:
        """The words and their vectors: neighbours, similarities, analogies, a file for other programs."""
        return WordVectors(self.vocabulary.words, np.asarray(self.network.embedding))

    def nearest(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words whose embeddings are most like this word's, with the cosine of the angle."""
        return self.embeddings.nearest(word, count)

    def export_word2vec(self, path: str | Path) -> Path:
        """Writes the embeddings in the text format of word2vec."""
        return self.embeddings.export_word2vec(path)

    def word_similarity(self, path: str | Path) -> SimilarityScore:
        """Spearman's correlation of the embeddings' cosines with people's judgements of pairs."""
        return self.embeddings.word_similarity(path)

    def analogies(self, path: str | Path) -> AnalogyScore:
        """The share of word2vec's questions that the embeddings answer."""
        return self.embeddings.analogies(path)

    @property
    def valid_perplexity(self) -> float:
        """The perplexity of the validation text; NaN if it is not known."""
        return self.perplexities.get("valid", math.nan)

    @property
    def test_perplexity(self) -> float:
        """The perplexity of the test text; NaN if there was none."""
        return self.perplexities.get("test", math.nan)

    @property
    def history(self) -> Any:
        """One row per validation during training, with perplexities beside losses; none of a model from a file."""
        import pandas as pd

        frame = pd.DataFrame({} if self.record is None else self.record.history)
        for part in ("train", "valid") if len(frame) else ():
            frame[f"{part}_perplexity"] = np.exp(frame[f"{part}_loss"])
        return frame

    def perplexity(self, text: Text) -> float:
        """exp of the mean negative log-probability of a word of the text, read from beginning to end.

        Exact: by all words, `<eos>` and `<unk>` included, and with the state carried over the whole text.
        """
        numbers = self.vocabulary.encode(read_tokens(text))
        begin = self.vocabulary.end
        rows = window_rows(numbers, context=self.network.context, steps=_STEPS, begin=begin)
        state, total = self.network.begin(), 0.0
        for start in range(0, len(rows), _WINDOWS):
            block = np.full((_WINDOWS, rows.shape[1]), -1, np.float32)
            block[: len(rows) - start] = rows[start : start + _WINDOWS]
            state, sums = _summed_losses(self.network, state, jnp.asarray(block))
            total += float(np.sum(np.asarray(sums), dtype=np.float64))
        return math.exp(total / len(numbers))

    def _reading(self, numbers: np.ndarray) -> "_Reader":
        reader = _Reader(self.network, self.vocabulary.end)
        for number in numbers:
            reader.add(int(number))
        return reader

    def next_words(self, text: Text, count: int = 5) -> list[tuple[str, float]]:
        """The most probable words after the text, with their probabilities; the text begins a sentence."""
        told = self._reading(self.vocabulary.encode(_unfinished(text))).log_probabilities()
        best = np.argsort(-told, kind="stable")[:count]
        return [(self.vocabulary.words[number], float(np.exp(told[number]))) for number in best]

    def sample(
        self, words: int = 50, *, temperature: float = 1.0, seed: int = 0, start: Text = "", unknown: bool = True
    ) -> str:
        """Words drawn from the model one after another, a line for each sentence.

        A temperature below 1 prefers probable words; without `unknown`, `<unk>` is never drawn.
        """
        if not temperature > 0:
            raise RequestError(f"`temperature` must be positive; got {temperature}. Default: 1.")
        random, tokens = np.random.default_rng(seed), _unfinished(start)
        reader = self._reading(self.vocabulary.encode(tokens))
        for _ in range(words):
            scores = reader.log_probabilities() / temperature
            if not unknown:
                scores[self.vocabulary.unknown] = -np.inf
            chances = np.exp(scores - scores.max())
            number = int(random.choice(len(chances), p=chances / chances.sum()))
            tokens.append(self.vocabulary.words[number])
            reader.add(number)
        lines = " ".join(tokens).split(END)
        return "\n".join(line.strip() for line in lines)

    def save(self, folder: str | Path) -> Path:
        """Writes the network and its vocabulary into a folder; `language.load` reads them."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        about = {"version": __version__, "kind": "language"}
        head = {"words": list(self.vocabulary.words), "perplexities": self.perplexities}
        write_whole(folder / WORDS, json.dumps(head, ensure_ascii=False).encode())
        save_predictor(self.predictor, folder / MODEL, about=about)
        return folder


class _Reader:
    """Follows a text word by word: the last words, the state after those before them."""

    def __init__(self, network: AbstractLanguageNetwork, begin: int):
        self._network, self._last = network, [begin] * network.context
        self._state = network.begin()
        self._read: Any = None  # the state after the last words, and what they tell of the next

    def add(self, number: int) -> None:
        """Reads one more word."""
        if jax.tree.leaves(self._state):  # the words before the last few live on in the state alone
            self._state = self._step()[0]
        self._last, self._read = [*self._last[1:], number], None

    def _step(self) -> Any:
        if self._read is None:
            self._read = _step(self._network, self._state, jnp.asarray([*self._last, 0], jnp.float32))
        return self._read

    def log_probabilities(self) -> np.ndarray:
        """The log-probabilities of the next word."""
        return np.array(self._step()[1], np.float64)


def _unfinished(text: Text) -> list[str]:
    """The words of a text whose last line has not ended."""
    tokens = read_tokens(text)
    return tokens[:-1] if isinstance(text, str | Path) and tokens[-1:] == [END] else tokens


def load_language(folder: str | Path) -> LanguageModel:
    """The language model in a folder that `LanguageModel.save` wrote."""
    folder = Path(folder)
    try:
        head = json.loads((folder / WORDS).read_text("utf-8"))
        vocabulary = Vocabulary(tuple(map(str, head["words"])))
        perplexities = {str(name): float(value) for name, value in head["perplexities"].items()}
    except OSError:
        raise RequestError(f"{folder} is not the folder of a language model: it has no {WORDS}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RequestError(f"{folder / WORDS} is damaged: {type(problem).__name__}.") from None
    predictor, _ = load_predictor(folder / MODEL)
    network = predictor.network
    if not isinstance(network, AbstractLanguageNetwork) or network.words != len(vocabulary):
        raise RequestError(f"{folder}: the network is not that of a language model of {len(vocabulary)} words.")
    return LanguageModel(predictor, vocabulary, perplexities)
