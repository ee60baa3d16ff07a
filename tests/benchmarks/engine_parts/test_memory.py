"""Memory of Murho's answers, from processes that are run to their end."""

from __future__ import annotations

import pytest

from benchmarks.engine_parts.memory import memory_of_a_call, memory_of_a_file
from benchmarks.peers.engine_task import COLUMNS, EngineTask
from benchmarks.processes import ProcessError


@pytest.mark.slow
def test_memory_of_calls_and_files_is_above_what_was_there_before() -> None:
    task = EngineTask((16,))
    small, large = memory_of_a_call(task, 1, 64), memory_of_a_call(task, 20_000, 256)
    values = 4 * 20_000 * 256  # the network's outputs, which tiles share; a process starts with 10 MiB of its own
    assert small + values // 4 < large < small + 8 * values
    said = memory_of_a_file(task, rows=3000, samples=64)
    assert said["rows_a_second"] == pytest.approx(3000 / said["seconds"])
    assert 0 < said["memory"] < said["peak"]
    assert said["input"] > 3000 * COLUMNS * 4


def test_a_process_that_fails_says_why() -> None:
    with pytest.raises(ProcessError, match=r"murho_memory ended with status 1.*\n(.*\n)*.*noise"):
        memory_of_a_call(EngineTask((4,), noise="loud"), 1, 4)
