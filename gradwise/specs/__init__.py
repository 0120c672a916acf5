"""What a recipe is made of: knobs, priors, contracts, the recipe, its search space, its written form."""
