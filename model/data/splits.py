"""Split of the rows into training, validation and calibration rows; cross-fitting for several members.

With several members, every row is held out from some of them (cross-fitting): each member is fitted to all rows but
one fold, and the members that have not seen a row score it. So a small table loses no training rows to validation and
calibration. With a multiple of ten members, two partitions into folds are used: members that share a held-out row are
then otherwise fitted to different rows, as any two members are. Fitted to the same rows they would agree too much, and
their scores would not describe the whole ensemble. A single network holds out separate rows for both purposes.

Folds are made of units (`model.data.units`), which are never parted. With times, folds are blocks in time
(`model.data.time_blocks`), and a member learns only from rows before the block that it judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.time_blocks import time_blocks
from murho.model.data.unit_folds import assign_folds, take_units

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.units import Units

__all__ = [
    "FEWEST_ROWS_TO_CALIBRATE",
    "FOLDS",
    "MOST_HELD_OUT",
    "HeldOut",
    "Split",
    "folds_of",
    "partition_of",
    "split_in_time",
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
        times: Time of every row, ``[N]``, if rows are judged forward in time. Folds are then blocks in time, and a
            member does not see the blocks after the one held out from it either. Without folds, validation and
            calibration rows come after the training rows.
        ahead: How far ahead rows are judged, in the unit of the times.
        units: The units of all rows, which no fold parts; None if each row is one.
    """

    training: NDArray[np.int64]
    validation: NDArray[np.int64]
    calibration: NDArray[np.int64]
    folds: NDArray[np.int64] | None = None
    times: NDArray[np.float64] | None = None
    ahead: float = 0.0
    units: Units | None = None

    @property
    def forward(self) -> bool:
        """Whether rows are judged forward in time."""
        return self.times is not None

    @property
    def learned(self) -> NDArray[np.int64]:
        """Rows that the network which serves has learned from: after forward judging all rows, else `training`."""
        if not self.forward:
            return self.training
        return np.unique(np.concatenate((self.training, self.validation, self.calibration)))

    def newest(self) -> NDArray[np.int64] | None:
        """Folds of `learned` for the members that serve after forward judging, ``[1, N]``; None for all newest rows.

        With these folds, in forward order, a member sees as many of the newest rows as it saw of the oldest when it was
        judged. So the rows that it learns from lie as far back of the rows it is asked for.
        """
        if self.times is None:
            return None
        times = self.times[self.learned]
        age = np.empty(len(times), dtype=np.int64)
        age[np.argsort(-np.nan_to_num(times, nan=-np.inf), kind="stable")] = np.arange(len(times))
        if self.folds is None:
            return np.asarray(age >= len(self.training), dtype=np.int64)[None] - 1
        judged_with = [int((self.folds[0] < fold).sum()) for fold in range(int(self.folds.max()) + 1)]
        return np.searchsorted(judged_with, age, side="right")[None] - 1

    def distant_folds(self) -> NDArray[np.int64] | None:
        """Return folds of all rows that are to each other as fresh rows are to the training rows, ``[N]``.

        They part no unit, and follow each other in time where rows are judged forward. None if any folds will do.
        """
        if self.times is not None:
            if self.folds is not None:
                return np.asarray(self.folds[0], dtype=np.int64)
            folds = np.full(len(self.times), -1, dtype=np.int64)
            folds[self.validation] = 0
            folds[self.calibration] = 1
            return folds
        if self.units is None:
            return None
        generator = np.random.Generator(np.random.PCG64(0))
        rows = generator.permutation(len(self.units.of_rows))
        return assign_folds(rows, FOLDS, self.units, generator)

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
        grouped = self.units is not None and self.units.grouped
        groups = f" in {self.units.count} groups" if self.units is not None and grouped else ""
        if self.folds is not None and self.forward:
            return (
                f"{len(self.training)} rows: each member learns from rows before one of {int(self.folds.max()) + 1} "
                f"blocks in time, and is judged on that block ({len(self.validation)} rows in all)"
            )
        if self.folds is not None:
            folds = int(self.folds.max()) + 1
            whole = ", and no group is in two parts" if grouped else ""
            return f"{len(self.training)} rows{groups}: each member learns from all but one of {folds} parts{whole}"
        if self.training is self.validation:
            return f"{len(self.training)} rows: too few to hold any out: not validated, not calibrated"
        order = ", in time" if self.forward else f",{groups}" if grouped else ""
        parts = f"rows{order}: {len(self.training)} training, {len(self.validation)} validation"
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


