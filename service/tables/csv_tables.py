"""CSV: with a header line, in UTF-8, read and written a block of rows at a time.

The ends of the rows are found first, so that the number of rows is known before the work is admitted. Then each block
is parsed with the header in front, as a small body would be.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.errors import Problem, TableError
from murho.model.tables.columns import number_array, text_array
from murho.model.tables.csv_reader import parse_csv, read_header
from murho.model.tables.files import PANDAS_INDEX, without_index
from murho.model.tables.writers import as_csv
from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.answers import answer_columns
from murho.service.predict.problems import foreign_form
from murho.service.predict.rows import check_rows
from murho.service.tables.blocks import BLOCK_BYTES, BlockCodec, block_rows, check_names, inputs_of_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from murho.model.tables.csv_reader import Header
    from murho.model.tables.schema import Schema
    from murho.service.predict.answers import Answered, Terms
    from murho.service.predict.rows import Inputs

__all__ = ["CSVCodec", "record_ends"]

MOST_HEADER_BYTES = 2**18
MOST_ROW_BYTES = 2**20
MOST_OTHERS = 20
"""Columns of an index, and those that are empty behind a last separator."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Spreadsheets write it before CSV in UTF-8."""
NEW_LINE, RETURN = 10, 13
WHERE = "the body"


class CSVCodec(BlockCodec):
    """The codec of CSV."""

    media_type = "text/csv"
    aliases = frozenset({"application/csv", "text/tab-separated-values"})
    unpacks = False
    whole = "CSV in UTF-8"
    lists = False

    def rows(self, body: memoryview, terms: Terms) -> tuple[int, Iterable[Inputs]]:
        """Returns the rows; see `TableCodec.rows`."""
        schema = terms.schema
        start = bytes(body[:MOST_HEADER_BYTES])
        advice = foreign_form(start)
        if advice and not start.startswith(BYTE_ORDER_MARK):
            raise BadInputError([Problem("", f"The body isn't CSV in UTF-8. {advice}")])
        if len(body) > MOST_HEADER_BYTES and b"\n" not in start and b"\r" not in start:
            raise TooLargeError(f"The header line of the body takes more than {MOST_HEADER_BYTES} bytes.")
        start = bytes(body[:BLOCK_BYTES])
        header = read_header(start[: max(start.rfind(b"\n"), start.rfind(b"\r")) + 1] or start, WHERE)
        # Each column takes time and memory, so names are checked before a row is read.
        named = [name for name in header.names if name.strip() and not PANDAS_INDEX.fullmatch(name)]
        if (nameless := len(header.names) - len(named)) > MOST_OTHERS:
            message = f"The header line has {nameless} columns without a name; at most {MOST_OTHERS} are read."
            raise BadInputError([Problem("/inputs", message)])
        check_names(named, schema)
        found, rows = [], -1
        chunks = (bytes(body[at : at + BLOCK_BYTES]) for at in range(0, len(body), BLOCK_BYTES))
        for ends in record_ends(chunks, header.separator, WHERE, MOST_ROW_BYTES):
            found.append(ends)
            rows += len(ends)
            check_rows(rows, terms.settings.max_rows)
        if rows < 1:
            return 0, ()
        return rows, inputs_of_tables(_tables(body, np.concatenate(found), header, schema), schema)

    def encode_block(self, answered: Answered, *, first: bool) -> bytes:
        """Returns one line a row, with the header in front of the first; a list of classes is JSON."""
        columns = {name: _column(values) for name, values in answer_columns(answered).items()}
        return as_csv(pa.table(columns), header=first)


def _column(values: NDArray[Any]) -> pa.Array:
    """Returns a column whose cells CSV has a text for."""
    if values.dtype != object:
        return number_array(values)
    return text_array([json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell for cell in values])


def record_ends(chunks: Iterable[bytes], separator: str, where: str, most_bytes: int) -> Iterator[NDArray[np.int64]]:
    """Yields the offsets behind the records of a text, rising, some thousands at a time.

    Blank lines are no records. The header is the first record. A line break, or a return alone, ends a record unless
    it is within a quoted cell. A quote opens a quoted cell only at the beginning of a cell; within it, two quotes stand
    for one.

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
    bare = quoted.sub(lambda cell: b"x" * len(cell[0]), data) if b'"' in data else data
    values = np.frombuffer(bare, np.uint8)
    ending = values == NEW_LINE
    if b"\r" in bare:  # one that a new line follows, perhaps in the next chunk, ends nothing
        ending[:-1] |= (values[:-1] == RETURN) & (values[1:] != NEW_LINE)
    ends = np.flatnonzero(ending) + 1
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


def _tables(body: memoryview, ends: NDArray[np.int64], header: Header, schema: Schema) -> Iterator[pa.Table]:
    start, most = bytes(body[: ends[0]]), block_rows(schema)
    begin, row, last = int(ends[0]), 0, len(ends) - 1
    lines = 0  # behind the header, before the block
    while row < last:
        fits = int(np.searchsorted(ends, begin + BLOCK_BYTES, side="right")) - 1  # the last row that ends within
        stop = min(last, row + most, max(fits, row + 1))
        piece = bytes(body[begin : ends[stop]])
        table = parse_csv(start + piece, WHERE, header, skipped=lines)
        if table.num_rows != stop - row:
            raise TableError(
                f"{WHERE}, rows {row + 1} to {stop}: {table.num_rows} rows are read: check the quotes and line breaks "
                "there"
            )
        table = without_index(table)
        check_names(table.column_names, schema)
        yield table
        lines += piece.count(b"\n")
        begin, row = int(ends[stop]), stop
