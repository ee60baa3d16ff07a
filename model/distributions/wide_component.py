"""The wide component: one wide Gaussian added to every mixture, for targets that no draw foresees.

After N training rows the next row is of a new kind with a probability of about ``1 / (N + 1)`` (Laplace's rule of
succession). The noise learned from the other rows is then no guide to its target. So a Gaussian much wider than the
rest gets this weight in every mixture ("contaminated", Tukey 1960, "A survey of sampling from contaminated
distributions"). A target far out costs a dozen nats instead of hundreds, and the probability of exceeding a distant
threshold is never zero. Percentiles that N rows can estimate hardly move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from murho.model.errors import CheckpointError
from murho.model.json_validation import expect_fields, expect_number

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["WideComponent", "WideRule"]

ADDED_VARIANCE = 0.05
"""Variance that the wide component adds, in variances of the noise: aleatoric_std rises by 2.5 %."""


@dataclass(frozen=True, slots=True)
class WideComponent:
    """The wide components of B rows; float64, in the unit of their mixtures.

    Attributes:
        weight: Weight of each in its row's mixture, between 0 and 1.
        means: Means of the wide components, equal to those of the mixtures, ``[B]``.
        spreads: Standard deviations of the mixtures, ``[B]``.
        noise: Standard deviations of the wide components, ``[B]``.
        limited: Whether the wider noise is at its limit and does not follow the mixture, ``[B]``.
    """

    weight: float
    means: Tensor
    spreads: Tensor
    noise: Tensor
    limited: Tensor

    def of_rows(self, rows: slice | Tensor) -> WideComponent:
        """The wide components of selected rows, by a slice, a mask ``[B]`` or indices."""
        return WideComponent(self.weight, self.means[rows], self.spreads[rows], self.noise[rows], self.limited[rows])


@dataclass(frozen=True, slots=True)
class WideRule:
    """The rule by which a row's wide component follows from its mixture.

    Attributes:
        weight: Weight of the wide component, between 0 and 1.
        widening: The wider noise as a multiple of the mixture's aleatoric noise.
    """

    weight: float
    widening: float

    @classmethod
    def after(cls, rows: int) -> Self:
        """The rule after N training rows: weight ``1 / (N + 1)``, and `ADDED_VARIANCE` added to the variance."""
        weight = 1.0 / (rows + 1)
        return cls(weight, math.sqrt(ADDED_VARIANCE / weight))

    def component(self, means: Tensor, spreads: Tensor, noise: Tensor, most: float) -> WideComponent:
        """The wide components of B mixtures; their variance is the mixture's plus that of a wider noise.

        Args:
            means: Means of the mixtures, ``[B]``.
            spreads: Their standard deviations, ``[B]``.
            noise: The aleatoric part of these, ``[B]``.
            most: Upper limit of the wider noise: the standard deviation of the training targets.
        """
        wider = self.widening * noise
        limited = wider > most
        return WideComponent(self.weight, means, spreads, torch.hypot(spreads, wider.clamp_max(most)), limited)

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return {"weight": self.weight, "widening": self.widening}

    @classmethod
    def from_json(cls, data: object) -> Self | None:
        """The inverse of `to_json`; None where the checkpoint has no such rule.

        Raises:
            CheckpointError: A field is missing, unknown or out of its range.
        """
        if data is None:
            return None
        fields = expect_fields(data, "likelihood.wide", ("weight", "widening"))
        weight, widening = (expect_number(fields[name], f"likelihood.wide.{name}") for name in ("weight", "widening"))
        if not 0.0 < weight < 1.0:
            raise CheckpointError(f"likelihood.wide.weight must be between 0 and 1, found {weight!r}")
        if widening < 0.0:
            raise CheckpointError(f"likelihood.wide.widening must not be negative, found {widening!r}")
        return cls(weight, widening)
