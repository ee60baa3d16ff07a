"""Which rows are held out, and from whom.

With several members every row is held out from some of them (cross-fitting): each member learns from all rows
but a fold, and each row is judged by the members that have not seen it. So small tables lose nothing to
validation and calibration. Where two members have not seen a row, they have learned from different rows otherwise, as
any two members have: else they would agree too much to tell what all of them together are worth. A single network
holds out rows of its own for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FOLDS", "HeldOut", "Split", "folds_of", "partition_of", "split_rows"]

FOLDS = 5
"""Folds where the members can share them evenly: two or more members that have not seen a row judge it together."""

HELD_OUT_SHARE = 0.15
MOST_HELD_OUT = 10_000
FEWEST_ROWS_TO_CALIBRATE = 50
FEWEST_ROWS_TO_VALIDATE = 20


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows that somebody has not learned from.

    Attributes:
        rows: Their numbers.
        members: The members that have not seen them; None: no member has.
    """

    rows: NDArray[np.int64]
    members: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Split:
    """Parts of a table, as row numbers.

    Attributes:
        training: Rows that members learn from.
        validation: Rows that decide when to stop and which noise to keep.
        calibration: Rows that calibrate the bands; empty: too few rows.
        folds: For every row of the table its fold in each of P partitions, ``[P, N]``; None without cross-fitting. Of
            F folds member m is kept from fold ``m mod F`` of its partition, see `partition_of`.
    """

    training: NDArray[np.int64]
    validation: NDArray[np.int64]
    calibration: NDArray[np.int64]
    folds: NDArray[np.int64] | None = None

    def held_out(self, members: int) -> list[HeldOut]:
        """All rows held out, in groups of which the last calibrate the bands: all of them with folds.

        Args:
            members: M of the fit to be judged.
        """
        if self.folds is not None:
            count, partitions = folds_of(members), len(self.folds)
            kinds, group = np.unique(self.folds[:, self.calibration], axis=1, return_inverse=True)
            return [
                HeldOut(
                    self.calibration[group.reshape(-1) == number],
                    tuple(
                        member
                        for member in range(members)
                        if folds[partition_of(member, members, partitions)] == member % count
                    ),
                )
                for number, folds in enumerate(kinds.T)
            ]
        parts = [part for part in (self.validation, self.calibration) if len(part)]
        return [HeldOut(part, None) for part in parts]

    def describe(self) -> str:
        """A line for people."""
        if self.folds is not None:
            folds = int(self.folds.max()) + 1
            return f"{len(self.training)} rows: each member learns from all but one of {folds} parts"
        if self.training is self.validation:
            return f"{len(self.training)} rows: too few to hold any out: not validated, not calibrated"
        parts = f"rows: {len(self.training)} training, {len(self.validation)} validation"
        if not len(self.calibration):
            return f"{parts}; too few to hold out calibration rows, so bands are not calibrated"
        return f"{parts}, {len(self.calibration)} calibration"


def folds_of(members: int) -> int:
    """F, the folds that M members are kept from: 5 if they share them evenly, otherwise one each."""
    return FOLDS if members % FOLDS == 0 else members


def partition_of(member: int, members: int, partitions: int) -> int:
    """Which partition into folds a member belongs to: the first F members to the first, the next F to the second.

    Args:
        member: Its number.
        members: M.
        partitions: P.
    """
    return member // folds_of(members) % partitions


def split_rows(count: int, seed: int, members: int = 1) -> Split:
    """Shuffles rows into their parts.

    Args:
        count: Rows with a target.
        seed: Of the shuffle.
        members: M. With two or more, and 50 rows or more, rows are cross-fitted in `folds_of` folds; in two partitions
            where the members can share their folds evenly. Otherwise 15 % of the rows each are held out for validation
            and calibration; under 50 rows none calibrate, and under 20 the training rows themselves validate.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    order = generator.permutation(count)
    if count < FEWEST_ROWS_TO_VALIDATE:
        return Split(order, order, order[:0])
    if members > 1 and count >= FEWEST_ROWS_TO_CALIBRATE:
        partitions = 2 if members % (2 * FOLDS) == 0 else 1
        folds = np.empty((partitions, count), dtype=np.int64)
        for partition in range(partitions):
            shuffled = order if partition == 0 else generator.permutation(count)
            folds[partition, shuffled] = np.arange(count) % folds_of(members)
        rows = np.sort(order)
        judged = order[:MOST_HELD_OUT]
        return Split(rows, judged, judged, folds)
    held_out = min(MOST_HELD_OUT, max(3, round(HELD_OUT_SHARE * count)))
    if count < FEWEST_ROWS_TO_CALIBRATE:
        return Split(order[held_out:], order[:held_out], order[:0])
    held_out = max(10, held_out)
    return Split(order[2 * held_out :], order[:held_out], order[held_out : 2 * held_out])
