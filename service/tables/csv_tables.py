"""CSV: with a header line, in UTF-8."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from murho.model.tables.columns import list_array, text_array
from murho.model.tables.csv_reader import Header, csv_rows, read_header
from murho.model.tables.csv_writer import as_csv
from murho.model.tables.table_files import PANDAS_INDEX, without_index
from murho.service.errors import TooLargeError, wrong
from murho.service.predict.answers import Result, Terms, answer_columns
from murho.service.predict.budgets import foreign_form
from murho.service.tables.table_codec import PIECE_ROWS, TableCodec, check_names, inputs_of_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from murho.model.tables.schema import Schema
    from murho.service.predict.json_rows import Inputs

MOST_HEADER_BYTES = 2**18
MOST_OTHERS = 20
"""Columns of an index, and those that are empty behind a last separator."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Spreadsheets write it before CSV in UTF-8."""
TEXT_BYTES = 2**19
"""Of what is read at a time, which takes 15 MiB; a row has no more."""
WHERE = "the body"


class CSVCodec(TableCodec):
    """The codec of CSV."""

    media_type = "text/csv"
    aliases = frozenset({"application/csv", "text/tab-separated-values"})
    unpacks = False
    whole = "CSV in UTF-8"
    lists = False

    def rows(self, body: memoryview, terms: Terms) -> Inputs:
        """Return the rows; see `TableCodec.rows`."""
        schema = terms.schema
        start = bytes(body[:MOST_HEADER_BYTES])
        advice = foreign_form(start)
        if advice and not start.startswith(BYTE_ORDER_MARK):
            raise wrong("", f"The body isn't CSV in UTF-8. {advice}")
        if start.lstrip().startswith((b"{", b"[")):
            raise wrong(
                "", "The body looks like JSON, not CSV: send the header Content-Type: application/json with it."
            )
        if len(body) > MOST_HEADER_BYTES and b"\n" not in start and b"\r" not in start:
            raise TooLargeError(f"The header line of the body takes more than {MOST_HEADER_BYTES} bytes.")
        header = read_header(pa.py_buffer(body), WHERE)
        # Each column takes time and memory, so names are checked before a row is read.
        named = [name for name in header.names if name.strip() and not PANDAS_INDEX.fullmatch(name)]
        if (nameless := len(header.names) - len(named)) > MOST_OTHERS:
            message = f"The header line has {nameless} columns without a name; at most {MOST_OTHERS} are read."
            raise wrong("/inputs", message)
        check_names(named, schema)
        return inputs_of_tables(_tables(body, header, schema), terms)

    def body(self, result: Result) -> Iterator[bytes]:
        """Yield a header and one line a row; a list of classes is JSON."""
        table = pa.table({name: _column(values) for name, values in answer_columns(result).items()})
        for start in range(0, table.num_rows, PIECE_ROWS):
            yield as_csv(table.slice(start, PIECE_ROWS), header=not start)


def _column(values: NDArray[Any]) -> pa.Array:
    """Return a column whose cells CSV has a text for."""
    if values.dtype != object:
        return list_array(values)
    return text_array([json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell for cell in values])


def _tables(body: memoryview, header: Header, schema: Schema) -> Iterator[pa.Table]:
    for batch in csv_rows(body, WHERE, header, block_bytes=TEXT_BYTES):
        table = without_index(pa.Table.from_batches([batch]))
        check_names(table.column_names, schema)
        yield table
