"""The program of the process that unpacks Parquet files, where a limit of memory and processor time holds.

A small Parquet file can stand for any amount: its pages, their dictionaries and deltas say what they unpack to only
while they are unpacked. `arrow_tables` runs this file as a script: it imports nothing of Murho, so that it is small.
"""

from __future__ import annotations

import json
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

SECONDS = 20
"""Of the processor, for one file. 64 MiB take some 2 s."""


def answer_all(wire: Connection) -> None:
    """Answer questions until the connection ends, or has what this process can't take.

    A question is JSON and a file. The JSON has `room`, the bytes of memory to take beside the file; `names` of the
    columns to unpack; and the most rows and columns. An answer is JSON and an Arrow stream. The JSON has `names` of all
    columns and the `rows`; or only `wrong`, what is wrong with the file, None for too much. The stream has the wanted
    columns; it is empty if one is missing, or if there is too much.
    """
    while True:
        parsed, body, stream = json.loads(wire.recv_bytes()), wire.recv_bytes(), b""
        limit(parsed["room"])
        facts: dict[str, Any]
        try:
            facts, stream = unpack(body, **parsed)
        except MemoryError:
            facts = {"wrong": None}
        except Exception as error:  # whatever the library says of a hostile file
            facts = {"wrong": f"{error}"[:1000]}
        wire.send_bytes(json.dumps(facts).encode())
        wire.send_bytes(stream)
        del body, stream


def unpack(
    body: bytes, names: list[str], most_rows: int, most_columns: int, **_: Any
) -> tuple[dict[str, Any], bytes | pa.Buffer]:
    """Return what a file says of itself, and its wanted columns as a stream."""
    with pa.parquet.ParquetFile(pa.BufferReader(body)) as file:
        facts = {"names": file.schema_arrow.names[: most_columns + 1], "rows": file.metadata.num_rows}
        leaves = [file.schema.column(index) for index in range(len(file.schema))]
        texts = [leaf.path for leaf in leaves if leaf.path in names and leaf.physical_type == "BYTE_ARRAY"]
    there = set(facts["names"])
    if not len(there) == len(facts["names"]) <= most_columns or facts["rows"] > most_rows or not there >= set(names):
        return facts, b""
    try:
        # Texts stay in their dictionaries, where each is once: a small file can repeat a long one a million times.
        table = table_of(body, names, texts)
    except (NotImplementedError, OSError):  # not of every encoding
        table = table_of(body, names, [])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return facts, sink.getvalue()


def table_of(body: bytes, names: list[str], texts: list[str]) -> pa.Table:
    """Return the columns of a file; those of `texts` as dictionaries."""
    with pa.parquet.ParquetFile(pa.BufferReader(body), read_dictionary=texts) as file:
        return file.read(columns=names, use_threads=False).select(names).replace_schema_metadata(None)


def limit(room: int) -> None:
    """Limit the memory to what is taken now and `room`, and the time; only Linux does that."""
    if sys.platform == "linux":
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + room, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    answer_all(Connection(int(sys.argv[1])))
