"""Starts the processes that are measured: systems that answer requests, and scripts that run to their end."""

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
"""Seconds after which a process without an answer is ended."""
NO_LIMIT = threading.TIMEOUT_MAX
"""The limit for processes whose answers may take hours."""
LAST_LINES = 15


class ProcessError(MurhoError):
    """A process failed; the message ends with the last lines of its stderr."""


def run_script(script: str, *arguments: str, given: bytes = b"") -> dict[str, Any]:
    """Runs a script of `benchmarks` in this environment to its end.

    Args:
        script: Name of the module.
        arguments: Arguments of its command line.
        given: Its stdin.

    Returns:
        The JSON object in the last line of its stdout.

    Raises:
        ProcessError: The script failed.
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
    """A system in a process of its own; a context manager that ends the process.

    Attributes:
        name: Name of the system, for messages.
        ready: The first answer of the process, when it was ready.
    """

    def __init__(self, name: str, command: Sequence[str], *, threads: int = 1, limit: float = LIMIT) -> None:
        """Starts the process, and waits until it is ready.

        Args:
            name: Name of the system.
            command: Command line: the Python of its environment and arguments for `benchmarks.peers.exchange.drive`.
            threads: Number of threads; XLA takes all cores unless this is 1.
            limit: Most seconds for any answer.

        Raises:
            ProcessError: The process ended, or did not answer in time.
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
        """Sends a request, and returns the answer.

        Raises:
            ProcessError: The process ended, or did not answer in time.
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
                if line.startswith(b"{"):  # libraries print to stdout too
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


def _ended(name: str, status: int, errors: bytes) -> str:
    last = errors.decode("utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
    return f"{name} ended with status {status}; its last lines on stderr:\n" + "\n".join(last)
