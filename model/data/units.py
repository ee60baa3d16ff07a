"""Units: rows that are held out together, because one of them tells about another.

Rows with the same features are one unit. With ``--group`` columns, so are the rows of a group: held-out rows then stand
for rows of groups that the network has not seen. A table that only looks up a few combinations of categories is the
exception: it will be asked for the same combinations again, so each row is a unit of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.columns import is_missing
from murho.model.data.duplicates import column_codes, equal_rows
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns

__all__ = ["Units", "find_units", "joined_units", "single_rows"]

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

    of_rows: NDArray[np.int64]
    grouped: bool = False
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of units, U."""
        return int(self.of_rows.max(initial=-1)) + 1


def single_rows(count: int) -> Units:
    """Units of one row each."""
    return Units(np.arange(count))


def find_units(columns: Columns, groups: Mapping[str, NDArray[Any]] | None = None) -> Units:
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
    if groups:
        codes = {name: _group_codes(name, column) for name, column in groups.items()}
        return _grouped(codes, equal, notes)
    combinations = int(equal.max()) + 1
    if _looks_up(columns, len(equal), combinations):
        note = (
            f"the features have only {combinations} different rows, so the answers will be about these again: rows "
            "with the same features may be learned from and judged"
        )
        return Units(np.arange(len(equal)), notes=(note,))
    return Units(equal, notes=notes)


def joined_units(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Join rows that share a code in any of several columns: the connected components, numbered from 0, ``[N]``.

    Args:
        parts: Codes of each column from 0 on, ``[N]`` each, at least one column.
    """
    joined = parts[0]
    for codes in parts[1:]:
        # Union-find over the units so far: the units of rows with the same further code are joined.
        parents = list(range(int(joined.max(initial=-1)) + 1))
        owner: dict[int, int] = {}
        for unit, code in np.unique(np.stack((joined, codes), axis=1), axis=0).tolist():
            parents[_root(parents, owner.setdefault(code, unit))] = _root(parents, unit)
        roots = np.array([_root(parents, unit) for unit in range(len(parents))], dtype=np.int64)
        joined = column_codes(roots[joined])
    return joined


def _root(parents: list[int], unit: int) -> int:
    """The root of a unit in a forest; the path to it is halved on the way."""
    while parents[unit] != unit:
        parents[unit] = parents[parents[unit]]
        unit = parents[unit]
    return unit


def _group_codes(name: str, column: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers of the groups of a column, ``[N]``."""
    codes = column_codes(column)
    absent = is_missing(column)
    codes[absent] = codes.max(initial=0) + 1 + np.arange(int(absent.sum()))
    codes = column_codes(codes)
    groups = int(codes.max()) + 1
    if groups == 1:
        raise OptionError(f"--group {name}: all rows are one group, so none can be held out: leave the option out")
    if groups == len(codes):
        raise OptionError(
            f"--group {name}: the column has another value in each row, so it makes no groups: leave the option out, "
            "or name the column that says which rows belong together"
        )
    return codes


def _grouped(codes: Mapping[str, NDArray[np.int64]], equal: NDArray[np.int64], notes: tuple[str, ...]) -> Units:
    groups = joined_units(list(codes.values()))
    count = int(groups.max()) + 1
    if count < 2:
        raise OptionError(
            f"--group {' --group '.join(codes)}: these columns connect all rows (each row shares a value with another "
            "row of any part), so no group can be held out whole: give the column alone that new rows will differ in"
        )
    units = joined_units([groups, equal])
    whole = int(units.max()) + 1
    if whole < max(2, LEAST_SHARE_OF_GROUPS * count):
        return Units(groups, grouped=True)
    if whole < count:
        notes = (*notes, f"{count - whole + 1} or more groups share rows with the same features: held out together")
    return Units(units, grouped=True, notes=notes)


def _looks_up(columns: Columns, rows: int, combinations: int) -> bool:
    if combinations >= MOST_COMBINATIONS or rows < ROWS_OF_A_COMBINATION * combinations:
        return False
    numbers = [column for column in columns.values() if column.dtype != object]
    return all(int(column_codes(column).max(initial=0)) < MOST_VALUES for column in numbers)
