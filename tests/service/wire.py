"""A service with fake checkpoints on a socket, and clients that speak HTTP byte by byte."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from murho.service.app import create_app
from murho.service.context import Lifecycle
from murho.service.process import DrainingServer, configure, listen
from murho.service.settings import Settings
from tests.service.support import FakeModel, FakeSource

HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"


@dataclass(frozen=True)
class Reply:
    """One answer: its status, headers in small letters, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def problem(self) -> dict[str, Any]:
        """Check that the answer is a problem, and return it."""
        assert self.headers["content-type"] == "application/problem+json"
        problem: dict[str, Any] = json.loads(self.body)
        assert problem["status"] == self.status
        assert set(problem) == {"type", "title", "status", "detail"}
        return problem


class Wire:
    """One connection, byte by byte."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def status_line(self) -> int:
        line = self._file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        return int(line.split()[1])

    def read(self, *, bodiless: bool = False) -> Reply:
        """Read one answer; interim ones are skipped, as every client does."""
        while (status := self.status_line()) == 100:
            assert self._file.readline() == b"\r\n"
        headers = {}
        while (line := self._file.readline()) not in {b"\r\n", b""}:
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = b"" if bodiless else self._file.read(int(headers["content-length"]))
        return Reply(status, headers, body)

    def end(self) -> bytes:
        """Read until the service closes the connection."""
        return self._file.read()

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class Served:
    """A service in a thread of this process."""

    def __init__(
        self,
        port: int,
        server: DrainingServer,
        loop: asyncio.AbstractEventLoop,
        model: FakeModel,
        lifecycle: Lifecycle,
    ) -> None:
        self.port = port
        self.server = server
        self.loop = loop
        self.model = model
        self.lifecycle = lifecycle

    def wire(self) -> Wire:
        return Wire(self.port)

    def ask(self, *parts: bytes) -> Reply:
        """Send bytes on a connection of their own, and return the answer."""
        with self.wire() as wire:
            wire.send(*parts)
            return wire.read()

    def metric(self, name: str) -> float:
        """Return a number of /metrics, 0 if there is none."""
        lines = self.ask(b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n").body.decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def errors(self, kind: str) -> float:
        return self.metric(f'murho_protocol_errors_total{{kind="{kind}"}}')

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        self.loop.call_soon_threadsafe(function, *arguments)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def served(*others: FakeModel | tuple[str, str, str], **settings: Any) -> Iterator[Served]:
    """Serve a fake checkpoint on a free port, and others (`FakeSource`).

    It says warnings only, unless the settings have a ``log_level``: its access log would fill the output of the tests.
    """
    own: dict[str, Any] = {"drain_delay": 0.2, "log_level": "warning"} | settings
    chosen, lifecycle, model = Settings(**own), Lifecycle(), FakeModel()
    application = create_app(chosen, source=FakeSource(model, *others), lifecycle=lifecycle)
    server = DrainingServer(configure(application, chosen), chosen, lifecycle)
    loops: list[asyncio.AbstractEventLoop] = []
    with listen("127.0.0.1", 0) as listening:

        async def run() -> None:
            loops.append(asyncio.get_running_loop())
            await server.serve([listening])

        thread = threading.Thread(target=lambda: asyncio.Runner(loop_factory=factory).run(run()), daemon=True)
        factory = server.config.get_loop_factory()
        port = listening.getsockname()[1]
        thread.start()
        try:
            wait_until(lambda: server.started)
            service = Served(port, server, loops[0], model, lifecycle)
            wait_until(lambda: service.ask(b"GET /readyz HTTP/1.1\r\n" + HOST + b"\r\n").status == 200)
            yield service
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20)
            assert not thread.is_alive()
