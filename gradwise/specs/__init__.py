"""The elements of a recipe: knobs, priors, contracts, the recipe, its search space and its file format."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
