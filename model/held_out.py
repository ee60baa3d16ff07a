"""What held-out rows tell of a fit: its scores, and how its bands must be moved to cover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from model import metrics, predictive
from model.calibration import fit_conformal_map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from model.calibration import ConformalMap
    from model.posterior import Posterior
    from model.splits import HeldOut

__all__ = ["calibrate_and_judge"]

SAMPLES = 256
"""Draws behind each judgement, all of one member where a row is judged by one."""
ROWS_PER_CHUNK = 1024


def calibrate_and_judge(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    *,
    calibrating: Sequence[int],
) -> tuple[ConformalMap | None, dict[str, Any]]:
    """The conformal map of held-out rows, and their scores.

    Bands cover the rows that made them by construction. So calibrated bands are judged crosswise: those of each
    group of rows by a map made from the other groups.

    Args:
        posterior: The fit, not calibrated.
        encoded: All rows of the table, ``[N, D]``.
        targets: Their targets, ``[N]``, the target's unit.
        groups: Held-out rows, each with the member that has not seen them.
        calibrating: Numbers of the groups that make the map; empty: none is made.

    Returns:
        The map, or None, and the metrics: ``n, rmse, mae, nll, crps, raw`` and, with a map, ``calibrated``.
    """
    nominal = torch.special.ndtri(torch.tensor(metrics.band_levels(), dtype=torch.float64) / 100.0)
    values = [_values(posterior, encoded, targets, group) for group in groups]
    truth = np.concatenate([targets[group.rows] for group in groups])
    raw = np.concatenate([_bands(chunks, nominal) for _, chunks in values])
    report = _scores([chunk for _, chunks in values for chunk in chunks])
    report["raw"] = metrics.coverage_and_width(raw, truth)
    scores = [score for score, _ in values]
    conformal = (
        fit_conformal_map(np.concatenate([scores[index] for index in calibrating])) if calibrating else None
    )
    if conformal is None:
        return None, report
    bands = []
    for index, (_, chunks) in enumerate(values):
        others = fit_conformal_map(
            np.concatenate([score for other, score in enumerate(scores) if other != index])
        )
        bands.append(_bands(chunks, (others or conformal).calibrated(nominal)))
    report["calibrated"] = metrics.coverage_and_width(np.concatenate(bands), truth)
    return conformal, report


_Chunk = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Function values ``[S, B]``, noise and targets ``[B]`` of some rows."""


def _values(
    posterior: Posterior, encoded: NDArray[np.float32], targets: NDArray[np.float64], group: HeldOut
) -> tuple[NDArray[np.float64], list[_Chunk]]:
    """Normal scores of a group's rows, and their mixtures."""
    chunks = []
    for start in range(0, len(group.rows), ROWS_PER_CHUNK):
        rows = group.rows[start : start + ROWS_PER_CHUNK]
        means, noise = posterior.function_values(
            torch.from_numpy(encoded[rows]), SAMPLES, posterior.seed, member=group.member
        )
        chunks.append((means, noise, torch.from_numpy(targets[rows])))
    scores = [predictive.normal_score(*chunk[:2], chunk[2].unsqueeze(0))[0].numpy() for chunk in chunks]
    return np.concatenate(scores), chunks


def _bands(chunks: Sequence[_Chunk], scores: torch.Tensor) -> NDArray[np.float64]:
    return np.concatenate([predictive.quantiles(means, noise, scores).numpy() for means, noise, _ in chunks])


def _scores(chunks: Sequence[_Chunk]) -> dict[str, Any]:
    return metrics.pooled([(len(chunk[2]), metrics.scores(*chunk)) for chunk in chunks])
