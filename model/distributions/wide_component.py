"""One wide Gaussian beside every mixture: for targets that no draw foresees.

After N training rows the next may be of a kind that none of them was, with a probability of about ``1 / (N + 1)``
(Laplace's rule of succession), and then the noise, learned from rows like it, says nothing of where its target lies.
So that much of every mixture is a Gaussian much wider than the rest ("contaminated", Tukey 1960, "A survey of sampling
from contaminated distributions"): a target far out costs a dozen nats instead of hundreds, and the probability that a
distant threshold is exceeded is never nil. Percentiles that a table of N rows can tell hardly move.
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
"""What the wide component adds to the variance, in variances of the noise: aleatoric_std rises by 2.5 %."""


@dataclass(frozen=True, slots=True)
class WideComponent:
    """The wide components of B rows; float64, in the unit of the mixtures that they stand beside.

    Attributes:
        weight: Of each in its row's mixture, between 0 and 1.
        means: Means of these, and of the mixtures that they stand beside, ``[B]``.
        spreads: Standard deviations of those mixtures, ``[B]``.
        noise: Their own, ``[B]``.
    """

    weight: float
    means: Tensor
    spreads: Tensor
    noise: Tensor

    def of_rows(self, rows: slice | Tensor) -> WideComponent:
        """Of some rows alone, by a slice, a mask ``[B]`` or their numbers."""
        return WideComponent(self.weight, self.means[rows], self.spreads[rows], self.noise[rows])


@dataclass(frozen=True, slots=True)
class WideRule:
    """How a row's wide component follows from its mixture.

    Attributes:
        weight: See `WideComponent`.
        widening: Its noise over that of the others.
    """

    weight: float
    widening: float

    @classmethod
    def after(cls, rows: int) -> Self:
        """The rule after N training rows: of weight ``1 / (N + 1)``, adding `ADDED_VARIANCE`."""
        weight = 1.0 / (rows + 1)
        return cls(weight, math.sqrt(ADDED_VARIANCE / weight))

    def component(self, means: Tensor, spreads: Tensor, noise: Tensor, most: float) -> WideComponent:
        """The wide components beside mixtures: of the same variance, and that of a wider noise on top.

        Args:
            means: Of the mixtures, ``[B]``.
            spreads: Their standard deviations, ``[B]``.
            noise: What of these is noise, ``[B]``: their aleatoric part.
            most: That of the training targets, which the wider noise does not exceed.
        """
        wider = (self.widening * noise).clamp_max(most)
        return WideComponent(self.weight, means, spreads, torch.hypot(spreads, wider))

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return {"weight": self.weight, "widening": self.widening}

    @classmethod
    def from_json(cls, data: object) -> Self | None:
        """The inverse of `to_json`; None where a checkpoint has no such rule, as older ones.

        Raises:
            CheckpointError: A field is missing, unknown or out of its range.
        """
        if data is None:
            return None
        fields = expect_fields(data, "likelihood.wide", ("weight", "widening"))
        weight, widening = (
            expect_number(fields[name], f"likelihood.wide.{name}") for name in ("weight", "widening")
        )
        if not 0.0 < weight < 1.0:
            raise CheckpointError(f"likelihood.wide.weight must be between 0 and 1, found {weight!r}")
        if widening < 0.0:
            raise CheckpointError(f"likelihood.wide.widening must not be negative, found {widening!r}")
        return cls(weight, widening)
