"""A process that unpacks Parquet files, from the side of the service; `parquet_worker` is its program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from murho.model.errors import TableError
from murho.service.errors import TooLargeError
from murho.service.tables import parquet_worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

    from murho.service.settings import Settings

__all__ = ["ParquetProcess", "Unpacked"]

ROOM = 4
"""The process may take this many times the memory of the largest body, with the body, ..."""
LEAST_ROOM = 2**26
"""... and this at least, which is what small files take."""
MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Of allocators, one that reserves no more than it needs."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A Parquet file, unpacked.

    Attributes:
        names: The columns; one too many if there are more than are read.
        rows: Number of rows.
        stream: The wanted columns as an Arrow stream; empty if one is missing, or if there are too many rows.
    """

    names: Sequence[str]
    rows: int
    stream: memoryview


class ParquetProcess:
    """One process, begun when it is needed, also anew after its end. It unpacks one file after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def unpack(self, body: bytes, names: Sequence[str], most_columns: int, settings: Settings) -> Unpacked:
        """Returns what is in a file. It waits; threads call it.

        Args:
            body: The file.
            names: The columns to unpack.
            most_columns: The most columns of the file.
            settings: The limits.

        Raises:
            TableError: The file is broken.
            TooLargeError: It takes too much memory or time.
            MemoryError: The machine has no memory for it.
        """
        question = {
            "bytes": len(body),
            "room": max(LEAST_ROOM, ROOM * settings.max_body_bytes),
            "names": list(names),
            "most_rows": settings.max_rows,
            "most_columns": most_columns,
        }
        with self._lock:
            process = self._process
            if process is not None and process.poll() is not None:
                _ended(process)
                process = None
            self._process = process = process or _begun()
            try:
                answer, stream = _exchange(process, json.dumps(question).encode() + b"\n", body)
            except (OSError, ValueError, EOFError):
                raise _failure(process) from None
            except BaseException:
                process.kill()  # the rest of its answer is for nobody
                raise
        if "wrong" not in answer:
            return Unpacked(answer["names"], answer["rows"], stream)
        if answer["wrong"] is None:
            raise _too_large("memory")
        raise TableError(f"the body is not a whole Parquet file: {answer['wrong']}")

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


def _exchange(process: subprocess.Popen[bytes], *question: bytes) -> tuple[dict[str, Any], memoryview]:
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
