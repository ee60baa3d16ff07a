"""The target of each row of a table as networks learn it: a number, or the index of a class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.data.class_targets import class_codes, labels_from_table
from murho.model.data.schema_inference import target_from_table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.schema import Target

__all__ = ["read_targets"]


def read_targets(table: pa.Table, target: Target) -> NDArray[np.float64]:
    """The targets of a table's rows, ``[N]``: in the target's unit, or class indices; NaN where one is missing.

    Args:
        table: The table.
        target: The target of the schema; its kind is known.

    Raises:
        TableError: The column doesn't exist, or a cell is no number, or none of the classes; the row is named.
    """
    if target.classes is None:
        return target_from_table(table, target)
    return class_codes(labels_from_table(table, target.name), target.classes, target.name)
