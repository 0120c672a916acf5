"""What a recipe is made of: knobs, priors, contracts, the recipe, its search space, its written form."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
