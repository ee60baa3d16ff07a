"""Conformal maps of numbers, and calibrated probabilities and sets of classes."""
