"""Scores of quantiles and of class probabilities, the same for every system, and conformal corrections of peers.

The CRPS of a distribution is the integral of twice its pinball loss over all levels (Laio & Tamea 2007). Here the mean
over the levels 1 to 99 % approximates the integral, for Murho and peers alike.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from murho.model.evaluation.class_scores import class_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.results import Report
    from murho.model.arrays import Doubles, Ints

COVERAGES = (50, 80, 90, 95)
"""Nominal coverage of the scored bands, per cent."""
LEVELS = tuple(sorted({*map(float, range(1, 100)), 2.5, 97.5}))
"""The K levels of every system's quantiles, per cent: those of the CRPS, and the ends of the 95 % band."""
OF_CRPS = [place for place, level in enumerate(LEVELS) if level == int(level)]


def quantile_scores(quantiles: Doubles, target: Doubles) -> Report:
    """Mean CRPS by pinball loss with its standard error, and coverage and mean width of central bands.

    The error is that of a mean over B independent rows; it knows nothing of another split or another fit.

    Args:
        quantiles: At `LEVELS`, ``[B, K]``; sorted first.
        target: ``[B]``.

    Returns:
        ``{"crps": …, "crps_error": …, "coverage": {"50": share, …}, "width": {"50": width in the target's unit, …}}``;
        ``crps_error`` is None for a single row.
    """
    ordered, rows = np.sort(quantiles, axis=1), len(target)
    of_rows = pinball_crps(ordered[:, OF_CRPS], [LEVELS[place] for place in OF_CRPS], target)
    report: Report = {
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


def pinball_crps(quantiles: Doubles, levels: Sequence[float], target: Doubles) -> Doubles:
    """CRPS of each row by twice the mean pinball loss, ``[B]``, from quantiles ``[B, K]`` at K levels, per cent."""
    shares, error = np.array(levels) / 100.0, target[:, None] - quantiles
    return np.asarray(2.0 * np.maximum(shares * error, (shares - 1.0) * error).mean(axis=1))


def class_report(probabilities: Doubles, labels: Ints) -> Report:
    """Scores of class probabilities ``[B, C]``, with ``log_loss_error`` and ``brier_error``."""
    scores = class_scores(probabilities, labels)
    errors = {f"{name}_error": scores["standard_errors"][name] for name in ("log_loss", "brier")}
    return {name: scores[name] for name in ("log_loss", "brier", "ece", "classwise_ece", "auc", "accuracy")} | errors


def normal_quantiles(mean: Doubles, std: Doubles) -> Doubles:
    """Quantiles ``[B, K]`` at `LEVELS` of Normals with means and standard deviations ``[B]``."""
    scores = np.array([NormalDist().inv_cdf(level / 100.0) for level in LEVELS])
    return np.asarray(mean[:, None] + std[:, None] * scores)


def conformal_quantiles(errors: Doubles, base: Doubles, scale: Doubles | float = 1.0) -> Doubles:
    """Quantiles corrected at each level by held-back rows (one-sided conformalised quantiles, Romano et al. 2019).

    To ``base`` it adds ``scale`` times the conformal quantile of the errors at each level: below the median the
    ``floor((I + 1) level)``-th smallest one, above it the ``ceil((I + 1) level)``-th, so that bands are rather too wide
    than too narrow. Ranks are clipped to 1 … I.

    Args:
        errors: Of the I held-back rows at `LEVELS`, ``[I, K]``: target minus quantile or, standardised, minus mean.
        base: Of the test rows, ``[B, K]``: quantiles or means.
        scale: Standard deviations of the test rows, ``[B, 1]``, for standardised errors.

    Returns:
        ``[B, K]``, rising along the levels.
    """
    levels, rows = np.array(LEVELS) / 100.0, len(errors)
    ranks = np.where(levels < 0.5, np.floor((rows + 1) * levels + 1e-9), np.ceil((rows + 1) * levels - 1e-9))
    places = np.clip(ranks.astype(np.int64), 1, rows) - 1
    chosen = np.take_along_axis(np.sort(errors, axis=0), places[None, :], axis=0)
    return np.sort(base + scale * chosen, axis=1)
