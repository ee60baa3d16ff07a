"""Compiled code (Numba) for CPUs: the forward pass, and answers from a network's outputs, row by row."""
