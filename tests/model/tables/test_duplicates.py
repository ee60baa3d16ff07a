"""Equal rows."""

from __future__ import annotations

import numpy as np

from murho.model.tables.splits import equal_rows


def test_rows_are_equal_if_all_cells_are_and_missing_cells_are_equal() -> None:
    codes = equal_rows(
        [
            np.array([1.0, np.nan, 1.0, np.nan, 1.0]),
            np.array(["a", None, "a", None, "b"], dtype=object),
        ]
    )
    assert codes[0] == codes[2]
    assert codes[1] == codes[3]
    assert len(set(codes.tolist())) == 3
    assert codes.max() == 2
