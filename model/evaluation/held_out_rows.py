"""The prediction for every held-out row, as all members would answer it, for the report of a training.

It is emulated from the answer of the row's judges, as in `model.evaluation.ensemble_estimate`: normal scores shrink by
the narrowing, and distances from the median change by the ratio of the row's two standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.distributions.mixtures import normal_cdf
from murho.model.evaluation.ensemble_estimate import extrapolated, percentiles_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from murho.model.distributions.calibration import ConformalMap
    from murho.model.evaluation.judged_rows import JudgedRows
    from murho.model.evaluation.weighted_means import RowWeights

__all__ = ["BAND", "HeldOutRows", "held_out_rows"]

BAND = 90
"""Nominal coverage of the bands, per cent."""


@dataclass(frozen=True, slots=True)
class HeldOutRows:
    """Predictions of n rows that the networks behind them have not seen; the target's unit unless noted otherwise.

    Attributes:
        rows: Number of each row in the table of the training, from 0, ``[n]``.
        targets: ``[n]``.
        mean: ``[n]``.
        std: Raw standard deviation, ``[n]``.
        pit_raw: Distribution function of the raw predictive at the target, ``[n]``, between 0 and 1.
        band_raw: Ends of the raw 90 % band, ``[n, 2]``.
        pit_calibrated: The same of the calibrated predictive; None without calibration.
        band_calibrated: Ends of the calibrated 90 % band, ``[n, 2]``; None without calibration.
        weights: Weights and units of the rows.
    """

    rows: NDArray[np.int64]
    targets: NDArray[np.float64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    pit_raw: NDArray[np.float64]
    band_raw: NDArray[np.float64]
    pit_calibrated: NDArray[np.float64] | None
    band_calibrated: NDArray[np.float64] | None
    weights: RowWeights

    def __len__(self) -> int:
        return len(self.targets)


def held_out_rows(
    judged: JudgedRows,
    weights: RowWeights,
    *,
    narrowing: float | None = None,
    maps: Mapping[int, ConformalMap] | None = None,
) -> HeldOutRows:
    """Emulate the predictions of all members.

    Args:
        judged: Scores of the rows by their judges.
        weights: Weights and units of the rows.
        narrowing: Factor of the normal scores; None: the judges' own.
        maps: Calibration of each group of rows, made without the group; None: there is none.
    """
    scores = judged.scores if narrowing is None else narrowing * judged.scores
    variance, scale = judged.together["variance"], np.ones(len(judged))
    if narrowing is not None:
        scale = np.sqrt(np.maximum(extrapolated(judged)["variance"], 0.0) / variance)
    ends = torch.special.ndtri(torch.tensor([50.0 - BAND / 2, 50.0 + BAND / 2], dtype=torch.float64) / 100.0)
    ends = ends.expand(len(judged), -1)
    reach, mapped = ends.clone(), torch.from_numpy(scores.copy())
    for group, conformal in (maps or {}).items():
        rows = judged.groups == group
        widening = torch.from_numpy(judged.outside[rows])
        reach[rows] = conformal.calibrated(ends[rows], widening.unsqueeze(1))
        mapped[rows] = conformal.nominal_of(mapped[rows], widening)
    return HeldOutRows(
        rows=judged.rows,
        targets=judged.targets,
        mean=judged.means,
        std=np.sqrt(variance) * scale,
        pit_raw=normal_cdf(torch.from_numpy(scores)).numpy(),
        band_raw=_band(judged, ends.numpy(), scale),
        pit_calibrated=normal_cdf(mapped).numpy() if maps else None,
        band_calibrated=_band(judged, reach.numpy(), scale) if maps else None,
        weights=weights,
    )


def _band(judged: JudgedRows, reach: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percentiles at normal scores ``[n, 2]``, at ``scale`` times their distance from the median."""
    median = percentiles_at(judged.percentiles, np.zeros((len(judged), 1)))
    ends: NDArray[np.float64] = median + scale[:, None] * (percentiles_at(judged.percentiles, reach) - median)
    return ends
