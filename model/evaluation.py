"""Judging a posterior on labelled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from model import metrics
from model.errors import OptionError, TableError
from model.kinds import columns_from_table, target_from_table
from model.posterior import DEFAULT_SAMPLES, PredictOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from model.posterior import Posterior

__all__ = ["band_percentiles", "evaluate_table", "judge"]

ROWS_PER_CHUNK = 1024


def evaluate_table(
    posterior: Posterior, table: pa.Table, *, samples: int = DEFAULT_SAMPLES
) -> dict[str, Any]:
    """Scores, and coverage and width of the raw and of the calibrated bands.

    Args:
        posterior: The posterior to judge.
        table: Labelled rows; rows without a target are left out.
        samples: S.

    Returns:
        ``n, rmse, mae, nll, crps, raw, calibrated`` and ``left_out``, the number of rows without a target; in the
        target's unit (``nll`` in nats per row). ``calibrated`` is None if the checkpoint is not calibrated.

    Raises:
        TableError: The target column is missing, or no row has a target, or a cell can't be used.
    """
    name = posterior.schema.target.name
    targets = target_from_table(table, name)
    labelled = np.flatnonzero(~np.isnan(targets))
    if not len(labelled):
        raise TableError(f"no row has a value in the target column {name!r}; there is nothing to judge by")
    columns = columns_from_table(table.take(labelled), posterior.schema)
    return {
        **judge(posterior, posterior.encoder.encode(columns), targets[labelled], samples=samples),
        "left_out": len(targets) - len(labelled),
    }


def judge(
    posterior: Posterior, rows: np.ndarray, targets: np.ndarray, *, samples: int = DEFAULT_SAMPLES
) -> dict[str, Any]:
    """Like `evaluate_table`, for encoded rows ``[B, D]`` and targets ``[B]``."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(rows), ROWS_PER_CHUNK):
            chunk = torch.from_numpy(rows[start : start + ROWS_PER_CHUNK]).to(posterior.device)
            observed = torch.from_numpy(targets[start : start + ROWS_PER_CHUNK]).to(posterior.device)
            means, noise = posterior.function_values(chunk, samples, posterior.seed)
            parts.append((len(chunk), metrics.scores(means, noise, observed)))
    report = metrics.pooled(parts)
    raw = band_percentiles(posterior, rows, samples=samples, calibrated=False)
    report["raw"] = metrics.coverage_and_width(raw, targets)
    report["calibrated"] = None
    if posterior.calibration is not None:
        calibrated = band_percentiles(posterior, rows, samples=samples)
        report["calibrated"] = metrics.coverage_and_width(calibrated, targets)
    return report


def band_percentiles(
    posterior: Posterior, rows: np.ndarray, *, samples: int = DEFAULT_SAMPLES, calibrated: bool = True
) -> np.ndarray:
    """Percentiles at `model.metrics.band_levels` of encoded rows ``[B, D]``; ``[B, 8]``, the target's unit."""
    options = PredictOptions(samples=samples, percentiles=tuple(metrics.band_levels()), calibrated=calibrated)
    percentiles = posterior.predict_encoded(rows, options).percentiles
    if percentiles is None:
        raise OptionError("bands need at least one draw")
    return percentiles
