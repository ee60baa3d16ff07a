"""What all members together would score on held-out rows, estimated from the judges of each row.

Answers mix all M members, but only J of them, the judges, have not seen a held-out row, and more members predict
better. Each row's score under one judge and under all its judges gives its score under M members
(`model.distributions.ensemble_extrapolation`): CRPS, squared error and variance exactly in expectation, absolute error
and NLL nearly. For bands there is no such law, so the answer of all members is emulated from that of the judges:

- The normal score of the target is the judges' times the *narrowing*, the ratio of the mean sizes of normal scores
  under M and under J members. The target is inside a band if that score is.
- The width of a band is the judges' times the ratio of the two standard deviations of the row, under M and J members.

Where all members are judges, or only one is, nothing is extrapolated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.distributions.ensemble_extrapolation import ensemble_score
from murho.model.evaluation.judged_rows import GRID
from murho.model.evaluation.metrics import COVERAGES, band_levels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from murho.model.distributions.calibration import ConformalMap
    from murho.model.evaluation.judged_rows import JudgedRows
    from murho.model.evaluation.weighted_means import RowWeights

__all__ = ["described_members", "extrapolated", "narrowing_of", "percentiles_at", "report_bands", "report_scores"]

NARROWEST = 0.5
"""Least narrowing."""


def described_members(judged: JudgedRows) -> int:
    """The number of members that estimates describe: all M, or 1 where single judges leave nothing to go by."""
    return judged.members if judged.judges.min() > 1 else int(judged.judges.min())


def extrapolated(judged: JudgedRows) -> dict[str, NDArray[np.float64]]:
    """Scores of every row under all M members, by the names of `JudgedRows.alone`, ``[n]`` each."""
    together = {name: values.copy() for name, values in judged.together.items()}
    for count in np.unique(judged.judges):
        rows = judged.judges == count
        for name, values in together.items():
            values[rows] = ensemble_score(judged.alone[name][rows], values[rows], int(count), judged.members)
    return together


def narrowing_of(judged: JudgedRows, weights: RowWeights) -> tuple[float | None, float]:
    """The narrowing: the factor by which normal scores shrink where all members answer and not only the judges.

    The mean size of normal scores falls with the number m of members about as ``a + b / m``: the errors of single
    members average out, and their disagreement widens the mixture.

    Returns:
        The factor, from 0.5 to 1, and the standard error of its logarithm; ``None, 0`` where nothing is extrapolated.
    """
    if judged.judges.min() < 2 or judged.judges.min() == judged.members:
        return None, 0.0
    every, some = extrapolated(judged)["reach"], judged.together["reach"]
    ratio = float(weights.mean(every) / weights.mean(some))
    influence = every / weights.mean(every) - some / weights.mean(some)
    return float(np.clip(ratio, NARROWEST, 1.0)), float(weights.standard_error(influence))


def report_scores(
    values: Mapping[str, NDArray[np.float64]], targets: NDArray[np.float64], weights: RowWeights
) -> tuple[dict[str, float | None], dict[str, float]]:
    """Scores of the mean and of the whole distribution.

    Args:
        values: Scores of every row, by the names of `JudgedRows.alone`.
        targets: Targets, ``[n]``.
        weights: Weights and units of the rows.

    Returns:
        ``rmse, mae, r2, nll, crps``, and the standard errors of all but ``r2``.
    """
    means = {name: float(weights.mean(values[name])) for name in ("square", "absolute", "nll", "crps")}
    errors = {name: float(weights.standard_error(values[name])) for name in means}
    # A single row may be extrapolated to less than nothing; not so many.
    rmse = max(means["square"], 0.0) ** 0.5
    variance = float(weights.mean((targets - weights.mean(targets)) ** 2))
    scores = {
        "rmse": rmse,
        "mae": means["absolute"],
        "r2": 1.0 - rmse**2 / variance if variance > 0.0 else None,
        "nll": means["nll"],
        "crps": means["crps"],
    }
    return scores, {
        "rmse": errors["square"] / (2.0 * rmse) if rmse > 0.0 else 0.0,
        "mae": errors["absolute"],
        "nll": errors["nll"],
        "crps": errors["crps"],
    }


def report_bands(
    judged: JudgedRows,
    weights: RowWeights,
    *,
    narrowing: float | None = None,
    narrowing_error: float = 0.0,
    maps: Mapping[int, ConformalMap] | None = None,
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Coverage, width and interval score of the bands, emulated for all members.

    Args:
        judged: Scores of the rows.
        weights: Their weights and units.
        narrowing: Factor of the normal scores; None: the judges' own bands.
        narrowing_error: Standard error of its logarithm. It counts as the coverage of a Gaussian would change by it:
            ``2 u phi(u)`` for a band that reaches to the normal score u.
        maps: Calibration of each group of rows; None: raw bands.

    Returns:
        ``coverage``, ``width`` and ``interval_score``, each by nominal coverage: ``{"50": …, "80": …}``, and the
        standard error of ``coverage``, likewise.
    """
    ends = torch.special.ndtri(torch.tensor(band_levels(), dtype=torch.float64) / 100.0)
    reach = ends.expand(len(judged), -1).numpy().copy()
    for group, conformal in (maps or {}).items():
        rows = judged.groups == group
        widening = torch.from_numpy(judged.outside[rows]).unsqueeze(1)
        reach[rows] = conformal.calibrated(ends.expand(len(widening), -1), widening).numpy()
    scale = np.ones(len(judged))
    scores = judged.scores
    if narrowing is not None:
        scores = narrowing * scores
        scale = np.sqrt(np.maximum(extrapolated(judged)["variance"], 0.0) / judged.together["variance"])
    at = percentiles_at(judged.percentiles, np.concatenate([reach, scores[:, None]], axis=1)) * scale[:, None]
    lower, upper, truth = at[:, 0:-1:2], at[:, 1:-1:2], at[:, -1:]
    inside = (scores[:, None] >= reach[:, 0::2]) & (scores[:, None] <= reach[:, 1::2])
    missed = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
    outside_share = 1.0 - np.array(COVERAGES) / 100.0
    values = {
        "coverage": inside.astype(np.float64),
        "width": upper - lower,
        "interval_score": upper - lower + 2.0 / outside_share * missed,
    }
    edges = ends.numpy()[1::2]
    moved = 2.0 * edges * np.exp(-0.5 * edges**2) / np.sqrt(2.0 * np.pi) * narrowing_error
    errors = np.hypot(weights.standard_error(values["coverage"]), moved)
    report = {name: _by_coverage(weights.mean(of_rows)) for name, of_rows in values.items()}
    return report, _by_coverage(errors)


def percentiles_at(at_grid: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percentiles ``[n, K]`` at normal scores of each row's own, from those at `GRID`, on lines between these."""
    step = GRID[1] - GRID[0]
    position = (scores - GRID[0]) / step
    below = np.clip(np.floor(position), 0, len(GRID) - 2).astype(int)
    first, second = (np.take_along_axis(at_grid, index, axis=1) for index in (below, below + 1))
    found: NDArray[np.float64] = first + (position - below) * (second - first)
    return found


def _by_coverage(values: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(map(str, COVERAGES), values.tolist(), strict=True))
