"""Scores of predictive distributions on labelled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from model import predictive

if TYPE_CHECKING:
    from torch import Tensor
__all__ = ["COVERAGES", "band_levels", "coverage_and_width", "pooled", "scores", "summary"]

COVERAGES = (50, 80, 90, 95)
"""Nominal coverage of the bands that are reported, per cent."""


def band_levels() -> list[float]:
    """Lower and upper percentile of each band of `COVERAGES`, in that order: 25, 75, 10, 90 and so on."""
    return [level for coverage in COVERAGES for level in (50.0 - coverage / 2.0, 50.0 + coverage / 2.0)]


def scores(means: Tensor, noise: Tensor, targets: Tensor) -> dict[str, float]:
    """Point and distribution scores of the raw predictive.

    Args:
        means: Function values, ``[S, B]``, the target's unit.
        noise: Observation noise, broadcastable to ``[S, B]``, the target's unit.
        targets: ``[B]``.

    Returns:
        ``rmse`` and ``mae`` of the mean, ``nll`` (nats per row) and ``crps`` of the mixture, in the target's unit.
    """
    error = means.mean(dim=0) - targets
    return {
        "rmse": float(error.square().mean().sqrt()),
        "mae": float(error.abs().mean()),
        "nll": float(-predictive.log_density(means, noise, targets).mean()),
        "crps": float(predictive.crps(means, noise, targets).mean()),
    }


def pooled(parts: list[tuple[int, dict[str, float]]]) -> dict[str, Any]:
    """Scores of all rows from those of parts: number of rows and `scores` of each.

    Returns:
        ``n`` and the pooled scores.
    """
    count = sum(rows for rows, _ in parts)
    report: dict[str, Any] = {"n": count}
    for key in parts[0][1]:
        # The mean of squares adds up over parts, its root does not.
        power = 2 if key == "rmse" else 1
        report[key] = (sum(rows * part[key] ** power for rows, part in parts) / count) ** (1.0 / power)
    return report


def coverage_and_width(bands: np.ndarray, targets: np.ndarray) -> dict[str, dict[str, float]]:
    """Coverage and mean width of central bands.

    Args:
        bands: Percentiles at `band_levels`, ``[B, 2 * len(COVERAGES)]``.
        targets: ``[B]``.

    Returns:
        ``{"coverage": {"50": share, …}, "width": {"50": width in the target's unit, …}}``.
    """
    coverage, width = {}, {}
    for index, nominal in enumerate(COVERAGES):
        lower, upper = bands[:, 2 * index], bands[:, 2 * index + 1]
        coverage[str(nominal)] = float(np.mean((targets >= lower) & (targets <= upper)))
        width[str(nominal)] = float(np.mean(upper - lower))
    return {"coverage": coverage, "width": width}


def summary(facts: dict[str, Any], unit: str | None) -> list[str]:
    """Held-out metrics as lines for people.

    Args:
        facts: As stored in a checkpoint's ``metrics``.
        unit: The target's unit, if known.
    """
    suffix = f" {unit}" if unit else ""
    lines = [
        f"RMSE {facts['rmse']:.4g}{suffix}   MAE {facts['mae']:.4g}{suffix}   "
        f"NLL {facts['nll']:.3f} nats   CRPS {facts['crps']:.4g}{suffix}"
    ]
    for kind in ("raw", "calibrated"):
        if facts.get(kind):  # a checkpoint without calibration has none
            shares = facts[kind]["coverage"].items()
            bands = "   ".join(f"{level} %: {100 * share:.1f} %" for level, share in shares)
            lines.append(f"coverage of {kind} bands   {bands}")
    return lines
