"""Language models, from a text to perplexities, words and embeddings (row G6).

from gradwise import language
model = language.fit("train.txt", valid="valid.txt", test="test.txt", model="recurrent")
model.test_perplexity, model.next_words("the cat", 5), model.sample(words=50)
"""

from typing import Any

from ..runtime.public_names import load_public

_HOMES = {
    "fit": "fit_language",
    "load": "load_language",
    "read_tokens": "read_tokens",
    "windows": "windows",
    "recipe": "language_recipe",
    "LanguageModel": "LanguageModel",
    "Vocabulary": "Vocabulary",
    "WordVectors": "WordVectors",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return load_public(_HOMES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
