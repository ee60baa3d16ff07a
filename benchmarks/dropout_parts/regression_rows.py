"""The rows of a UCI set: standardised by the training rows, split for the choice of a rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.datasets import Split

__all__ = ["RegressionRows", "rows_of_split"]

VALIDATION_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class RegressionRows:
    """Rows of one split, standardised, float32.

    Attributes:
        training: Features ``[N, D]`` and targets ``[N]``.
        chosen_by: Numbers of the training rows that choose settings, ``[V]``.
        test: Features and targets.
        scale: Standard deviation of the training targets, in their unit.
    """

    training: tuple[Tensor, Tensor]
    chosen_by: Tensor
    test: tuple[Tensor, Tensor]
    scale: float


def rows_of_split(table: pa.Table, target: str, split: Split, seed: int) -> RegressionRows:
    """The rows of a split of a table whose columns are all numbers.

    Args:
        table: The table.
        target: Name of the target.
        split: The split.
        seed: Seed of the rows that choose settings.
    """
    names = [name for name in table.column_names if name != target]
    features = np.stack([table[name].to_numpy().astype(np.float64) for name in names], axis=1)
    targets = table[target].to_numpy().astype(np.float64)
    mean, std = features[split.training].mean(axis=0), features[split.training].std(axis=0)
    features = (features - mean) / np.where(std > 0.0, std, 1.0)
    location, scale = float(targets[split.training].mean()), float(targets[split.training].std())

    def part(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(features[rows]).float(), torch.from_numpy((targets[rows] - location) / scale).float()

    order = np.random.default_rng(seed).permutation(len(split.training))
    chosen_by = torch.from_numpy(np.sort(order[: round(VALIDATION_SHARE * len(order))]))
    return RegressionRows(part(split.training), chosen_by, part(split.test), scale)
