"""Observation models: the distribution of a target around the function value of a draw. One file per model."""
