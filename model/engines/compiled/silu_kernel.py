"""The SiLU activation, compiled: it takes two thirds to three quarters of PyTorch's time on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.engines.compiled.jit import compiled, widest_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["silu"]

Real, Whole = np.float32, np.int32
ONE, FURTHEST = Real(1.0), Real(126.0)
MINUS_LOG2_E = Real(-1.4426950408889634)
ROUNDER = Real(1.5 * 2.0**23)
"""Adding a number to it rounds the number to an integer, which is then in the last bits of the sum."""
MANTISSA = Whole(23)
E1, E2, E3 = Real(0.6931471824645996), Real(0.24022650718688965), Real(0.05550327152013779)
E4, E5, E6 = Real(0.00961802527308464), Real(0.0013400432653725147), Real(0.00015469732170458883)


@compiled("void(float32[::1])")
def silu(values: NDArray[np.float32]) -> None:
    """Compute ``x / (1 + exp(-x))`` in place, to a relative error of 6e-7 or an absolute error of 2e-9.

    The exponential is ``2^(n + f)`` with an integer n and a polynomial of degree 6 in f, from Chebyshev points: its
    error is 1.8e-8 without rounding. Integer arithmetic adds n to the exponent.

    Args:
        values: ``[N]``.
    """
    widest_vectors()
    for index in range(values.size):
        value = values[index]
        power = min(max(value * MINUS_LOG2_E, -FURTHEST), FURTHEST)
        rounded = power + ROUNDER
        rest = power - (rounded - ROUNDER)
        series = (((((E6 * rest + E5) * rest + E4) * rest + E3) * rest + E2) * rest + E1) * rest + ONE
        bits = Real(series).view(Whole) + (Real(rounded).view(Whole) << MANTISSA)
        values[index] = value / (ONE + Whole(bits).view(Real))
