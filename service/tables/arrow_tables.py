"""Arrow streams, and Parquet files, which become such.

Batches that aren't compressed are read where they lie. What a stream unpacks to is known before it is read, and what
its dictionaries and views write out before it is written. Parquet files are unpacked to a stream in a process of their
own (`parquet_worker` is its program).
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
from murho.service.predict.answers import Result, Terms, answer_facts
from murho.service.predict.json_rows import Inputs, Problems, check_rows, pointer, shorten
from murho.service.tables import parquet_worker
from murho.service.tables.table_codec import (
    PIECE_ROWS,
    TableCodec,
    check_cells,
    check_names,
    check_size,
    inputs_of_tables,
    most_columns,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from murho.model.arrays import Ints

TEXT_BYTES = 2**23
"""Of what is converted at a time, once each row has its own texts; and those of one row more."""
WRITTEN = 16
"""All of these texts together may take this many times the memory of the largest body."""
FACTS = b"murho"
"""Key of the schema's metadata that has the facts of an answer, as JSON."""


class ArrowCodec(TableCodec):
    """The codec of a stream of record batches."""

    media_type = "application/vnd.apache.arrow.stream"
    whole = "a whole Arrow stream"

    def rows(self, body: memoryview, terms: Terms) -> Inputs:
        """Return the rows; see `TableCodec.rows`."""
        return stream_rows(body, terms)

    def body(self, result: Result) -> list[bytes]:
        """Return the stream of a table with `draws` as lists, and the facts in its metadata."""
        table, sink = arrow_table(result), io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, PIECE_ROWS)
        return [sink.getvalue()]


def arrow_table(result: Result) -> pa.Table:
    """Return the answer `[B]` as a table, with `draws` as lists, and its facts in the metadata of the schema."""
    classes = result.prediction.classes or ()
    columns = table_columns(result.prediction, result.options)
    arrays = {} if result.ids is None else {"id": text_array(list(result.ids))}
    arrays |= {name: _column(column, classes) for name, column in columns.items()}
    return pa.table(arrays).replace_schema_metadata({FACTS: orjson.dumps(answer_facts(result))})


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


