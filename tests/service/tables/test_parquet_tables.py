"""Tests of `service.tables.arrow_tables`: what a hostile file does in the process stays there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from murho.model.errors import TableError
from murho.service.errors import TooLargeError
from murho.service.tables import arrow_tables
from murho.service.tables.arrow_tables import ParquetProcess
from tests.service.bodies import parquet

SMALL = parquet(pa.table({"a": [1.5, None], "b": ["x", "y"], "c": [True, False]}))


@pytest.fixture
def process() -> Iterator[ParquetProcess]:
    made = ParquetProcess()
    yield made
    made.close()


def unpack(process: ParquetProcess, body: bytes, *names: str, room: int = 2**28, **most: int) -> tuple[Any, pa.Table]:
    parsed = {"names": names or ("a", "b"), "most_rows": 100, "most_columns": 100, **most}
    facts, stream = process.unpack(memoryview(body), parsed, room)
    return facts, pa.ipc.open_stream(stream).read_all() if stream else None


def pid_of(process: ParquetProcess) -> int:
    running = process._process
    assert running is not None
    return running.pid


def test_the_wanted_columns_come_as_a_stream(process: ParquetProcess) -> None:
    facts, table = unpack(process, SMALL)
    assert (facts["names"], facts["rows"]) == (["a", "b", "c"], 2)
    assert table.to_pydict() == {"a": [1.5, None], "b": ["x", "y"]}
    assert pa.types.is_dictionary(table.schema.field("b").type)  # each text once
    pid = pid_of(process)
    unpack(process, SMALL)
    assert pid_of(process) == pid


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_texts_of_all_encodings_are_read(process: ParquetProcess, encoding: str) -> None:
    body = parquet(pa.table({"b": ["x", "y", None]}), use_dictionary=False, column_encoding={"b": encoding})
    _, table = unpack(process, body, "b")
    assert table.to_pydict() == {"b": ["x", "y", None]}


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux limits the memory")
@pytest.mark.parametrize(
    "options", [{"use_dictionary": False}, {"use_dictionary": False, "column_encoding": {"b": "DELTA_BYTE_ARRAY"}}]
)
def test_a_file_that_takes_too_much_memory_is_refused(process: ParquetProcess, options: dict[str, Any]) -> None:
    texts = pa.array(["x" * 10**6]).take(pa.array([0] * 100))
    body = parquet(pa.table({"b": texts}), compression="zstd", **options)
    assert len(body) < 10**6
    with pytest.raises(TooLargeError, match="more memory to unpack"):
        unpack(process, body, "b", room=2**26)
    assert unpack(process, SMALL)[1].num_rows == 2


@pytest.mark.parametrize("body", [b"", b"PAR1", SMALL[:-9], SMALL[:50] + b"\xff" * 20 + SMALL[70:]])
def test_a_broken_file_is_said_to_be_broken(process: ParquetProcess, body: bytes) -> None:
    with pytest.raises(TableError, match="not a whole Parquet file"):
        unpack(process, body)
    assert unpack(process, SMALL)[1].num_rows == 2


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [
        (signal.SIGSEGV, TableError, "broken, or takes too much memory"),
        (signal.SIGXCPU, TooLargeError, "more time to unpack"),
        (signal.SIGKILL, MemoryError, "was killed"),
    ],
)
def test_a_process_that_dies_is_replaced(
    process: ParquetProcess, number: int, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack(process, SMALL)
    first = pid_of(process)
    exchange = arrow_tables._exchange

    def dying(*question: Any) -> Any:
        os.kill(first, number)
        return exchange(*question)

    monkeypatch.setattr(arrow_tables, "_exchange", dying)
    with pytest.raises(error, match=message):
        unpack(process, SMALL)
    monkeypatch.undo()
    assert unpack(process, SMALL)[1].num_rows == 2
    assert pid_of(process) != first


def test_closing_ends_the_process_and_the_next_file_begins_another(process: ParquetProcess) -> None:
    process.close()
    unpack(process, SMALL)
    running = process._process
    assert running is not None
    process.close()
    assert running.poll() is not None
    assert unpack(process, SMALL)[1].num_rows == 2
