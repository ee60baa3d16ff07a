"""How a script is asked and answers."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest

from benchmarks.peers.exchange import drive

if TYPE_CHECKING:
    from collections.abc import Generator


def test_a_script_does_what_the_benchmark_named_asks_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def adding(text: str) -> Generator[dict[str, int], Any, None]:
        total = int(text)
        while True:
            request = yield {"total": total}
            total += request["number"]

    def other(_: str) -> Generator[dict[str, int], Any, None]:
        raise AssertionError("another benchmark is asked for")

    monkeypatch.setattr(sys, "stdin", io.StringIO('{"number": 2}\n{"number": 3}\n'))
    drive(["step", "10"], engine=other, step=adding)
    said = [orjson.loads(line)["total"] for line in capsys.readouterr().out.splitlines()]
    assert said == [10, 12, 15]


@pytest.mark.skipif(sys.platform != "linux", reason="only there it is handed on")
def test_memory_is_not_that_of_the_process_that_started_it() -> None:
    ballast = np.ones(2**26)  # 512 MiB
    code = "from benchmarks.peers.exchange import peak_memory; print(peak_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 2**20 < int(done.stdout) < ballast.nbytes
