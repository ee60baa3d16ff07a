"""The target of a training: how its cells are written, and messages where it can't be learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.cells import parse_number
from murho.model.data.column_inference import infer_column
from murho.model.data.columns import CellType, canonical_column, cell_type, distinct, plain
from murho.model.data.reading_inference import NO_HINTS
from murho.model.data.readings import unit_of_reading
from murho.model.data.schema import FeatureKind, Target
from murho.model.errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa

    from murho.model.data.column_overrides import ColumnOverride
    from murho.model.data.reading_inference import ReadingHints

__all__ = ["infer_target"]

_SHOWN = 5


def infer_target(
    column: pa.ChunkedArray, name: str, override: ColumnOverride, hints: ReadingHints = NO_HINTS
) -> tuple[Target, str]:
    """The target with the way its cells are written, and a note on what was decided without proof (or "").

    Args:
        column: The target of all rows, ``[N]``.
        name: Its name.
        override: What the user says about it.
        hints: What decides where the cells leave open how they are to be read.

    Raises:
        TableError: The table has fewer than two rows, or the column has no two different numbers, or cells that are no
            numbers; the message names the row (from 1).
    """
    if len(column) < 2:
        count = "one row" if len(column) == 1 else "no rows"
        raise TableError(f"the table has {count}: at least two are needed, with different targets")
    cells = plain(column, name)
    stored = cell_type(cells)
    if stored is CellType.EMPTY:
        raise TableError(f"the target {name!r} is missing in every row: there is nothing to learn from")
    if stored is CellType.BOOLEAN:
        raise TableError(f"column {name!r}: a target must be a number: write true as 1 and false as 0")
    if stored is CellType.TEXT and override.kind is None:
        _check_texts(cells, name, hints)
    inference = infer_column(column, name, FeatureKind.NUMERIC, hints)
    values = canonical_column(column, FeatureKind.NUMERIC, name, inference.reading)
    present = values[~np.isnan(values)]
    if present.size == 0:
        raise TableError(f"the target {name!r} is missing in every row: there is nothing to learn from")
    if np.all(present == present[0]):
        raise TableError(f"the target {name!r} is {present[0]:g} in every row: there is nothing to learn")
    unit = override.unit or unit_of_reading(inference.reading)
    return Target(name, unit, reading=inference.reading), inference.note


def _check_texts(cells: pa.ChunkedArray, name: str, hints: ReadingHints) -> None:
    """Raise a TableError that says what the texts of a target are, if they are no numbers."""
    try:
        inference = infer_column(cells, name, None, hints)
    except TableError as error:
        # A target has no other kind: the advice for features does not help.
        advice = "correct the cell, or leave it empty: rows without a target are left out"
        raise TableError(f"{str(error).split(': correct the cell')[0]}: {advice}", row=error.row) from error
    if inference.kind is FeatureKind.NUMERIC:
        return
    values = distinct(cells)
    if inference.kind is FeatureKind.BOOLEAN:
        raise TableError(f"column {name!r}: a target must be a number: write true as 1 and false as 0")
    number = [_is_number(value) for value in values.values]
    if any(number):
        misfit = number.index(False)
        share = values.counts()[np.array(number)].sum() / values.counts().sum()
        raise TableError(
            f"column {name!r}, row {values.first_row(misfit)}: {values.values[misfit]!r} is not a number, and a target "
            f"must be one ({share:.0%} of the cells are numbers): correct the cell, or leave it empty",
            row=values.first_row(misfit),
        )
    dates = inference.kind is FeatureKind.DATE
    what, advice = (
        ("dates", "add a column with the days from a known date") if dates else ("texts", "name another column")
    )
    shown = ", ".join(map(repr, values.values[:_SHOWN]))
    raise TableError(
        f"the target {name!r} holds {what} ({shown}; {len(values.values)} different), and a target must be a number: "
        f"{advice}"
    )


def _is_number(text: str) -> bool:
    try:
        parse_number(text)
    except ValueError:
        return False
    return True
