"""Equal rows, and rows that are almost equal."""

from __future__ import annotations

import numpy as np

from murho.model.data.duplicates import equal_rows, find_near_duplicates


def _table(rows: int = 300, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "x": generator.normal(50.0, 10.0, rows),
        "y": generator.normal(0.0, 1e-3, rows),
        "kind": generator.choice(np.array(["a", "b"], dtype=object), rows),
    }


def _with_copies(columns: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.concatenate((column, column[rows])) for name, column in columns.items()}


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


def test_exact_copies_are_no_near_duplicates() -> None:
    columns = _with_copies(_table(), np.arange(50))
    assert find_near_duplicates(columns, equal_rows(columns.values())) is None


def test_slightly_changed_copies_are_counted_with_two_row_numbers() -> None:
    columns = _with_copies(_table(), np.arange(40))
    columns["x"][300:] += 1e-5
    found = find_near_duplicates(columns, equal_rows(columns.values()))
    assert found is not None
    assert 70 <= found.rows <= 80  # a few pairs part at the edge of a rounded cell
    first, second = found.example
    assert second == 300 + first


def test_another_category_is_another_row() -> None:
    columns = _with_copies(_table(), np.arange(40))
    columns["kind"][300:] = "c"
    columns["x"][300:] += 1e-5
    assert find_near_duplicates(columns, equal_rows(columns.values())) is None


def test_rows_that_come_close_by_chance_are_not_reported() -> None:
    """A thousand values of one number lie closer to each other than a thousandth of their spread."""
    columns = {"x": np.random.default_rng(0).normal(size=1_000)}
    assert find_near_duplicates(columns, equal_rows(columns.values())) is None
