"""Which rows of a table are held out together, or in time: reads the columns of ``--group`` and ``--time``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.column_inference import infer_column
from murho.model.data.columns import canonical_column
from murho.model.data.reading_inference import hints_of_table
from murho.model.data.schema import FeatureKind
from murho.model.data.schema_inference import require_column
from murho.model.data.splits import MOST_HELD_OUT, Split, split_in_time, split_rows
from murho.model.data.time_blocks import ROW_ORDER
from murho.model.data.units import find_units
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.training.options import TrainOptions

__all__ = ["HoldingOut", "hold_out"]

FEW_GROUPS = 10
"""With fewer groups the 90 % band of a new group is more than the groups can tell."""


@dataclass(frozen=True, slots=True)
class HoldingOut:
    """The split of a table, and the columns that it was made from.

    Attributes:
        split: The split.
        columns: Canonical column of each ``--group`` and ``--time`` column, ``[N]``.
        ahead: Time column → how far ahead rows were judged; empty without ``--time``.
        notes: What to tell the user, one line each.
    """

    split: Split
    columns: Mapping[str, NDArray[Any]]
    ahead: Mapping[str, float]
    notes: tuple[str, ...]


def hold_out(
    table: pa.Table,
    target: str,
    columns: Columns,
    options: TrainOptions,
    most_held_out: int = MOST_HELD_OUT,
) -> HoldingOut:
    """Split the rows of a table as the options say.

    Args:
        table: The rows with a target, N.
        target: The predicted column.
        columns: Canonical columns of the features, ``[N]`` each.
        options: Options of the training.
        most_held_out: Most rows that judge and calibrate.

    Raises:
        TableError: A column of an option is not in the table.
        OptionError: A column of an option is the target, or can't be used as the option says.
    """
    if options.time is not None:
        return _in_time(table, target, options.time, options, most_held_out)
    groups = {name: _column(table, name, "--group", target, options)[1] for name in options.group}
    units = find_units(columns, groups)
    split = split_rows(table.num_rows, options.seed, options.members, units, most_held_out=most_held_out)
    notes = list(units.notes)
    if units.grouped and units.count < FEW_GROUPS:
        notes.append(
            f"only {units.count} groups: bands above {100 * units.count // (units.count + 1)} % are more than so few "
            "can tell, and are drawn by the widths of those below"
        )
    return HoldingOut(split, groups, {}, tuple(notes))


def _in_time(table: pa.Table, target: str, name: str, options: TrainOptions, most_held_out: int) -> HoldingOut:
    if name == ROW_ORDER and name not in table.column_names:
        times = np.arange(table.num_rows, dtype=np.float64)
        return HoldingOut(split_in_time(times, options.members, most_held_out=most_held_out), {}, {}, ())
    kind, times = _column(table, name, "--time", target, options)
    if kind not in (FeatureKind.NUMERIC, FeatureKind.DATE):
        raise OptionError(f"--time {name}: the column must have dates or numbers, not {kind} cells")
    split = split_in_time(times, options.members, most_held_out=most_held_out)
    missing = int(np.isnan(times).sum())
    notes = (f"column {name!r}: {missing} cells are missing; these rows count as old",) if missing else ()
    return HoldingOut(split, {name: times}, {name: split.ahead}, notes)


def _column(
    table: pa.Table, name: str, option: str, target: str, options: TrainOptions
) -> tuple[FeatureKind, NDArray[Any]]:
    """Kind and canonical column of an option's column."""
    require_column(table, name, f"the {option} column")
    if name == target:
        raise OptionError(f"{option} {name}: this is the target; give another column")
    column = table.column(name)
    given = options.columns.get(name)
    hints = hints_of_table(table, decimal=options.decimal, day_first=options.day_first, skip=options.ignore)
    inference = infer_column(column, name, None if given is None else given.kind, hints)
    return inference.kind, canonical_column(column, inference.kind, name, inference.reading)
