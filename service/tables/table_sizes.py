"""How much memory a table in a body will take, found out before it is read: compressed bytes can stand for any amount.

Sizes come from what the body declares. The readers check that what they find is what was declared.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from murho.model.tables.columns import holds_text, integers
from murho.service.errors import TooLargeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.tables.schema import Schema
    from murho.service.settings import Settings

__all__ = [
    "StreamSize",
    "check_cells",
    "check_columns",
    "check_memory",
    "check_work",
    "most_columns",
    "stream_size",
    "text_bytes",
]

HELD = 2
"""What is unpacked at a time may take this many times the memory of the largest body."""
CELLS = 4
"""And this many times the columns of a table that is read as a whole."""
WORK = 16
"""And this many times all that is unpacked, one part after the other."""
SPARE_COLUMNS = 1000
BATCHES = {"record batch": 0, "dictionary": 1}


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


def most_columns(schema: Schema) -> int:
    """Returns the most columns that a table for a model may have: its own, and some more, which an error names."""
    return len(schema.features) + len(schema.left_out) + SPARE_COLUMNS


def check_columns(count: int, schema: Schema) -> None:
    """Checks the number of a table's columns.

    Raises:
        TooLargeError: There are more than `most_columns`.
    """
    if count > most_columns(schema):
        raise TooLargeError(f"The table has {count} columns; at most {most_columns(schema)} are read for this model.")


def check_cells(rows: int, schema: Schema, settings: Settings) -> None:
    """Checks the cells of a table that is read as a whole: bits, and columns without values, take more than the body.

    Raises:
        TooLargeError: As numbers they take more than `CELLS` times the largest body.
    """
    _check(8 * rows * len(schema.features), CELLS, settings)


def check_memory(taken: int, settings: Settings) -> None:
    """Checks the bytes that a part of a table takes in memory.

    Raises:
        TooLargeError: They are more than `HELD` times the largest body.
    """
    _check(taken, HELD, settings)


def check_work(taken: int, settings: Settings) -> None:
    """Checks the bytes that all parts of a table take, one after the other.

    Raises:
        TooLargeError: They are more than `WORK` times the largest body.
    """
    _check(taken, WORK, settings)


def _check(taken: int, times: int, settings: Settings) -> None:
    most = times * settings.max_body_bytes
    if taken > most:
        raise TooLargeError(
            f"The table takes {taken} bytes, more than this service reads at once ({most}). Send parts."
        )


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
        if message.type not in BATCHES:
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


def text_bytes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Returns the bytes of each row's text once it has one of its own, `[B]`; 0 for what is no text.

    A dictionary, or a view, has a text once for many rows: `model.tables.columns.plain` writes it out for each.
    """
    if not holds_text(column.type):
        return np.zeros(len(column), np.int64)
    return np.concatenate([np.empty(0, np.int64), *(_text_bytes(chunk) for chunk in column.chunks)])


def _text_bytes(cells: pa.Array, rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int64]:
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
