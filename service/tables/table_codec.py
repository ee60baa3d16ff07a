"""What all formats of tables share: a body is read whole, within the same limits, and becomes canonical columns.

Pointers to cells are those of JSON: of columns, `/inputs/Horsepower/3`, or of a matrix.
Compressed bytes can stand for any amount of memory: how much a table will take is found out before it is read, from
what the body declares, and the readers check that what they find is what was declared. Cells are converted a few
thousand rows at a time, so that no step holds the interpreter's lock for long.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.errors import MurhoError, TableError
from murho.model.tables.columns import canonical_column
from murho.model.tables.schema import Feature, FeatureKind, Schema, is_missing
from murho.service.errors import TooLargeError, wrong
from murho.service.predict.answers import Codec, Encoded, ParsedRequest, Result, Terms, fact_headers
from murho.service.predict.json_rows import (
    ABSENT,
    Form,
    Inputs,
    Problems,
    check_rows,
    explain_cell,
    explain_unknown,
    pointer,
    shorten,
)
from murho.service.predict.options import query_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from murho.model.arrays import Doubles
    from murho.service.settings import Settings

UNPACKED = 4
"""What a table unpacks to may take this many times the memory of the largest body, and its columns as well."""
PIECE_ROWS = 2**13
"""Converted at a time: the interpreter's lock is free in between."""
SPARE_COLUMNS = 1000


class TableCodec(Codec):
    """The codec of one format of tables; options come as query parameters. See `Codec`."""

    unpacks = True
    whole: str
    """What a body should be, for messages."""

    @abstractmethod
    def rows(self, body: memoryview, terms: Terms) -> Inputs:
        """Return the rows.

        What the library raises of a body that is broken is raised as it is.

        Raises:
            BadInputError, TableError: The body can't be used.
            TooLargeError: It is above a limit.
        """

    @abstractmethod
    def body(self, result: Result) -> Iterable[bytes]:
        """Return the body of an answer, in pieces."""

    def encode(self, result: Result) -> Encoded:
        """Return the answer; see `Codec.encode`."""
        return Encoded(self.body(result), self.media_type, fact_headers(result))

    def decode(self, body: bytes, terms: Terms) -> ParsedRequest:
        """Return the rows and the options of a request; see `Codec.decode`."""
        options, request = query_options(terms.query, terms.settings, terms.schema.target, terms.kind)
        try:
            inputs = self.rows(memoryview(body), terms)
        except TableError as error:
            raise wrong("/inputs", _sentence(error)) from None
        except (MurhoError, MemoryError):
            raise
        except (pa.ArrowException, OSError, ValueError, struct.error) as error:  # as libraries say it of a broken body
            message = f"The body is not {self.whole}: {shorten(str(error), 1000)}."
            raise wrong("/inputs", message) from None
        if not inputs.count:
            raise wrong("/inputs", "The table has no rows; at least one row is needed.")
        return ParsedRequest(inputs, options, request)


def most_columns(schema: Schema) -> int:
    """Return the most columns that a table for a model may have: its own, and some more, which an error names."""
    return len(schema.features) + len(schema.left_out) + SPARE_COLUMNS


def check_size(taken: int, settings: Settings, times: int = UNPACKED) -> None:
    """Check the bytes that a table takes.

    Raises:
        TooLargeError: They are more than so many times the largest body.
    """
    most = times * settings.max_body_bytes
    if taken > most:
        raise TooLargeError(
            f"The table takes {taken} bytes, more than this service reads at once ({most}). Send parts."
        )


def check_cells(rows: int, terms: Terms, texts: int = 0) -> None:
    """Check the rows of a table, and the memory of its columns: bits, and columns without values, take less.

    Args:
        rows: Number of rows.
        terms: How the body is read.
        texts: Bytes of the categories.

    Raises:
        TooLargeError: They are above a limit.
    """
    check_rows(rows, terms.settings.max_rows)
    check_size(8 * rows * len(terms.schema.features) + texts, terms.settings)


def check_names(names: Sequence[str], schema: Schema) -> None:
    """Check the columns of a table before their cells are read.

    The target and columns that training left out may be there; they are not read.

    Raises:
        BadInputError: A feature has no column, or a column is unknown or there twice.
        TooLargeError: There are more than `most_columns`.
    """
    if len(names) > most_columns(schema):
        raise TooLargeError(
            f"The table has {len(names)} columns; at most {most_columns(schema)} are read for this model."
        )
    problems = Problems()
    features = {feature.name: feature for feature in schema.features}
    known = features.keys() | {schema.target.name, *schema.left_out}
    seen: set[str] = set()
    for name in names:
        if name in seen:
            message = "There is more than one column of this name. Names must differ."
            problems.add(0, pointer("inputs", name), message)
        elif name not in known:
            problems.add(0, pointer("inputs", name), explain_unknown(name, schema, problems))
        seen.add(name)
    for name, feature in features.items():
        if name not in seen:
            problems.add(0, pointer("inputs", name), explain_cell(feature, ABSENT))
    problems.raise_any()


