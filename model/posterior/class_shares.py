"""The shares of the classes among the training rows, and how much they weigh in every answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.json_validation import expect_fields, expect_number, expect_numbers, wrong

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["ClassShares"]

ROWS_OF_SHARES = 1.0
"""The shares weigh as much as this number of rows beside the N training rows: N rows can't tell a smaller probability
of an exception from none. Fits on small tables lost .003 nats a row with 0.5 (docs/experiments.md)."""


@dataclass(frozen=True, slots=True)
class ClassShares:
    """The class shares of a checkpoint.

    Attributes:
        values: Share of each class, positive, of sum 1.
        weight: Least weight of the shares in an answer, from 0 to 1.
    """

    values: tuple[float, ...]
    weight: float

    @classmethod
    def even(cls, classes: int) -> Self:
        """The same share for each of C classes, without a weight."""
        return cls((1.0 / classes,) * classes, 0.0)

    @classmethod
    def of(cls, codes: NDArray[np.float64], classes: int, weights: NDArray[np.float64] | None = None) -> Self:
        """The shares of training rows, as if there were one more row of each class: none is 0.

        Args:
            codes: Index of the class of each row, ``[N]``.
            classes: C.
            weights: Weights of the rows, ``[N]``; None: all count alike.
        """
        counts = np.bincount(codes.astype(np.int64), weights, minlength=classes) + 1.0
        return cls(tuple((counts / counts.sum()).tolist()), ROWS_OF_SHARES / (len(codes) + 1.0))

    def after(self, rows_before: int, codes: NDArray[np.float64]) -> Self:
        """The shares after an update.

        Args:
            rows_before: Number of rows behind these shares.
            codes: Index of the class of each new row, ``[N]``.
        """
        counts = np.array(self.values) * (rows_before + len(self.values))
        counts += np.bincount(codes.astype(np.int64), minlength=len(self.values))
        return type(self)(tuple((counts / counts.sum()).tolist()), ROWS_OF_SHARES / (rows_before + len(codes) + 1.0))

    def tensor(self, device: torch.device) -> Tensor:
        """The shares, ``[C]``, float64."""
        return torch.tensor(self.values, dtype=torch.float64, device=device)

    def to_json(self) -> dict[str, Any]:
        """The shares as JSON data."""
        return {"values": list(self.values), "weight": self.weight}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The inverse of `to_json`.

        Raises:
            CheckpointError: The shares are not positive numbers of sum 1, or the weight is not between 0 and 1.
        """
        fields = expect_fields(data, "likelihood.shares", ("values", "weight"))
        values = expect_numbers(fields["values"], "likelihood.shares.values")
        if min(values, default=0.0) <= 0.0 or not math.isclose(sum(values), 1.0, abs_tol=1e-6):
            raise wrong("likelihood.shares.values", "positive numbers of sum 1", values)
        weight = expect_number(fields["weight"], "likelihood.shares.weight")
        if not 0.0 <= weight <= 1.0:
            raise wrong("likelihood.shares.weight", "a number from 0 to 1", weight)
        return cls(tuple(values), weight)
