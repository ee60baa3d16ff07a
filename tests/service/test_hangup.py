"""SIGHUP acts; from a terminal that is closed it ends the service. In processes of their own: signals are theirs."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, signal, sys, time
from murho.service.process import on_hangup

async def main():
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    with on_hangup(asked.set):
        print("waiting", flush=True)
        if {send}:
            os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(asked.wait(), 20)
    with open(sys.argv[1], "w") as file:
        file.write("asked")

asyncio.run(main())
"""


def test_a_signal_is_acted_on(tmp_path: os.PathLike[str]) -> None:
    said = os.path.join(tmp_path, "said")  # noqa: PTH118 - a path for another process
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(send=True), said], check=False, timeout=60)
    assert done.returncode == 0


@pytest.mark.parametrize("nohup", [False, True])
def test_a_terminal_that_is_closed_ends_the_service_unless_it_was_told_to_stay(
    tmp_path: os.PathLike[str], *, nohup: bool
) -> None:
    said = os.path.join(tmp_path, "said")  # noqa: PTH118 - a path for another process
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)  # these tests may run under nohup
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM.format(send=False), said])  # noqa: S606
    line = b""
    while b"\n" not in line:
        line += os.read(terminal, 1000)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (0 if nohup else -signal.SIGTERM)
    assert os.path.exists(said) is nohup  # noqa: PTH110 - a path for another process
