"""Parquet files, unpacked in a process of their own, and written; `parquet_worker` is the program of that process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet

from murho.model.errors import TableError
from murho.service.errors import TooLargeError
from murho.service.predict.rows import check_rows
from murho.service.tables import parquet_worker
from murho.service.tables.arrow_tables import arrow_table, stream_rows
from murho.service.tables.blocks import TableCodec, check_names, most_columns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO

    from murho.model.tables.schema import Schema
    from murho.service.predict.answers import Answered
    from murho.service.predict.rows import Inputs
    from murho.service.settings import Settings

__all__ = ["ParquetCodec", "ParquetProcess"]

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

    def rows(self, body: memoryview, schema: Schema, settings: Settings) -> tuple[int, Iterable[Inputs]]:
        """Returns the rows; see `TableCodec.rows`."""
        asked = {
            "names": [feature.name for feature in schema.features],
            "most_rows": settings.max_rows,
            "most_columns": most_columns(schema),
        }
        facts, stream = self._process.unpack(body, asked, max(LEAST_ROOM, ROOM * settings.max_body_bytes))
        check_names(facts["names"], schema)
        check_rows(facts["rows"], settings.max_rows)
        return stream_rows(stream, schema, settings)

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
