"""Compiled code (Numba) for processors: from a network's outputs to an answer, row by row."""
