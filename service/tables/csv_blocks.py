"""CSV bodies, a block of rows at a time.

The ends of the rows are found first, so that the number of rows is known before the work is admitted. Then each block
is parsed with the header in front, as a small body would be.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from murho.model.errors import Problem, TableError
from murho.model.tables.csv_reader import parse_csv, read_header
from murho.model.tables.files import PANDAS_INDEX, without_index
from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.envelope import predict_options
from murho.service.predict.foreign_bodies import foreign_form
from murho.service.predict.inputs import check_rows
from murho.service.predict.query_options import parse_query
from murho.service.tables.block_codec import BLOCK_BYTES, AskedInBlocks, block_rows, errors_of_bodies
from murho.service.tables.table_answers import csv_text
from murho.service.tables.table_inputs import check_names, inputs_of_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.tables.csv_reader import Header
    from murho.model.tables.schema import Schema
    from murho.service.predict.codec import Answered
    from murho.service.predict.inputs import Inputs
    from murho.service.settings import Settings

__all__ = ["CSVBlocks", "check_header", "check_start", "record_ends"]

MOST_HEADER_BYTES = 2**18
MOST_ROW_BYTES = 2**20
MOST_OTHERS = 20
"""Columns of an index, and those that are empty behind a last separator."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Spreadsheets write it before CSV in UTF-8."""
LINE_ENDS = frozenset(b"\r\n")
WHERE = "the body"


def check_start(body: bytes | memoryview) -> None:
    """Checks what the beginning of a body tells.

    Raises:
        BadInputError: It is another format.
        TooLargeError: The header line is too long.
    """
    start = bytes(body[:MOST_HEADER_BYTES])
    advice = foreign_form(start)
    if advice and not start.startswith(BYTE_ORDER_MARK):
        raise BadInputError([Problem("", f"The body isn't CSV in UTF-8. {advice}")])
    if len(body) > MOST_HEADER_BYTES and not set(start) & LINE_ENDS:
        raise TooLargeError(f"The header line of the body takes more than {MOST_HEADER_BYTES} bytes.")


def check_header(names: Sequence[str], schema: Schema) -> None:
    """Checks the names of columns before a row is read: each column takes time and memory.

    Raises:
        BadInputError: A feature has no column, a column is unknown or there twice, or many have no name.
    """
    named = [name for name in names if name.strip() and not PANDAS_INDEX.fullmatch(name)]
    if len(named) < len(names) - MOST_OTHERS:
        message = (
            f"The header line has {len(names) - len(named)} columns without a name; at most {MOST_OTHERS} are read."
        )
        raise BadInputError([Problem("/inputs", message)])
    check_names(named, schema)


class CSVBlocks:
    """The block codec of CSV; see `BlockCodec`."""

    def read(
        self, body: memoryview, query: Mapping[str, str], schema: Schema, settings: Settings
    ) -> AskedInBlocks | None:
        """Returns the rows and the options of a request; None for an empty body, or if returns alone may end lines."""
        asked = parse_query(query)
        options = predict_options(asked, settings.samples, settings.max_samples, schema.target)
        check_start(body)
        start = bytes(body[:BLOCK_BYTES])
        if not start.strip():
            return None
        with errors_of_bodies():
            header = read_header(start[: start.rfind(b"\n") + 1] or start, WHERE)
            check_header(header.names, schema)
            ends = _ends(body, header.separator, settings.max_rows)
        if ends is None:
            return None
        if len(ends) < 2:
            raise BadInputError([Problem("/inputs", "The table has no rows; at least one row is needed.")])
        blocks = _blocks(body, ends, header, schema, settings)
        return AskedInBlocks(len(ends) - 1, blocks, options, asked.timeout)

    def encode(self, answered: Answered, *, first: bool) -> bytes:
        """Returns one line a row, with the header in front of the first."""
        return csv_text(answered, header=first)

    def ends(self, answered: Answered) -> tuple[bytes, bytes]:  # noqa: ARG002 - those of the protocol
        """Returns nothing, twice."""
        return b"", b""


def _ends(body: memoryview, separator: str, max_rows: int) -> NDArray[np.int64] | None:
    """Returns the offsets behind the header and behind each row; None if a return alone may end lines, too.

    Raises:
        TooLargeError: There are too many rows.
        TableError: A row has too many bytes.
    """
    lone = _Returns()
    found, rows = [], -1
    for ends in record_ends(lone.watch(_chunks(body)), separator, WHERE, MOST_ROW_BYTES):
        found.append(ends)
        rows += len(ends)
        check_rows(rows, max_rows)
        if lone.count:
            return None
    return None if lone.count or not found else np.concatenate(found)


