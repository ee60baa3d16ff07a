"""Arrow streams, a block of rows at a time, whatever the sizes of their batches; and Parquet files, which become such.

Batches that aren't compressed are read where they lie: of a batch with all rows of a file, only the rows of a block are
touched at a time. A compressed batch is in memory as a whole. What a stream unpacks to is known before it is read, and
what its dictionaries and views write out before it is written. Parquet files are unpacked to a stream in a process of
their own (`parquet_worker` is its program).
"""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from murho.model.errors import TableError
from murho.model.predictive.answer_columns import Column, table_columns
from murho.model.predictive.prediction import Unit
from murho.model.tables.columns import holds_cells, holds_text, integers, list_array, number_array, text_array
from murho.service.errors import TooLargeError
from murho.service.predict.answers import Answered, Terms, answer_facts
from murho.service.predict.rows import Inputs, Problems, check_rows, pointer, shorten
from murho.service.tables import parquet_worker
from murho.service.tables.blocks import (
    HELD,
    WORK,
    BlockCodec,
    TableCodec,
    block_rows,
    check_names,
    check_size,
    inputs_of_tables,
    most_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from murho.model.arrays import Ints
    from murho.model.tables.schema import Schema
    from murho.service.settings import Settings

TEXT_BYTES = 2**23
"""Of a block, once each row has its own texts; and those of one row more."""
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
FACTS = b"murho"
"""Key of the schema's metadata that has the facts of an answer, as JSON."""


class ArrowCodec(BlockCodec):
    """The codec of a stream of record batches."""

    media_type = "application/vnd.apache.arrow.stream"
    whole = "a whole Arrow stream"

    def rows(self, body: memoryview, terms: Terms) -> tuple[int, Iterable[Inputs]]:
        """Returns the rows; see `TableCodec.rows`."""
        return stream_rows(body, terms)

    def encode_block(self, answered: Answered, *, first: bool) -> bytes:  # noqa: ARG002 - all blocks are alike
        """Returns one record batch."""
        return b"".join(bytes(batch.serialize()) for batch in arrow_table(answered).to_batches())

    def ends(self, answered: Answered) -> tuple[bytes, bytes]:
        """Returns the schema, with the facts of the answer, and the mark of the stream's end."""
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, arrow_table(answered).schema):
            pass
        return sink.getvalue().removesuffix(END_OF_STREAM), END_OF_STREAM


def arrow_table(answered: Answered) -> pa.Table:
    """Returns the answer `[B]` as a table, with `draws` as lists, and its facts in the metadata of the schema."""
    classes = answered.prediction.classes or ()
    columns = table_columns(answered.prediction, answered.options)
    arrays = {} if answered.ids is None else {"id": text_array(list(answered.ids))}
    arrays |= {name: _column(column, classes) for name, column in columns.items()}
    return pa.table(arrays).replace_schema_metadata({FACTS: orjson.dumps(answer_facts(answered))})


def _column(column: Column, classes: tuple[str, ...]) -> pa.Array:
    values = column.cells(classes)
    if column.unit is Unit.CLASS:
        return text_array(values.tolist())
    if column.unit is Unit.CLASS_SET:
        return _text_lists(values.tolist())
    return list_array(values)  # NaN, which stands for none, becomes null


def _text_lists(lists: list[list[str] | None]) -> pa.Array:
    given = [texts or [] for texts in lists]
    present = np.array([*(texts is not None for texts in lists), True])
    ends = number_array(np.cumsum([0, *map(len, given)], dtype=np.int32), present)
    return pa.ListArray.from_arrays(ends, text_array(list(chain.from_iterable(given))))


