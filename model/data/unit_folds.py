"""Folds of about the same number of rows, made of units that are not parted."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.data.units import Units

__all__ = ["assign_folds", "take_units"]


def assign_folds(
    shuffled: NDArray[np.int64], count: int, units: Units | None, generator: np.random.Generator
) -> NDArray[np.int64]:
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
    loads = [(0, int(place), int(fold)) for fold, place in enumerate(generator.permutation(count))]
    heapq.heapify(loads)
    of_units = np.empty(len(sizes), dtype=np.int64)
    for unit in order.tolist():
        rows, place, fold = loads[0]
        of_units[unit] = fold
        heapq.heapreplace(loads, (rows + int(sizes[unit]), place, fold))
    return of_units[units.of_rows]


def take_units(
    shuffled: NDArray[np.int64], wanted: Sequence[int], units: Units | None
) -> tuple[NDArray[np.int64], ...]:
    """Take parts of about the wanted numbers of rows from the front, without parting a unit.

    Each part has at least one unit if any rows are wanted for it, and one unit at least is left over: with two units
    and two wanted parts, the second part is empty.

    Args:
        shuffled: All row numbers in random order, ``[N]``.
        wanted: Number of rows in each part.
        units: Units of the rows; None if each row is one.

    Returns:
        The parts, and the rows that are left, in the order of ``shuffled``.
    """
    if units is None:
        return tuple(np.split(shuffled, np.cumsum(wanted)))
    of_rows = units.of_rows[shuffled]
    _, first, sizes = np.unique(of_rows, return_index=True, return_counts=True)
    waiting = np.argsort(first).tolist()
    part_of_unit = np.full(len(sizes), len(wanted))
    for part, rows in enumerate(wanted):
        taken, later = 0, len(wanted) - part
        while taken < rows and len(waiting) > (later if taken else 1):
            # A unit that overshoots by more than it brings is left, unless the part would be empty.
            unit = waiting[0]
            if taken and taken + sizes[unit] - rows > rows - taken:
                break
            part_of_unit[waiting.pop(0)] = part
            taken += int(sizes[unit])
    part_of_row = part_of_unit[of_rows]
    return tuple(shuffled[part_of_row == part] for part in range(len(wanted) + 1))
