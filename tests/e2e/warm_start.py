"""Starts `murho` from a process that has imported its packages: a real process of its own, without seconds of imports.

`python -m tests.e2e.warm_start` imports what `murho serve` imports and waits for commands. For each it forks a child,
which runs `murho.command_line.main` and ends like any other process. Each worker of pytest-xdist starts one such
parent when it first needs it. Tests of the start itself start a fresh process: `tests.e2e.support.serve`, ``fresh``.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

POSSIBLE = sys.platform == "linux"
"""Whether there are sockets of whole messages here, and a fork that Python's libraries bear."""

LARGEST = 2**20
"""Bytes of a message, which holds the words of a command and its environment."""


class WarmProcess:
    """A `murho` process, with those methods of `subprocess.Popen` that the tests of a service need.

    Args:
        words: The words of the command after ``murho``.
        stderr: File descriptor that gets its stderr and stdout.
        environment: All variables of the process.
    """

    def __init__(self, words: Sequence[str], stderr: int, environment: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self._ended, ends = os.pipe()
        command = {"words": list(words), "environment": dict(environment), "directory": str(Path.cwd())}
        parent = _parent()
        socket.send_fds(parent, [json.dumps(command).encode()], [stderr, ends])
        os.close(ends)
        self.pid = int(parent.recv(64))

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], 0.0)[0]:
            self._take_code()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end.

        Args:
            timeout: The longest time, in seconds.
        """
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("murho", timeout or 0.0)
            self._take_code()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.wait()

    def _take_code(self) -> None:
        code = os.read(self._ended, 64)
        os.close(self._ended)
        assert code, "the parent of the warm processes has ended"
        self.returncode = int(code)


@cache
def _parent() -> socket.socket:
    """Return the socket of this worker's parent of processes, which ends with the worker."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen([sys.executable, "-m", __name__], stdin=theirs.fileno(), cwd=Path(__file__).parents[2])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait(60)

    atexit.register(end)
    return ours


def _import_the_service() -> None:
    """Import what a service imports until it is ready, compiled code included, and start no threads."""
    from murho.model.runtime import let_threads_sleep

    let_threads_sleep()  # as `murho.command_line.main` does before PyTorch is imported
    import murho.cli.serve
    import murho.model.checkpoint.posterior
    import murho.service.process  # noqa: F401
    from murho.model.predictive.compiled_engine import load

    load()
    gc.collect()
    gc.freeze()  # what is shared with the children is not looked through, so that it stays shared


def _serve_children() -> dict[str, Any]:
    """Forks a child for each command; returns the command in the child, and ends the parent when the worker has."""
    channel = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    ended, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([channel.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            for pid in list(running):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    ends = running.pop(pid)
                    os.write(ends, str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(ends)
        if channel.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(channel, LARGEST, 2)
            if not message:
                sys.exit()
            output, ends = descriptors
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(output, 1)
                os.dup2(output, 2)
                for descriptor in (output, ends, ended, wakes, channel.detach(), *running.values()):
                    os.close(descriptor)
                command: dict[str, Any] = json.loads(message)
                return command
            running[pid] = ends
            os.close(output)
            channel.send(str(pid).encode())


def main() -> None:
    """Wait for commands; a child runs its own."""
    _import_the_service()
    command = _serve_children()
    os.environ.clear()
    os.environ.update(command["environment"])
    os.chdir(command["directory"])
    sys.argv = ["murho", *command["words"]]
    from murho import command_line

    command_line.main()


if __name__ == "__main__":
    main()