def stream_rows(body: memoryview, terms: Terms) -> tuple[int, Iterable[Inputs]]:
    """Returns the number of rows in a stream, and the rows in blocks; see `TableCodec.rows`."""
    schema, settings = terms.schema, terms.settings
    names = [feature.name for feature in schema.features]
    size = stream_size(body)
    check_size(size.dictionaries + max(size.batches, default=0), HELD, settings)
    check_size(sum(size.batches), WORK, settings)
    check_rows(size.rows, settings.max_rows)
    stored = pa.ipc.read_schema(pa.py_buffer(body))
    check_names(stored.names, schema)
    problems = Problems()
    for position, name in enumerate(names):
        kind = stored.field(name).type
        if not holds_cells(kind):
            message = f"Cells of the type {shorten(str(kind))} can't be used."
            problems.add(0, position, pointer("inputs", name), message)
    problems.raise_any()
    # Others are not unpacked.
    fields = pa.ipc.IpcReadOptions(included_fields=[stored.get_field_index(name) for name in names])
    reader = pa.ipc.open_stream(pa.py_buffer(body), options=fields)
    return size.rows, inputs_of_tables(_blocks(reader, size, schema, settings), schema)


def _blocks(
    reader: pa.RecordBatchStreamReader, size: StreamSize, schema: Schema, settings: Settings
) -> Iterator[pa.Table]:
    """Yields the rows in parts of a block's rows, or fewer where their texts take much memory."""
    written, most = 0, block_rows(schema)
    for table in _tables(reader, size, most, settings):
        for start in range(0, table.num_rows, most):
            part = table.slice(start, most)
            counts = np.sum([text_bytes(column) for column in part.columns], axis=0)
            written += int(counts.sum())
            check_size(written, WORK, settings)
            cuts = (np.flatnonzero(np.diff(np.cumsum(counts) // TEXT_BYTES)) + 1).tolist()
            for begin, end in pairwise([0, *cuts, part.num_rows]):
                yield part.slice(begin, end - begin)
        del table, part  # before the next batch is unpacked; as below


def _tables(reader: pa.RecordBatchStreamReader, size: StreamSize, most: int, settings: Settings) -> Iterator[pa.Table]:
    """Yields batches put together, until they have a block's rows or take much memory."""
    waiting: list[pa.RecordBatch] = []
    count = held = 0
    known: dict[tuple[int, ...], pa.Array] = {}
    sizes = iter(size.batches)
    for batch in reader:
        taken = next(sizes, 0)
        batch.validate()  # sizes alone
        for column in batch.columns:
            _validate(column, known)
        waiting.append(batch)
        count, held = count + batch.num_rows, held + taken
        del batch, column
        if count >= most or held >= settings.max_body_bytes:
            table, waiting, count, held = pa.Table.from_batches(waiting), [], 0, 0
            yield table
            del table
    if count:
        yield pa.Table.from_batches(waiting)


def _validate(column: pa.Array, known: dict[tuple[int, ...], pa.Array]) -> None:
    """Checks the cells of a column; a dictionary once, as each of many batches may have the same large one.

    Args:
        column: The column.
        known: The dictionaries that are checked, by their places in memory.

    Raises:
        ArrowException: The column is broken.
    """
    if pa.types.is_dictionary(column.type):
        values, column = column.dictionary, column.indices
        place = (len(values), values.offset, *(0 if data is None else data.address for data in values.buffers()))
        if place not in known:
            values.validate(full=True)
            known[place] = values
        ends = pc.min_max(column).as_py()
        if ends["max"] is not None and not 0 <= ends["min"] <= ends["max"] < len(values):
            raise pa.ArrowInvalid("an index lies outside its dictionary")
    column.validate(full=True)


@dataclass(slots=True)
class StreamSize:
    """What an Arrow stream declares.

    Attributes:
        rows: All rows.
        dictionaries: Bytes of all dictionaries, unpacked; of one that grows, each state of it.
        batches: Bytes of each record batch, unpacked.
    """

    rows: int = 0
    dictionaries: int = 0
    batches: list[int] = field(default_factory=list)


def stream_size(body: bytes | memoryview) -> StreamSize:
    """Returns what an Arrow stream will take; no batch is read.

    The metadata of a batch is a flatbuffer (Message.fbs of the Arrow format). In a compressed batch each buffer begins
    with its own size as a 64-bit number, -1 if it isn't compressed.

    Raises:
        ArrowException, struct.error: The stream is broken.
    """
    size = StreamSize()
    grown: dict[int, int] = {}  # bytes of each dictionary so far
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        if message.type not in {"record batch", "dictionary"}:
            continue
        metadata = memoryview(message.metadata)
        table = _follow(metadata, _field(metadata, _follow(metadata, 0), 2))  # Message.header
        if message.type == "dictionary":
            key, delta = _number(metadata, table, 0, "<q"), _number(metadata, table, 2, "<b")
            taken = _batch_bytes(metadata, _follow(metadata, _field(metadata, table, 1)), message.body)
            grown[key] = taken + (grown.get(key, 0) if delta else 0)
            size.dictionaries += grown[key]
            continue
        rows = _number(metadata, table, 0, "<q")
        if rows < 0:
            raise pa.ArrowInvalid(f"a batch has {rows} rows")
        size.rows += rows
        size.batches.append(_batch_bytes(metadata, table, message.body))
    return size


def _batch_bytes(metadata: memoryview, table: int, body: pa.Buffer | None) -> int:
    """Returns the bytes of a RecordBatch's buffers, unpacked."""
    content = np.frombuffer(b"" if body is None else body, np.uint8)
    if not _field(metadata, table, 3):  # RecordBatch.compression
        return len(content)
    start = _follow(metadata, _field(metadata, table, 2))  # RecordBatch.buffers
    (count,) = struct.unpack_from("<I", metadata, start)
    buffers = np.frombuffer(metadata, "<i8", 2 * count, start + 4).reshape(count, 2)
    buffers = buffers[buffers[:, 1] != 0]
    offsets, lengths = buffers.T
    if not len(buffers):
        return 0
    # Compared without a sum, which could overflow.
    if lengths.min() < 8 or offsets.min() < 0 or (offsets > len(content) - lengths).any():
        raise pa.ArrowInvalid("a buffer lies outside its batch")
    declared = content[offsets[:, None] + np.arange(8)].view("<i8")[:, 0]
    if declared.min() < -1:
        raise pa.ArrowInvalid("a buffer declares a negative size")
    return sum(np.where(declared < 0, lengths, declared).tolist())  # of numbers without a limit


def _number(data: memoryview, table: int, index: int, form: str) -> int:
    """Returns a number in a flatbuffer's table, 0 by default."""
    place = _field(data, table, index)
    return int(struct.unpack_from(form, data, place)[0]) if place else 0


def _field(data: memoryview, table: int, index: int) -> int:
    """Returns the position of a field of a flatbuffer's table; 0 if the table hasn't got it."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", data, vtable)
    place = 4 + 2 * index
    if place >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + place)
    return table + offset if offset else 0


def _follow(data: memoryview, position: int) -> int:
    """Returns the position that the offset at a position points to."""
    return int(position + struct.unpack_from("<I", data, position)[0])


def text_bytes(column: pa.ChunkedArray) -> Ints:
    """Returns the bytes of each row's text once it has one of its own, `[B]`; 0 for what is no text.

    A dictionary, or a view, has a text once for many rows: `model.tables.columns.plain` writes it out for each.
    """
    if not holds_text(column.type):
        return np.zeros(len(column), np.int64)
    return np.concatenate([np.empty(0, np.int64), *(_text_bytes(chunk) for chunk in column.chunks)])


def _text_bytes(cells: pa.Array, rows: Ints | slice = slice(None)) -> Ints:
    kind, data = cells.type, cells.buffers()
    if pa.types.is_dictionary(kind):
        codes = integers(cells.indices)
        counts = np.zeros(len(cells), np.int64)
        # Of the rows alone: many a chunk may share one large dictionary.
        counts[codes >= 0] = _text_bytes(cells.dictionary, codes[codes >= 0])
        return counts
    if not len(cells):
        return np.zeros(0, np.int64)
    size = np.dtype(np.int64 if pa.types.is_large_string(kind) else np.int32)
    if pa.types.is_string_view(kind):
        counts = np.frombuffer(data[1], size, 4 * (cells.offset + len(cells)))[4 * cells.offset :: 4][rows]
        return np.maximum(counts, 0, dtype=np.int64)  # those of missing cells can be anything
    offsets = np.frombuffer(data[1], size, cells.offset + len(cells) + 1)[cells.offset :]
    return np.subtract(offsets[1:][rows], offsets[:-1][rows], dtype=np.int64)


ROOM = 4
"""The process may take this many times the memory of the largest body, with the body, ..."""
LEAST_ROOM = 2**26
"""... and this at least, which is what small files take."""
MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Of allocators, one that reserves no more than it needs."""


class ParquetCodec(TableCodec):
    """The codec of a file."""

    media_type = "application/vnd.apache.parquet"
    aliases = frozenset({"application/x-parquet", "application/parquet"})
    whole = "a whole Parquet file"

    def __init__(self) -> None:
        self._process = ParquetProcess()

    def rows(self, body: memoryview, terms: Terms) -> tuple[int, Iterable[Inputs]]:
        """Returns the rows; see `TableCodec.rows`."""
        schema, settings = terms.schema, terms.settings
        asked = {
            "names": [feature.name for feature in schema.features],
            "most_rows": settings.max_rows,
            "most_columns": most_columns(schema),
        }
        facts, stream = self._process.unpack(body, asked, max(LEAST_ROOM, ROOM * settings.max_body_bytes))
        check_names(facts["names"], schema)
        check_rows(facts["rows"], settings.max_rows)
        return stream_rows(stream, terms)

    def body(self, answered: Answered) -> list[bytes]:
        """Returns the file of a table with `draws` as lists, and the facts in its metadata."""
        sink = io.BytesIO()
        pa.parquet.write_table(arrow_table(answered), sink)
        return [sink.getvalue()]

    def close(self) -> None:
        """Ends the process that unpacks; the next body begins another."""
        self._process.close()


class ParquetProcess:
    """One process, begun when it is needed, also anew after its end. It unpacks one file after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def unpack(self, body: memoryview, asked: dict[str, Any], room: int) -> tuple[dict[str, Any], memoryview]:
        """Returns what a file says of itself, and the wanted columns as an Arrow stream. It waits; threads call it.

        Args:
            body: The file.
            asked: What is wanted: see `parquet_worker.answer_all`.
            room: The bytes of memory that it may take.

        Raises:
            TableError: The file is broken.
            TooLargeError: It takes too much memory or time.
            MemoryError: The machine has no memory for it.
        """
        question = json.dumps({**asked, "room": room, "bytes": len(body)}).encode() + b"\n"
        with self._lock:
            process = self._process
            if process is not None and process.poll() is not None:
                _ended(process)
                process = None
            self._process = process = process or _begun()
            try:
                facts, stream = _exchange(process, question, body)
            except (OSError, ValueError, EOFError):
                raise _failure(process) from None
            except BaseException:
                process.kill()  # the rest of its answer is for nobody
                raise
        if "wrong" not in facts:
            return facts, stream
        if facts["wrong"] is None:
            raise _too_large("memory")
        raise TableError(f"the body is not a whole Parquet file: {facts['wrong']}")

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            _ended(self._process)


def _begun() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this interpreter and a file of this package
        # -P: beside the file are modules with the names of others.
        [sys.executable, "-P", str(Path(parquet_worker.__file__))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **MEMORY},
        start_new_session=True,  # signals are for the service, which still answers after them
    )


def _exchange(process: subprocess.Popen[bytes], *question: bytes | memoryview) -> tuple[dict[str, Any], memoryview]:
    """Returns the answer of the process and the stream behind it.

    Raises:
        OSError, ValueError: The process has ended.
    """
    questions, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    for part in question:
        questions.write(part)
    questions.flush()
    answer = json.loads(answers.readline())
    stream = bytearray(answer["bytes"])
    if cast("Any", answers).readinto(stream) < len(stream):
        raise EOFError
    return answer, memoryview(stream)


def _failure(process: subprocess.Popen[bytes]) -> Exception:
    """Returns the error for a file over which the process has ended."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)
    process.kill()  # if it hasn't ended
    by = -_ended(process)
    if by == signal.SIGXCPU:
        return _too_large("time")
    if by == signal.SIGKILL:
        return MemoryError("the process that unpacks Parquet files was killed")
    return TableError("the body can't be read as a Parquet file: it is broken, or takes too much memory")


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a process, closes its pipes and returns its exit code."""
    with suppress(OSError), process:  # what was written last may still wait in a pipe
        pass
    return process.wait()


def _too_large(what: str) -> TooLargeError:
    return TooLargeError(f"The Parquet file takes more {what} to unpack than this service has for one. Send parts.")
