"""Arrow streams as bodies, a block of rows at a time, whatever the sizes of their batches.

Batches that aren't compressed are read where they lie: of a batch with all rows of a file, only the rows of a block are
touched at a time. A compressed batch is in memory as a whole.
"""

from __future__ import annotations

import io
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from murho.model.errors import TableError
from murho.service.codecs.block_codec import AskedInBlocks, block_rows, errors_of_bodies
from murho.service.codecs.envelope import predict_options
from murho.service.codecs.inputs import check_rows
from murho.service.codecs.query_options import parse_query
from murho.service.codecs.table_answers import arrow_table
from murho.service.codecs.table_inputs import check_names, inputs_of_table
from murho.service.codecs.table_sizes import arrow_bytes, arrow_rows, check_columns, check_memory, expanded_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from murho.model.data.schema import Schema
    from murho.service.codecs.codec import Answered
    from murho.service.codecs.inputs import Inputs
    from murho.service.settings import Settings

__all__ = ["ArrowBlocks", "errors_of_streams"]

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@contextmanager
def errors_of_streams() -> Iterator[None]:
    """Raises what is wrong with a stream as an error of its table.

    Raises:
        TableError: The stream is broken, or cut.
    """
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, struct.error) as error:
        raise TableError(f"the body is not a whole Arrow stream: {error}") from None


class ArrowBlocks:
    """The block codec of Arrow streams; see `BlockCodec`."""

    def read(
        self, body: memoryview, query: Mapping[str, str], schema: Schema, settings: Settings
    ) -> AskedInBlocks | None:
        """Returns the rows and the options of a request; None for a stream without rows."""
        asked = parse_query(query)
        options = predict_options(asked, settings.samples, settings.max_samples, schema.target)
        with errors_of_bodies(), errors_of_streams():
            check_memory(arrow_bytes(body), settings)
            rows = arrow_rows(body)
            check_rows(rows, settings.max_rows)
            reader = pa.ipc.open_stream(pa.py_buffer(body))
            check_columns(len(reader.schema), schema)
            check_names(reader.schema.names, schema)
        return AskedInBlocks(rows, _blocks(reader, schema, settings), options, asked.timeout) if rows else None

    def encode(self, answered: Answered, *, first: bool) -> bytes:  # noqa: ARG002 - all blocks are alike
        """Returns one record batch."""
        return b"".join(bytes(batch.serialize()) for batch in arrow_table(answered).to_batches())

    def ends(self, answered: Answered) -> tuple[bytes, bytes]:
        """Returns the schema, with the facts of the answer, and the mark of the stream's end."""
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, arrow_table(answered).schema):
            pass
        return sink.getvalue().removesuffix(END_OF_STREAM), END_OF_STREAM


def _blocks(reader: pa.RecordBatchStreamReader, schema: Schema, settings: Settings) -> Iterator[Inputs]:
    rows = 0
    for table in _tables(reader, [feature.name for feature in schema.features], block_rows(schema)):
        check_memory(expanded_bytes(table), settings)
        yield inputs_of_table(table, schema, settings.max_rows, first=rows)
        rows += table.num_rows


def _tables(reader: pa.RecordBatchStreamReader, names: list[str], most: int) -> Iterator[pa.Table]:
    """Yields the rows as tables of `most` rows; the last has the rest."""
    waiting: list[pa.Table] = []
    count = 0
    for batch in _batches(reader):
        waiting.append(pa.Table.from_batches([batch]).select(names))
        count += batch.num_rows
        if count < most:
            continue
        table, stop = pa.concat_tables(waiting), count - count % most
        for start in range(0, stop, most):
            yield table.slice(start, most)
        waiting, count = [table.slice(stop)], count - stop
    if count:
        yield pa.concat_tables(waiting)


def _batches(reader: pa.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    while True:
        with errors_of_bodies(), errors_of_streams():
            batch = next(reader, None)
            if batch is None:
                return
            batch.validate(full=True)
        yield batch
