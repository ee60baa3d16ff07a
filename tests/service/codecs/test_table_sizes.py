from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from murho.service.codecs.formats import reader_of
from murho.service.codecs.table_sizes import arrow_bytes, expanded_bytes
from murho.service.errors import BadInputError, TooLargeError
from murho.service.settings import Settings
from tests.service.support import ROW, SCHEMA

ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"


def stream(table: pa.Table, compression: str | None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def table_of(count: int, **columns: Any) -> pa.Table:
    return pa.table({name: columns.get(name, [value] * count) for name, value in ROW.items()})


def decode(body: bytes, kind: str, **settings: Any) -> object:
    return reader_of(kind).decode(body, {}, SCHEMA, Settings(**settings))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_the_size_of_a_stream_is_known_before_it_is_read(compression: str) -> None:
    table = pa.table(
        {
            "zeros": np.zeros(100_000),
            "random": np.random.default_rng(0).normal(size=100_000),
            "text": pa.array(["x" * 10] * 100_000).dictionary_encode(),
        }
    )
    size = arrow_bytes(stream(table, compression))
    assert table.nbytes <= size <= table.nbytes + 2000


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_small_stream_of_a_large_table_is_refused(compression: str) -> None:
    body = stream(table_of(2_000_000, Weight=np.zeros(2_000_000)), compression)
    with pytest.raises(TooLargeError, match=r"takes \d+ bytes, more than"):
        decode(body, ARROW, max_body_bytes=1_000_000, max_rows=10**7)


@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_a_long_text_for_many_rows_is_refused(kind: str) -> None:
    count, text = 100_000, "x" * 10_000
    column = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [text])
    table = table_of(count, **{"Origin/plant": column})
    assert expanded_bytes(table) == count * len(text)
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink)
    body = stream(table, None) if kind == ARROW else sink.getvalue()
    with pytest.raises(TooLargeError, match="takes 1000000000 bytes"):
        decode(body, kind, max_body_bytes=10**7)


def test_tables_with_far_too_many_columns_are_refused() -> None:
    table = pa.table({f"column {index}": [1] for index in range(3000)})
    with pytest.raises(TooLargeError, match="3000 columns"):
        decode(stream(table, None), ARROW)
    csv = ",".join(table.column_names).encode() + b"\n1"
    with pytest.raises(BadInputError, match="3000 columns"):
        decode(csv, "text/csv")
    with pytest.raises(TooLargeError, match="header line"):
        decode(b"," * 1_000_000, "text/csv")


def test_broken_streams_are_bad_input() -> None:
    body = bytearray(stream(table_of(3), "zstd"))
    rng = np.random.default_rng(1)
    for _ in range(300):
        broken = bytearray(body)
        for at in rng.integers(0, len(body), 4):
            broken[at] = rng.integers(0, 256)
        with contextlib.suppress(BadInputError, TooLargeError):
            decode(bytes(broken), ARROW, max_body_bytes=10**6)