def inputs_of_tables(tables: Iterable[pa.Table], terms: Terms) -> Inputs:
    """Return the rows of tables as canonical columns.

    Args:
        tables: The rows in order, some at a time, at least one table; `check_names` has accepted the names.
        terms: How they are read.

    Raises:
        BadInputError: A cell can't be used: the first of each column is named.
        TooLargeError: The columns are above a limit.
    """
    rows = texts = 0
    found: dict[str, list[NDArray[Any]]] = {feature.name: [] for feature in terms.schema.features}
    for table in tables:
        for name, column in _columns_of_table(table, terms.schema, rows).items():
            found[name].append(column)
            texts += sum(map(getsizeof, set(column))) if column.dtype == object else 0
        rows += table.num_rows
        del table  # before the next one is read
        check_cells(rows, terms, texts)
    return Inputs(Form.COLUMNS, {name: np.concatenate(found.pop(name)) for name in [*found]}, rows)


def _columns_of_table(table: pa.Table, schema: Schema, first: int) -> dict[str, NDArray[Any]]:
    problems, columns = Problems(), dict[str, "NDArray[Any]"]()
    for feature in schema.features:
        where = partial(pointer, "inputs", feature.name)
        try:
            column = canonical_column(
                table.column(feature.name), feature.kind, feature.name, feature.reading, feature.words
            )
        except TableError as error:
            row = first + (error.row or 1) - 1
            place = where() if error.row is None else where(row)
            problems.add(row, place, _sentence(error.shift_rows(first)))
            continue
        columns[feature.name] = column
        if not feature.accepts_missing and (absent := (is_missing(column).nonzero()[0] + first).tolist()):
            problems.add_rows(absent, where, partial(_explain_missing, feature))
    problems.raise_any()
    return columns


def number_column(feature: Feature, values: NDArray[Any], where: Callable[[int], str], problems: Problems) -> Doubles:
    """Return numbers `[B]` of any type as the canonical column of a number or a boolean; NaN is a missing cell.

    Args:
        feature: The feature.
        values: The numbers.
        where: The pointer to the cell of a row.
        problems: Gets the rows whose number can't be used.
    """
    with np.errstate(invalid="ignore"):  # of NaNs that signal
        column = feature.without_codes(np.array(values, np.float64))
    refused = np.isinf(column)
    if not feature.accepts_missing:
        refused |= np.isnan(column)
    if feature.kind is FeatureKind.BOOLEAN:
        refused |= ~(np.isnan(column) | (column == 0.0) | (column == 1.0))
    problems.add_rows(refused.nonzero()[0].tolist(), where, partial(_explain_number, feature, column))
    return column


def number_columns(schema: Schema, matrix: NDArray[Any], where: Callable[[int, int], str]) -> dict[str, Doubles]:
    """Return a matrix of numbers `[B, D]` of any type, the features in schema order, as canonical columns.

    A matrix of finite numbers is checked as a whole; only another one, or one with booleans, a column at a time.

    Args:
        schema: The features, all of them numbers or booleans.
        matrix: The numbers; NaN is a missing cell.
        where: The pointer to the cell of a feature's position and a row.

    Raises:
        BadInputError: A number can't be used.
    """
    with np.errstate(invalid="ignore"):  # of NaNs that signal
        rows = np.array(matrix.T, np.float64, order="C")
    columns = {feature.name: row for feature, row in zip(schema.features, rows, strict=True)}
    finite, problems = bool(np.isfinite(rows).all()), Problems()
    for position, feature in enumerate(schema.features):
        if not finite or feature.kind is FeatureKind.BOOLEAN or feature.missing_words:
            at = partial(where, position)
            columns[feature.name] = number_column(feature, columns[feature.name], at, problems)
    problems.raise_any()
    return columns


def _explain_number(feature: Feature, column: Doubles, row: int) -> str:
    if np.isnan(column[row]):
        return explain_cell(feature, None)
    expected = "0 or 1" if feature.kind is FeatureKind.BOOLEAN else "a finite number"
    return f"Expected {expected}, not {column[row]:g}."


def _explain_missing(feature: Feature, row: int) -> str:  # noqa: ARG001 - the same in every row
    return explain_cell(feature, None)


def _sentence(error: TableError) -> str:
    """Return the message of an error of a table as a sentence of its own; a cell in it can be long."""
    return f"{str(error)[:1].upper()}{shorten(str(error)[1:], 1000)}."
