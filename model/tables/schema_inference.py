"""Inference of a table's schema: which columns are features, their kinds, their canonical columns, target and weights.

`plan_columns` uses all rows. `make_schema` later adds ranges and categories from the training rows alone.

The column of ``--weight`` says how important a row is, not how often it was seen: a row of weight 2 counts twice in the
loss, in validation, in calibration and in the printed scores. Only the ratios of the weights matter: they are scaled to
the mean 1, and the prior has the weight that it has among N rows without weights. A row of weight 0 is left out.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from murho.model.arrays import Array, Doubles, Ints
from murho.model.errors import MurhoError, OptionError, TableError, list_names
from murho.model.tables.cells import MISSING_WORDS
from murho.model.tables.columns import MOST_EXACT, canonical_column, rows_of
from murho.model.tables.formats import unit_of
from murho.model.tables.inference import Inference, infer_column, infer_feature
from murho.model.tables.overrides import ColumnOverride
from murho.model.tables.readings import NO_HINTS, ReadingHints, words_for
from murho.model.tables.schema import (
    FEWEST_CLASSES,
    FEWEST_OF_A_CATEGORY,
    MOST_CATEGORIES,
    Columns,
    Feature,
    FeatureKind,
    Schema,
    Target,
    is_missing,
)

MOST_CLASSES = 1_000
"""More classes than this are surely names or numbers, not classes."""


def infer_task(column: pa.ChunkedArray, target: str, hints: ReadingHints = NO_HINTS) -> tuple[bool, bool]:
    """Whether a target is text or truth values, and whether it has the numbers 0 and 1, and no other.

    A number with few values is a number: ``--task classification`` makes classes of it. So is text of which most, but
    not all, cells are numbers: it is a mistake that the reading of numbers explains.

    Args:
        column: The target, ``[N]``.
        target: Its name.
        hints: What decides where cells leave open how they are to be read.
    """
    try:
        found = infer_column(column, target, None, hints)
    except TableError:
        return False, False
    bits = found.kind is FeatureKind.NUMERIC and found.reading is None and found.range == (0.0, 1.0)
    return found.kind in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN), bits and found.different == 2


def labels_from_table(table: pa.Table, target: str, words: frozenset[str] = MISSING_WORDS) -> NDArray[np.object_]:
    """Return the class of each row as canonical text ``[N]`` (`model.tables.cells`); None where it is missing.

    Args:
        table: N rows.
        target: The column.
        words: Texts that mean a missing cell.

    Raises:
        TableError: The column doesn't exist, or a cell can't be a class; the message names the row (from 1).
    """
    require_column(table, target, "the target")
    return canonical_column(table.column(target), FeatureKind.CATEGORICAL, target, None, words)


def classes_of(labels: NDArray[np.object_], target: str) -> tuple[str, ...]:
    """Return the C classes, sorted.

    Args:
        labels: ``[N]``, as `labels_from_table` returns them.
        target: Name of the target, for messages.

    Raises:
        TableError: There are fewer than two classes, or more than `MOST_CLASSES`.
    """
    if not labels.size:
        raise TableError("the table has no rows: at least two are needed, with different targets")
    present = labels[~is_missing(labels)]
    classes = tuple(sorted(set(present.tolist())))
    if not classes:
        raise TableError(f"the target {target!r} is missing in every row: there is nothing to learn from")
    if len(classes) < FEWEST_CLASSES:
        raise TableError(f"the target {target!r} is {classes[0]!r} in every row: there is nothing to learn")
    if len(classes) > MOST_CLASSES:
        raise TableError(
            f"the target {target!r} has {len(classes):,} different values in {len(present):,} rows: at most "
            f"{MOST_CLASSES:,} classes can be told apart. If it is a number, give --task regression; else give a "
            "column with fewer classes"
        )
    return classes


UNKNOWN = -1.0
"""Index of a class that is none of the known ones."""


def class_codes(labels: NDArray[np.object_], classes: tuple[str, ...]) -> Doubles:
    """Index of each row's class ``[N]``, float64 as all targets; NaN where it is missing, `UNKNOWN` for any other.

    Args:
        labels: ``[N]``, as `labels_from_table` returns them.
        classes: The classes, sorted.
    """
    numbers: dict[Any, float] = {name: number for number, name in enumerate(classes)} | {None: np.nan}
    return np.array([numbers.get(label, UNKNOWN) for label in labels], dtype=np.float64)


def _infer_target(column: pa.ChunkedArray, name: str, declared: FeatureKind | None, hints: ReadingHints) -> Inference:
    """Return what the cells of a target, ``[N]``, tell if it can be predicted as a number.

    Raises:
        TableError: The table has fewer than two rows, or the column has no two different numbers, or cells that are no
            numbers; the message names the row (from 1).
    """
    if len(column) < 2:
        count = "one row" if len(column) == 1 else "no rows"
        raise TableError(f"the table has {count}: at least two are needed, with different targets")
    try:
        found = infer_column(column, name, declared, hints)
    except TableError as error:
        advice = "" if error.row is None else "; --drop-bad-rows leaves out rows whose target is such a text"
        raise TableError(f"{error}{advice}", row=error.row) from error
    if found.missing == len(column):
        raise TableError(f"the target {name!r} is missing in every row: there is nothing to learn from")
    if found.kind is not FeatureKind.NUMERIC or found.range is None:
        raise TableError(
            f"the target {name!r} has {found.kind} cells, and a number must be predicted: name another column, or "
            "for a date, add one with the days from a known date"
        )
    least, most = found.range
    if least == most:
        digits = " in the 16 digits that a number keeps" if abs(least) >= MOST_EXACT else ""
        raise TableError(f"the target {name!r} is {least:.16g} in every row{digits}: there is nothing to learn")
    return found


def column_unit(table: pa.Table, name: str, override: ColumnOverride, found: Inference) -> str | None:
    """Return the unit of a column: what the user says, else the file, else its cells."""
    return override.unit or unit_of(table, name) or (found.reading.unit if found.reading else None)


IGNORED = "ignored"
GROUPS = "it names the groups that are held out"
"""Reasons why a column is no feature: the user has said so, or it is a group column."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """What was inferred of all rows of a table.

    Attributes:
        schema: Features, target and columns left out; the features have no ranges and no categories yet.
        columns: Column → what its cells tell; of one that the user leaves out the reason alone, and not its kind.
    """

    schema: Schema
    columns: Mapping[str, Inference]


def plan_columns(
    table: pa.Table,
    target: str,
    *,
    ignore: Collection[str] = (),
    groups: Collection[str] = (),
    overrides: Mapping[str, ColumnOverride] | None = None,
    classes: tuple[str, ...] | None = None,
    hints: ReadingHints = NO_HINTS,
) -> ColumnPlan:
    """Infer kinds, units and missing policy from the whole table.

    A column of numbers is numeric, of ``true`` and ``false`` boolean, of dates a date column, and any other column is
    categorical. Numbers and dates are also read as people write them (`model.tables.readings`). A column is left out if
    it is ignored, entirely missing, constant, or an identifier of rows: mostly different texts, the integers 0..n-1 or
    1..n in any order, or different integers under a name such as ``id``. An override with a kind keeps it in.

    Args:
        table: All rows.
        target: The name of the column to predict.
        ignore: Columns to leave out.
        groups: Columns to leave out because they only name groups of rows.
        overrides: Column → kind and unit given by the user.
        classes: Classes of the target, already checked; None: it is a number.
        hints: What decides where columns leave open how they are to be read.

    Returns:
        The plan.

    Raises:
        TableError: The target doesn't exist or has no two different numbers, the table has fewer than two rows, no
            feature is left, a declared kind does not fit a cell, or many different texts are among the numbers of a
            column (the message names column and row).
        OptionError: An ignored or overridden column doesn't exist, or the target is ignored or said to be dates.
    """
    overrides = overrides or {}
    roles = dict.fromkeys(overrides, "the described column") | dict.fromkeys(ignore, "the ignored column")
    require_column(table, target, "the target")
    for name, role in roles.items():
        require_column(table, name, role, OptionError)
    given = {name: overrides.get(name, ColumnOverride()) for name in table.column_names}
    if target in ignore:
        raise OptionError(f"the target {target!r} can't be ignored")
    kind = given[target].kind
    if kind is FeatureKind.DATE:
        raise OptionError(f"the target {target!r} is predicted as a number or as classes: it can't be {kind}")
    if classes is None:
        found = _infer_target(table.column(target), target, kind, hints)
    else:
        found = infer_column(table.column(target), target, FeatureKind.CATEGORICAL, hints)
    unit, words = column_unit(table, target, given[target], found), words_for(target, hints.missing_words)
    predicted = Target(target, unit, classes, found.reading, words)
    columns, left_out, features = {target: found}, dict[str, str](), list[Feature]()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name == target:
            continue
        reason = IGNORED if name in ignore else GROUPS if name in groups else None
        found, own = infer_feature(column, name, given[name].kind, hints, reason)
        columns[name] = found
        if found.left_out is not None:
            left_out[name] = found.left_out
            continue
        unit, words = column_unit(table, name, given[name], found), words_for(name, own.missing_words)
        kept = words_for(name, own.kept) if found.kind is FeatureKind.CATEGORICAL else ()
        features.append(
            Feature(
                name, found.kind, unit, found.missing > 0, None, None, kept, reading=found.reading, missing_words=words
            )
        )
    if not features:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        raise TableError(f"no column is left as a feature: {reasons or 'the target is the only column'}")
    return ColumnPlan(Schema(tuple(features), predicted, left_out), columns)


def columns_from_table(
    table: pa.Table, schema: Schema, *, rows: Ints | None = None, complete: bool = False
) -> dict[str, Array]:
    """Convert the features of a table to canonical columns; other columns are ignored.

    Args:
        table: The table.
        schema: The features.
        rows: Indices of ``B`` rows; None: all. The cells of other rows may be anything.
        complete: Whether missing cells are refused in all features that were complete in training.

    Returns:
        Feature → canonical column ``[B]`` (`model.tables.schema`), in the order of the schema.

    Raises:
        TableError: A column doesn't exist, or a cell doesn't fit its kind, is infinite, or is missing in a feature that
            accepts none; the message names column and row of the table (from 1).
    """
    columns = {}
    for feature in schema.features:
        name = feature.name
        require_column(table, name, "the feature")
        try:
            accepts = feature.missing if complete else feature.accepts_missing
            columns[name] = _cells(rows_of(table.select([name]), rows).column(0), feature, accepts=accepts)
        except TableError as error:
            if rows is None or error.row is None:
                raise
            raise error.shift_rows(int(rows[error.row - 1]) + 1 - error.row) from error
    return columns


def _cells(column: pa.ChunkedArray, feature: Feature, *, accepts: bool) -> Array:
    """Return the canonical column of a feature, which accepts missing cells or does not."""
    cells = canonical_column(column, feature.kind, feature.name, feature.reading, feature.words)
    if not accepts and (absent := is_missing(cells)).any():
        row = int(np.argmax(absent)) + 1
        raise TableError(
            f"column {feature.name!r}, row {row}: the cell is missing, and no cell of this column was missing in "
            "training: fill it in",
            row=row,
        )
    return cells


def target_from_table(table: pa.Table, target: str | Target) -> Doubles:
    """Return the target as float64 ``[N]``, in its own unit; NaN where it is missing.

    Args:
        table: N rows.
        target: The target of a plan or a schema, or the name of a column of plain numbers.

    Raises:
        TableError: The column doesn't exist, or a cell is no finite number; the message names the row (from 1).
    """
    target = Target(target, None) if isinstance(target, str) else target
    require_column(table, target.name, "the target")
    # A copy, because a view of the table is read-only, and PyTorch warns about read-only arrays.
    numeric = FeatureKind.NUMERIC
    return canonical_column(table.column(target.name), numeric, target.name, target.reading, target.words).copy()


def make_schema(
    schema: Schema,
    columns: Columns,
    ahead: Mapping[str, float] | None = None,
    *,
    impute: bool = False,
    fewest: int = FEWEST_OF_A_CATEGORY,
) -> Schema:
    """Add ranges and categories to the schema of a plan.

    Args:
        schema: The schema of the plan.
        columns: Canonical columns of the training rows, each ``[N]``.
        ahead: Feature → how far its range goes on beyond the largest training value: held-out rows as far ahead of the
            rows learned from have calibrated the bands (`model.tables.splits`).
        impute: Whether to accept missing cells in features without any in the table.
        fewest: Least number of training rows of a category that is named.

    Returns:
        The schema.
    """
    features = []
    for feature in schema.features:
        present = columns[feature.name][~is_missing(columns[feature.name])]
        if feature.kind is FeatureKind.CATEGORICAL:
            counts = Counter(dict(sorted(Counter(present).items())))  # of as many rows: in the order of the alphabet
            categories = [value for value, rows in counts.most_common(MOST_CATEGORIES) if rows >= fewest]
            feature = replace(feature, categories=tuple(sorted(categories)))
        elif present.size:
            beyond = (ahead or {}).get(feature.name, 0.0)
            feature = replace(feature, minimum=float(present.min()), maximum=float(present.max()), ahead=beyond)
        features.append(replace(feature, imputed=impute and not feature.missing))
    return replace(schema, features=tuple(features))


NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")


def require_column(table: pa.Table, name: str, role: str, kind: type[MurhoError] = TableError) -> None:
    """Raise an error that lists the columns of the table if it has no column of this name.

    Args:
        table: The table.
        name: The column.
        role: What the column is for, such as "the target".
        kind: Kind of the error.
    """
    existing = table.column_names
    if name not in existing:
        close = difflib.get_close_matches(name, existing, n=1)
        hint = f": did you mean {close[0]!r}?" if close else "."
        if 2 * sum(bool(NUMBER.fullmatch(each)) for each in existing) > len(existing):
            hint += " Most of its columns are named by numbers: is the line with the column names missing?"
        shown = list_names([textwrap.shorten(each, 60, placeholder="…") for each in existing], 30)
        raise kind(f"{role} {name!r} is not a column of the table{hint} Its columns are: {shown}")


def read_targets(table: pa.Table, target: Target) -> Doubles:
    """Return the targets of a table's rows, ``[N]``: in the target's unit, or class indices; NaN where one is missing.

    Args:
        table: The table.
        target: The target of the schema; its kind is known.

    Raises:
        TableError: The column doesn't exist, or a cell is no number, or none of the classes; the row is named.
    """
    if target.classes is None:
        return target_from_table(table, target)
    labels = labels_from_table(table, target.name, target.words)
    codes = class_codes(labels, target.classes)
    unknown = codes == UNKNOWN
    if unknown.any():
        row = int(np.argmax(unknown)) + 1
        raise TableError(
            f"target {target.name!r}, row {row}: {labels[row - 1]!r} is none of the {len(target.classes)} classes that "
            f"the model knows ({list_names(target.classes)})",
            row=row,
        )
    return codes


def row_weights(table: pa.Table, column: str, *, target: str) -> Doubles:
    """Return the weights of all rows, ``[N]``: finite and not negative, not all 0; not scaled.

    Args:
        table: N rows.
        column: The column of weights.
        target: The target, which can't be the weight.

    Raises:
        OptionError: The column is the target.
        TableError: The column does not exist, every weight is 0, or a weight is missing, negative, infinite or no
            number; the message names column and row (from 1).
    """
    if column == target:
        raise OptionError(f"--weight: the target {target!r} can't be the weight of the rows")
    weights = weights_from_table(table, column)
    if not (weights > 0.0).any():
        raise TableError(f"column {column!r}: all weights are zero, so no row is left")
    return weights


MOST_WEIGHT = 1e75
"""Of a row: third powers of it are added up."""


def weights_from_table(table: pa.Table, column: str) -> Doubles:
    """Return the weights of all rows, ``[N]``, from 0 to `MOST_WEIGHT`.

    Raises:
        TableError: The column does not exist, or a weight is missing, negative, too large or no number; the message
            names column and row (from 1).
    """
    require_column(table, column, "the weight")
    weights: Doubles = canonical_column(table.column(column), FeatureKind.NUMERIC, column)
    wrong = ~((weights >= 0.0) & (weights <= MOST_WEIGHT))
    if wrong.any():
        row = int(np.argmax(wrong))
        found = weights[row]
        problem = "is missing" if np.isnan(found) else f"({found:g}) is {'negative' if found < 0.0 else 'too large'}"
        raise TableError(
            f"column {column!r}, row {row + 1}: the weight {problem}: give a number from 0 to {MOST_WEIGHT:g}; a row "
            "of weight 0 is left out",
            row=row + 1,
        )
    return weights
