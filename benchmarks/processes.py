"""Starts processes that are measured: those that answer again and again when asked, and those that run to their end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import orjson

from benchmarks.results import ROOT
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

__all__ = ["NO_LIMIT", "ProcessError", "SystemProcess", "run_script"]

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
XLA_ON_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
ON_THE_CPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
LIMIT = 900.0
"""Seconds after which a process that has not answered is ended."""
NO_LIMIT = threading.TIMEOUT_MAX
"""For processes whose answers may take hours."""
LAST_LINES = 15


class ProcessError(MurhoError):
    """A process failed; the message ends with what it said last."""


def run_script(script: str, *arguments: str, given: bytes = b"") -> dict[str, Any]:
    """Runs a script of ours in this environment to its end.

    Args:
        script: Module of `benchmarks`.
        arguments: Of its command line.
        given: Its stdin.

    Returns:
        The object in the last line of its stdout, JSON.

    Raises:
        ProcessError: It failed.
    """
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-m", f"benchmarks.{script}", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONUTF8": "1"},
        input=given,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise ProcessError(_ended(script.rpartition(".")[2], done.returncode, done.stderr))
    last: dict[str, Any] = orjson.loads(done.stdout.splitlines()[-1])
    return last


class SystemProcess:
    """A system in a process of its own; a context manager that ends it.

    Attributes:
        name: Of the system, for messages.
        ready: What it said of itself when it was ready.
    """

    def __init__(self, name: str, command: Sequence[str], *, threads: int = 1, limit: float = LIMIT) -> None:
        """Starts it, and waits until it is ready.

        Args:
            name: Of the system.
            command: Python of its environment, and the rest of a command that `benchmarks.peers.exchange.drive` reads.
            threads: How many it may compute with; XLA takes all cores unless this is 1.
            limit: Seconds that it may take for any answer.

        Raises:
            ProcessError: It ended, or did not answer in time.
        """
        self.name, self._limit = name, limit
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        variables = os.environ | dict.fromkeys(THREADS, str(threads)) | ON_THE_CPU | {"PYTHONUTF8": "1"}
        if threads == 1:
            variables["XLA_FLAGS"] = XLA_ON_ONE_THREAD
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            command,
            cwd=ROOT,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        try:
            self.ready = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Sends it a request, and returns what it answers.

        Raises:
            ProcessError: It ended, or did not answer in time.
        """
        if self._process.stdin is None:
            raise AssertionError("stdin is a pipe")
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(orjson.dumps(request) + b"\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise AssertionError("stdout is a pipe")
        watch = threading.Timer(self._limit, self._process.kill)
        watch.start()
        try:
            for line in self._process.stdout:
                if line.startswith(b"{"):  # libraries, too, say things
                    answer: dict[str, Any] = orjson.loads(line)
                    return answer
        finally:
            watch.cancel()
        status = self._process.wait()
        self._errors.seek(0)
        raise ProcessError(_ended(self.name, status, self._errors.read()))

    def close(self) -> None:
        """Ends the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ended(name: str, status: int, said: bytes) -> str:
    last = said.decode("utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
    return f"{name} ended with status {status}; what it said last:\n" + "\n".join(last)
