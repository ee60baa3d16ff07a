"""The load generator: sends ready-made HTTP requests as fast as a server answers, or at a rate, and times every answer.

It runs in a process of its own, driven by `benchmarks.peers.exchange`, and does little for a request, so that it takes
little of the processors that it shares with the server: the bytes are made before, connections stay open, an answer is
searched for its status and its length and thrown away.

A request on stdin is a JSON object:

``port``, ``file``, ``sizes``: the server's port on this machine, and the requests, one after the other in a file;
``connections``, ``seconds``: the most connections, and the time in which requests are sent;
``rate``: requests a second, at random times (a Poisson process); without it every connection sends its next request as
soon as it has an answer.

The answer is `Load.summary`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import time
from array import array
from collections import Counter, deque
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uvloop

from benchmarks.peers.exchange import drive

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

__all__ = ["Load", "load_session"]

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
PATIENCE = 150.0
"""Most seconds to wait for the answers that are missing at the end; what is missing then is lost."""
FIRST_CONNECTIONS = 32
"""How many are opened before requests are sent at a rate; others when they are needed."""
LENGTHS_DIFFER = 0.25
"""An answer is wrong if its length differs by more than this share from that of the first answer to its request."""


class Connection(asyncio.Protocol):
    """One connection that is kept open; it has at most one request on its way."""

    __slots__ = ("begin", "end_of_answer", "head", "load", "received", "request", "transport")

    def __init__(self, load: Load) -> None:
        self.load = load
        self.transport: Any = None
        self.request = -1
        self.begin = 0.0
        self._clear()

    def _clear(self) -> None:
        self.head = b""
        self.received = 0
        self.end_of_answer = -1  # length of head and body; -1: not known

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self.transport = transport

    def send(self, request: int, begin: float) -> None:
        """Sends a request; `begin` is when it was due, on the monotonic clock."""
        self.request, self.begin = request, begin
        self.transport.write(self.load.requests[request])

    def data_received(self, data: bytes) -> None:
        """Takes a piece of an answer."""
        self.received += len(data)
        if self.end_of_answer < 0:
            self.head = self.head + data if self.head else data
            if not self._read_head():
                return
        if self.received >= self.end_of_answer >= 0:
            self._answered(self.end_of_answer - self.head.index(b"\r\n\r\n") - 4)

    def _read_head(self) -> bool:
        """Finds where the answer ends; returns whether that is known."""
        end = self.head.find(b"\r\n\r\n")
        if end < 0:
            return False
        found = LENGTH.search(self.head, 0, end)
        if found is not None:
            self.end_of_answer = end + 4 + int(found[1])
        elif CHUNKED.search(self.head, 0, end) and self.head.endswith(b"0\r\n\r\n"):
            self.end_of_answer = len(self.head)
        return self.end_of_answer >= 0

    def _answered(self, length: int) -> None:
        status, head, request = int(self.head[9:12]), self.head, self.request
        self.request = -1
        self._clear()
        self.load.record(self.begin, status, request, length)
        if CLOSES.search(head):
            self.transport.close()
        else:
            self.load.free(self)

    def connection_lost(self, _: Exception | None) -> None:
        """Reports the request that was on its way, if any."""
        self.load.lost_connection(self)


class Load:
    """One turn of load on one server.

    Args:
        port: The server's port on this machine.
        requests: The bytes of the requests, sent in turn.
        connections: The most connections.
        seconds: Time in which requests are sent.
        rate: Requests a second; None for a next request after each answer.
        seed: Seed of the times at which requests are due.
    """

    def __init__(
        self,
        port: int,
        requests: Sequence[bytes],
        connections: int,
        seconds: float,
        rate: float | None = None,
        seed: int = 0,
    ) -> None:
        self.port, self.requests, self.connections = port, list(requests), connections
        self.seconds, self.rate, self.seed = seconds, rate, seed
        self.begins, self.latencies, self.statuses = array("d"), array("d"), array("H")
        self.lengths: dict[int, int] = {}
        self.wrong = self.lost = self.refused_connections = self.late = 0
        self._next = self._open = self._under_way = 0
        self._idle: list[Connection] = []
        self._waiting: deque[tuple[int, float]] = deque()
        self._stop = 0.0
        self._ended = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._connected_now: set[Connection] = set()
        self._over = False

    async def run(self) -> dict[str, Any]:
        """Sends the load, waits for the answers, and returns the summary."""
        for _ in range(self.connections if self.rate is None else min(self.connections, FIRST_CONNECTIONS)):
            self._connect()
        await asyncio.gather(*self._tasks)  # the time begins when they are open
        begin, processor = time.monotonic(), time.process_time()
        self._stop = begin + self.seconds
        if self.rate is None:
            opened, self._idle = self._idle, []
            for connection in opened:
                self.free(connection)
            await asyncio.sleep(self.seconds)
        else:
            await self._send_at_rate(begin, self.rate)
        self._ended = time.monotonic()
        while self._under_way and time.monotonic() < self._ended + PATIENCE:
            await asyncio.sleep(0.001)
        self.lost += self._under_way
        summary = self.summary(begin, time.process_time() - processor)
        await self._close()
        return summary

    async def _close(self) -> None:
        """Closes all connections; what is still on its way has been counted as lost."""
        self._over = True
        await asyncio.gather(*self._tasks)
        for connection in self._connected_now:
            connection.transport.abort()
        await asyncio.sleep(0)  # the sockets are closed in the next turn of the loop

    def summary(self, begin: float, processor: float) -> dict[str, Any]:
        """What came of the load.

        Args:
            begin: When it began, on the monotonic clock.
            processor: Processor seconds that sending it took.

        Returns:
            ``count`` by status; ``rate``: answers with status 200 a second, while requests were sent; ``latency`` of
            answers with 200 and ``refusal`` of the others: percentiles in seconds; ``per_second``: answers with 200 in
            each second; ``wrong`` lengths, ``lost`` requests, ``late``: requests that found no connection when due;
            ``begin`` and ``end`` of sending on the monotonic clock; ``processor`` seconds.
        """
        begins, latencies, statuses = (np.frombuffer(part, dtype=part.typecode) for part in self._parts())
        good, ends = statuses == 200, begins + latencies - begin
        seconds = self._ended - begin
        per_second = np.histogram(ends[good], bins=np.arange(0.0, max(1.0, round(seconds)) + 1.0))[0]
        return {
            "count": {str(status): count for status, count in sorted(Counter(statuses.tolist()).items())},
            "rate": float((ends[good] <= seconds).sum() / seconds),
            "latency": percentiles(latencies[good]),
            "refusal": percentiles(latencies[~good]),
            "per_second": per_second.tolist(),
            "wrong": self.wrong,
            "lost": self.lost,
            "refused_connections": self.refused_connections,
            "late": self.late,
            "begin": begin,
            "end": self._ended,
            "processor": processor,
        }

    def _parts(self) -> tuple[array[float], array[float], array[int]]:
        return self.begins, self.latencies, self.statuses

    def record(self, begin: float, status: int, request: int, length: int) -> None:
        """Keeps one answer."""
        self._under_way -= 1
        self.begins.append(begin)
        self.latencies.append(time.monotonic() - begin)
        self.statuses.append(status)
        if status == 200:
            first = self.lengths.setdefault(request, length)
            if abs(length - first) > LENGTHS_DIFFER * first or not length:
                self.wrong += 1

    def free(self, connection: Connection) -> None:
        """Gives a connection its next request, if there is one."""
        now = time.monotonic()
        if self._waiting:
            connection.send(*self._waiting.popleft())
        elif self.rate is None and now < self._stop:
            self._under_way += 1
            connection.send(self._turn(), now)
        else:
            self._idle.append(connection)

    def lost_connection(self, connection: Connection) -> None:
        """Counts a request that will have no answer, and opens another connection."""
        if self._over:
            return
        self._connected_now.discard(connection)
        self._open -= 1
        if connection in self._idle:
            self._idle.remove(connection)
        if connection.request >= 0:
            self._under_way -= 1
            self.lost += 1
        if time.monotonic() < self._stop and (self.rate is None or self._waiting):
            self._connect()

    async def _send_at_rate(self, begin: float, rate: float) -> None:
        count = int(rate * self.seconds)
        due = begin + np.cumsum(np.random.default_rng(self.seed).exponential(1.0 / rate, count))
        due = due[due < self._stop]
        sent = 0
        while sent < len(due):
            now = time.monotonic()
            # Timers are exact to a millisecond: all requests that are due by now are sent together.
            while sent < len(due) and due[sent] <= now:
                self._dispatch(now)
                sent += 1
            if sent < len(due):
                await asyncio.sleep(max(0.0, due[sent] - time.monotonic()))
        await asyncio.sleep(max(0.0, self._stop - time.monotonic()))

    def _dispatch(self, now: float) -> None:
        self._under_way += 1
        if self._idle:
            self._idle.pop().send(self._turn(), now)
            return
        self.late += 1
        self._waiting.append((self._turn(), now))
        if self._open < self.connections:
            self._connect()

    def _turn(self) -> int:
        self._next += 1
        return (self._next - 1) % len(self.requests)

    def _connect(self) -> None:
        self._open += 1
        task = asyncio.get_running_loop().create_task(self._connected())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected(self) -> None:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self), "127.0.0.1", self.port
            )
        except OSError:
            self._open -= 1
            self.refused_connections += 1
        else:
            self._connected_now.add(connection)
            if not self._over:
                self.free(connection)


def percentiles(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float] | None:
    """Median, 90, 99 and 100 % of seconds; None without values."""
    if not len(values):
        return None
    levels = np.percentile(values, [50, 90, 99, 100])
    return dict(zip(("p50", "p90", "p99", "max"), levels.tolist(), strict=True))


def load_session(_: str) -> Generator[Mapping[str, Any], Any, None]:
    """The session for `drive`: each request is one load, each answer its summary."""
    gc.disable()  # a collection would look like a slow answer
    asked = yield {"ready": True}
    while True:
        whole = Path(asked.pop("file")).read_bytes()
        ends = [0, *accumulate(asked.pop("sizes"))]
        requests = [whole[begin:end] for begin, end in pairwise(ends)]
        summary = uvloop.run(Load(requests=requests, **asked).run())
        gc.collect()
        asked = yield summary


if __name__ == "__main__":
    os.setsid()  # Linux shares the processors by session: load and server get the same
    drive(load=load_session)
