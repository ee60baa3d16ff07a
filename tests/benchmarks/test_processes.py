"""Processes that answer when asked, and what becomes of those that do not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from benchmarks.processes import ProcessError, SystemProcess
from tests.benchmarks.stand_ins import command_of, write_script

if TYPE_CHECKING:
    from pathlib import Path


def test_a_process_answers_each_request_and_computes_with_one_thread(tmp_path: Path) -> None:
    answer = '{"double": 2 * request["number"], "threads": os.environ["OMP_NUM_THREADS"]}'
    script = write_script(tmp_path, "steady", ready='{"task": task}', answer=answer)
    with SystemProcess("steady", command_of(script, '{"seed": 3}')) as process:
        assert process.ready == {"task": {"seed": 3}}
        answers = [process.ask({"number": number}) for number in range(3)]
    assert [answer["double"] for answer in answers] == [0, 2, 4]
    assert {answer["threads"] for answer in answers} == {"1"}
    assert os.environ.get("XLA_FLAGS") is None


def test_what_a_process_said_last_is_in_the_error(tmp_path: Path) -> None:
    script = write_script(tmp_path, "stillborn", ready="{}", answer="{}", dies="at once")
    with pytest.raises(ProcessError, match=r"stillborn ended with status 1.*\nout of luck"):
        SystemProcess("stillborn", command_of(script))


def test_a_process_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "silent.py"
    script.write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    with pytest.raises(ProcessError, match="silent ended with status"):
        SystemProcess("silent", command_of(script), limit=0.5)
