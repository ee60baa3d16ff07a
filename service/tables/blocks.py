"""What all formats of tables share: rows are read a block at a time, whatever brought them, within the same limits.

Pointers to cells are those of JSON: of columns, `/inputs/Horsepower/3`, or of a matrix.
Compressed bytes can stand for any amount of memory: how much a table will take is found out before it is read, from
what the body declares, and the readers check that what they find is what was declared.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.errors import MurhoError, Problem, TableError
from murho.model.tables.columns import canonical_column, is_missing
from murho.model.tables.schema import FeatureKind
from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.answers import Asked, Codec, Encoded, Terms, fact_headers
from murho.service.predict.options import PredictRequest, query_options
from murho.service.predict.problems import Problems, pointer, shorten
from murho.service.predict.rows import ABSENT, Form, Inputs, check_rows, explain_cell, explain_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from murho.model.predictive.prediction import PredictOptions
    from murho.model.tables.schema import Feature, Schema
    from murho.service.predict.answers import Answered
    from murho.service.settings import Settings

__all__ = [
    "BLOCK_BYTES",
    "HELD",
    "WORK",
    "AskedInBlocks",
    "BlockCodec",
    "TableCodec",
    "block_rows",
    "check_names",
    "check_size",
    "inputs_of_tables",
    "most_columns",
    "number_column",
    "number_columns",
]

BLOCK_BYTES = 2**20
BLOCK_ROWS = 2**13
HELD = 2
"""What is unpacked at a time may take this many times the memory of the largest body."""
CELLS = 4
"""And this many times the columns of a table that is read as a whole."""
WORK = 16
"""And this many times all that is unpacked, one part after the other."""
SPARE_COLUMNS = 1000


@dataclass(frozen=True, slots=True)
class AskedInBlocks:
    """What a request asks for whose rows are read a block at a time.

    Attributes:
        rows: Number of all rows, at least one.
        blocks: The rows in order; each step reads one block, or raises what is wrong with it.
        options: The options, with the defaults filled in.
        request: The options as they were sent.
    """

    rows: int
    blocks: Iterator[Inputs]
    options: PredictOptions
    request: PredictRequest


class TableCodec(Codec):
    """The codec of one format of tables; options come as query parameters. See `Codec`."""

    unpacks = True
    whole: str
    """What a body should be, for messages."""

    @abstractmethod
    def rows(self, body: memoryview, terms: Terms) -> tuple[int, Iterable[Inputs]]:
        """Returns the number of rows, and the rows in blocks, in order, each when it is asked for.

        What the library raises of a body that is broken is raised as it is.

        Raises:
            BadInputError, TableError: The body can't be used.
            TooLargeError: It is above a limit.
        """

    @abstractmethod
    def body(self, answered: Answered) -> Iterable[bytes]:
        """Returns the body of an answer, in pieces."""

    def encode(self, answered: Answered) -> Encoded:
        """Returns the answer; see `Codec.encode`."""
        return Encoded(self.body(answered), self.media_type, fact_headers(answered))

    def read(self, body: memoryview, terms: Terms) -> AskedInBlocks:
        """Returns the rows and the options of a request.

        Args:
            body: The whole body, not compressed. It is read as the blocks are.
            terms: How it is read.

        Raises:
            BadInputError: An option or the names of the columns can't be used.
            TooLargeError: The request is above a limit.
        """
        options, request = query_options(terms.query, terms.settings, terms.schema.target, terms.kind)
        with self._faults():
            rows, blocks = self.rows(body, terms)
        check_rows(rows, terms.settings.max_rows)
        if not rows:
            raise BadInputError([Problem("/inputs", "The table has no rows; at least one row is needed.")])
        return AskedInBlocks(rows, self._checked(blocks, rows), options, request)

    def decode(self, body: bytes, terms: Terms) -> Asked:
        """Returns the rows as a whole, and the options of a request; see `Codec.decode`."""
        asked, schema, settings = self.read(memoryview(body), terms), terms.schema, terms.settings
        # Bits, and columns without values, take more than the body.
        check_size(8 * asked.rows * len(schema.features), CELLS, settings)
        columns = {
            feature.name: np.empty(asked.rows, object if feature.kind is FeatureKind.CATEGORICAL else np.float64)
            for feature in schema.features
        }
        row = texts = 0
        for block in asked.blocks:
            for name, column in block.columns.items():
                columns[name][row : row + block.count] = column
                if column.dtype == object:
                    texts += sum(map(getsizeof, set(column)))
            check_size(texts, HELD, settings)
            row += block.count
        return Asked(replace(block, columns=columns, count=row), asked.options, asked.request)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raises what is wrong with a body as bad input."""
        try:
            yield
        except TableError as error:
            raise BadInputError([Problem("/inputs", _sentence(error))]) from None
        except (MurhoError, MemoryError):
            raise
        except (pa.ArrowException, OSError, ValueError, struct.error) as error:  # as libraries say it of a broken body
            message = f"The body is not {self.whole}: {shorten(str(error), 1000)}."
            raise BadInputError([Problem("/inputs", message)]) from None

    def _checked(self, blocks: Iterable[Inputs], rows: int) -> Iterator[Inputs]:
        """Yields blocks, which should have so many rows together."""
        found = 0
        with self._faults():
            for block in blocks:
                found += block.count
                if found > rows:
                    break
                yield block
            if found != rows:
                raise TableError(f"the body is not {self.whole}: it does not have the {rows} rows that it announces")


