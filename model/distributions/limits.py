"""Limits of a target: a least and a largest value, such as 0 for amounts, or the value at which a survey was capped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from murho.model.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a target, in its unit.

    Attributes:
        minimum: Least value; -inf: there is no limit.
        maximum: Largest value; inf: there is no limit.
    """

    minimum: float = -math.inf
    maximum: float = math.inf

    def __post_init__(self) -> None:
        """Check the order.

        Raises:
            OptionError: The minimum is not below the maximum.
        """
        if not self.minimum < self.maximum:
            raise OptionError(f"the target's minimum {self.minimum:g} must lie below its maximum {self.maximum:g}")

    def clip(self, values: Tensor) -> Tensor:
        """Target values clipped to the limits; any shape."""
        return values.clamp(self.minimum, self.maximum)

    def clip_answer(self, answer: dict[str, Tensor], thresholds: Tensor) -> dict[str, Tensor]:
        """An answer without anything beyond the limits, whatever calibration and rounding did.

        Args:
            answer: Numbers by the names of `model.engines.prediction.Prediction`.
            thresholds: The thresholds of ``exceedance``, ``[T]``.
        """
        answer = dict(answer)
        for name in ("mean", "percentiles", "draws"):
            if name in answer:
                answer[name] = self.clip(answer[name])
        if "exceedance" in answer:
            above = torch.where(thresholds >= self.maximum, 0.0, answer["exceedance"])
            answer["exceedance"] = torch.where(thresholds < self.minimum, 1.0, above)
        return answer

    def to_json(self) -> dict[str, Any]:
        """``minimum`` and ``maximum`` for ``model.json``; null: there is no limit."""
        values = {"minimum": self.minimum, "maximum": self.maximum}
        return {name: value if math.isfinite(value) else None for name, value in values.items()}
