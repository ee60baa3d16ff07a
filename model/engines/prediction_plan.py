"""The prediction plan: the options of a request, prepared once, and the answer computed from a predictive."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from murho.model.distributions.mixtures import FURTHEST_SCORE, normal_cdf, score_of_tails
from murho.model.distributions.predictive import function_exceedance, function_quantiles

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.distributions.calibration import ConformalMap
    from murho.model.distributions.predictive import Predictive
    from murho.model.encoding.training_range import Outside
    from murho.model.engines.prediction import PredictOptions

__all__ = ["PredictionPlan"]

KEPT_PLANS = 64
"""Plans in the cache: most requests to a service have the same options."""


@dataclass(frozen=True, slots=True)
class PredictionPlan:
    """The options of a request in the form that engines need, the same for every row.

    Attributes:
        options: Options of the request.
        calibration: Calibrates percentiles and exceedance; None: they are raw.
        levels: The percentile levels as probabilities, ``[K]``, float64.
        scores: Normal scores of the levels in the raw predictive, for rows like the training rows, ``[K]``.
        wider: The same for rows beyond the training rows, where calibration may only widen bands, ``[K]``.
        ranks: Rank of each level, from 0, ``[K]``; None: the levels are in rising order.
        thresholds: ``[T]``, float64.
    """

    options: PredictOptions
    calibration: ConformalMap | None
    levels: Tensor
    scores: Tensor
    wider: Tensor
    ranks: NDArray[np.intp] | None
    thresholds: Tensor

    @classmethod
    @lru_cache(maxsize=KEPT_PLANS)
    def of(cls, options: PredictOptions, calibration: ConformalMap | None, device: torch.device) -> Self:
        """Prepare the plan of a request.

        Args:
            options: Options of the request.
            calibration: The checkpoint's calibration, or None; not used without noise or without draws.
            device: The device that computes the answer.
        """
        if not (options.noise and options.calibrated and options.samples > 0):
            calibration = None
        levels = torch.tensor(options.percentiles, dtype=torch.float64, device=device) / 100.0
        scores = wider = torch.special.ndtri(levels)
        if calibration is not None:
            scores, wider = (calibration.calibrated(scores, widening) for widening in (False, True))
        scores, wider = (part.clamp(-FURTHEST_SCORE, FURTHEST_SCORE) for part in (scores, wider))
        thresholds = torch.tensor(options.thresholds, dtype=torch.float64, device=device)
        rising = sorted(options.percentiles) == list(options.percentiles)
        ranks = None if rising else np.argsort(np.argsort(options.percentiles))
        return cls(options, calibration, levels, scores, wider, ranks, thresholds)

    def answer(self, predictive: Predictive, outside: Outside) -> dict[str, Tensor]:
        """The answer for B rows.

        Args:
            predictive: Predictive of the rows; that of the mu-only networks for ``samples=0``.
            outside: The rows beyond the training rows.

        Returns:
            The requested numbers by the names of `model.engines.prediction.Prediction`, without the Monte Carlo errors.
        """
        options = self.options
        if options.samples == 0:
            mean = predictive.means.mean(dim=0)
            return {"mean": mean} | ({"draws": mean.new_empty((len(mean), 0))} if options.draws else {})
        mean, epistemic, aleatoric = predictive.split()
        answer = {"mean": mean, "epistemic_std": epistemic, "aleatoric_std": aleatoric}
        if options.noise:
            answer["std"] = (epistemic.square() + aleatoric.square()).sqrt()
            answer["percentiles"] = self.percentiles(predictive, outside)
            if options.thresholds:
                answer["exceedance"] = self.exceedance(*predictive.tails(self.thresholds), outside)
        else:
            answer["std"] = epistemic
            answer |= self.of_functions(predictive.means)
        if options.draws:
            answer["draws"] = predictive.means.T
        return answer

    def percentiles(self, predictive: Predictive, outside: Outside) -> Tensor:
        """Percentiles of an observation, ``[B, K]``."""
        if self.calibration is None or len(outside) == 0:
            return predictive.quantiles(self.scores)
        if outside.everywhere:
            return predictive.quantiles(self.wider)
        percentiles = predictive.means.new_empty((predictive.means.shape[1], len(self.levels)))
        for rows, scores in ((outside.others(), self.scores), (outside.rows, self.wider)):
            percentiles[rows] = predictive.of_rows(rows).quantiles(scores)
        return percentiles

    def rising_scores(self, outside: Outside) -> Tensor:
        """Normal scores of the levels in rising order, for each of B rows, ``[B, K]``."""
        scores, batch = self.scores, len(outside.mask)
        if self.calibration is not None and len(outside) > 0:
            scores = torch.where(outside.mask.unsqueeze(1), self.wider, scores)
        if self.ranks is not None:
            scores = scores.sort(dim=-1).values
        return scores.expand(batch, -1)

    def of_functions(self, means: Tensor) -> dict[str, Tensor]:
        """Percentiles and exceedance of the function alone, from function values ``[S, B]``."""
        answer = {"percentiles": function_quantiles(means, self.levels)}
        if self.options.thresholds:
            answer["exceedance"] = function_exceedance(means, self.thresholds)
        return answer

    def exceedance(self, below: Tensor, above: Tensor, outside: Outside) -> Tensor:
        """The probability that an observation exceeds each threshold; calibrated, if there is a calibration.

        Args:
            below: Raw probabilities of an observation below each threshold, ``[B, T]``.
            above: Raw probabilities of one above it, ``[B, T]``.
            outside: The rows beyond the training rows.

        Returns:
            ``[B, T]``.
        """
        if self.calibration is None:
            return above
        scores = score_of_tails(below, above)
        return normal_cdf(-self.calibration.nominal_of(scores, widening=outside.mask.unsqueeze(1)))
