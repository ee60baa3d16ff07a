"""The program of the process that unpacks Parquet files, where a limit of memory and processor time holds.

A small Parquet file can stand for any amount: its pages, their dictionaries and deltas say what they unpack to only
while they are unpacked. `arrow_tables` runs this file as a script: it imports nothing of Murho, so that it is small.
Questions come on stdin, answers go to stdout, each a line of JSON and the bytes that it announces.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet

SECONDS = 20
"""Of the processor, for one file. 64 MiB take some 2 s."""


def answer_all(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answers questions until their stream ends, or has what this process can't take.

    A question has `bytes` of the file; `room`, the bytes of memory to take; `names` of the columns to unpack; and the
    `most` rows and columns. An answer has `names` of all columns, the `rows`, and `bytes` of an Arrow stream of the
    wanted ones, which is empty if one is missing, or if there is too much; or only `wrong`, what is wrong with the
    file, None for too much.
    """
    while line := questions.readline():
        asked = json.loads(line)
        limit(asked["room"])
        try:
            facts, table = unpacked(questions.read(asked["bytes"]), **asked)
            count = 0 if table is None else bytes_of(table)
        except MemoryError:
            facts, table, count = {"wrong": None}, None, 0
        except Exception as error:  # whatever the library says of a hostile file
            facts, table, count = {"wrong": f"{error}"[:1000]}, None, 0
        answers.write(json.dumps({**facts, "bytes": count}).encode() + b"\n")
        if table is not None:
            write(table, answers)
        answers.flush()
        del table


def unpacked(
    body: bytes, names: list[str], most_rows: int, most_columns: int, **_: Any
) -> tuple[dict[str, Any], pa.Table | None]:
    """Returns what a file says of itself, and its wanted columns."""
    with pa.parquet.ParquetFile(pa.BufferReader(body)) as file:
        facts = {"names": file.schema_arrow.names[: most_columns + 1], "rows": file.metadata.num_rows}
        leaves = [file.schema.column(index) for index in range(len(file.schema))]
        texts = [leaf.path for leaf in leaves if leaf.path in names and leaf.physical_type == "BYTE_ARRAY"]
    there = set(facts["names"])
    if not len(there) == len(facts["names"]) <= most_columns or facts["rows"] > most_rows or not there >= set(names):
        return facts, None
    try:
        # Texts stay in their dictionaries, where each is once: a small file can repeat a long one a million times.
        return facts, table_of(body, names, texts)
    except (NotImplementedError, OSError):  # not of every encoding
        return facts, table_of(body, names, [])


def table_of(body: bytes, names: list[str], texts: list[str]) -> pa.Table:
    """Returns the columns of a file; those of `texts` as dictionaries."""
    with pa.parquet.ParquetFile(pa.BufferReader(body), read_dictionary=texts) as file:
        return file.read(columns=names, use_threads=False).select(names)


def bytes_of(table: pa.Table) -> int:
    """Returns the bytes of a table as a stream."""
    sink = pa.MockOutputStream()
    write(table, sink)
    return int(sink.size())


def write(table: pa.Table, sink: Any) -> None:
    """Writes a table as a stream."""
    with pa.ipc.new_stream(sink, table.schema.remove_metadata()) as writer:
        writer.write_table(table.replace_schema_metadata(None))


def limit(room: int) -> None:
    """Limits the memory to what is taken now and `room`, and the time; only Linux does that."""
    if sys.platform == "linux":
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + room, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    # What a library prints must not come between the answers.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer_all(sys.stdin.buffer, sink)
