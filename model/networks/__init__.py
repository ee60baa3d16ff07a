"""The Bayesian network of variational layers, and priors over its weights."""
