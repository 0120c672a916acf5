"""How good a generative model is: likelihoods, samples, Parzen windows, denoising scores."""
