"""The plan of a classifier's answer: the options of a request, prepared once, and the answer from a predictive."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import torch

from murho.model.distributions.class_predictive import entropy
from murho.model.distributions.predictive import function_quantiles
from murho.model.engines.class_prediction import ClassPrediction
from murho.model.engines.prediction_plan import KEPT_PLANS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from murho.model.distributions.class_calibration import ClassCalibration
    from murho.model.distributions.class_map import ClassMap
    from murho.model.encoding.training_range import Outside
    from murho.model.engines.prediction import PredictOptions

__all__ = ["ClassPlan", "served_probabilities"]


def served_probabilities(
    raw: Tensor,
    mapped: ClassMap | None,
    shares: Tensor,
    outside: Tensor | None,
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
        outside: Mask of the rows beyond the training rows, ``[B]``; None: there is none.
        epistemic_share: Gives the epistemic share of the entropy of each row, ``[B]``.

    Returns:
        ``[B, C]``.
    """
    probabilities = raw
    if mapped is not None:
        # A map has a floor of its own, so the shares are not mixed in again.
        probabilities = mapped.log_probabilities(raw.log()).exp()
    if outside is None:
        return probabilities
    surer = probabilities.amax(dim=1) > raw.amax(dim=1)
    probabilities = torch.where((outside & surer).unsqueeze(1), raw, probabilities)
    weight = torch.where(outside, epistemic_share().square(), 0.0).unsqueeze(1)
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

    def answer(self, predictive: Any, outside: Outside) -> dict[str, Tensor]:
        """The answer for B rows.

        Args:
            predictive: Predictive of the rows, a `model.distributions.class_predictive.ClassPredictive` or an engine's
                own form of it; that of the mu-only networks for ``samples=0``.
            outside: The rows beyond the training rows, where calibration may only make the answer less sure.

        Returns:
            The requested numbers by the names of `model.engines.class_prediction.ClassPrediction`.
        """
        options = self.options
        probabilities = self.probabilities(predictive, outside)
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
            "prediction_set": self.sets(probabilities, outside.mask),
        }
        if options.draws:
            answer["draws"] = settled.draws.transpose(1, 2)
        return answer

    def probabilities(self, predictive: Any, outside: Outside) -> Tensor:
        """The class probabilities of the answer, ``[B, C]``."""
        mask = outside.mask if self.options.samples > 0 and len(outside) > 0 else None
        mapped = None if self.calibration is None else self.calibration.map
        return served_probabilities(predictive.pooled(), mapped, predictive.shares, mask, predictive.epistemic_share)

    def prediction(self, answer: dict[str, Any], **facts: Any) -> ClassPrediction:
        """The prediction of an answer's arrays and of what else belongs to it."""
        return ClassPrediction(classes=self.classes, **facts, **answer)

    def _percentiles(self, draws: Tensor) -> Tensor:
        """Percentiles of every class's probability over the draws, ``[B, C, K]``."""
        rows, classes, _ = draws.shape
        return function_quantiles(draws.flatten(0, 1).T, self.levels).view(rows, classes, len(self.levels))

    def sets(self, probabilities: Tensor, outside: Tensor | None = None) -> Tensor:
        """Whether each class is in the prediction set of its row, ``[B, C]``, bool.

        Rows beyond the training rows also have the likeliest classes whose probabilities make up the coverage: the
        thresholds were learned from rows that tell classes apart better.

        Args:
            probabilities: Those of the answer, ``[B, C]``, see `probabilities`.
            outside: Mask of the rows beyond the training rows, ``[B]``; None: there is none.
        """
        if self.calibration is None:
            return self._likeliest(probabilities)
        sets = self.calibration.sets.sets(probabilities, self.options.coverage)
        if outside is None or not bool(outside.any()):
            return sets
        return sets | (outside.unsqueeze(1) & self._likeliest(probabilities))

    def _likeliest(self, probabilities: Tensor) -> Tensor:
        """The likeliest classes whose probabilities make up the coverage, ``[B, C]``, bool."""
        ordered, order = probabilities.sort(dim=1, descending=True, stable=True)
        before = ordered.cumsum(dim=1) - ordered
        return torch.zeros_like(ordered, dtype=torch.bool).scatter(1, order, before < self.options.coverage)
