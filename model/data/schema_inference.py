"""Inference of a table's schema: which columns are features, their kinds, and their canonical columns.

`plan_columns` uses all rows. `make_schema` later adds ranges and categories from the training rows alone.
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from murho.model.data.column_inference import infer_column
from murho.model.data.column_overrides import ColumnOverride, FeatureKind
from murho.model.data.columns import CellType, canonical_column, cell_type, is_missing, plain
from murho.model.data.feature import MOST_CATEGORIES
from murho.model.data.reading_inference import NO_HINTS, ReadingHints, hints_of_table
from murho.model.data.readings import unit_of_reading
from murho.model.data.schema import Columns, Feature, Schema, Target
from murho.model.data.target_inference import infer_target
from murho.model.errors import OptionError, TableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import pyarrow as pa

    from murho.model.data.readings import Reading

__all__ = [
    "GROUPS",
    "IGNORED",
    "ColumnPlan",
    "columns_from_table",
    "make_schema",
    "plan_columns",
    "require_column",
    "target_from_table",
]


IGNORED = "ignored"
GROUPS = "it names the groups that are held out"
"""Reasons why a column is no feature: the user has said so, or it is a group column."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Features, target and left-out columns of a table, inferred from all rows.

    Attributes:
        kinds: Feature → kind, in column order.
        units: Feature → unit, or None.
        missing: Feature → whether any cell is missing.
        target: The target.
        left_out: Column that is no feature → reason.
        readings: Feature → how its cells are written; features with plain cells are not in it.
        notes: Column → what was decided about its reading without proof.
        hints: What decided where columns left open how they are to be read.
    """

    kinds: Mapping[str, FeatureKind]
    units: Mapping[str, str | None]
    missing: Mapping[str, bool]
    target: Target
    left_out: Mapping[str, str]
    readings: Mapping[str, Reading] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    hints: ReadingHints = NO_HINTS


def plan_columns(
    table: pa.Table,
    target: str,
    *,
    ignore: Collection[str] = (),
    groups: Collection[str] = (),
    overrides: Mapping[str, ColumnOverride] | None = None,
    classes: tuple[str, ...] | None = None,
    hints: ReadingHints | None = None,
) -> ColumnPlan:
    """Infer kinds, units and missing policy from the whole table.

    A column of numbers is numeric, of ``true`` and ``false`` boolean, of dates a date column, and any other column is
    categorical. Numbers and dates are also read as people write them (`model.data.readings`). A column is left out if
    it is ignored, entirely missing, constant, or an identifier of rows: mostly different texts, the integers 0..n-1 or
    1..n in any order, or different integers under a name such as ``id``. An override with a kind keeps it in.

    Args:
        table: All rows.
        target: The name of the column to predict.
        ignore: Columns to leave out.
        groups: Columns to leave out because they only name groups of rows.
        overrides: Column → kind and unit given by the user.
        classes: Classes of the target, already checked; None: it is a number.
        hints: What decides where columns leave open how they are to be read; by default what other columns say.

    Returns:
        The plan.

    Raises:
        TableError: The target doesn't exist or has no two different numbers, the table has fewer than two rows, no
            feature is left, or a cell fits no kind (the message names column and row).
        OptionError: An ignored or overridden column doesn't exist, or an override doesn't fit the target.
    """
    overrides = overrides or {}
    require_column(table, target, "the target")
    _check_options(table, target, ignore, overrides)
    if hints is None:
        hints = hints_of_table(table, decimal=None, day_first=None, skip=ignore)
    override = overrides.get(target, ColumnOverride())
    target_plan, note = Target(target, override.unit, classes), ""
    if classes is None:
        target_plan, note = infer_target(table.column(target), target, override, hints)
    notes = {target: note} if note else {}
    readings: dict[str, Reading] = {}
    kinds: dict[str, FeatureKind] = {}
    units: dict[str, str | None] = {}
    missing: dict[str, bool] = {}
    left_out: dict[str, str] = {}
    for name in table.column_names:
        if name == target:
            continue
        if name in ignore:
            left_out[name] = IGNORED
            continue
        if name in groups:
            left_out[name] = GROUPS
            continue
        override = overrides.get(name, ColumnOverride())
        inference = infer_column(table.column(name), name, override.kind, hints)
        if inference.left_out is not None:
            left_out[name] = inference.left_out
            continue
        kinds[name], missing[name] = inference.kind, inference.missing
        units[name] = override.unit or unit_of_reading(inference.reading)
        if inference.reading is not None:
            readings[name] = inference.reading
        if inference.note:
            notes[name] = inference.note
    if not kinds:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        raise TableError(f"no column is left as a feature: {reasons or 'the target is the only column'}")
    return ColumnPlan(kinds, units, missing, target_plan, left_out, readings, notes, hints)


def columns_from_table(
    table: pa.Table, layout: ColumnPlan | Schema, *, complete: bool = False
) -> dict[str, npt.NDArray[Any]]:
    """Convert the features of a table to canonical columns; other columns are ignored.

    Args:
        table: ``B`` rows.
        layout: The features. A schema also refuses missing cells in features that accept none.
        complete: Whether a schema refuses missing cells in all features that were complete in training.

    Returns:
        Feature → canonical column ``[B]`` (`model.data.schema`), in the order of the layout.

    Raises:
        TableError: A column doesn't exist, or a cell doesn't fit its kind, is infinite, or is missing; the message
            names column and row (from 1).
    """
    if isinstance(layout, ColumnPlan):
        kinds: Mapping[str, FeatureKind] = layout.kinds
        readings = layout.readings
        required: set[str] = set()
    else:
        kinds = {feature.name: feature.kind for feature in layout.features}
        readings = {feature.name: feature.reading for feature in layout.features if feature.reading is not None}
        required = {
            feature.name for feature in layout.features if not (feature.missing or (feature.imputed and not complete))
        }
    columns = {}
    for name, kind in kinds.items():
        require_column(table, name, "the feature")
        columns[name] = canonical_column(table.column(name), kind, name, readings.get(name))
        if name in required and (absent := is_missing(columns[name])).any():
            row = int(np.argmax(absent)) + 1
            raise TableError(
                f"column {name!r}, row {row}: the cell is missing, and no cell of this column was missing in training: "
                "fill it in",
                row=row,
            )
    return columns


def target_from_table(table: pa.Table, target: str | Target) -> npt.NDArray[np.float64]:
    """Return the target as float64 ``[N]``, in its own unit; NaN where it is missing.

    Args:
        table: N rows.
        target: The target of a plan or a schema, or the name of a column of plain numbers.

    Raises:
        TableError: The column doesn't exist, or a cell is no finite number; the message names the row (from 1).
    """
    target, reading = (target, None) if isinstance(target, str) else (target.name, target.reading)
    require_column(table, target, "the target")
    column = table.column(target)
    if cell_type(plain(column, target)) is CellType.BOOLEAN:
        raise TableError(f"column {target!r}: a target must be a number: write true as 1 and false as 0")
    # A copy, because a view of the table is read-only, and PyTorch warns about read-only arrays.
    return canonical_column(column, FeatureKind.NUMERIC, target, reading).copy()


def make_schema(
    plan: ColumnPlan, columns: Columns, ahead: Mapping[str, float] | None = None, *, impute: bool = False
) -> Schema:
    """Add ranges and categories to a plan.

    Args:
        plan: The features.
        columns: Canonical columns of the training rows, each ``[N]``.
        ahead: Feature → how far its range goes on beyond the largest training value: held-out rows as far ahead of the
            rows learned from have calibrated the bands (`model.data.time_blocks`).
        impute: Whether to accept missing cells in features without any in the table.

    Returns:
        The schema.
    """
    features = []
    for name, kind in plan.kinds.items():
        present = columns[name][~is_missing(columns[name])]
        numbers = kind is not FeatureKind.CATEGORICAL and present.size > 0
        features.append(
            Feature(
                name=name,
                kind=kind,
                unit=plan.units[name],
                missing=plan.missing[name],
                minimum=float(present.min()) if numbers else None,
                maximum=float(present.max()) + (ahead or {}).get(name, 0.0) if numbers else None,
                categories=_most_frequent(present.tolist()) if kind is FeatureKind.CATEGORICAL else (),
                imputed=impute and not plan.missing[name],
                reading=plan.readings.get(name),
            )
        )
    return Schema(tuple(features), plan.target, dict(plan.left_out))


def _most_frequent(values: list[str]) -> tuple[str, ...]:
    counted = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
    return tuple(sorted(value for value, _ in counted[:MOST_CATEGORIES]))


def require_column(table: pa.Table, name: str, role: str) -> None:
    """Raise a TableError that lists the columns of the table if it has no column of this name.

    Args:
        table: The table.
        name: The column.
        role: What the column is for, such as "the target".
    """
    if name not in table.column_names:
        raise TableError(f"{role} {name!r} is not a column of the table{_hints(name, table.column_names)}")


def _check_options(
    table: pa.Table, target: str, ignore: Collection[str], overrides: Mapping[str, ColumnOverride]
) -> None:
    for name, what in [*((name, "ignored") for name in ignore), *((name, "described") for name in overrides)]:
        if name not in table.column_names:
            raise OptionError(f"the {what} column {name!r} is not in the table{_hints(name, table.column_names)}")
    if target in ignore:
        raise OptionError(f"the target {target!r} can't be ignored")
    kind = overrides[target].kind if target in overrides else None
    if kind is FeatureKind.DATE:
        raise OptionError(f"the target {target!r} is predicted as a number or as classes: it can't be {kind}")


def _hints(name: str, names: Iterable[str], most: int = 30) -> str:
    """Return the end of a message about an unknown column: the closest name, and the existing names."""
    existing = list(names)
    close = difflib.get_close_matches(name, existing, n=1)
    hint = f": did you mean {close[0]!r}?" if close else "."
    shown = ", ".join(existing[:most]) + (f" and {len(existing) - most} more" if len(existing) > most else "")
    return f"{hint} Its columns are: {shown}"