def stream_rows(body: memoryview, terms: Terms) -> Inputs:
    """Return the rows of a stream; see `TableCodec.rows`."""
    schema, settings = terms.schema, terms.settings
    names = [feature.name for feature in schema.features]
    rows, unpacked = stream_size(body)
    check_size(unpacked, settings)
    check_cells(rows, terms)
    stored = pa.ipc.read_schema(pa.py_buffer(body))
    check_names(stored.names, schema)
    problems = Problems()
    for name in names:
        kind = stored.field(name).type
        if not holds_cells(kind):
            message = f"Cells of the type {shorten(str(kind))} can't be used."
            problems.add(0, pointer("inputs", name), message)
    problems.raise_any()
    # Others are not unpacked.
    fields = pa.ipc.IpcReadOptions(included_fields=[stored.get_field_index(name) for name in names])
    table = pa.ipc.open_stream(pa.py_buffer(body), options=fields).read_all()
    table.validate()  # sizes alone
    known: dict[tuple[int, ...], tuple[pa.Array, Ints]] = {}
    texts = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        texts += np.concatenate([np.empty(0, np.int64), *(_text_bytes(chunk, known) for chunk in column.chunks)])
    check_size(int(texts.sum()), settings, WRITTEN)
    cuts = {*range(PIECE_ROWS, table.num_rows, PIECE_ROWS), table.num_rows}
    cuts.update((np.flatnonzero(np.diff(np.cumsum(texts) // TEXT_BYTES)) + 1).tolist())
    return inputs_of_tables((table.slice(start, end - start) for start, end in pairwise([0, *sorted(cuts)])), terms)


def _text_bytes(column: pa.Array, known: dict[tuple[int, ...], tuple[pa.Array, Ints]]) -> Ints:
    """Check the cells of a column; return the bytes of each row's text once it has one of its own, `[B]`.

    A dictionary, or a view, has a text once for many rows: `model.tables.columns.plain` writes it out for each.

    Args:
        column: The column.
        known: The dictionaries that are checked, with the bytes of their texts, by their places in memory: each of many
            batches may have the same large one.

    Raises:
        ArrowException: The column is broken.
    """
    if not pa.types.is_dictionary(column.type):
        column.validate(full=True)
        return _lengths(column)
    values, codes = column.dictionary, column.indices
    place = (len(values), values.offset, *(0 if data is None else data.address for data in values.buffers()))
    if place not in known:
        values.validate(full=True)
        known[place] = values, np.append(_lengths(values), 0)  # the last for missing cells, which are -1 below
    ends = pc.min_max(codes).as_py()
    if ends["max"] is not None and not 0 <= ends["min"] <= ends["max"] < len(values):
        raise pa.ArrowInvalid("an index lies outside its dictionary")
    codes.validate(full=True)
    return known[place][1][integers(codes)]


def _lengths(cells: pa.Array) -> Ints:
    """Return the bytes of texts, `[B]`; 0 for what is no text."""
    if not len(cells) or not holds_text(cells.type):
        return np.zeros(len(cells), np.int64)
    if pa.types.is_string_view(cells.type):
        views = np.frombuffer(cells.buffers()[1], np.int32, 4 * (cells.offset + len(cells)))
        sizes = views[4 * cells.offset :: 4].astype(np.int64)
    else:
        sizes = integers(pc.binary_length(cells))
    return np.maximum(sizes, 0)  # those of missing cells can be anything


def stream_size(body: bytes | memoryview) -> tuple[int, int]:
    """Return what an Arrow stream declares: its rows, and the bytes that it unpacks to; no batch is read.

    These are the bytes of all batches and dictionaries; of a dictionary that grows, of each of its states.

    The metadata of a batch is a flatbuffer (Message.fbs of the Arrow format). In a compressed batch each buffer begins
    with its own size as a 64-bit number, -1 if it isn't compressed.

    Raises:
        ArrowException, struct.error: The stream is broken.
    """
    rows = unpacked = 0
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
            unpacked += grown[key]
            continue
        if (count := _number(metadata, table, 0, "<q")) < 0:
            raise pa.ArrowInvalid(f"a batch has {count} rows")
        rows += count
        unpacked += _batch_bytes(metadata, table, message.body)
    return rows, unpacked


def _batch_bytes(metadata: memoryview, table: int, body: pa.Buffer | None) -> int:
    """Return the bytes of a RecordBatch's buffers, unpacked."""
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
    """Return a number in a flatbuffer's table, 0 by default."""
    place = _field(data, table, index)
    return int(struct.unpack_from(form, data, place)[0]) if place else 0


def _field(data: memoryview, table: int, index: int) -> int:
    """Return the position of a field of a flatbuffer's table; 0 if the table hasn't got it."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", data, vtable)
    place = 4 + 2 * index
    if place >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + place)
    return table + offset if offset else 0


def _follow(data: memoryview, position: int) -> int:
    """Return the position that the offset at a position points to."""
    return int(position + struct.unpack_from("<I", data, position)[0])


ROOM = 6
"""The process may take this many times the memory of the largest body, ..."""
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

    def rows(self, body: memoryview, terms: Terms) -> Inputs:
        """Return the rows; see `TableCodec.rows`."""
        schema, settings = terms.schema, terms.settings
        parsed = {
            "names": [feature.name for feature in schema.features],
            "most_rows": settings.max_rows,
            "most_columns": most_columns(schema),
        }
        facts, stream = self._process.unpack(body, parsed, max(LEAST_ROOM, ROOM * settings.max_body_bytes))
        check_names(facts["names"], schema)
        check_rows(facts["rows"], settings.max_rows)
        return stream_rows(stream, terms)

    def body(self, result: Result) -> list[bytes]:
        """Return the file of a table with `draws` as lists, and the facts in its metadata."""
        sink = io.BytesIO()
        pa.parquet.write_table(arrow_table(result), sink)
        return [sink.getvalue()]

    def close(self) -> None:
        """End the process that unpacks; the next body begins another."""
        self._process.close()


class ParquetProcess:
    """One process, begun when it is needed, also anew after its end. It unpacks one file after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: Connection

    def unpack(self, body: memoryview, parsed: dict[str, Any], room: int) -> tuple[dict[str, Any], memoryview]:
        """Return what a file says of itself, and the wanted columns as an Arrow stream. It waits; threads call it.

        Args:
            body: The file.
            parsed: What is wanted: see `parquet_worker.answer_all`.
            room: The bytes of memory that it may take.

        Raises:
            TableError: The file is broken.
            TooLargeError: It takes too much memory or time.
            MemoryError: The machine has no memory for it.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._begin()
            process = cast("subprocess.Popen[bytes]", self._process)
            try:
                facts, stream = _exchange(self._wire, json.dumps({**parsed, "room": room}).encode(), body)
            except (OSError, EOFError):
                raise _failure(process) from None
            except BaseException:
                process.kill()  # the rest of its answer is for nobody
                raise
        if "wrong" not in facts:
            return facts, stream
        if facts["wrong"] is None:
            raise _too_large("memory")
        raise TableError(f"the body is not a whole Parquet file: {facts['wrong']}")

    def _begin(self) -> None:
        self.close()
        self._wire, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter and a file of this package
                # -P: beside the file are modules with the names of others.
                [sys.executable, "-P", str(Path(parquet_worker.__file__)), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **MEMORY},
                start_new_session=True,  # signals are for the service, which still answers after them
            )

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._wire.close()


def _exchange(wire: Connection, question: bytes, body: memoryview) -> tuple[dict[str, Any], memoryview]:
    """Return the answer of the process and the stream behind it.

    Raises:
        OSError, EOFError: The process has ended.
    """
    wire.send_bytes(question)
    wire.send_bytes(body)
    return json.loads(wire.recv_bytes()), memoryview(wire.recv_bytes())


def _failure(process: subprocess.Popen[bytes]) -> Exception:
    """Return the error for a file over which the process has ended."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)
    process.kill()  # if it hasn't ended
    by = -process.wait()
    if by == signal.SIGXCPU:
        return _too_large("time")
    if by == signal.SIGKILL:
        return MemoryError("the process that unpacks Parquet files was killed")
    return TableError("the body can't be read as a Parquet file: it is broken, or takes too much memory")


def _too_large(what: str) -> TooLargeError:
    return TooLargeError(f"The Parquet file takes more {what} to unpack than this service has for one. Send parts.")
