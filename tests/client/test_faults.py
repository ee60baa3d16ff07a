"""A service behind a network that fails at random: no call is lost, none is answered wrongly."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import numpy as np
import pytest
from murho_client import AsyncClient, Client, DeadlineExceeded, UnexpectedAnswer, Unreachable

from tests.client.stand_in import StandIn

FAULTS = ("reset", "reset while answering", "close", "cut", "cut unannounced", "delay", "429", "503", "502")
SHARE = 0.4
"""Share of the requests that meet a fault."""


class Faulty(ThreadingHTTPServer):
    """Answers like a service, but fails at random.

    Args:
        seed: Seed of the faults.
        always: A fault for every request, instead.

    Attributes:
        faults: How often each fault happened.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, seed: int, always: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), FaultyHandler)
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._lock = threading.Lock()
        self._always = always
        self.faults: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def next_fault(self) -> str:
        with self._lock:
            fault = self._random.choice(FAULTS) if self._random.random() < SHARE else "none"
            fault = self._always or fault
            self.faults[fault] += 1
        return fault

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients hang up, too


class FaultyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Faulty

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def respond(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length", 0)))
        reply = StandIn()(httpx2.Request(self.command, f"{self.server.url}{self.path}", content=sent))
        body = reply.content
        fault = self.server.next_fault()
        half = len(body) // 2
        match fault:
            case "none":
                self.answer(reply.status_code, body)
            case "delay":
                time.sleep(0.05)
                self.answer(reply.status_code, body)
            case "reset":
                self.reset()
            case "reset while answering":
                self.answer(reply.status_code, body[:half], length=len(body))
                self.reset()
            case "close":
                self.close_connection = True
            case "cut":
                self.answer(reply.status_code, body[:half], length=len(body))
                self.close_connection = True
            case "cut unannounced":
                self.answer(reply.status_code, body[:half], length=None)
                self.close_connection = True
            case "502":
                self.answer(502, b"<h1>Bad Gateway</h1>", kind="text/html")
            case _:
                document = {"type": "urn:murho:problem:busy", "title": "Busy", "detail": "Later.", "status": int(fault)}
                self.answer(int(fault), json.dumps(document).encode(), kind="application/problem+json")

    def answer(self, status: int, body: bytes, kind: str = "application/json", length: int | None = -1) -> None:
        """Send a reply; `length` is what it says of the body's length, None for nothing."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(body) if length < 0 else length))
        if status in (429, 503):
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def finish(self) -> None:
        with suppress(OSError, ValueError):  # the connection was reset
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        pass


@contextmanager
def faulty(seed: int, always: str | None = None) -> Iterator[Faulty]:
    with Faulty(seed, always) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def rows(call: int) -> dict[str, Any]:
    return {"x": np.arange(3.0) + call, "kind": ["a"] * 3}


def test_threads_lose_no_call() -> None:
    with faulty(17) as server, Client(server.url, retries=20) as murho, ThreadPoolExecutor(8) as pool:
        means = list(pool.map(lambda call: murho.predict(rows(call)).mean, range(200)))
    np.testing.assert_array_equal(means, [2 * (np.arange(3.0) + call) + 1 for call in range(200)])
    assert set(server.faults) == {*FAULTS, "none"}


def test_tasks_lose_no_call() -> None:
    async def run(url: str) -> list[Any]:
        async with AsyncClient(url, retries=20) as murho:
            gate = asyncio.Semaphore(8)

            async def one(call: int) -> Any:
                async with gate:
                    return (await murho.predict(rows(call))).mean

            return await asyncio.gather(*(one(call) for call in range(120)))

    with faulty(18) as server:
        means = asyncio.run(run(server.url))
    np.testing.assert_array_equal(means, [2 * (np.arange(3.0) + call) + 1 for call in range(120)])
    assert set(server.faults) == {*FAULTS, "none"}


def test_a_large_table_comes_whole() -> None:
    x = np.arange(500.0)
    with faulty(19) as server, Client(server.url, retries=20, max_rows_per_request=10) as murho:
        np.testing.assert_array_equal(murho.predict({"x": x, "kind": ["a"] * 500}).mean, 2 * x + 1)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("reset", Unreachable, "can't be reached"),
        ("close", Unreachable, "can't be reached"),
        ("reset while answering", UnexpectedAnswer, "half-way"),
        ("cut", UnexpectedAnswer, "half-way"),
        ("cut unannounced", UnexpectedAnswer, "may be cut"),
        ("502", Unreachable, "Bad Gateway"),
    ],
)
def test_a_fault_that_lasts_is_named(fault: str, kind: type[Exception], words: str) -> None:
    told = pytest.raises(kind, match=rf"(?s){words}.*Tried 2 times")
    with faulty(20, fault) as server, Client(server.url, retries=1) as murho, told:
        murho.predict(rows(0), "line")


def test_nobody_there_and_nobody_answering() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, timeout=0.3) as murho, pytest.raises(DeadlineExceeded, match=r"within 0\.3 seconds"):
            murho.predict(rows(0))
    with Client(url, retries=1) as murho, pytest.raises(Unreachable, match="Is the service running"):
        murho.predict(rows(0))
    assert not Client(url).ready()


def test_a_header_that_can_not_be_sent_is_the_callers_mistake_and_is_not_shown() -> None:
    wrong = pytest.raises(ValueError, match="a header has characters")
    with faulty(21, "none") as server, Client(server.url, headers={"X-Key": "one\ntwo"}) as murho, wrong as caught:
        murho.predict(rows(0))
    assert "two" not in str(caught.value)
