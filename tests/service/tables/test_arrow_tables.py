"""Tests of `service.tables.arrow_tables`: no more is unpacked than may be, and broken streams are said to be so."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.answers import Terms
from murho.service.predict.routes import reader_of
from murho.service.settings import Settings
from murho.service.tables.arrow_tables import TEXT_BYTES, stream_size
from tests.service.bodies import ARROW, PARQUET, WRITERS, arrow
from tests.service.support import NAMES, ROW, SCHEMA

DEFAULT_POOL = pa.default_memory_pool()


def table_of(count: int, **columns: Any) -> pa.Table:
    return pa.table({name: columns.get(name, [value] * count) for name, value in ROW.items()})


def decode(body: bytes, kind: str, **settings: Any) -> object:
    return reader_of(kind).decode(body, Terms({}, SCHEMA, Settings(**settings)))


def test_a_dictionary_that_grows_is_counted_in_each_of_its_states() -> None:
    texts = [f"{number:09}" for number in range(1000)]
    columns = [pa.array(texts[:stop]).dictionary_encode() for stop in (10, 500, 1000)]
    sink, options = io.BytesIO(), pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, pa.schema({"x": columns[0].type}), options=options) as writer:
        for column in columns:
            writer.write_batch(pa.record_batch({"x": column}))
    assert 13 * 1510 <= stream_size(sink.getvalue())[1] - 4 * 1510 <= 13 * 1510 + 1000


def with_size(body: bytes, old: int, new: int) -> bytes:
    """Return a body with another size, 64 bits, in front of the first of two compressed buffers."""
    assert body.count(struct.pack("<q", old)) == 2
    return body.replace(struct.pack("<q", old), struct.pack("<q", new), 1)


@pytest.mark.parametrize("size", [2**62, 2**33, -(2**33), -2])
def test_a_declared_size_does_not_make_up_for_another(size: int) -> None:
    body = arrow(table_of(4321, Weight=np.arange(4321.0)), "zstd")
    with pytest.raises((TooLargeError, BadInputError), match=r"takes \d{10,} bytes|negative size"):
        decode(with_size(body, 8 * 4321, size), ARROW)


def test_declared_sizes_do_not_overflow_in_their_sum() -> None:
    body = arrow(table_of(4321, Weight=np.arange(4321.0)), "zstd")
    both = body.replace(struct.pack("<q", 8 * 4321), struct.pack("<q", 2**62))
    with pytest.raises(TooLargeError, match=f"takes {2**63 // 10**6}"):
        decode(both, ARROW)


@pytest.mark.parametrize("kind", ["lz4", "zstd"])
def test_a_small_stream_of_a_large_table_is_refused(kind: str) -> None:
    body = arrow(table_of(2_000_000, Weight=np.zeros(2_000_000)), kind)
    with pytest.raises(TooLargeError, match=r"takes \d+ bytes, more than"):
        decode(body, ARROW, max_body_bytes=1_000_000, max_rows=10**7)


def views_of(count: int, text: bytes) -> pa.Array:
    """Return the same text for all rows, in the body once."""
    views = np.zeros((count, 4), np.int32)
    views[:, 0], views[:, 1] = len(text), np.frombuffer(text[:4], np.int32)
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(views), pa.py_buffer(text)])


def dictionary_of(count: int, text: bytes) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([text.decode()]))


def view_dictionary_of(count: int, text: bytes) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), views_of(1, text))


REPEATED = [(ARROW, views_of), (ARROW, dictionary_of), (ARROW, view_dictionary_of), (PARQUET, dictionary_of)]


@pytest.mark.parametrize(("kind", "column_of"), REPEATED)
def test_a_long_text_for_many_rows_is_refused(kind: str, column_of: Callable[[int, bytes], pa.Array]) -> None:
    table = table_of(100_000, **{"Origin/plant": column_of(100_000, b"x" * 10_000)})
    with pytest.raises(TooLargeError, match=r"takes \d+ bytes"):
        decode(WRITERS[kind](table), kind, max_body_bytes=10**7)


@pytest.mark.parametrize(("kind", "column_of"), REPEATED)
def test_repeated_texts_are_written_out_some_at_a_time(kind: str, column_of: Callable[[int, bytes], pa.Array]) -> None:
    body = WRITERS[kind](table_of(8000, **{"Origin/plant": column_of(8000, b"x" * 60_000)}))  # 480 MB written out
    pool = pa.system_memory_pool()
    before = pool.max_memory()
    pa.set_memory_pool(pool)
    try:
        parsed = reader_of(kind).decode(body, Terms({}, SCHEMA, Settings()))
    finally:
        pa.set_memory_pool(DEFAULT_POOL)
    assert set(parsed.inputs.columns["Origin/plant"]) == {"x" * 60_000}
    assert pool.max_memory() - before < 8 * TEXT_BYTES


@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_columns_without_bytes_are_counted_as_cells(kind: str) -> None:
    nothing = pa.nulls(100_000)
    table = pa.table(dict.fromkeys(ROW, nothing))
    with pytest.raises(TooLargeError, match="takes 4000000 bytes"):
        decode(WRITERS[kind](table), kind, max_body_bytes=999_999)


def test_many_different_texts_are_counted_as_the_objects_they_are() -> None:
    texts = pa.array([f"{number:05}" for number in range(50_000)])
    body = arrow(table_of(50_000, **{"Origin/plant": texts}))
    with pytest.raises(TooLargeError, match="takes"):
        decode(body, ARROW, max_body_bytes=10**6)  # 50,000 objects of 54 bytes


@pytest.mark.parametrize("kind", [ARROW, PARQUET])
@pytest.mark.parametrize(
    "cells", [pa.array([["a"]]), pa.array([{"a": "b"}]), pa.array([b"a"]), pa.array([{"Origin/plant": ["b"]}])]
)
def test_cells_that_are_none_are_bad_input(kind: str, cells: pa.Array) -> None:
    with pytest.raises(BadInputError, match=r"Cells of the type .* can't be used"):
        decode(WRITERS[kind](table_of(1, **{"Origin/plant": cells})), kind)


def test_an_index_outside_its_dictionary_is_bad_input() -> None:
    for index in (7, -1):
        cells = pa.DictionaryArray.from_arrays(pa.array([0, index]), pa.array(["USA"]), safe=False)
        with pytest.raises(BadInputError, match="index lies outside"):
            decode(arrow(table_of(2, **{"Origin/plant": cells})), ARROW)


def test_columns_that_are_no_features_are_not_unpacked() -> None:
    table = table_of(1).append_column("Wheels", pa.array(["x" * 10**6]))
    body = bytearray(arrow(table, "zstd"))
    at = body.index(struct.pack("<q", 10**6))
    body[at + 8 : at + 12] = b"\0\0\0\0"  # no zstd
    assert decode(bytes(body), ARROW)


def test_tables_with_far_too_many_columns_are_refused() -> None:
    table = pa.table({f"column {index}": [1] for index in range(3000)})
    with pytest.raises(TooLargeError, match="3000 columns"):
        decode(arrow(table), ARROW)
    nameless = ",".join(feature.name for feature in SCHEMA.features).encode() + b"," * 2000
    with pytest.raises(BadInputError, match="2000 columns without a name"):
        decode(nameless, "text/csv")
    with pytest.raises(TooLargeError, match="header line"):
        decode(b"," * 1_000_000, "text/csv")


def cars_of(count: int) -> pa.Table:
    columns = {name: [value] * count for name, value in ROW.items()}
    columns["Weight"] = [1000 + row for row in range(count)]
    made = pa.table(columns)
    origin = pa.array(["Europe" if row % 3 else "USA" for row in range(count)]).dictionary_encode()
    return made.set_column(made.column_names.index("Origin/plant"), "Origin/plant", origin)


@pytest.mark.parametrize("size", [-1, -(2**63), 12, 2**20, 2**40])
def test_a_dictionary_of_another_size_than_it_says_is_bad_input(size: int) -> None:
    texts = pa.array([f"category {row}" for row in range(11)]).dictionary_encode()
    body = arrow(cars_of(11).set_column(NAMES.index("Origin/plant"), "Origin/plant", texts), None)
    eleven = (11).to_bytes(8, "little")
    node = body.index(eleven, body.index(eleven) + 1)  # the first is the length of the batch, which Arrow doesn't use
    with pytest.raises(BadInputError, match="Dictionary array invalid"):
        decode(body[:node] + size.to_bytes(8, "little", signed=True) + body[node + 8 :], ARROW)
