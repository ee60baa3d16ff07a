"""The plan of an answer: a request's options, prepared once, and the answer from a predictive of numbers or classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import torch

from murho.model.calibration.conformal import CalibratedSpread
from murho.model.distributions.classes import entropy
from murho.model.distributions.mixtures import FURTHEST_SCORE, normal_cdf, score_of_tails
from murho.model.distributions.predictive import function_exceedance, function_quantiles
from murho.model.predictive.prediction import ClassPrediction, Prediction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from murho.model.calibration.classes import ClassCalibration, ClassMap
    from murho.model.calibration.conformal import ConformalMap
    from murho.model.distributions.predictive import Predictive
    from murho.model.predictive.prediction import PredictOptions

__all__ = ["KEPT_PLANS", "SPREADS", "ClassPlan", "PredictionPlan", "served_probabilities"]


KEPT_PLANS = 64
"""Plans in the cache: most requests to a service have the same options."""
SPREADS = ("std", "epistemic_std", "aleatoric_std")
"""The numbers of an answer that calibration multiplies by one ratio."""


@dataclass(frozen=True, slots=True)
class PredictionPlan:
    """The options of a request in the form that engines need, the same for every row.

    With a calibration, engines compute quantiles at L = K + n scores: those of the K levels, and after them the n nodes
    of the calibrated standard deviation. Without one, L is K.

    Attributes:
        options: Options of the request.
        calibration: Calibrates the spread, percentiles and exceedance; None: they are raw.
        spread: Gives the calibrated standard deviation; None without calibration.
        levels: The percentile levels as probabilities, ``[K]``, float64.
        scores: Normal scores in the raw predictive, for rows like the training rows, ``[L]``.
        wider: The same for rows beyond the training rows, where calibration may only widen bands, ``[L]``.
        thresholds: ``[T]``, float64.
        rising: `scores` in rising order, and the place of each score in that order, ``[L]`` each.
        rising_wider: The same of `wider`.
    """

    options: PredictOptions
    calibration: ConformalMap | None
    spread: CalibratedSpread | None
    levels: Tensor
    scores: Tensor
    wider: Tensor
    thresholds: Tensor
    rising: tuple[Tensor, Tensor]
    rising_wider: tuple[Tensor, Tensor]

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
        spread = None
        if calibration is not None:
            spread = CalibratedSpread.of(calibration, device)
            scores, wider = (
                torch.cat((calibration.calibrated(scores, widening), spread.nodes)) for widening in (False, True)
            )
        scores, wider = (part.clamp(-FURTHEST_SCORE, FURTHEST_SCORE) for part in (scores, wider))
        thresholds = torch.tensor(options.thresholds, dtype=torch.float64, device=device)
        return cls(options, calibration, spread, levels, scores, wider, thresholds, _rising(scores), _rising(wider))

    def answer(self, predictive: Predictive, widening: Tensor) -> dict[str, Tensor]:
        """The answer for B rows.

        Args:
            predictive: Predictive of the rows; that of the mu-only networks for ``samples=0``.
            widening: Whether calibration may only widen the bands of each row, ``[B]``.

        Returns:
            The requested numbers by the names of `Prediction`, without the Monte Carlo errors.
        """
        options = self.options
        if options.samples == 0:
            mean = predictive.means.mean(dim=0)
            return {"mean": mean} | ({"draws": mean.new_empty((len(mean), 0))} if options.draws else {})
        mean, epistemic, aleatoric = predictive.moments
        answer = {"mean": mean, "epistemic_std": epistemic, "aleatoric_std": aleatoric}
        if options.noise:
            answer["std"] = (epistemic.square() + aleatoric.square()).sqrt()
            answer |= self.of_quantiles(answer, self.quantiles(predictive, widening), widening)
            answer["percentiles"] = predictive.reported(answer["percentiles"])
            if options.thresholds:
                answer["exceedance"] = self.exceedance(*predictive.tails(self.thresholds), widening)
        else:
            answer["std"] = epistemic
            answer |= self.of_functions(predictive.means)
        if options.draws:
            answer["draws"] = predictive.means.T
        return answer

    def prediction(self, answer: dict[str, Any], **facts: Any) -> Prediction:
        """The prediction of an answer's arrays and of what else belongs to it."""
        return Prediction(**facts, **answer)

    def of_quantiles(self, spreads: Mapping[str, Tensor], quantiles: Tensor, widening: Tensor) -> dict[str, Tensor]:
        """The part of an answer that follows from quantiles: percentiles, and with a calibration the spread.

        Args:
            spreads: The raw ``std`` and its two parts, ``[B]`` each.
            quantiles: In the order of the scores, ``[B, L]``.
            widening: Whether calibration may only widen the bands of each row, ``[B]``.
        """
        answer = {"percentiles": quantiles[:, : len(self.levels)]}
        if self.spread is not None:
            ratio = self.spread.ratio(quantiles[:, len(self.levels) :], widening)
            answer |= {name: spreads[name] * ratio for name in SPREADS}
        return answer

    def quantiles(self, predictive: Predictive, widening: Tensor) -> Tensor:
        """Quantiles of an observation at the scores, ``[B, L]``."""
        if self.calibration is None or not bool(widening.any()):
            return predictive.quantiles(self.scores)
        if bool(widening.all()):
            return predictive.quantiles(self.wider)
        quantiles = predictive.means.new_empty((len(widening), len(self.scores)))
        for mask, scores in ((~widening, self.scores), (widening, self.wider)):
            rows = mask.nonzero().squeeze(1)
            quantiles[rows] = predictive.of_rows(rows).quantiles(scores)
        return quantiles

    def rising_scores(self, widening: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of each of B rows in rising order, and the place of each score in that order, ``[B, L]`` each."""
        scores, ranks = self.rising
        if self.calibration is not None and bool(widening.any()):
            mask = widening.unsqueeze(1)
            wider, other = self.rising_wider
            scores, ranks = torch.where(mask, wider, scores), torch.where(mask, other, ranks)
        shape = len(widening), len(self.scores)
        return scores.expand(shape), ranks.expand(shape)

    def of_functions(self, means: Tensor) -> dict[str, Tensor]:
        """Percentiles and exceedance of the function alone, from function values ``[S, B]``."""
        answer = {"percentiles": function_quantiles(means, self.levels)}
        if self.options.thresholds:
            answer["exceedance"] = function_exceedance(means, self.thresholds)
        return answer

    def exceedance(self, below: Tensor, above: Tensor, widening: Tensor) -> Tensor:
        """The probability that an observation exceeds each threshold; calibrated, if there is a calibration.

        Args:
            below: Raw probabilities of an observation below each threshold, ``[B, T]``.
            above: Raw probabilities of one above it, ``[B, T]``.
            widening: Whether calibration may only widen the bands of each row, ``[B]``.

        Returns:
            ``[B, T]``.
        """
        if self.calibration is None:
            return above
        scores = score_of_tails(below, above)
        calibrated = normal_cdf(-self.calibration.nominal_of(scores, widening=widening.unsqueeze(1)))
        # What lies beyond a limit of the target stays impossible, or sure.
        return torch.where(above == 0.0, above, torch.where(below == 0.0, 1.0, calibrated))


def _rising(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Scores in rising order, and the place of each in that order, ``[L]`` each."""
    rising, order = scores.sort(stable=True)
    return rising, order.argsort()


def served_probabilities(
    raw: Tensor,
    mapped: ClassMap | None,
    shares: Tensor,
    widening: Tensor | None,
    epistemic_share: Callable[[], Tensor],
) -> Tensor:
    """The class probabilities of an answer.

    Raw probabilities have a little of the class shares in them, and are calibrated. In rows beyond the training rows
    calibration never makes the answer surer, and the weight of the shares is the square of the epistemic share of the
    entropy: where draws disagree, less is known beyond how frequent each class is. The square keeps the step small at
    the edge of the training rows, where draws agree.

    Args:
        raw: Pooled probabilities, ``[B, C]``.
        mapped: Calibrates them; None: they stay raw.
        shares: Shares of the classes, ``[C]``.
        widening: Mask of the rows where calibration may only make the answer less sure, ``[B]``; None: there is none.
        epistemic_share: Gives the epistemic share of the entropy of each row, ``[B]``.

    Returns:
        ``[B, C]``.
    """
    probabilities = raw
    if mapped is not None:
        # A map has a floor of its own, so the shares are not mixed in again.
        probabilities = mapped.log_probabilities(raw.log()).exp()
    if widening is None:
        return probabilities
    surer = probabilities.amax(dim=1) > raw.amax(dim=1)
    probabilities = torch.where((widening & surer).unsqueeze(1), raw, probabilities)
    weight = torch.where(widening, epistemic_share().square(), 0.0).unsqueeze(1)
    return torch.lerp(probabilities, shares.expand_as(raw), weight)


@dataclass(frozen=True, slots=True)
class ClassPlan:
    """The options of a request about classes, the same for every row.

    Attributes:
        options: Options of the request.
        calibration: Calibrates the probabilities, and makes the prediction sets; None: both are raw.
        levels: The percentile levels as probabilities, ``[K]``, float64.
        classes: Names of the C classes.
    """

    options: PredictOptions
    calibration: ClassCalibration | None
    levels: Tensor
    classes: tuple[str, ...]

    @classmethod
    @lru_cache(maxsize=KEPT_PLANS)
    def of(
        cls,
        options: PredictOptions,
        calibration: ClassCalibration | None,
        device: torch.device,
        classes: tuple[str, ...],
    ) -> Self:
        """Prepare the plan of a request.

        Args:
            options: Options of the request.
            calibration: The checkpoint's calibration, or None; not used without draws.
            device: The device that computes the answer.
            classes: Names of the C classes.
        """
        if not (options.calibrated and options.samples > 0):
            calibration = None
        levels = torch.tensor(options.percentiles, dtype=torch.float64, device=device) / 100.0
        return cls(options, calibration, levels, classes)

    def answer(self, predictive: Any, widening: Tensor) -> dict[str, Tensor]:
        """The answer for B rows.

        Args:
            predictive: Predictive of the rows, a `model.distributions.classes.ClassPredictive` or an engine's
                own form of it; that of the mu-only networks for ``samples=0``.
            widening: Whether calibration may only make the answer of each row less sure, ``[B]``.

        Returns:
            The requested numbers by the names of `model.predictive.prediction.ClassPrediction`.
        """
        options = self.options
        probabilities = self.probabilities(predictive, widening)
        answer = {"prediction": probabilities.argmax(dim=1), "probabilities": probabilities}
        if options.samples == 0:
            if options.draws:
                answer["draws"] = probabilities.new_empty((len(probabilities), 0, probabilities.shape[1]))
            return answer
        settled = predictive.settled(probabilities)
        total = entropy(probabilities, dim=1)
        answer |= {
            "epistemic_std": settled.epistemic_std,
            "entropy": total,
            "epistemic_entropy": (total - settled.expected_entropy).clamp_min(0.0),
            "percentiles": self._percentiles(settled.draws),
            "prediction_set": self.sets(probabilities, widening),
        }
        if options.draws:
            answer["draws"] = settled.draws.transpose(1, 2)
        return answer

    def probabilities(self, predictive: Any, widening: Tensor) -> Tensor:
        """The class probabilities of the answer, ``[B, C]``."""
        mask = widening if self.options.samples > 0 and bool(widening.any()) else None
        mapped = None if self.calibration is None else self.calibration.map
        return served_probabilities(predictive.pooled(), mapped, predictive.shares, mask, predictive.epistemic_share)

    def prediction(self, answer: dict[str, Any], **facts: Any) -> ClassPrediction:
        """The prediction of an answer's arrays and of what else belongs to it."""
        return ClassPrediction(classes=self.classes, **facts, **answer)

    def _percentiles(self, draws: Tensor) -> Tensor:
        """Percentiles of every class's probability over the draws, ``[B, C, K]``."""
        rows, classes, _ = draws.shape
        return function_quantiles(draws.flatten(0, 1).T, self.levels).view(rows, classes, len(self.levels))

    def sets(self, probabilities: Tensor, widening: Tensor | None = None) -> Tensor:
        """Whether each class is in the prediction set of its row, ``[B, C]``, bool.

        Rows beyond the training rows also have the likeliest classes whose probabilities make up the coverage: the
        thresholds were learned from rows that tell classes apart better.

        Args:
            probabilities: Those of the answer, ``[B, C]``, see `probabilities`.
            widening: As `served_probabilities` takes it.
        """
        if self.calibration is None:
            return self._likeliest(probabilities)
        sets = self.calibration.sets.sets(probabilities, self.options.coverage)
        if widening is None or not bool(widening.any()):
            return sets
        return sets | (widening.unsqueeze(1) & self._likeliest(probabilities))

    def _likeliest(self, probabilities: Tensor) -> Tensor:
        """The likeliest classes whose probabilities make up the coverage, ``[B, C]``, bool."""
        ordered, order = probabilities.sort(dim=1, descending=True, stable=True)
        before = ordered.cumsum(dim=1) - ordered
        return torch.zeros_like(ordered, dtype=torch.bool).scatter(1, order, before < self.options.coverage)
