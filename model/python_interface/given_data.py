"""Data as Python callers give them, as tables: data frames, or the path of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from murho.model.data.column_overrides import ColumnOverride
from murho.model.data.frames import declared_kinds, is_frame, table_from_frame
from murho.model.data.schema_inference import GROUPS, IGNORED
from murho.model.data.tables import read_table
from murho.model.python_interface.value_errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from murho.model.data.schema import Schema
    from murho.model.training.options import TrainOptions

__all__ = ["table_of", "warn_of_left_out", "with_declared_kinds"]

HARMLESS = (IGNORED, GROUPS, "every cell is the same", "every cell is missing")
"""Reasons to leave out a column without a warning."""


def table_of(data: Any) -> pa.Table:
    """Data as a table of B rows.

    Args:
        data: A data frame of pandas, polars or pyarrow, or the path of a file that `murho predict` reads.

    Raises:
        TableError: The data can't be used; the message says where and why.
    """
    if isinstance(data, str | Path):
        return read_table(Path(data))
    if not is_frame(data):
        raise DataError(
            "data: give a data frame of pandas, polars or pyarrow, or the path of a file, "
            f"not {type(data).__name__}; one row of a data frame is frame.iloc[[0]]"
        )
    names = data.column_names if hasattr(data, "column_names") else data.columns
    return table_from_frame(data, [str(name) for name in names])


def with_declared_kinds(options: TrainOptions, table: pa.Table) -> TrainOptions:
    """Options with kinds from the types of the table's columns, for columns without a given kind."""
    described = dict(options.columns)
    for name, kind in declared_kinds(table).items():
        given = described.get(name, ColumnOverride())
        left_out = name in options.ignore or (name in options.group and not options.keep_groups)
        if not left_out and name != options.weight and given.kind is None:
            described[name] = replace(given, kind=kind)
    return options.model_copy(update={"columns": described})


def warn_of_left_out(schema: Schema, *, stacklevel: int) -> None:
    """Warn of columns that are no features for a reason worth knowing.

    Args:
        schema: The features and the columns left out.
        stacklevel: How many calls above the caller the warning points to, as in `warnings.warn`.
    """
    for name, reason in schema.left_out.items():
        if reason not in HARMLESS:
            warn(f"column {name!r} is no feature: {reason}", UserWarning, stacklevel=stacklevel + 1)
