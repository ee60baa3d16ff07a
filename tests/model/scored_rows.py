"""Scores of predictives that are written down, not learned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from murho.model.bbb.gaussian import HeteroscedasticNoise
from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.bbb.network import inverse_softplus
from murho.model.checkpoint.row_answers import DrawnRows
from murho.model.distributions.transforms import Identity
from murho.model.encoding.training_range import Outside
from murho.model.evaluation.metrics import PERCENTILES, BandScores, band_levels
from murho.model.evaluation.row_scores import RowScores, score_rows
from murho.model.predictive.target_models import TargetModel
from murho.model.predictive.torch_engine import TorchEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.calibration.conformal import ConformalMap
    from murho.model.checkpoint.posterior import Posterior

ALL_LEVELS = sorted({*band_levels(), *PERCENTILES})


def gaussian_posterior(copies: int = 3) -> Posterior:
    """Stands in for a posterior: a row ``(mean, std)`` is its own predictive, a mixture of equal Gaussians."""
    target = TargetModel(HeteroscedasticNoise(), 0.0, 1.0, Identity(), None)

    def drawn(rows: torch.Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None) -> DrawnRows:
        means, noise = rows.double().T
        outputs = torch.stack((means, inverse_softplus(noise - NOISE_FLOOR)), dim=1).expand(copies, -1, -1)
        nowhere = Outside.of(torch.zeros(len(rows), dtype=torch.bool))
        return DrawnRows(outputs, torch.zeros(copies).long(), nowhere, target, TorchEngine(target))

    return cast("Posterior", SimpleNamespace(device=torch.device("cpu"), seed=0, drawn=drawn))


def score_gaussians(
    means: NDArray[np.float64],
    stds: NDArray[np.float64],
    targets: NDArray[np.float64],
    calibration: ConformalMap | None = None,
    weights: NDArray[np.float64] | None = None,
) -> RowScores:
    """Scores of one Gaussian a row, at all levels; means and stds are rounded to float32."""
    rows = np.stack([means, stds], axis=1).astype(np.float32)
    return score_rows(
        gaussian_posterior(), rows, targets, samples=1, calibration=calibration, levels=ALL_LEVELS, weights=weights
    )


def scored_rows(errors: NDArray[np.float64], stds: NDArray[np.float64], inside: NDArray[np.bool_]) -> RowScores:
    """Scores of which only errors, std and whether the row lay inside its bands are known."""
    nothing = np.zeros(len(errors))
    bands = BandScores((), np.repeat(inside[:, None], 4, axis=1), {})
    nowhere = np.zeros(len(errors), bool)
    return RowScores(nothing, errors, nothing, nothing, nothing, nothing, stds, stds, nowhere, bands, None)
