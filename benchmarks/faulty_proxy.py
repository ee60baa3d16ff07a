"""A proxy that fails on purpose: it resets connections, delays, cuts bodies, and answers 429 and 503."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

__all__ = ["FAULTS", "FaultyProxy"]

FAULTS = ("reset before", "reset after", "cut body", "delay", "429", "503")
LONGEST_DELAY = 0.2
REFUSAL_HEAD = "HTTP/1.1 {} Refused\r\ncontent-type: application/problem+json\r\nretry-after: 0\r\n"


class FaultyProxy:
    """Forwards HTTP/1.1 requests from a port of its own, in a thread; a context manager.

    Attributes:
        address: Its address.
        counts: Number of requests by fault, and those ``forwarded`` without one.
    """

    def __init__(self, host: str, port: int, *, rate: float = 0.15, seed: int = 0) -> None:
        """Takes the service behind the proxy.

        Args:
            host: Host of the service.
            port: Port of the service.
            rate: Probability that a request meets a fault; each fault is as likely as the others.
            seed: Seed of the faults.
        """
        self._service = host, port
        self._rate = rate
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stopped.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a connection is served by a task")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        sender = None
        try:
            upstream, sender = await asyncio.open_connection(*self._service)
            while await self._exchange(reader, writer, upstream, sender):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # one side has gone
        finally:
            if sender is not None:
                sender.close()
            writer.close()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: asyncio.StreamReader,
        sender: asyncio.StreamWriter,
    ) -> bool:
        """Serves one request; False when the connection has to end."""
        request = await _message(reader)
        fault = self._random.choice(FAULTS) if self._random.random() < self._rate else "forwarded"
        self.counts[fault] += 1
        if fault == "reset before":
            return _reset(writer)
        if fault in ("429", "503"):
            body = f'{{"status": {fault}, "title": "Refused", "detail": "by the proxy"}}'
            writer.write(f"{REFUSAL_HEAD.format(fault)}content-length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
            return True
        if fault == "delay":
            await asyncio.sleep(self._random.uniform(0.0, LONGEST_DELAY))
        sender.write(request)
        await sender.drain()
        answer = await _message(upstream)
        if fault == "reset after":
            return _reset(writer)
        writer.write(answer[: len(answer) - 40] if fault == "cut body" else answer)
        await writer.drain()
        return fault != "cut body"


async def _message(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer: its head, and the body that content-length announces."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)


def _reset(writer: asyncio.StreamWriter) -> bool:
    """Ends the connection with RST instead of FIN."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False
