"""Constants of the proportional fitting of class probabilities, shared by PyTorch and compiled code."""

__all__ = ["CLOSE", "STEPS"]

STEPS = 12
"""Steps of the proportional fitting of draws to their mean: what is left after them is made up exactly."""
CLOSE = 1e-9
"""Relative difference of mean and goal from which on no further step is made."""
