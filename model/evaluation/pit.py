"""Average calibration of predictives: the probability integral transform (PIT) and calibration errors.

The PIT of a row is ``u = F(y)``, the distribution function of its predictive at the target. If predictives are
calibrated, u is uniform on [0, 1] (Dawid 1984; Gneiting, Balabdaoui & Raftery 2007).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.distributions.mixtures import normal_cdf
from murho.model.evaluation.metrics import PERCENTILES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.distributions.calibration import ConformalMap

__all__ = ["HISTOGRAM_BINS", "calibration_error", "kolmogorov_smirnov", "pit_of", "reliability"]

HISTOGRAM_BINS = 10


def pit_of(
    scores: NDArray[np.float64],
    calibration: ConformalMap | None = None,
    outside: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """The probability integral transform.

    Args:
        scores: Normal scores of the targets under the raw predictive, ``[N]``.
        calibration: The map from the raw to the calibrated predictive; None for the raw one.
        outside: Mask of the rows whose bands the map may only widen, ``[N]``; None for no row.

    Returns:
        ``u``, ``[N]``, between 0 and 1.
    """
    values = torch.from_numpy(scores)
    if calibration is not None:
        widening = False if outside is None else torch.from_numpy(outside)
        values = calibration.nominal_of(values, widening)
    pit: NDArray[np.float64] = normal_cdf(values).numpy()
    return pit


def reliability(pit: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> dict[str, Any]:
    """Calibration errors of quantiles and of central bands, and the shape of the PIT.

    Args:
        pit: ``[N]``.
        weights: Weight of each row in the shares, ``[N]``; None: all are equal.

    Returns:
        ``calibration_error``, with ``quantiles`` (is a share p of the targets below the percentile of level p?) and
        ``bands`` (is a share p inside the central band of coverage p?), each from `calibration_error`. ``bands`` does
        not show a bias of all predictions. ``pit``, with ``histogram``, the shares of rows in ten equal bins, and
        ``ks``, the distance of `kolmogorov_smirnov`. Calibrated predictives have 0.1 in each bin. More at the ends
        means that the bands are too narrow, more in the middle that they are too wide.
    """
    counts, _ = np.histogram(pit, bins=HISTOGRAM_BINS, range=(0.0, 1.0), weights=weights)
    return {
        "calibration_error": {
            "quantiles": calibration_error(pit, weights),
            "bands": calibration_error(np.abs(2.0 * pit - 1.0), weights),
        },
        "pit": {"histogram": (counts / counts.sum()).tolist(), "ks": kolmogorov_smirnov(pit, weights)},
    }


def calibration_error(uniform: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> dict[str, float]:
    """Differences between the observed share of values up to p, and p (Kuleshov, Fenner & Ermon 2018).

    Args:
        uniform: ``[N]``, uniform on [0, 1] for calibrated predictives.
        weights: Weight of each value, ``[N]``; None: all are equal.

    Returns:
        ``mean_absolute``, ``rms`` and ``max`` of the observed share minus p, over the 99 levels p of
        `model.evaluation.metrics.PERCENTILES`; and ``area``, the miscalibration area, which lies between the diagonal
        and the polygon through (0, 0), the 99 points and (1, 1).
    """
    levels = np.array(PERCENTILES) / 100.0
    ordered, shares = _distribution(uniform, weights)
    errors = shares[np.searchsorted(ordered, levels, side="right")] - levels
    absolute = np.abs(errors)
    before, after = np.append(0.0, errors), np.append(errors, 0.0)
    heights = np.abs(before) + np.abs(after)
    # A side that crosses the diagonal makes two triangles, with bases in the proportion of their heights.
    crossing = before * after < 0.0
    sides = np.where(crossing, (before**2 + after**2) / np.where(heights > 0.0, heights, 1.0), heights)
    return {
        "mean_absolute": float(absolute.mean()),
        "rms": float(np.sqrt(np.mean(errors**2))),
        "max": float(absolute.max()),
        "area": float(sides.sum() / 2.0 / (len(levels) + 1)),
    }


def kolmogorov_smirnov(uniform: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> float:
    """Kolmogorov-Smirnov distance to the uniform distribution: the largest gap of the distribution functions.

    For N uniform values, the distance exceeds ``1.36 / sqrt(N)`` by chance one time in twenty.

    Args:
        uniform: ``[N]``, within [0, 1].
        weights: Weight of each value, ``[N]``; None: all are equal.
    """
    ordered, shares = _distribution(uniform, weights)
    return float(max(np.max(shares[1:] - ordered), np.max(ordered - shares[:-1])))


def _distribution(
    values: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sorted values ``[N]``, and the share of the first 0, 1, …, N of them, by number or weight, ``[N + 1]``."""
    if weights is None:
        return np.sort(values), np.arange(len(values) + 1) / len(values)
    order = np.argsort(values, kind="stable")
    sums = np.append(0.0, weights[order].cumsum())
    return values[order], sums / sums[-1]
