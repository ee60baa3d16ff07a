"""Splits: which rows each member learns from, by folds of units or by blocks in time.

With several members, every row is held out from some of them (cross-fitting): each member is fitted to all rows but
one fold, and the members that have not seen a row score it. So a small table loses no training rows to validation and
calibration. With a multiple of ten members, two partitions into folds are used: members that share a held-out row are
then otherwise fitted to different rows, as any two members are. Fitted to the same rows they would agree too much, and
their scores would not describe the whole ensemble. A single network holds out separate rows for both purposes.

Folds are made of units, which are never parted, because one row of a unit tells about another. Rows with the same
features are one unit: learned from in one place and judged in the other, they would judge memory. With ``--group``, so
are the rows of a group: held-out rows then stand for rows of groups that the network has not seen. A table that only
looks up a few combinations of categories is the exception: it will be asked for the same combinations again, so each
row is a unit of its own.

With times, folds are blocks in time. The oldest half of the rows is the base, from which all members learn. The rows
after it are parted into consecutive blocks of about the same number of rows. A member that judges a block has learned
only from rows before it. Random folds would let it learn from both sides of each row, and nobody knows as much of
tomorrow's row (Bergmeir & Benitez 2012, "On the use of cross-validation for time series predictor evaluation"; the
scheme is called a rolling or expanding origin).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from murho.model.arrays import Array, Doubles, Ints
from murho.model.errors import OptionError
from murho.model.tables.schema import Columns, is_missing

BASE = -1
"""Number of the block of the oldest rows, which all members learn from and none judges."""
BASE_SHARE = 0.5
ROW_ORDER = "row-order"
"""Value of ``--time`` for the order of the rows in the table."""


class TimeBlocks(NamedTuple):
    """Blocks in time.

    Attributes:
        of_rows: Block of each row, from 0, or `BASE`, ``[N]``. Blocks are numbered from the oldest to the newest.
        ahead: How far ahead of the rows learned from a block reaches, in the unit of the times: the median over blocks.
    """

    of_rows: Ints
    ahead: float


def time_blocks(times: Doubles, count: int, *, base_share: float) -> TimeBlocks:
    """Part rows into a base and consecutive blocks. Rows of the same time share a block.

    Args:
        times: Time of each row, ``[N]``; a row without a time (NaN) belongs to the base.
        count: Largest number of blocks. They are fewer if few times differ.
        base_share: Share of the rows in the base.

    Raises:
        OptionError: All rows have the same time.
    """
    present = np.sort(times[~np.isnan(times)])
    if not present.size or present[0] == present[-1]:
        raise OptionError("--time: all rows have the same time, so none comes after another: leave the option out")
    shares = base_share + (1.0 - base_share) * np.arange(count) / count
    # A block begins after the time that this share of the rows does not exceed.
    before = np.quantile(present, shares, method="inverted_cdf")
    ends = np.unique(before[before < present[-1]])
    if not ends.size:  # more than the base's share of the rows are of the last time
        ends = present[present < present[-1]][-1:]
    of_rows = np.where(np.isnan(times), BASE, np.searchsorted(ends, times, side="left") + BASE).astype(np.int64)
    last = np.append(ends[1:], present[-1])
    return TimeBlocks(of_rows, float(np.median(last - ends)))


MOST_COMBINATIONS, MOST_VALUES, ROWS_OF_A_COMBINATION = 50, 10, 5
"""A table is a look-up table if its features have fewer different rows than the first, no number or date has more
different values than the second, and there are at least the third as many rows for each of them, on average."""
LEAST_SHARE_OF_GROUPS = 0.5
"""If rows of different groups with the same features would leave fewer than this share of the groups as units, they
are not joined: the features are then too coarse for equal ones to be copies."""


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a table.

    Attributes:
        of_rows: Number of the unit of each row, from 0, ``[N]``.
        grouped: Whether the units are groups that the user has named.
        notes: What to tell the user, one line each.
    """

    of_rows: Ints
    grouped: bool = False
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of units, U."""
        return int(self.of_rows.max(initial=-1)) + 1


def single_rows(count: int) -> Units:
    """Units of one row each."""
    return Units(np.arange(count))


def find_units(columns: Columns, groups: Mapping[str, Array] | None = None) -> Units:
    """Find the units of a table.

    Args:
        columns: Canonical columns of the features, ``[N]`` each.
        groups: Group column → its canonical column, ``[N]``; a row with a missing cell is a group of its own.

    Raises:
        OptionError: A group column has the same value in all rows or another one in each, or all groups are connected
            by rows that they share, so that nothing can be held out.
    """
    equal = equal_rows(columns.values())
    copies = int((np.bincount(equal)[equal] > 1).sum())
    said = f"{copies} of {len(equal)} rows have the same features as another row; such rows are held out together"
    notes = (said,) if copies else ()
    if not groups:
        combinations = int(equal.max()) + 1
        if not _looks_up(columns, len(equal), combinations):
            return Units(equal, notes=notes)
        note = (
            f"the features have only {combinations} different rows, and new rows will repeat them: a row may be "
            "judged by networks that learned from its equals"
        )
        return Units(np.arange(len(equal)), notes=(note,))
    grouped = Units(join_units([_group_codes(name, column) for name, column in groups.items()]), grouped=True)
    option = f"--group {' --group '.join(groups)}"
    if grouped.count < 2 and len(groups) > 1:
        raise OptionError(
            f"{option}: these columns connect all rows (each row shares a value with another row of any part), so no "
            "group can be held out whole: give the column alone that new rows will differ in"
        )
    if grouped.count < 2:
        raise OptionError(f"{option}: all rows are one group, so none can be held out: leave the option out")
    whole = Units(join_units([grouped.of_rows, equal]), grouped=True, notes=notes)
    joined = grouped.count - whole.count
    if whole.count < max(2, LEAST_SHARE_OF_GROUPS * grouped.count):
        return grouped
    if not joined:
        return whole
    said = f"{joined + 1} or more groups share rows with the same features: held out together"
    return replace(whole, notes=(*notes, said))


def join_units(parts: Sequence[Ints]) -> Ints:
    """Join rows that share a code in any of several columns: the connected components, numbered from 0, ``[N]``.

    Args:
        parts: Codes of each column from 0 on, ``[N]`` each, at least one column.
    """
    # Each row takes the smallest label of all rows that it shares a code with, then the label of that row, and so on.
    labels, before = np.arange(len(parts[0])), None
    while before is None or (labels != before).any():
        before = labels
        for codes in parts:
            least = np.full(int(codes.max(initial=0)) + 1, len(codes))
            np.minimum.at(least, codes, labels)
            labels = least[codes]
        labels = labels[labels]
    return column_codes(labels)


def _group_codes(name: str, column: Array) -> Ints:
    """Numbers of the groups of a column, ``[N]``."""
    codes = column_codes(column)
    absent = is_missing(column)
    codes[absent] = codes.max(initial=0) + 1 + np.arange(int(absent.sum()))
    codes = column_codes(codes)
    if len(codes) > 1 and codes.max() + 1 == len(codes):
        raise OptionError(
            f"--group {name}: the column has another value in each row, so it makes no groups: leave the option out, "
            "or name the column that says which rows belong together"
        )
    return codes


def _looks_up(columns: Columns, rows: int, combinations: int) -> bool:
    if combinations >= MOST_COMBINATIONS or rows < ROWS_OF_A_COMBINATION * combinations:
        return False
    numbers = [column for column in columns.values() if column.dtype != object]
    return all(int(column_codes(column).max(initial=0)) < MOST_VALUES for column in numbers)


def assign_folds(shuffled: Ints, count: int, units: Units | None, generator: np.random.Generator) -> Ints:
    """Assign rows to folds: units at random, the largest first, each to the fold with the fewest rows so far.

    Units of about the same size (within a factor of two) come in random order. With units of one row this is a random
    partition into folds that differ by one row at most. With fewer units than folds, some folds are empty.

    Args:
        shuffled: All row numbers in random order, ``[N]``.
        count: Number of folds, F.
        units: Units of the rows; None if each row is one.
        generator: Source of the order of the folds, so that ties are not always resolved in the same way.

    Returns:
        Fold of each row, ``[N]``.
    """
    folds = np.empty(len(shuffled), dtype=np.int64)
    if units is None:
        folds[shuffled] = np.arange(len(shuffled)) % count
        return folds
    sizes = np.bincount(units.of_rows)
    # The units in the order of their first rows among the shuffled ones: a random order.
    _, first = np.unique(units.of_rows[shuffled], return_index=True)
    order = np.lexsort((first, -np.floor(np.log2(sizes))))
    loads, of_units = [0] * count, np.empty(len(sizes), dtype=np.int64)
    for unit in order.tolist():
        of_units[unit] = place = loads.index(min(loads))
        loads[place] += int(sizes[unit])
    return np.argsort(generator.permutation(count))[of_units][units.of_rows]


def column_codes(column: Array) -> Ints:
    """Return the number the different cells of a column from 0 on, ``[N]``. Missing cells are one cell."""
    if column.dtype == object:
        numbers: dict[object, int] = {}
        return np.fromiter((numbers.setdefault(cell, len(numbers)) for cell in column), np.int64, len(column))
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def equal_rows(columns: Iterable[Array]) -> Ints:
    """Return the number of each different row of some columns from 0 on, ``[N]``: rows with equal cells share it.

    Args:
        columns: Columns ``[N]``, at least one; missing cells are equal to each other.
    """
    codes = np.zeros(0, dtype=np.int64)
    for column in columns:
        further = column_codes(column)
        codes = column_codes(codes * (further.max(initial=0) + 1) + further) if codes.size else further
        if codes.max(initial=-1) + 1 == len(codes):
            break  # all rows differ already
    return codes


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

    rows: Ints
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

    training: Ints
    validation: Ints
    calibration: Ints
    folds: Ints | None = None
    times: Doubles | None = None
    ahead: float = 0.0
    units: Units | None = None

    @property
    def forward(self) -> bool:
        """Whether rows are judged forward in time."""
        return self.times is not None

    @property
    def learned(self) -> Ints:
        """Rows that the network which serves has learned from: after forward judging all rows, else `training`."""
        if not self.forward:
            return self.training
        return np.unique(np.concatenate((self.training, self.validation, self.calibration)))

    def newest(self) -> Ints | None:
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

    def distant_folds(self) -> Ints | None:
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

    def held_out_groups(self, members: int) -> list[HeldOut]:
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
        rows = f"{len(self.training)} rows{groups}: "
        if self.folds is not None and self.forward:
            return (
                f"{rows}each member learns from rows before one of {int(self.folds.max()) + 1} blocks in time, and is "
                f"judged on that block ({len(self.validation)} rows in all)"
            )
        if self.folds is not None:
            whole = ", and no group is in two parts" if grouped else ""
            return f"{rows}each member learns from all but one of {int(self.folds.max()) + 1} parts{whole}"
        if self.training is self.validation:
            return f"{rows}too few to hold any out: not validated, not calibrated"
        parts = f"rows{' in time' if self.forward else groups}: {len(self.training)} training, {len(self.validation)} "
        if len(self.calibration):
            return f"{parts}validation, {len(self.calibration)} calibration"
        return f"{parts}validation; too few to hold out calibration rows, so bands are not calibrated"


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
    calibrates = count >= FEWEST_ROWS_TO_CALIBRATE
    held_out = min(most_held_out, max(10 if calibrates else 3, round(HELD_OUT_SHARE * count)))
    folds = assign_folds(order, count // held_out, units, generator)
    # The folds with the fewest rows are held out: a large unit is learned from.
    parts, sizes = np.unique(folds, return_counts=True)
    validation, calibration, *_ = [*parts[np.argsort(sizes, kind="stable")][: len(parts) - 1], BASE, BASE]
    if not calibrates:
        calibration = BASE
    training = order[(folds[order] != validation) & (folds[order] != calibration)]
    return Split(training, order[folds[order] == validation], order[folds[order] == calibration], units=units)


def split_in_time(times: Doubles, members: int = 1, *, most_held_out: int = MOST_HELD_OUT) -> Split:
    """Split rows in time: every judged row comes after all rows that its judges have learned from.

    With two or more members and at least 50 rows, the newer half of the rows makes a block for each fold
    (`model.tables.splits`). Otherwise the rows after 70 % and 85 % of all are for validation and calibration, with
    the exceptions of `split_rows` for tiny tables.

    Args:
        times: Time of each row, ``[N]``; NaN for an unknown one, which counts as old.
        members: M.
        most_held_out: Most rows that judge and calibrate, where members are cross-fitted.

    Raises:
        OptionError: All rows have the same time.
    """
    rows = np.arange(len(times))
    calibrates = len(rows) >= FEWEST_ROWS_TO_CALIBRATE
    crossed = members > 1 and calibrates
    parts = folds_of(members) if crossed else 1 + calibrates
    blocks = time_blocks(times, parts, base_share=BASE_SHARE if crossed else 1.0 - HELD_OUT_SHARE * parts)
    if crossed:
        judged = np.flatnonzero(blocks.of_rows >= 0)
        if len(judged) > most_held_out:
            judged = judged[np.linspace(0, len(judged) - 1, most_held_out).round().astype(int)]
        return Split(rows, judged, judged, blocks.of_rows[None], times, blocks.ahead)
    if len(rows) < FEWEST_ROWS_TO_VALIDATE:
        return Split(rows, rows, rows[:0], times=times)
    training, validation, calibration = (np.flatnonzero(blocks.of_rows == block) for block in (BASE, 0, 1))
    return Split(training, validation, calibration, times=times, ahead=blocks.ahead)
