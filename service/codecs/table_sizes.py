"""How much memory a table in a body will take, found out before it is read: compressed bytes can stand for any amount.

Sizes come from what the body declares. The readers check that what they find is what was declared.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from murho.service.errors import TooLargeError

if TYPE_CHECKING:
    from murho.model.data.schema import Schema
    from murho.service.settings import Settings

__all__ = ["arrow_bytes", "arrow_rows", "check_columns", "check_memory", "expanded_bytes", "most_columns"]

EXPANSION = 16
"""A table may take this many times the memory of the largest body. Compressed tables could take any amount."""
SPARE_COLUMNS = 1000
BATCHES = {"record batch": 0, "dictionary": 1}


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


def check_memory(taken: int, settings: Settings) -> None:
    """Checks the bytes that a table takes in memory.

    Raises:
        TooLargeError: They are more than `EXPANSION` times the largest body.
    """
    most = EXPANSION * settings.max_body_bytes
    if taken > most:
        raise TooLargeError(
            f"The table takes {taken} bytes, more than this service reads at once ({most}). Send parts."
        )


def arrow_bytes(body: bytes | memoryview) -> int:
    """Returns the bytes that the buffers of an Arrow stream take, after decompression.

    The metadata of a batch is a flatbuffer (Message.fbs of the Arrow format). In a compressed batch each buffer begins
    with its own size as a 64-bit number, -1 if it isn't compressed.

    Raises:
        ArrowException, struct.error: The stream is broken.
    """
    total = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        if message.type in BATCHES:
            total += _batch_bytes(memoryview(message.metadata), memoryview(message.body), BATCHES[message.type])
    return total


def arrow_rows(body: bytes | memoryview) -> int:
    """Returns the rows of an Arrow stream, as its batches declare them; no batch is read.

    Raises:
        ArrowException, struct.error: The stream is broken.
    """
    rows = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        if message.type == "record batch":
            metadata = memoryview(message.metadata)
            length = _field(metadata, _follow(metadata, _field(metadata, _follow(metadata, 0), 2)), 0)
            rows += struct.unpack_from("<q", metadata, length)[0] if length else 0  # RecordBatch.length
    return rows


def _batch_bytes(metadata: memoryview, body: memoryview, wrapped: int) -> int:
    table = _follow(metadata, _field(metadata, _follow(metadata, 0), 2))  # Message.header
    if wrapped:
        table = _follow(metadata, _field(metadata, table, 1))  # DictionaryBatch.data
    if not _field(metadata, table, 3):  # RecordBatch.compression
        return len(body)
    buffers = _follow(metadata, _field(metadata, table, 2))  # RecordBatch.buffers
    (count,) = struct.unpack_from("<I", metadata, buffers)
    total = 0
    for index in range(count):
        offset, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * index)
        declared = struct.unpack_from("<q", body, offset)[0] if length >= 8 else length
        total += length if declared < 0 else declared
    return total


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


def expanded_bytes(table: pa.Table) -> int:
    """Returns the bytes of a table's texts once each row has its own: a dictionary has a text once for many rows."""
    total = 0
    for column in table.columns:
        if not pa.types.is_dictionary(column.type):
            continue
        for chunk in column.chunks:
            kind = chunk.dictionary.type
            if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
                lengths = pc.binary_length(chunk.dictionary.cast(pa.large_binary()))
            elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
                lengths = pc.binary_length(chunk.dictionary)
            else:
                continue
            total += pc.sum(pc.take(pc.cast(lengths, pa.int64()), chunk.indices)).as_py() or 0
    return total
