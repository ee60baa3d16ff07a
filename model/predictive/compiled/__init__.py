"""The kernels of the compiled engine (Numba)."""