class BlockCodec(TableCodec):
    """The codec of a format whose answers are written a block of rows at a time, too."""

    in_blocks = True

    @abstractmethod
    def encode_block(self, answered: Answered, *, first: bool) -> bytes:
        """Returns the answer for one block of rows, `[B]`; `first`: for the first block."""

    def ends(self, answered: Answered) -> tuple[bytes, bytes]:  # noqa: ARG002 - see below
        """Returns what comes before the first block and after the last.

        Args:
            answered: The answer for some block, with the warnings of all.
        """
        return b"", b""

    def body(self, answered: Answered) -> Iterable[bytes]:
        """Returns the body of an answer; see `TableCodec.body`."""
        head, tail = self.ends(answered)
        return [head, self.encode_block(answered, first=True), tail]


def block_rows(schema: Schema) -> int:
    """Returns the rows of a block: about `BLOCK_BYTES` of features, and `BLOCK_ROWS` at most."""
    return min(BLOCK_ROWS, max(16, BLOCK_BYTES // (8 * len(schema.features))))


def most_columns(schema: Schema) -> int:
    """Returns the most columns that a table for a model may have: its own, and some more, which an error names."""
    return len(schema.features) + len(schema.left_out) + SPARE_COLUMNS


def check_size(taken: int, times: int, settings: Settings) -> None:
    """Checks the bytes that a table takes: `HELD` for what is in memory at a time, `WORK` for all of it.

    Raises:
        TooLargeError: They are more than so many times the largest body.
    """
    most = times * settings.max_body_bytes
    if taken > most:
        raise TooLargeError(
            f"The table takes {taken} bytes, more than this service reads at once ({most}). Send parts."
        )


def check_names(names: Sequence[str], schema: Schema) -> None:
    """Checks the columns of a table before their cells are read.

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
    for position, name in enumerate(names):
        if name in seen:
            message = "There is more than one column of this name. Names must differ."
            problems.add(0, position, pointer("inputs", name), message)
        elif name not in known:
            problems.add(0, position, pointer("inputs", name), explain_unknown(name, schema, problems))
        seen.add(name)
    for position, (name, feature) in enumerate(features.items(), start=len(names)):
        if name not in seen:
            problems.add(0, position, pointer("inputs", name), explain_cell(feature, ABSENT))
    problems.raise_any()


def inputs_of_tables(tables: Iterable[pa.Table], schema: Schema) -> Iterator[Inputs]:
    """Yields the rows of tables, whose names `check_names` has accepted, as canonical columns.

    Raises:
        BadInputError: A cell can't be used: the first of each column is named.
    """
    first = 0
    for table in tables:
        inputs = _inputs_of_table(table, schema, first)
        del table  # before the next one is unpacked
        first += inputs.count
        yield inputs


def _inputs_of_table(table: pa.Table, schema: Schema, first: int) -> Inputs:
    problems, columns = Problems(), dict[str, "NDArray[Any]"]()
    inputs = Inputs(Form.COLUMNS, columns, table.num_rows)
    for position, feature in enumerate(schema.features):
        where = partial(pointer, "inputs", feature.name)
        try:
            column = canonical_column(
                table.column(feature.name), feature.kind, feature.name, feature.reading, feature.words
            )
        except TableError as error:
            row = first + (error.row or 1) - 1
            place = where() if error.row is None else where(row)
            problems.add(row, position, place, _sentence(error.moved(first)))
            continue
        columns[feature.name] = column
        if not feature.accepts_missing and (absent := (is_missing(column).nonzero()[0] + first).tolist()):
            problems.add_rows(absent, position, where, partial(_explain_missing, feature))
    problems.raise_any()
    return inputs


def number_column(
    feature: Feature, values: NDArray[Any], position: int, where: Callable[[int], str], problems: Problems
) -> NDArray[np.float64]:
    """Returns numbers `[B]` of any type as the canonical column of a number or a boolean; NaN is a missing cell.

    Args:
        feature: The feature.
        values: The numbers.
        position: Of the feature among all.
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
    problems.add_rows(refused.nonzero()[0].tolist(), position, where, partial(_explain_number, feature, column))
    return column


def number_columns(
    schema: Schema, matrix: NDArray[Any], where: Callable[[int, int], str]
) -> dict[str, NDArray[np.float64]]:
    """Returns a matrix of numbers `[B, D]` of any type, the features in schema order, as canonical columns.

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
            columns[feature.name] = number_column(feature, columns[feature.name], position, at, problems)
    problems.raise_any()
    return columns


def _explain_number(feature: Feature, column: NDArray[np.float64], row: int) -> str:
    if np.isnan(column[row]):
        return explain_cell(feature, None)
    expected = "0 or 1" if feature.kind is FeatureKind.BOOLEAN else "a finite number"
    return f"Expected {expected}, not {column[row]:g}."


def _explain_missing(feature: Feature, row: int) -> str:  # noqa: ARG001 - the same in every row
    return explain_cell(feature, None)


def _sentence(error: TableError) -> str:
    """Returns the message of an error of a table as a sentence of its own; a cell in it can be long."""
    return f"{str(error)[:1].upper()}{shorten(str(error)[1:], 1000)}."
