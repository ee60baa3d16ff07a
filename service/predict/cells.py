"""Decoding of one column of JSON values to one canonical array. It is strict: a number is a JSON number.

The types of a whole column are checked at once, so that a good column needs no Python code per cell.
"""

from __future__ import annotations

import math
import time
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.tables.cells import LONGEST_TEXT, canonical_category, explain_long_text, parse_date
from murho.model.tables.schema import FeatureKind
from murho.service.predict.problems import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.tables.readings import Reading
    from murho.model.tables.schema import Feature

__all__ = ["ABSENT", "JSON_NAMES", "decode_cells", "explain_cell"]


class _Absent:
    """Marks a feature for which a row has no cell."""


ABSENT = _Absent()

TYPES: dict[FeatureKind, frozenset[type]] = {
    FeatureKind.NUMERIC: frozenset({int, float}),
    FeatureKind.BOOLEAN: frozenset({bool}),
    FeatureKind.DATE: frozenset({str}),
    FeatureKind.CATEGORICAL: frozenset({str, int, float}),
}
EXPECTED = {
    FeatureKind.NUMERIC: "a number",
    FeatureKind.BOOLEAN: "true or false",
    FeatureKind.DATE: 'an ISO 8601 date in a string, such as "2024-05-31"',
    FeatureKind.CATEGORICAL: "a category in a string",
}
JSON_NAMES: dict[type, str] = {
    NoneType: "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
PIECE_CELLS = 2**14
"""Decoded at once."""
# The longest ISO 8601 date-time with a fraction and an offset is far shorter.
MAX_DATE_LENGTH = 64


def decode_cells(feature: Feature, cells: Sequence[Any]) -> tuple[NDArray[Any], Sequence[int]]:
    """Returns the canonical column of one feature and the rows whose cell can't be used.

    Args:
        feature: The feature, which gives the expected type.
        cells: One parsed JSON value a row `[B]`, or ABSENT.

    Returns:
        The column `[B]`, float64 with NaN for missing or object with None for missing; and the refused rows, in
        ascending order. The column has no meaning in refused rows.
    """
    if len(cells) <= PIECE_CELLS:
        return _decode(feature, cells)
    columns, refused = [], []
    for start in range(0, len(cells), PIECE_CELLS):
        column, rows = _decode(feature, cells[start : start + PIECE_CELLS])
        columns.append(column)
        refused += [start + row for row in rows]
        time.sleep(0)  # whoever waits for the lock gets it now
    return np.concatenate(columns), refused


def _decode(feature: Feature, cells: Sequence[Any]) -> tuple[NDArray[Any], Sequence[int]]:
    read = feature.reading is not None and feature.kind is FeatureKind.NUMERIC
    allowed = _allowed_types(feature.kind, read=read, missing=feature.missing or feature.imputed)
    if set(map(type, cells)) <= allowed:
        return _convert(feature, cells)
    kept = [cell if type(cell) in allowed else None for cell in cells]
    values, unreadable = _convert(feature, kept)
    refused = {row for row, cell in enumerate(cells) if type(cell) not in allowed}
    return values, sorted(refused.union(unreadable))


@lru_cache
def _allowed_types(kind: FeatureKind, *, read: bool, missing: bool) -> frozenset[type]:
    """Returns the types of a feature's cells: texts too where training has `read` texts as numbers."""
    types = frozenset({str, int, float}) if read else TYPES[kind]
    return types | {NoneType} if missing else types


def _convert(feature: Feature, cells: Sequence[Any]) -> tuple[NDArray[Any], Sequence[int]]:
    """Returns the column of cells whose types are right, and the rows whose content is wrong."""
    kind = feature.kind
    if feature.reading is not None and (kind is FeatureKind.DATE or str in set(map(type, cells))):
        return _convert_read(feature, feature.reading, cells)
    if kind is FeatureKind.NUMERIC or kind is FeatureKind.BOOLEAN:
        # numpy reads None as NaN. The JSON parser has refused NaN, Infinity and numbers that float64 can't hold.
        return np.array(cells, dtype=np.float64), ()
    if kind is FeatureKind.CATEGORICAL:
        names = {cell: None if cell is None else canonical_category(cell) for cell in set(cells)}
        column = np.empty(len(cells), dtype=object)
        column[:] = [names[cell] for cell in cells]
        long = {cell for cell in names if isinstance(cell, str) and _text_bytes(cell) > LONGEST_TEXT}
        return column, [row for row, cell in enumerate(cells) if cell in long] if long else ()
    days = {cell: _days(cell) for cell in set(cells)}
    values = np.array([days[cell] for cell in cells], dtype=np.float64)
    broken = {cell for cell, day in days.items() if cell is not None and day is None}
    return values, [row for row, cell in enumerate(cells) if cell in broken] if broken else ()


def _text_bytes(text: str) -> int:
    """Returns the bytes of a text in UTF-8, or of a short one the most that it can have."""
    return len(text.encode()) if 4 * len(text) > LONGEST_TEXT else 4 * len(text)


def _convert_read(feature: Feature, reading: Reading, cells: Sequence[Any]) -> tuple[NDArray[Any], Sequence[int]]:
    """Returns the column of a feature with a reading, and the rows whose text can't be read so."""
    values = {cell: _read(reading, cell) for cell in set(cells)}
    broken = {cell for cell, value in values.items() if value is None}
    column = np.array([np.nan if (value := values[cell]) is None else value for cell in cells], dtype=np.float64)
    refused = {row for row, cell in enumerate(cells) if cell in broken} if broken else set()
    if not feature.accepts_missing:
        # A word for a missing cell, such as "n/a".
        refused |= {row for row in np.flatnonzero(np.isnan(column)).tolist() if isinstance(cells[row], str)}
    return column, sorted(refused)


def _read(reading: Reading, cell: Any) -> float | None:
    """Returns the value of a cell; NaN for a missing one, None for one that can't be read."""
    if cell is None:
        return float("nan")
    if not isinstance(cell, str):
        return float(cell)
    if len(cell) > MAX_DATE_LENGTH:
        return None
    try:
        value = reading.parse(cell)
    except ValueError:
        return None
    return None if math.isinf(value) else value


def _days(cell: str | None) -> float | None:
    """Returns the days since 1970-01-01 UTC; None for a missing cell and for text other than a date."""
    if cell is None or len(cell) > MAX_DATE_LENGTH:
        return None
    return _days_of_text(cell)


@lru_cache(4096)  # the same dates come again and again
def _days_of_text(text: str) -> float | None:
    try:
        return parse_date(text)
    except ValueError:
        return None


def explain_cell(feature: Feature, cell: object) -> str:
    """Returns what is wrong with a refused cell and what is expected in its place."""
    if cell is ABSENT:
        advice = "send null if the value is unknown" if feature.accepts_missing else "it has to have a value"
        return f"The feature {feature.name!r} is absent; {advice}."
    expected = EXPECTED[feature.kind]
    if cell is None:
        return f"null isn't accepted: {feature.name!r} had no missing cells in training. Expected {expected}."
    if feature.accepts_missing:
        expected += ", or null if the value is unknown"
    if feature.reading is not None and isinstance(cell, str):
        try:
            feature.reading.parse(cell[:MAX_DATE_LENGTH])
        except ValueError as error:
            return f"Expected {expected}, or a string as in training: {shorten(str(error))}."
    if isinstance(cell, str) and _text_bytes(cell) > LONGEST_TEXT:
        return f"Expected {expected}: {explain_long_text(_text_bytes(cell))}."
    if isinstance(cell, str):
        return f"Expected {expected}, not the string {shorten(cell)!r}."
    return f"Expected {expected}, not {JSON_NAMES.get(type(cell), 'this')}."
