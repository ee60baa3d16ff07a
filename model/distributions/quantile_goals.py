"""Levels that quantiles are looked for at, and steps towards them: `model.distributions.quantile_steps` for tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from murho.model.distributions.quantile_steps import SQRT_HALF, score_step, taylor_step

if TYPE_CHECKING:
    from murho.model.distributions.quantile_steps import Precision
    from murho.model.distributions.standard_mixtures import Tails

__all__ = ["Goals"]

LONGEST_STEP = 1.0
"""Of a step in normal scores, in standard deviations of the mixture: these are not to be trusted from afar."""


@dataclass(frozen=True, slots=True)
class Goals:
    """Levels to reach; float64, of one shape.

    Attributes:
        scores: Their normal scores.
        tails: The smaller tail there.
        signs: 1 where that is the upper one, else -1.
    """

    scores: Tensor
    tails: Tensor
    signs: Tensor

    @classmethod
    def of(cls, scores: Tensor) -> Self:
        """From normal scores, float64."""
        tails = torch.erfc(scores.abs().mul_(SQRT_HALF)).mul_(0.5)
        return cls(scores, tails, torch.where(scores > 0.0, 1.0, -1.0).to(scores))

    def take(self, *where: Tensor | slice | None) -> Goals:
        """Some of them."""
        return Goals(self.scores[where], self.tails[where], self.signs[where])

    def missing(self, found: Tails) -> Tensor:
        """What F is still to rise."""
        return (found.tail - self.tails).mul_(self.signs)

    def settle(
        self, values: Tensor, found: Tails, fourth: Tensor, precision: Precision
    ) -> tuple[Tensor, Tensor]:
        """Values after a Taylor step, and whether they are near enough, see `quantile_steps.taylor_step`.

        Args:
            values: Where one is.
            found: What is known there.
            fourth: ``sum_c(weight_c / width_c^4)``.
            precision: In which it was worked out.
        """
        step, near = taylor_step(
            values,
            found.tail,
            self.missing(found),
            found.density,
            found.slope,
            found.curvature,
            fourth,
            precision,
        )
        return values + step, near & (self.scores.abs() <= precision.furthest_score)

    def approach(self, values: Tensor, found: Tails) -> Tensor:
        """Values after a step in normal scores, see `model.distributions.quantile_steps.score_step`.

        Seen from the smaller tail, where nothing cancels.
        """
        reached = torch.special.ndtri(found.tail.clamp_max(1.0 - 1e-7))
        slope = found.density * torch.exp(0.5 * reached.square()) * math.sqrt(2.0 * math.pi)
        relative = -self.signs * found.slope / found.density
        step: Tensor = score_step(-self.scores.abs(), reached, slope, relative)
        return values - self.signs * step.clamp_(-LONGEST_STEP, LONGEST_STEP)
