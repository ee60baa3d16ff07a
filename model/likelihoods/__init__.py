"""Observation models: how a target scatters around the function value of a draw. One file a model."""
