"""Arrow streams as bodies, a block of rows at a time, whatever the sizes of their batches.

Batches that aren't compressed are read where they lie: of a batch with all rows of a file, only the rows of a block are
touched at a time. A compressed batch is in memory as a whole. What a stream unpacks to is known before it is read, and
what its dictionaries and views write out before it is written.
"""

from __future__ import annotations

import io
import struct
from contextlib import contextmanager
from itertools import pairwise
from sys import getsizeof
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.errors import Problem, TableError
from murho.model.tables.columns import holds_cells
from murho.model.tables.schema import FeatureKind
from murho.service.errors import BadInputError
from murho.service.predict.codec import Asked
from murho.service.predict.envelope import predict_options
from murho.service.predict.inputs import Form, Inputs, check_rows
from murho.service.predict.problems import Problems, pointer, shorten
from murho.service.predict.query_options import parse_query
from murho.service.tables.block_codec import AskedInBlocks, block_rows, errors_of_bodies
from murho.service.tables.table_answers import arrow_table
from murho.service.tables.table_inputs import check_names, inputs_of_table
from murho.service.tables.table_sizes import (
    check_cells,
    check_columns,
    check_memory,
    check_work,
    stream_size,
    text_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from murho.model.tables.schema import Schema
    from murho.service.predict.codec import Answered
    from murho.service.settings import Settings
    from murho.service.tables.table_sizes import StreamSize

__all__ = ["ArrowBlocks", "joined"]

TEXT_BYTES = 2**23
"""Of a block, once each row has its own texts; and those of one row more."""
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@contextmanager
def _errors_of_streams() -> Iterator[None]:
    """Raises what is wrong with a stream as an error of its table.

    Raises:
        TableError: The stream is broken, or cut.
    """
    try:
        yield
    except pa.ArrowMemoryError:
        raise  # is an ArrowException, and no fault of the stream
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise TableError(f"the body is not a whole Arrow stream: {error}") from None


class ArrowBlocks:
    """The block codec of Arrow streams; see `BlockCodec`."""

    def read(self, body: memoryview, query: Mapping[str, str], schema: Schema, settings: Settings) -> AskedInBlocks:
        """Returns the rows and the options of a request."""
        asked = parse_query(query)
        options = predict_options(asked, settings.samples, settings.max_samples, schema.target)
        names = [feature.name for feature in schema.features]
        with errors_of_bodies(), _errors_of_streams():
            size = stream_size(body)
            check_memory(size.dictionaries + max(size.batches, default=0), settings)
            check_work(sum(size.batches), settings)
            check_rows(size.rows, settings.max_rows)
            stored = pa.ipc.read_schema(pa.py_buffer(body))
            check_columns(len(stored), schema)
            check_names(stored.names, schema)
            _check_types(stored, names)
            # Others are not unpacked.
            fields = pa.ipc.IpcReadOptions(included_fields=[stored.get_field_index(name) for name in names])
            reader = pa.ipc.open_stream(pa.py_buffer(body), options=fields)
        if not size.rows:
            raise BadInputError([Problem("/inputs", "The table has no rows; at least one row is needed.")])
        return AskedInBlocks(size.rows, _blocks(reader, size, schema, settings), options, asked.timeout)

    def encode(self, answered: Answered, *, first: bool) -> bytes:  # noqa: ARG002 - all blocks are alike
        """Returns one record batch."""
        return b"".join(bytes(batch.serialize()) for batch in arrow_table(answered).to_batches())

    def ends(self, answered: Answered) -> tuple[bytes, bytes]:
        """Returns the schema, with the facts of the answer, and the mark of the stream's end."""
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, arrow_table(answered).schema):
            pass
        return sink.getvalue().removesuffix(END_OF_STREAM), END_OF_STREAM


def joined(asked: AskedInBlocks, schema: Schema, settings: Settings) -> Asked:
    """Returns a request whose rows are wanted as a whole.

    Raises:
        BadInputError: A row can't be used.
        TooLargeError: The rows take too much memory at once.
    """
    check_cells(asked.rows, schema, settings)
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
        check_memory(texts, settings)
        row += block.count
    return Asked(Inputs(Form.COLUMNS, columns, asked.rows, tuple(columns)), asked.options, asked.timeout)


def _check_types(stored: pa.Schema, names: list[str]) -> None:
    """Checks the types of the features' columns.

    Raises:
        BadInputError: Cells of a type can't be used.
    """
    problems = Problems()
    for position, name in enumerate(names):
        kind = stored.field(name).type
        if not holds_cells(kind):
            message = f"Cells of the type {shorten(str(kind))} can't be used."
            problems.add(0, position, pointer("inputs", name), message)
    problems.raise_any()


def _blocks(
    reader: pa.RecordBatchStreamReader, size: StreamSize, schema: Schema, settings: Settings
) -> Iterator[Inputs]:
    rows = written = 0
    for table in _tables(reader, size, block_rows(schema), settings):
        counts = np.sum([text_bytes(column) for column in table.columns], axis=0)
        written += int(counts.sum())
        check_work(written, settings)
        part = np.cumsum(counts) // TEXT_BYTES
        ends = [*(np.flatnonzero(np.diff(part)) + 1).tolist(), table.num_rows]
        for start, end in pairwise([0, *ends]):
            yield inputs_of_table(table.slice(start, end - start), schema, settings.max_rows, first=rows + start)
        rows += table.num_rows
        del table  # before the next batch is unpacked; as below


def _tables(reader: pa.RecordBatchStreamReader, size: StreamSize, most: int, settings: Settings) -> Iterator[pa.Table]:
    """Yields the rows as tables of `most` rows, or fewer where they take much memory; the last has the rest."""
    waiting: list[pa.Table] = []
    count = held = 0
    sizes = iter(size.batches)
    for batch in _batches(reader):
        waiting.append(pa.Table.from_batches([batch]))
        taken = next(sizes)
        count, held = count + batch.num_rows, held + taken
        del batch
        full = held >= settings.max_body_bytes
        if count < most and not full:
            continue
        table, waiting = pa.concat_tables(waiting), []
        stop = count if full else count - count % most
        for start in range(0, stop, most):
            yield table.slice(start, min(most, stop - start))
        if stop < count:
            waiting, held = [table.slice(stop)], taken
        else:
            held = 0
        count -= stop
        del table
    if count:
        yield pa.concat_tables(waiting)


def _batches(reader: pa.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    known: dict[tuple[int, ...], pa.Array] = {}
    while True:
        with errors_of_bodies(), _errors_of_streams():
            batch = next(reader, None)
            if batch is None:
                return
            for column in batch.columns:
                _validate(column, known)
        yield batch
        del batch


def _validate(column: pa.Array, known: dict[tuple[int, ...], pa.Array]) -> None:
    """Checks the cells of a column; a dictionary once, as each of many batches may have the same large one.

    Args:
        column: The column.
        known: The dictionaries that are checked, by their places in memory.

    Raises:
        ArrowException: The column is broken.
    """
    if pa.types.is_dictionary(column.type):
        column.validate()  # sizes alone
        values, column = column.dictionary, column.indices
        place = (len(values), values.offset, *(0 if data is None else data.address for data in values.buffers()))
        if place not in known:
            values.validate(full=True)
            known[place] = values
        ends = pc.min_max(column).as_py()
        if ends["max"] is not None and not 0 <= ends["min"] <= ends["max"] < len(values):
            raise pa.ArrowInvalid("an index lies outside its dictionary")
    column.validate(full=True)
