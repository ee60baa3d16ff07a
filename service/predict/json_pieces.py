"""Large JSON documents: parsed in pieces, so that neither the lock of the interpreter nor much memory is held.

The rows are cut out of the document. What is left is small, and is parsed as a whole. The rows are then parsed a piece
at a time, and each piece becomes a part of the typed columns before the next one is parsed. So a request takes the
memory of its body, of its columns and of one piece. `json_structure` finds where to cut.

A document is accepted if and only if `codecs.envelope` and `codecs.inputs` accept it as a whole, and with the same
result, as long as no row and nothing else than the rows is very large. For a bad document the first bad piece is told.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from murho.model.errors import Problem
from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.cells import JSON_NAMES, decode_cells, explain_cell
from murho.service.predict.envelope import NO_OBJECT, check_document
from murho.service.predict.foreign_bodies import foreign_form
from murho.service.predict.inputs import FORMS, Form, Inputs, check_columns, check_rows, parse_inputs
from murho.service.predict.json_hints import json_hint
from murho.service.predict.json_structure import Outline, StructureError, outline, skip_blanks, split
from murho.service.predict.problems import Problems, pointer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from murho.model.tables.schema import Feature, Schema
    from murho.service.predict.envelope import PredictRequest

__all__ = ["PIECE_BYTES", "parse_in_pieces"]

PIECE_BYTES = 2**15
"""Parsed at once: at most 0.5 ms, or 2 ms where every three bytes are an empty list."""
MOST_PARTS = 20_000
MOST_REST_BYTES = 2**18
"""Of the document without its rows: options and names."""
LEAST_ROW_BYTES, ROW_BYTES_PER_FEATURE = 2**16, 2**10
"""A row may take the larger of the first and of the second for each feature."""
MOST_KEY_BYTES = 4096
OF_ROW = re.compile(r"/inputs/([0-9]+)")


def parse_in_pieces(body: bytes, schema: Schema, max_rows: int) -> tuple[PredictRequest, Inputs]:
    """Returns the options and the rows of a document.

    Args:
        body: JSON in UTF-8.
        schema: The features of the model.
        max_rows: The most rows of one request.

    Raises:
        BadInputError: The document isn't JSON, or an option or a cell is wrong.
        TooLargeError: There are too many rows, or one of them or the rest of the document is too large.
    """
    first = skip_blanks(body, 0, len(body))
    if advice := foreign_form(body):
        raise BadInputError([Problem("", f"The body isn't valid JSON in UTF-8. {advice}")])
    if body[first : first + 1] != b"{":
        raise BadInputError([Problem("", NO_OBJECT)])
    try:
        return _Pieces(body, schema, max_rows).parse(first)
    except StructureError as error:
        raise BadInputError([Problem("", f"The body isn't a request: {error}.")]) from None


@dataclass(frozen=True, slots=True)
class _Member:
    """A list or object in the document, by the positions of its brackets."""

    open: int
    close: int


class _Column(list[Any]):
    """Stands for a list of cells that isn't parsed yet."""

    def __init__(self, count: int, pieces: list[tuple[int, int]]) -> None:
        super().__init__()
        self.size = count
        self.pieces = pieces

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True, slots=True)
class _Pieces:
    """One document, on its way to columns."""

    body: bytes
    schema: Schema
    max_rows: int

    def parse(self, first: int) -> tuple[PredictRequest, Inputs]:
        """Returns the options and the rows; `first` is the position of the document's opening bracket."""
        parts = outline(self.body, first + 1, len(self.body), most=MOST_PARTS)
        rows = self._members(first, parts).get("inputs")
        if rows is None:
            raise BadInputError([Problem("/inputs", f"A body of {len(self.body)} bytes has its rows there: {FORMS}.")])
        request = check_document(self._load_rest([(0, rows.open + 1), (rows.close, len(self.body))]))
        if self.body[rows.open : rows.open + 1] == b"{":
            return request, self._columns(rows)
        return request, self._rows(rows)

    def _rows(self, rows: _Member) -> Inputs:
        """Returns the rows of a list."""
        found = split(self.body, rows.open + 1, rows.close, PIECE_BYTES)
        check_rows(found.count, self.max_rows)
        if not found.count:
            return parse_inputs([], self.schema, self.max_rows)
        columns: dict[str, NDArray[Any]] = {}
        form: Form | None = None
        row = 0
        for values in self._parsed(found.pieces):
            if form is not None and isinstance(values[0], list) != (form is Form.MATRIX):
                expected = "a list, as the first row is" if form is Form.MATRIX else "an object, as the first row is"
                message = f"Expected {expected}, not {JSON_NAMES.get(type(values[0]), 'this')}."
                raise BadInputError([Problem(pointer("inputs", row), message)])
            try:
                part = parse_inputs(values, self.schema, self.max_rows)
            except BadInputError as error:
                shifted = [Problem(_shifted(item.pointer, row), item.message) for item in error.problems]
                raise BadInputError(shifted, error.total, more=row + len(values) < found.count) from None
            if form is None:
                columns = {name: np.empty(found.count, part.columns[name].dtype) for name in part.columns}
            form = part.form
            for name, values_of_part in part.columns.items():
                columns[name][row : row + part.count] = values_of_part
            row += part.count
        return Inputs(form or Form.RECORDS, columns, found.count, tuple(columns))

    def _columns(self, rows: _Member) -> Inputs:
        """Returns the rows of an object of lists."""
        parts = outline(self.body, rows.open + 1, rows.close, most=MOST_PARTS)
        members = self._members(rows.open, parts)
        spans, at = [], rows.open
        for begin, end in parts.containers:
            spans.append((at, begin + 1))
            at = end
        document = self._load_rest([*spans, (at, rows.close + 1)])
        lists: dict[str, Any] = {}
        for name, value in document.items():
            if isinstance(value, list) and name in members:
                found = split(self.body, members[name].open + 1, members[name].close, PIECE_BYTES)
                lists[name] = _Column(found.count, found.pieces)
            else:
                lists[name] = value
        problems = Problems()
        cells = check_columns(lists, self.schema, self.max_rows, problems)
        columns: dict[str, NDArray[Any]] = {}
        for position, feature in enumerate(self.schema.features):
            column = cells.get(feature.name)
            if not isinstance(column, _Column):
                continue
            row = 0
            for values in self._parsed(column.pieces):
                decoded, refused = decode_cells(feature, values)
                if not row:
                    columns[feature.name] = np.empty(column.size, decoded.dtype)
                columns[feature.name][row : row + len(values)] = decoded
                problems.add_rows(
                    [row + index for index in refused],
                    position,
                    partial(pointer, "inputs", feature.name),
                    partial(_explain, feature, values, row),
                )
                row += len(values)
                if refused:  # the first bad piece of each column is told
                    break
        problems.raise_any()
        return Inputs(Form.COLUMNS, columns, len(next(iter(columns.values()))), tuple(columns))

    def _parsed(self, pieces: list[tuple[int, int]]) -> Iterator[list[Any]]:
        """Yields the parsed elements of each piece, at least one."""
        room = max(LEAST_ROW_BYTES, ROW_BYTES_PER_FEATURE * len(self.schema.features))
        for begin, end in pieces:
            if end - begin > room + 2 * PIECE_BYTES:
                raise TooLargeError(
                    f"A row or a cell near byte {begin} of the body takes more than {room} bytes, the most that this "
                    "model's rows may take."
                )
            try:
                values: list[Any] = orjson.loads(b"[%b]" % self.body[begin:end])
            except orjson.JSONDecodeError as error:
                raise _no_json(json_hint(error) or error.msg, begin + error.pos) from None
            if not values:
                raise _no_json("a value is missing after a comma", begin)
            yield values
            time.sleep(0)  # whoever waits for the lock gets it now

    def _members(self, opening: int, parts: Outline) -> dict[str, _Member]:
        """Returns the lists and objects in an object by their names; as for a parser, the last of a name counts."""
        found: dict[str, _Member] = {}
        begins = [opening, *parts.commas]
        index = 0
        for begin, end in parts.containers:
            while index + 1 < len(begins) and begins[index + 1] < begin:
                index += 1
            start = begins[index] + 1
            if begin - start > MOST_KEY_BYTES:
                continue
            name, colon, rest = self.body[start:begin].rpartition(b":")
            try:
                key = orjson.loads(name) if colon and not rest.strip() else None
            except orjson.JSONDecodeError:
                continue  # the parser of the rest will find it
            if isinstance(key, str):
                found[key] = _Member(begin, end)
        return found

    def _load_rest(self, spans: list[tuple[int, int]]) -> dict[str, Any]:
        """Returns the object that spans of the document make."""
        size = sum(end - begin for begin, end in spans)
        if size > MOST_REST_BYTES:
            raise TooLargeError(
                f"The body without its rows takes {size} bytes; {MOST_REST_BYTES} are the most. Check its options and "
                "names."
            )
        try:
            document = orjson.loads(b"".join(self.body[begin:end] for begin, end in spans))
        except orjson.JSONDecodeError as error:
            raise _no_json(json_hint(error) or error.msg, _place(spans, error.pos)) from None
        return document if isinstance(document, dict) else {}


def _explain(feature: Feature, values: list[Any], first: int, row: int) -> str:
    return explain_cell(feature, values[row - first])


def _place(spans: list[tuple[int, int]], at: int) -> int:
    """Returns the position in the document of one in its joined spans."""
    for begin, end in spans:
        if at < end - begin:
            return begin + at
        at -= end - begin
    return spans[-1][1]


def _no_json(fault: str, at: int) -> BadInputError:
    return BadInputError(
        [Problem("", f"The body isn't valid JSON in UTF-8, near byte {at}: {fault.removesuffix('.')}.")]
    )


def _shifted(where: str, rows: int) -> str:
    """Returns the pointer to a cell, with the row that it has in the document."""
    match = OF_ROW.match(where)
    return where if match is None else f"/inputs/{int(match[1]) + rows}{where[match.end() :]}"
