"""Bayes by Backprop (Blundell et al. 2015): priors, layers, likelihoods, free energy, one fit."""
