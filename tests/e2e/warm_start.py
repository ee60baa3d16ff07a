"""Starts `murho` from a process that has imported its packages: a real process of its own, without seconds of imports.

Each worker of pytest-xdist has Python's forkserver import `tests.e2e.imported` when it first needs it. For each command
that forks a child, which runs `murho.command_line.main` and ends like any other process. Tests of the start itself
start a fresh process: `tests.e2e.support.serve`, ``fresh``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import chdir
from multiprocessing import forkserver, get_context
from typing import TYPE_CHECKING, Self

from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["POSSIBLE", "WarmProcess"]

POSSIBLE = sys.platform == "linux"
"""Whether there is a fork here that Python's libraries bear."""


class WarmProcess:
    """A `murho` process, with those methods of `subprocess.Popen` that the tests of a service need.

    Args:
        words: The words of the command after ``murho``.
        log: Gets its stderr and stdout.
        environment: All variables of the process.
    """

    def __init__(self, words: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(["tests.e2e.imported"])
        with chdir(ROOT):
            forkserver.ensure_running()
        self._process = context.Process(target=_run, args=(words, log, dict(environment)))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end.

        Args:
            timeout: The longest time, in seconds.
        """
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("murho", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.wait()


def _run(words: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """What the child does."""
    opened = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["murho", *words]
    from murho import command_line

    command_line.main()