def split_rows(
    count: int, seed: int, members: int = 1, units: Units | None = None, *, most_held_out: int = MOST_HELD_OUT
) -> Split:
    """Split shuffled units into training, validation and calibration rows.

    Args:
        count: Number of rows with a target.
        seed: Seed of the shuffle.
        members: M. Two or more members and at least 50 rows are cross-fitted in `folds_of` folds, in two partitions if
            M is a multiple of ten. Otherwise validation and calibration rows are 15 % of the rows each. Below 50 rows
            there are no calibration rows, and below 20 the training rows are also the validation rows.
        units: Units of the rows; by default each row is one.
        most_held_out: Most rows that judge and calibrate.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    order = generator.permutation(count)
    if units is not None and units.count == count:
        units = None
    if count < FEWEST_ROWS_TO_VALIDATE:
        return Split(order, order, order[:0], units=units)
    if members > 1 and count >= FEWEST_ROWS_TO_CALIBRATE:
        partitions = 2 if members % (2 * FOLDS) == 0 else 1
        folds = np.empty((partitions, count), dtype=np.int64)
        for partition in range(partitions):
            shuffled = order if partition == 0 else generator.permutation(count)
            folds[partition] = assign_folds(shuffled, folds_of(members), units, generator)
        rows = np.sort(order)
        judged = order[:most_held_out]
        return Split(rows, judged, judged, folds, units=units)
    held_out = min(most_held_out, max(3, round(HELD_OUT_SHARE * count)))
    calibrates = count >= FEWEST_ROWS_TO_CALIBRATE
    if calibrates:
        held_out = max(10, held_out)
    validation, calibration, training = take_units(order, (held_out, held_out if calibrates else 0), units)
    return Split(training, validation, calibration, units=units)


def split_in_time(times: NDArray[np.float64], members: int = 1, *, most_held_out: int = MOST_HELD_OUT) -> Split:
    """Split rows in time: every judged row comes after all rows that its judges have learned from.

    With two or more members and at least 50 rows, the newer half of the rows makes a block for each fold
    (`model.data.time_blocks`). Otherwise the rows after 70 % and 85 % of all are for validation and calibration, with
    the exceptions of `split_rows` for tiny tables.

    Args:
        times: Time of each row, ``[N]``; NaN for an unknown one, which counts as old.
        members: M.
        most_held_out: Most rows that judge and calibrate, where members are cross-fitted.

    Raises:
        OptionError: All rows have the same time.
    """
    count = len(times)
    rows = np.arange(count)
    if members > 1 and count >= FEWEST_ROWS_TO_CALIBRATE:
        blocks = time_blocks(times, folds_of(members))
        judged = np.flatnonzero(blocks.of_rows >= 0)
        if len(judged) > most_held_out:
            judged = judged[np.linspace(0, len(judged) - 1, most_held_out).round().astype(int)]
        return Split(rows, judged, judged, blocks.of_rows[None], times, blocks.ahead)
    calibrates = count >= FEWEST_ROWS_TO_CALIBRATE
    held_out = (2 if calibrates else 1) * HELD_OUT_SHARE
    blocks = time_blocks(times, 2 if calibrates else 1, base_share=1.0 - held_out)
    if count < FEWEST_ROWS_TO_VALIDATE:
        return Split(rows, rows, rows[:0], times=times)
    training, validation, calibration = (np.flatnonzero(blocks.of_rows == block) for block in (-1, 0, 1))
    return Split(training, validation, calibration, times=times, ahead=blocks.ahead)
