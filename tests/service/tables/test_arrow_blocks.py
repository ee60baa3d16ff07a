"""Tests of `service.tables.arrow_blocks`: blocks are the rows of the whole, however a stream is cut into batches."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.formats import reader_of
from murho.service.settings import Settings
from murho.service.tables import block_codec
from murho.service.tables.arrow_blocks import ArrowBlocks
from tests.service.support import NAMES, ROW, SCHEMA

ARROW = "application/vnd.apache.arrow.stream"


def table_of(count: int) -> pa.Table:
    columns = {name: [value] * count for name, value in ROW.items()}
    columns["Weight"] = [1000 + row for row in range(count)]
    made = pa.table(columns)
    origin = pa.array(["Europe" if row % 3 else "USA" for row in range(count)]).dictionary_encode()
    return made.set_column(made.column_names.index("Origin/plant"), "Origin/plant", origin)


def stream(table: pa.Table, batch: int | None = None, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=batch)
    return sink.getvalue()


def blocks_of(body: bytes, **limits: Any) -> list[dict[str, Any]]:
    asked = ArrowBlocks().read(memoryview(body), {}, SCHEMA, Settings(**limits))
    assert asked is not None
    blocks = list(asked.blocks)
    assert sum(block.count for block in blocks) == asked.rows
    return [dict(block.columns) for block in blocks]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("batch", [1, 3, 7, 8, None])
def test_blocks_are_the_rows_of_the_whole(
    batch: int | None, compression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = stream(table_of(37), batch, compression)
    monkeypatch.setattr(block_codec, "BLOCK_ROWS", 7)
    whole = reader_of(ARROW).decode(body, {}, SCHEMA, Settings()).inputs
    blocks = blocks_of(body)
    assert [len(block["Weight"]) for block in blocks] == [7] * 5 + [2]
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(np.concatenate([block[name] for block in blocks]), column)


@pytest.mark.parametrize("size", [-1, -(2**63), 12, 2**20, 2**40])
def test_a_dictionary_of_another_size_than_it_says_is_bad_input(size: int) -> None:
    texts = pa.array([f"category {row}" for row in range(11)]).dictionary_encode()
    body = stream(table_of(11).set_column(NAMES.index("Origin/plant"), "Origin/plant", texts))
    eleven = (11).to_bytes(8, "little")
    node = body.index(eleven, body.index(eleven) + 1)  # the first is the length of the batch, which Arrow doesn't use
    with pytest.raises(BadInputError, match="Dictionary array invalid"):
        blocks_of(body[:node] + size.to_bytes(8, "little", signed=True) + body[node + 8 :])


def test_a_stream_without_rows_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="has no rows"):
        blocks_of(stream(table_of(0)))


def test_limits_and_names_hold_before_a_batch_is_read() -> None:
    with pytest.raises(TooLargeError, match="at most 5"):
        blocks_of(stream(table_of(6)), max_rows=5)
    with pytest.raises(TooLargeError, match="takes"):
        blocks_of(stream(table_of(50_000), compression="zstd"), max_body_bytes=2000)
    with pytest.raises(BadInputError, match="absent"):
        blocks_of(stream(table_of(6).drop_columns(["Weight"])))
    with pytest.raises(BadInputError, match="not a whole Arrow stream"):
        blocks_of(stream(table_of(60), 7)[:-700])
