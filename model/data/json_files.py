"""JSON records as a table: a list of objects, or one object per line."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa

from murho.model.data.cells import canonical_category
from murho.model.errors import TableError

__all__ = ["column_of_cells", "read_json", "read_json_lines", "starts_with_object"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_json(data: bytes, where: str) -> pa.Table:
    """Read a JSON list of objects, one object per row, or JSON lines under the name of JSON.

    Columns come in the order of their first appearance, and missing keys are missing cells. A column that mixes texts
    with numbers or truth values becomes text. Its kind is then inferred as for a CSV column.

    Args:
        data: The bytes.
        where: Name of their source, for messages.

    Raises:
        TableError: The data have another form; the message names line or row (from 1) and column.
    """
    if starts_with_object(data):
        return read_json_lines(data, where)
    records = _parse_json(data, where)
    if not isinstance(records, list):
        raise TableError(f"{where}: expected a list of objects, one a row, found {_json_type(records)}")
    return _records_table(where, records)


def read_json_lines(data: bytes, where: str) -> pa.Table:
    """Read one JSON object per line; blank lines are skipped. Columns are made as in `read_json`.

    A list of objects under the name of JSON lines is read as one.

    Raises:
        TableError: The data have another form; the message names line or row (from 1) and column.
    """
    if data.removeprefix(_BYTE_ORDER_MARK).lstrip()[:1] == b"[":
        return read_json(data, where)
    lines = enumerate(data.split(b"\n"), start=1)
    return _records_table(
        where, [_parse_json(line, f"{where}, line {number}") for number, line in lines if line.strip()]
    )


def starts_with_object(data: bytes) -> bool:
    """Whether the first line of a text is a whole JSON object, as in JSON lines."""
    start = data.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if start[:1] != b"{":
        return False
    line, _, rest = start.partition(b"\n")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    # A file with one object alone is a table of one row only if it has cells, and not tables, in it.
    whole = not rest.strip() and any(isinstance(cell, dict | list) for cell in record.values())
    return isinstance(record, dict) and not whole


def _parse_json(data: bytes, where: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise TableError(f"{where}: the key {repeated!r} appears twice in one object")
        return record

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise TableError(f"{where}: not UTF-8 text: {error}") from error
    except (ValueError, RecursionError) as error:
        raise TableError(f"{where}: not valid JSON: {error}") from error


def _records_table(where: str, records: list[Any]) -> pa.Table:
    if not records:
        raise TableError(f"{where} has no rows")
    names: dict[str, None] = {}
    for row, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise TableError(f"{where}, row {row}: expected an object, found {_json_type(record)}")
        for name, cell in record.items():
            if isinstance(cell, dict | list):
                raise TableError(f"{where}, row {row}, column {name!r}: expected a cell, found {_json_type(cell)}")
            names[name] = None
    if not names:
        raise TableError(f"{where} has no columns: every object is empty")
    return pa.table({name: column_of_cells([record.get(name) for record in records]) for name in names})


def column_of_cells(cells: list[Any]) -> pa.Array:
    """A column of texts, numbers and truth values; text if it mixes texts with others."""
    types = {type(cell) for cell in cells if cell is not None}
    if types <= {bool} or types <= {str}:
        return pa.array(cells)
    if types <= {int, float}:
        try:
            return pa.array(cells, pa.int64() if types == {int} else pa.float64())
        except (pa.ArrowInvalid, OverflowError):
            # What is beyond float64 becomes infinite, and is refused later, with column and row.
            return pa.array([None if cell is None else float(str(cell)) for cell in cells], pa.float64())
    return pa.array([None if cell is None else _as_text(cell) for cell in cells], pa.string())


def _as_text(cell: Any) -> str:
    try:
        return cell if isinstance(cell, str) else canonical_category(cell)
    except ValueError:  # NaN and the infinities
        return str(cell)


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", int: "a number"}
    return names.get(type(value), "null" if value is None else "a number")
