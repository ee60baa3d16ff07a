"""Targets that are classes: which columns are, their classes, and the class of each row as a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.column_inference import infer_column
from murho.model.data.columns import CellType, canonical_column, cell_type, is_missing, plain
from murho.model.data.reading_inference import NO_HINTS
from murho.model.data.schema import FEWEST_CLASSES, FeatureKind
from murho.model.data.schema_inference import require_column
from murho.model.errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.reading_inference import ReadingHints

__all__ = ["MOST_CLASSES", "class_codes", "classes_of", "holds_classes", "labels_from_table"]

MOST_CLASSES = 1_000
"""More classes than this are surely names or numbers, not classes."""


def holds_classes(table: pa.Table, target: str, hints: ReadingHints = NO_HINTS) -> bool:
    """Whether a target is classes rather than a number: text or truth values.

    A number with few values is a number: ``--task classification`` makes classes of it. So is text of which most, but
    not all, cells are numbers: it is a mistake that the reading of numbers explains.

    Args:
        table: The table.
        target: The predicted column.
        hints: What decides where cells leave open how they are to be read.

    Raises:
        TableError: The column doesn't exist.
    """
    require_column(table, target, "the target")
    cells = plain(table.column(target), target)
    match cell_type(cells):
        case CellType.BOOLEAN:
            return True
        case CellType.TEXT:
            try:
                inference = infer_column(table.column(target), target, None, hints)
            except TableError:
                return False
            return inference.kind in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN)
    return False


def labels_from_table(table: pa.Table, target: str) -> NDArray[np.object_]:
    """The class of each row as text ``[N]``, in its canonical form (`model.data.cells`); None where it is missing.

    Raises:
        TableError: The column doesn't exist, or a cell can't be a class; the message names the row (from 1).
    """
    require_column(table, target, "the target")
    labels: NDArray[Any] = canonical_column(table.column(target), FeatureKind.CATEGORICAL, target)
    return labels


def classes_of(labels: NDArray[np.object_], target: str) -> tuple[str, ...]:
    """The C classes, sorted.

    Args:
        labels: ``[N]``, as `labels_from_table` returns them.
        target: Name of the target, for messages.

    Raises:
        TableError: There are fewer than two classes, or more than `MOST_CLASSES`.
    """
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


def class_codes(labels: NDArray[np.object_], classes: tuple[str, ...], target: str) -> NDArray[np.float64]:
    """Index of each row's class ``[N]``, float64 as all targets; NaN where it is missing.

    Args:
        labels: ``[N]``, as `labels_from_table` returns them.
        classes: The classes, sorted.
        target: Name of the target, for messages.

    Raises:
        TableError: A row has a class that is not one of these; the message names the row (from 1).
    """
    numbers: dict[Any, float] = {name: float(number) for number, name in enumerate(classes)} | {None: np.nan}
    unknown = next((row for row, label in enumerate(labels) if label not in numbers), None)
    if unknown is not None:
        shown = ", ".join(repr(name) for name in classes[:10]) + (", …" if len(classes) > 10 else "")
        raise TableError(
            f"target {target!r}, row {unknown + 1}: {labels[unknown]!r} is none of the {len(classes)} classes that the "
            f"model knows ({shown})",
            row=unknown + 1,
        )
    return np.array([numbers[label] for label in labels], dtype=np.float64)
