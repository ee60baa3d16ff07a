"""The range of the training rows: which rows lie beyond it, and its point nearest to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from murho.model.json_validation import expect_fields, expect_number, wrong

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.encoding.encoder import Encoder

__all__ = ["BEYOND", "BeyondRule", "Outside", "TrainingRange"]

BEYOND = "edge"
"""The rule, named in ``model.json``, for rows beyond the training rows: they scatter as rows at the edge do, and
calibration only widens their bands."""


@dataclass(frozen=True, slots=True)
class BeyondRule:
    """That a checkpoint follows the rule `BEYOND`; checkpoints from before that rule follow none.

    Attributes:
        slope: Prior standard deviation of a slope beyond the training range, see `model.training.extrapolation_prior`;
            None if it is not known.
    """

    slope: float | None = None

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return {"rule": BEYOND} if self.slope is None else {"rule": BEYOND, "slope": self.slope}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The inverse of `to_json`.

        Raises:
            CheckpointError: The rule is not `BEYOND`, or the slope is no number.
        """
        fields = expect_fields(data, "beyond", ("rule",), optional=("slope",))
        if fields["rule"] != BEYOND:
            raise wrong("beyond.rule", f'"{BEYOND}"', fields["rule"])
        return cls(expect_number(fields["slope"], "beyond.slope") if "slope" in fields else None)


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
    def of(cls, encoder: Encoder, rule: BeyondRule | None, device: torch.device) -> Self:
        """The range of an encoder's training rows; without bounds if there is no rule for rows beyond it."""
        if rule is None:
            bounds = torch.tensor([[-torch.inf], [torch.inf]]).expand(-1, encoder.width)
        else:
            bounds = torch.from_numpy(encoder.training_range)
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
