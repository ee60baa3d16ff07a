"""The column of row weights (``--weight``): read from a table and checked.

A weight says how important a row is, not how often it was seen: a row of weight 2 counts twice in the loss, in
validation, in calibration and in the printed scores. Only the ratios of the weights matter: they are scaled to the mean
1, and the prior has the weight that it has among N rows without weights. A row of weight 0 is left out altogether.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.column_overrides import FeatureKind
from murho.model.data.columns import CellType, canonical_column, cell_type, plain
from murho.model.data.schema_inference import require_column
from murho.model.errors import OptionError, TableError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["row_weights"]


def row_weights(table: pa.Table, column: str, *, target: str) -> NDArray[np.float64]:
    """The weights of all rows, ``[N]``: finite and not negative, not all 0; not scaled.

    Args:
        table: N rows.
        column: The column of weights.
        target: The target, which can't be the weight.

    Raises:
        OptionError: The column is the target.
        TableError: The column does not exist, every weight is 0, or a weight is missing, negative, infinite or no
            number; the message names column and row (from 1).
    """
    require_column(table, column, "the weight")
    if column == target:
        raise OptionError(f"--weight: the target {target!r} can't be the weight of the rows")
    cells = table.column(column)
    if cell_type(plain(cells, column)) is CellType.BOOLEAN:
        raise TableError(f"column {column!r}: a weight must be a number: write true as 1 and false as 0")
    weights = canonical_column(cells, FeatureKind.NUMERIC, column)
    for wrong, problem in ((np.isnan(weights), "is missing"), (weights < 0.0, "is negative")):
        if wrong.any():
            row = int(np.argmax(wrong))
            found = "" if np.isnan(weights[row]) else f" ({weights[row]:g})"
            raise TableError(
                f"column {column!r}, row {row + 1}: the weight{found} {problem}: give a number from 0 on; a row of "
                "weight 0 is left out"
            )
    if not (weights > 0.0).any():
        raise TableError(f"column {column!r}: all weights are zero, so no row is left")
    return weights
