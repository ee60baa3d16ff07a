"""The range of the training rows: which rows lie beyond it, and its point nearest to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from murho.model.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.encoding.encoder import Encoder

__all__ = ["BEYOND", "Outside", "TrainingRange"]

BEYOND = "edge"
"""The rule, named in ``model.json``, for rows beyond the training rows: they scatter as rows at the edge do, and
calibration only widens their bands."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Which of B rows lie beyond the training rows. Found once: each look at it waits for a GPU.

    Attributes:
        mask: Whether a row does, ``[B]``.
        rows: The numbers of those that do.
    """

    mask: Tensor
    rows: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> Self:
        """From the mask alone."""
        if mask.is_cuda:
            return cls(mask, mask.nonzero().squeeze(1))
        return cls(mask, torch.from_numpy(mask.numpy().nonzero()[0]))

    def of_rows(self, rows: Tensor) -> Outside:
        """Of some rows alone, by their numbers."""
        return Outside.of(self.mask[rows])

    def __len__(self) -> int:
        """How many rows do."""
        return len(self.rows)

    @property
    def everywhere(self) -> bool:
        """Whether all rows do."""
        return len(self.rows) == len(self.mask)

    def others(self) -> Tensor:
        """The numbers of the rows that don't."""
        return (~self.mask).nonzero().squeeze(1)


@dataclass(frozen=True, slots=True)
class TrainingRange:
    """The range of the training rows.

    Attributes:
        least: Least value of each encoded column over them, ``[D]``.
        most: Largest value, ``[D]``.
    """

    least: Tensor
    most: Tensor

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], encoder: Encoder, device: torch.device) -> Self:
        """What ``model.json`` says of rows beyond; without bounds if it says nothing, as older checkpoints do.

        Raises:
            CheckpointError: The rule is not `BEYOND`.
        """
        beyond = facts.get("beyond")
        if beyond is None:
            bounds = torch.tensor([[-torch.inf], [torch.inf]]).expand(-1, encoder.width)
        elif isinstance(beyond, dict) and beyond.get("rule") == BEYOND:
            bounds = torch.from_numpy(encoder.training_range)
        else:
            raise CheckpointError(f"model.json: beyond.rule must be {BEYOND!r}, found {beyond!r}")
        least, most = bounds.to(device)
        return cls(least, most)

    def outside(self, rows: Tensor) -> Tensor:
        """Whether each row lies beyond the range of a feature, or is of a category unseen in training, ``[B]``.

        Args:
            rows: Encoded rows, ``[B, D]``.
        """
        if rows.is_cuda:
            return ((rows < self.least) | (rows > self.most)).any(dim=1)
        # Of one row the calls are all there is to it, and NumPy's take a third of the time.
        values, least, most = rows.numpy(), self.least.numpy(), self.most.numpy()
        return torch.from_numpy(((values < least) | (values > most)).any(axis=1))

    def nearest(self, rows: Tensor) -> Tensor:
        """The points within the range that rows are nearest to, ``[B, D]`` as these."""
        return rows.clamp(self.least, self.most)
