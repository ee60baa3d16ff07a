"""The servers that are measured, each in a process group of its own, so that the others can be held meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING

from benchmarks.processes import ProcessError
from benchmarks.results import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PEERS", "RunningServer", "Server", "bare", "free_port", "murho", "peer", "running"]

CORE = ("numpy==2.4.6", "torch==2.13.0", "numba==0.68.1", "safetensors==0.8.0", "orjson==3.13.0", "pyarrow==26.0.1")
"""What `murho.model` needs to answer with its compiled engine; Murho itself is imported from this working tree."""
PEERS = {"litserve": (*CORE, "litserve==0.2.19"), "mlserver": (*CORE, "mlserver==1.7.1")}
"""Name on the command line → packages of its environment."""
TITLES = {"litserve": "LitServe, its batching", "mlserver": "MLServer, its batching"}
BARE = {
    "fastapi": "FastAPI route, fixed answer",
    "asgi": "ASGI application, fixed answer",
    "fixed": "the load generator's own limit",
}
LIMIT = 240.0
"""Most seconds until a server is ready."""
LAST_LINES = 15
REFUSED = (400, 415, 422)
"""What the request is wrong for will not pass."""


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server.

    Attributes:
        name: Name in the results.
        title: Title in the tables.
        command: Command line, without the port.
        path: Path of its predictions.
        environment: Variables besides those of this process.
    """

    name: str
    title: str
    command: tuple[str, ...]
    path: str = "/predict"
    environment: Mapping[str, str] = field(default_factory=dict)


def murho(checkpoints: Path, model: str, **settings: str) -> Server:
    """``murho serve``; settings go into its environment."""
    command = (sys.executable, "-m", "murho", "serve", "--checkpoints", str(checkpoints), "--device", "cpu")
    environment = {f"MURHO_{name.upper()}": value for name, value in settings.items()}
    return Server("murho", "Murho", command, f"/models/{model}/predict", environment)


def bare(kind: str, model: Path, answer: Path) -> Server:
    """One of `BARE`: the checkpoint gives the shape of requests, the file is the answer."""
    command = (sys.executable, "-m", "benchmarks.service_parts.bare_servers", kind)
    return Server(kind, BARE[kind], (*command, "--model", str(model), "--answer", str(answer)))


def peer(name: str, python: Path, model: Path) -> Server:
    """One of `PEERS`, with the Python of its environment."""
    path = "/v2/models/cars/infer" if name == "mlserver" else "/predict"
    command = (str(python), "-m", f"benchmarks.service_parts.with_{name}", "--model", str(model))
    return Server(name, TITLES[name], command, path)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class RunningServer:
    """A started server.

    Attributes:
        server: How it was started.
        port: Its port.
    """

    def __init__(self, server: Server, port: int, process: subprocess.Popen[bytes]) -> None:
        self.server, self.port, self.process = server, port, process

    def hold(self) -> None:
        """Stops its processes where they are, so that they take no processor."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets them go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends all its processes."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def memory(self) -> int:
        """Resident memory of its processes, bytes; Linux only."""
        pages = 0
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = status.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self.process.pid:  # the process group
                    pages += int(fields[21])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def processor(self) -> tuple[float, float]:
        """Processor seconds so far: of its first thread, which has the event loop, and of all; Linux only."""
        first = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/stat")
        everything = 0
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                group, ticks = _group_and_ticks(status)
                everything += ticks * (group == self.process.pid)
        a_second = os.sysconf("SC_CLK_TCK")
        return _group_and_ticks(first)[1] / a_second, everything / a_second

    def post(self, body: bytes, media_type: str = "application/json") -> tuple[int, bytes]:
        """Status and body of the answer to one request, on a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60.0)
        with contextlib.closing(connection):
            connection.request("POST", self.server.path, body, {"content-type": media_type})
            response = connection.getresponse()
            return response.status, response.read()


def _group_and_ticks(status: Path) -> tuple[int, int]:
    """The process group of a process or thread, and its ticks of processor time, user and system."""
    fields = status.read_text().rpartition(")")[2].split()
    return int(fields[2]), int(fields[11]) + int(fields[12])


@contextlib.contextmanager
def running(server: Server, body: bytes) -> Iterator[RunningServer]:
    """Starts a server, waits until it answers a request with 200, and ends it with the context.

    Args:
        server: The server.
        body: The body of the request.

    Raises:
        ProcessError: It ended, or did not become ready in time; with the last lines of its output.
    """
    port = free_port()
    # Where a peer's Python does not have Murho installed, it is imported from here.
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), "PYTHONUTF8": "1"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - our own scripts
            [*server.command, "--port", str(port)],
            cwd=ROOT,
            env=variables | dict(server.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        started = RunningServer(server, port, process)
        try:
            _wait(started, body, log)
            yield started
        finally:
            started.kill()


def _wait(started: RunningServer, body: bytes, log: IO[bytes]) -> None:
    end, answered = time.monotonic() + LIMIT, "nothing"
    while time.monotonic() < end and started.process.poll() is None:
        with contextlib.suppress(OSError, HTTPException):
            status, content = started.post(body)
            if status == 200:
                return
            answered = f"{status} {content[:500]!r}"
            if status in REFUSED:
                break
        time.sleep(0.1)
    log.seek(0)
    lines = log.read().decode("utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
    raise ProcessError(f"{started.server.title} is not ready; it answered {answered} and said:\n" + "\n".join(lines))
