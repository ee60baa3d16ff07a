"""Distributions of an answer: mixtures of Gaussians, transforms of the target, counts, classes."""
