"""The Bayesian network: variational layers, their stack, and priors over weights."""
