"""Tables as bodies in every format, and answers read again."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

JSON, CSV, NPY = "application/json", "text/csv", "application/x-npy"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"


def arrow(table: pa.Table, compression: str | None = None, batch: int | None = None) -> bytes:
    """Return a stream, in batches of so many rows."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=batch)
    return sink.getvalue()


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink, **options)
    return sink.getvalue()


def csv(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pa.csv.write_csv(table, sink)
    return sink.getvalue()


def npy(matrix: Any) -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.asarray(matrix))
    return sink.getvalue()


WRITERS: dict[str, Callable[[pa.Table], bytes]] = {ARROW: arrow, PARQUET: parquet, CSV: csv}


def read_table(response: httpx.Response) -> pa.Table:
    """Return the table of an answer."""
    assert response.status_code == 200, response.text
    kind, content = response.headers["content-type"].partition(";")[0], io.BytesIO(response.content)
    if kind == ARROW:
        return pa.ipc.open_stream(content).read_all()
    return pa.parquet.read_table(content) if kind == PARQUET else pa.csv.read_csv(content)