NEW_LINE, RETURN = 10, 13


def record_ends(chunks: Iterable[bytes], separator: str, where: str, most_bytes: int) -> Iterator[NDArray[np.int64]]:
    """Yields the offsets behind the records of a text, rising, some thousands at a time.

    Blank lines are no records. The header is the first record. A line break ends a record unless it is within a quoted
    cell. A quote opens a quoted cell only at the beginning of a cell; within it, two quotes stand for one.

    Args:
        chunks: The text from its beginning to its end, in parts of any size.
        separator: What separates its cells.
        where: Its name, for messages.
        most_bytes: The most bytes of a record.

    Raises:
        TableError: A record has more bytes.
    """
    mark = re.escape(separator.encode())
    quoted = re.compile(rb"(?:\A|(?<=[\r\n])|(?<=" + mark + rb'))"[^"]*+(?:""[^"]*+)*+("|\Z)')
    rest, begin = b"", 0  # what is read of a record that has not ended, and its offset
    for chunk in chain(chunks, [b""]):
        data = rest + chunk
        last = not chunk
        ends = _line_ends(data, quoted, last=last)
        if len(ends):
            yield begin + _not_blank(data, ends)
            begin, rest = begin + int(ends[-1]), data[int(ends[-1]) :]
        else:
            rest = data
        if last:
            return
        if len(rest) > most_bytes:
            raise TableError(
                f"{where}, from byte {begin} on: a row takes more than {most_bytes // 2**20} MiB: is a quote not "
                "closed?"
            )


def _line_ends(data: bytes, quoted: re.Pattern[bytes], *, last: bool) -> NDArray[np.int64]:
    """Returns the offsets behind the lines that end outside of quoted cells."""
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == NEW_LINE)
    found = [match.span() for match in quoted.finditer(data)] if b'"' in data else []
    if found:
        spans = np.array(found, np.int64)
        if spans[-1, 1] == len(data) and not last:
            # It may go on in the next chunk.
            breaks = breaks[breaks < spans[-1, 0]]
        before = np.searchsorted(spans[:, 0], breaks) - 1
        breaks = breaks[(before < 0) | (breaks >= spans[before, 1])]
    ends = breaks + 1
    if last and data and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))  # the last line has no line break
    return ends.astype(np.int64)


def _not_blank(data: bytes, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the ends of lines that hold more than a line break."""
    values, lengths = np.frombuffer(data, np.uint8), np.diff(ends, prepend=0)
    returns = values[np.maximum(ends - 2, 0)] == RETURN
    blank = np.isin(values[ends - 1], (NEW_LINE, RETURN)) & ((lengths == 1) | ((lengths == 2) & returns))
    kept: NDArray[np.int64] = ends[~blank]
    return kept


def _chunks(body: memoryview) -> Iterator[bytes]:
    for start in range(0, len(body), BLOCK_BYTES):
        yield bytes(body[start : start + BLOCK_BYTES])


class _Returns:
    """Counts the returns in a text that no new line follows."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yields the chunks."""
        open_end = False  # the chunk before ends with a return
        for chunk in chunks:
            self.count += open_end and not chunk.startswith(b"\n")
            open_end = chunk.endswith(b"\r")
            if b"\r" in chunk:
                self.count += chunk.count(b"\r") - chunk.count(b"\r\n") - open_end
            yield chunk
        self.count += open_end


def _blocks(
    body: memoryview, ends: NDArray[np.int64], header: Header, schema: Schema, settings: Settings
) -> Iterator[Inputs]:
    start = bytes(body[: ends[0]])
    most = block_rows(schema)
    begin, row, last = int(ends[0]), 0, len(ends) - 1
    lines = 0  # behind the header, before the block
    while row < last:
        fits = int(np.searchsorted(ends, begin + BLOCK_BYTES, side="right")) - 1  # the last row that ends within
        stop = min(last, row + most, max(fits, row + 1))
        piece = bytes(body[begin : ends[stop]])
        with errors_of_bodies():
            table = parse_csv(start + piece, WHERE, header, skipped=lines)
            if table.num_rows != stop - row:
                raise TableError(
                    f"{WHERE}, rows {row + 1} to {stop}: {table.num_rows} rows are read: check the quotes and line "
                    "breaks there"
                )
            table = without_index(table)
        check_names(table.column_names, schema)
        yield inputs_of_table(table, schema, settings.max_rows, first=row)
        lines += piece.count(b"\n")
        begin, row = int(ends[stop]), stop
