"""Range of the encoded training rows: the rows outside it, and the nearest points within it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

import torch

from murho.model.json_validation import MisfitError, Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from murho.model.encoding.encoder import Encoder

__all__ = [
    "BEYOND",
    "BeyondRule",
    "Outside",
    "TrainingRange",
]

BEYOND: Final = "edge"
"""Name in ``model.json`` of the rule for rows outside the training range: their noise is that of the nearest point in
the range, and calibration only widens their bands."""
FURTHEST_TARGET = 1.0
"""How far a function value of a row outside may lie beyond the training targets, in widths of their range. Means then
lie no further out either."""


@dataclass(frozen=True, slots=True)
class BeyondRule(Stored):
    """The rule `BEYOND` of a checkpoint.

    Attributes:
        targets: Smallest and largest training target, in its unit: function values of rows outside the training range
            lie no further than `FURTHEST_TARGET` widths beyond. None for classes: logits are not limited.
    """

    targets: tuple[float, float] | None = None
    rule: Literal["edge"] = BEYOND

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the targets are in order."""
        if self.targets is not None and self.targets[0] >= self.targets[1]:
            raise MisfitError("targets", "the least and the largest training target", self.targets)

    def limits(self, standardised: Callable[[Tensor], Tensor]) -> tuple[float, float] | None:
        """Return the least and the largest function value of a row outside the training range, standardised.

        Args:
            standardised: Standardises targets of any shape.
        """
        if self.targets is None:
            return None
        least, most = self.targets
        further = FURTHEST_TARGET * (most - least)
        ends = standardised(torch.tensor([least - further, most + further], dtype=torch.float64))
        return float(ends[0]), float(ends[1])


@dataclass(frozen=True, slots=True)
class Outside:
    """The rows of a batch that lie outside the training range, computed once: each use of the mask waits for a GPU.

    Attributes:
        mask: Whether each of the B rows lies outside, ``[B]``.
        rows: Indices of the rows outside.
    """

    mask: Tensor
    rows: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> Self:
        """Compute the indices from the mask, ``[B]``."""
        if mask.is_cuda:
            return cls(mask, mask.nonzero().squeeze(1))
        return cls(mask, torch.from_numpy(mask.numpy().nonzero()[0]))

    def of_rows(self, rows: Tensor) -> Outside:
        """Select rows of the batch by their indices."""
        return Outside.of(self.mask[rows])

    def __len__(self) -> int:
        """Number of rows outside."""
        return len(self.rows)

    @property
    def everywhere(self) -> bool:
        """Whether all rows lie outside."""
        return len(self.rows) == len(self.mask)

    def others(self) -> Tensor:
        """Return the indices of the rows inside."""
        return (~self.mask).nonzero().squeeze(1)


@dataclass(frozen=True, slots=True)
class TrainingRange:
    """The range of the encoded training rows.

    Attributes:
        least: Smallest value of each encoded column over the training rows, ``[D]``.
        most: Largest value of each, ``[D]``.
        unlike_columns: The columns that tell which rows are unlike the training rows
            (`model.encoding.encoder.Encoder.unlike_columns`); None: all columns outside their range do.
    """

    least: Tensor
    most: Tensor
    unlike_columns: Tensor | None = None

    @classmethod
    def of(cls, encoder: Encoder, device: torch.device) -> Self:
        """Return the range of an encoder's training rows."""
        least, most = torch.from_numpy(encoder.training_range).to(device)
        columns = encoder.unlike_columns
        return cls(least, most, None if columns is None else torch.tensor(columns, device=device))

    def outside(self, rows: Tensor) -> Tensor:
        """Whether each row has a value outside the range of a feature, or a category unseen in training, ``[B]``.

        Args:
            rows: Encoded rows, ``[B, D]``, or R copies of each, ``[R, B, D]``.

        Returns:
            ``[B]`` or ``[R, B]``.
        """
        if rows.is_cuda:
            return ((rows < self.least) | (rows > self.most)).any(dim=-1)
        # For one row the overhead of the calls dominates; NumPy's is a third of PyTorch's.
        values, least, most = rows.numpy(), self.least.numpy(), self.most.numpy()
        return torch.from_numpy(((values < least) | (values > most)).any(axis=-1))

    def unlike(self, rows: Tensor, outside: Tensor) -> Tensor:
        """Whether each row is unlike the training rows, ``[B]``. With copies: whether all copies of a row are.

        Args:
            rows: Encoded rows, ``[B, D]`` or ``[R, B, D]``.
            outside: `outside` of these rows.
        """
        if self.unlike_columns is not None:
            if rows.is_cuda:
                outside = (rows[..., self.unlike_columns] > 0.0).any(dim=-1)
            else:
                values = rows.numpy()[..., self.unlike_columns.numpy()]
                outside = torch.from_numpy((values > 0.0).any(axis=-1))
        return outside if outside.dim() == 1 else outside.all(dim=0)

    def nearest(self, rows: Tensor) -> Tensor:
        """Return the nearest point within the range for each encoded row of ``[B, D]``, the same shape."""
        return rows.clamp(self.least, self.most)
