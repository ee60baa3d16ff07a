"""Split of the rows into training, validation and calibration rows; cross-fitting for several members.

With several members, every row is held out from some of them (cross-fitting): each member is fitted to all rows but
one fold, and the members that have not seen a row score it. So a small table loses no training rows to validation and
calibration. With a multiple of ten members, two partitions into folds are used: members that share a held-out row are
then otherwise fitted to different rows, as any two members are. Fitted to the same rows they would agree too much, and
their scores would not describe the whole ensemble. A single network holds out separate rows for both purposes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "FEWEST_ROWS_TO_CALIBRATE",
    "FOLDS",
    "MOST_HELD_OUT",
    "HeldOut",
    "Split",
    "folds_of",
    "partition_of",
    "split_rows",
]

FOLDS = 5
"""Number of folds if it divides the number of members; with ten or more, at least two members score a row together."""

HELD_OUT_SHARE = 0.15
MOST_HELD_OUT = 10_000
FEWEST_ROWS_TO_CALIBRATE = 50
FEWEST_ROWS_TO_VALIDATE = 20


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows that are held out from some or all members.

    Attributes:
        rows: Row numbers.
        members: The members that have not seen the rows; None means that no member has seen them.
    """

    rows: NDArray[np.int64]
    members: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of the training, validation and calibration rows of a table.

    Attributes:
        training: Rows that members are fitted to.
        validation: Rows for early stopping and for the choice of the noise model.
        calibration: Rows that calibrate the bands; empty if the table has too few rows.
        folds: Fold of every row of the table in each of P partitions, ``[P, N]``; None without cross-fitting. With F
            folds, fold ``m mod F`` of its partition (`partition_of`) is held out from member m.
    """

    training: NDArray[np.int64]
    validation: NDArray[np.int64]
    calibration: NDArray[np.int64]
    folds: NDArray[np.int64] | None = None

    def held_out(self, members: int) -> list[HeldOut]:
        """Return groups of held-out rows. The last group calibrates the bands; with folds, all groups do.

        Args:
            members: M, the number of members of the fit.
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
        """Describe the split in one line, for people."""
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
    """Return F, the number of folds of M members: `FOLDS` if it divides M, otherwise one fold per member."""
    return FOLDS if members % FOLDS == 0 else members


def partition_of(member: int, members: int, partitions: int) -> int:
    """Return the partition of a member: the first F members use the first partition, the next F the second.

    Args:
        member: Number of the member, from 0.
        members: M, the number of members.
        partitions: P, the number of partitions.
    """
    return member // folds_of(members) % partitions


def split_rows(count: int, seed: int, members: int = 1) -> Split:
    """Split shuffled rows into training, validation and calibration rows.

    Args:
        count: Number of rows with a target.
        seed: Seed of the shuffle.
        members: M. Two or more members and at least 50 rows are cross-fitted in `folds_of` folds, in two partitions if
            M is a multiple of ten. Otherwise validation and calibration rows are 15 % of the rows each. Below 50 rows
            there are no calibration rows, and below 20 the training rows are also the validation rows.
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
