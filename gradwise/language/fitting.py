"""`language.fit`: from a text to a trained language model, through the same loop as every other network.

    model = language.fit("train.txt", valid="valid.txt", test="test.txt")                  feed-forward
    model = language.fit("train.txt", model="recurrent", epochs=13)
    model = language.fit(text, model=gradwise.RecurrentLanguageModel(cell=gradwise.Gru(), units=(64,), size=64))

The vocabulary is that of the training text alone. Without a validation text the last tenth of the text is held out: one
piece, so that no sentence is divided between the two more than once.
"""

import dataclasses
from typing import Any

import numpy as np

from ..criteria.language.next_word import AbstractNextWord, NextWord
from ..data.batches import Reshuffled, Streams
from ..data.scaling import NoScaling
from ..data.splits import GivenParts, join_parts
from ..models.language.feed_forward import FeedForwardLanguageModel
from ..models.language.recurrent_language import RecurrentLanguageModel
from ..optimisers.adaptive.adam import Adam
from ..optimisers.first_order.schedules import OneCycle
from ..optimisers.wrappers.clipped import Clipped
from ..runtime import keys
from ..runtime.errors import RequestError
from ..specs.dataset import Dataset
from ..specs.recipe import Recipe
from ..training.loop import RunOptions
from ..training.stopping import Off
from ..training.train import train
from .language_model import LanguageModel
from .text_windows import windows
from .tokens import Text, Vocabulary, read_tokens

# The feed-forward network, its rate and the words of an update are those measured on the Penn Treebank, where a sample
# of the vocabulary took the place of all words.
_MODELS: dict[str, Any] = {
    "feed-forward": FeedForwardLanguageModel(size=150, units=(300,), tied=True, dropout=0.3),
    "recurrent": RecurrentLanguageModel(dropout=0.3),  # not measured: two layers of 200 cells, as in the benchmark
}
_HELD_OUT = 10  # one word in so many, where there is no validation text
_FEWEST = 20  # words of a text
_UPDATES = 100  # in an epoch at the least, where the text has words enough


def language_recipe(model: Any = "feed-forward", *, epochs: float = 10.0, batch: int = 0, **parts: Any) -> Recipe:
    """The recommended recipe of a language model: Adam, its rate rising and falling once, the best epoch kept.

    A feed-forward network learns from shuffled windows, a recurrent one from `Streams` in which its state goes on.
    `batch` is the number of windows in an update; `parts` replace others by name.
    """
    if isinstance(model, str):
        if model not in _MODELS:
            raise RequestError(f"unknown language model `{model}`; choose from {', '.join(_MODELS)}, or give a model.")
        model = _MODELS[model]
    if not isinstance(model, FeedForwardLanguageModel | RecurrentLanguageModel):
        raise RequestError(
            f"expected a language model such as `RecurrentLanguageModel()`; got {type(model).__name__}. "
            f"Or choose from {', '.join(_MODELS)}."
        )
    carried = isinstance(model, RecurrentLanguageModel)
    batch = batch or (20 if carried else 64)
    adam = Adam(0.003 if carried else 0.002, schedule=OneCycle())
    stopping = Off(epochs=epochs, keep="best", spacing=1.0, least_examples=1, every_epochs=min(1.0, epochs))
    chosen = {
        "split": GivenParts(),
        "scaler": NoScaling(),
        "batches": Streams(batch) if carried else Reshuffled(batch),
        "model": model,
        "criterion": NextWord(streams=batch if carried else 0),
        "optimiser": Clipped(adam, norm=1.0),
        "stopping": stopping,
    }
    return Recipe(**chosen | parts)


def _criterion(given: Any, streams: int) -> AbstractNextWord:
    """The criterion, its state carried by as many streams as an update reads."""
    if not isinstance(given, AbstractNextWord):
        raise RequestError(f"expected a criterion of words such as `NextWord()`; got {type(given).__name__}.")
    return dataclasses.replace(given, streams=streams)


def _texts(text: Text, valid: Text | None, test: Text | None) -> tuple[list[str], list[str], list[str] | None]:
    """The words of the three texts."""
    tokens = read_tokens(text)
    if len(tokens) < _FEWEST:
        raise RequestError(f"the text has {len(tokens)} words: give at least {_FEWEST}.")
    if valid is None:
        cut = len(tokens) - len(tokens) // _HELD_OUT
        tokens, held_out = tokens[:cut], tokens[cut:]
    else:
        held_out = read_tokens(valid)
    return tokens, held_out, None if test is None else read_tokens(test)


def fit_language(
    text: Text,
    *,
    valid: Text | None = None,
    test: Text | None = None,
    model: Any = "feed-forward",
    epochs: float = 10.0,
    batch: int = 0,
    steps: int = 0,
    least: int = 1,
    size: int = 0,
    criterion: Any = None,
    optimiser: Any = None,
    stopping: Any = None,
    seed: int = 0,
    options: RunOptions = RunOptions(),
) -> LanguageModel:
    """Trains a language model on a text: a file (`.gz` too), a text itself, or a list of words.

    `model` is "feed-forward", "recurrent" or a spec, whose `words` are set to the size of the vocabulary; words that
    occur fewer than `least` times, or that are not among the `size` most frequent, are `<unk>`. An update learns
    `batch` windows of `steps` words; by default fewer in a small text. `criterion`, `optimiser` and `stopping` replace
    the recommended parts.
    """
    tokens, held_out, tested = _texts(text, valid, test)
    vocabulary = Vocabulary.of(tokens, least=least, size=size)
    recipe = language_recipe(model, epochs=epochs, batch=batch)
    carried = isinstance(recipe.batches, Streams)
    steps = steps or (20 if carried else 16)
    if not batch:  # smaller ones for a small text, so that an epoch has updates enough
        most = max(1, len(tokens) // (steps * _UPDATES))
        recipe = language_recipe(model, epochs=epochs, batch=min(recipe.batches.size, most))
    given = {"optimiser": optimiser, "stopping": stopping}
    parts: dict[str, Any] = {name: part for name, part in given.items() if part is not None}
    parts["model"] = dataclasses.replace(recipe.model, words=len(vocabulary))
    if criterion is not None:
        parts["criterion"] = _criterion(criterion, recipe.batches.size if carried else 0)
    context = 1 if carried else recipe.model.context

    def placed(words: list[str]) -> Dataset:
        numbers = vocabulary.encode(words)
        return windows(numbers, context=context, steps=steps, begin=vocabulary.end)

    joined, parts["split"] = join_parts(placed(tokens), placed(held_out), None if tested is None else placed(tested))
    recipe = dataclasses.replace(recipe, **parts)
    fit = train(recipe, joined, key=keys.from_seed(seed), options=options)
    trained = LanguageModel(fit.predictor, vocabulary, record=fit)
    found = {"valid": trained.perplexity(held_out)}
    if tested is not None:
        found["test"] = trained.perplexity(tested)
    return dataclasses.replace(trained, perplexities={name: float(np.round(value, 6)) for name, value in found.items()})
