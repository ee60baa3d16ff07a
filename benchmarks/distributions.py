"""Scores from quantiles of the test rows, computed in the same way for every system, and conformal corrections.

The CRPS of a distribution is the integral of twice its pinball loss over all levels (Laio & Tamea 2007). Here the mean
over the levels 1 to 99 % approximates the integral, for Murho and peers alike. A closed form is reported as well where
one exists.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "COVERAGES",
    "LEVELS",
    "conformal_additive",
    "conformal_scaled",
    "crps_by_pinball",
    "crps_of_normals",
    "normal_quantiles",
    "quantile_scores",
]

COVERAGES = (50, 80, 90, 95)
"""Nominal coverage of the scored bands, per cent."""
PERCENT = tuple(range(1, 100))
LEVELS = tuple(sorted({*map(float, PERCENT), 2.5, 97.5}))
"""The K levels of every system's quantiles, per cent: those of the CRPS, and the ends of the 95 % band."""


def crps_by_pinball(quantiles: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Twice the pinball loss of each row, averaged over the levels 1, 2, …, 99 %, ``[B]``, the target's unit.

    Args:
        quantiles: At `LEVELS`, ``[B, K]``, the target's unit.
        target: ``[B]``.
    """
    indices = [LEVELS.index(float(level)) for level in PERCENT]
    levels = np.array(PERCENT) / 100.0
    error = target[:, None] - quantiles[:, indices]
    return np.asarray(2.0 * np.maximum(levels * error, (levels - 1.0) * error).mean(axis=1))


def crps_of_normals(mean: NDArray[np.float64], std: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """Mean CRPS of Normals in closed form (Gneiting & Raftery 2007, eq. 5); arguments ``[B]``, the target's unit."""
    z = (target - mean) / std
    density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    above = np.array([math.erf(value / math.sqrt(2.0)) for value in z])  # 2 Phi(z) - 1
    return float(np.mean(std * (z * above + 2.0 * density - 1.0 / math.sqrt(math.pi))))


def normal_quantiles(mean: NDArray[np.float64], std: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles ``[B, K]`` at `LEVELS` of Normals with means and standard deviations ``[B]``."""
    return np.asarray(mean[:, None] + std[:, None] * _normal_scores())


def conformal_additive(
    inner: NDArray[np.float64], inner_target: NDArray[np.float64], test: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantiles corrected at each level by held-back rows: one-sided conformalised quantiles (Romano et al. 2019).

    Args:
        inner: Quantiles of the I held-back rows, ``[I, K]``.
        inner_target: Targets of the held-back rows, ``[I]``.
        test: Quantiles of the test rows by the same model, ``[B, K]``.

    Returns:
        ``[B, K]``, rising along the levels.
    """
    moved = test + _order_statistics(inner_target[:, None] - inner)
    return np.sort(moved, axis=1)


def conformal_scaled(
    inner_mean: NDArray[np.float64],
    inner_std: NDArray[np.float64],
    inner_target: NDArray[np.float64],
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Quantiles ``[B, K]`` from the standardised errors of the held-back rows instead of a Normal's quantiles."""
    errors = (inner_target - inner_mean) / inner_std
    scores = _order_statistics(np.repeat(errors[:, None], len(LEVELS), axis=1))
    return np.asarray(mean[:, None] + std[:, None] * scores)


def quantile_scores(quantiles: NDArray[np.float64], target: NDArray[np.float64]) -> dict[str, Any]:
    """Mean CRPS by pinball loss with its standard error, and coverage and mean width of central bands.

    The error is that of a mean over B independent rows; it knows nothing of another split or another fit.

    Args:
        quantiles: At `LEVELS`, ``[B, K]``; sorted by this function first.
        target: ``[B]``.

    Returns:
        ``{"crps": …, "crps_error": …, "coverage": {"50": share, …}, "width": {"50": width in the target's unit, …}}``;
        ``crps_error`` is None for a single row.
    """
    ordered = np.sort(quantiles, axis=1)
    of_rows = crps_by_pinball(ordered, target)
    rows = len(of_rows)
    report: dict[str, Any] = {
        "crps": float(of_rows.mean()),
        "crps_error": float(of_rows.std(ddof=1) / math.sqrt(rows)) if rows > 1 else None,
        "coverage": {},
        "width": {},
    }
    for nominal in COVERAGES:
        lower, upper = (ordered[:, LEVELS.index(50.0 + side * nominal / 2.0)] for side in (-1.0, 1.0))
        report["coverage"][str(nominal)] = float(np.mean((lower <= target) & (target <= upper)))
        report["width"][str(nominal)] = float(np.mean(upper - lower))
    return report


def _order_statistics(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The conformal quantile of the errors at each level, ``[I, K]`` to ``[K]``.

    Below the median it is the ``floor((I + 1) level)``-th smallest error, above it the ``ceil((I + 1) level)``-th, so
    that bands are rather too wide than too narrow. Ranks are clipped to 1 … I.
    """
    levels = np.array(LEVELS) / 100.0
    rows = len(errors)
    ranks = np.where(levels < 0.5, np.floor((rows + 1) * levels + 1e-9), np.ceil((rows + 1) * levels - 1e-9))
    indices = np.clip(ranks.astype(np.int64), 1, rows) - 1
    return np.asarray(np.take_along_axis(np.sort(errors, axis=0), indices[None, :], axis=0)[0])


def _normal_scores() -> NDArray[np.float64]:
    from statistics import NormalDist

    normal = NormalDist()
    return np.array([normal.inv_cdf(level / 100.0) for level in LEVELS])
