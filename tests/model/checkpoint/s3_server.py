"""A real S3 server on loopback, and a TCP proxy in front of it that can be down, silent or slow."""

import asyncio
import gc
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Self
from unittest import mock

import httpx
from fsspec.asyn import sync
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

BUCKET = "bucket"
Mode = Literal["forwards", "down", "silent", "slow"]


@dataclass(frozen=True)
class S3Server:
    """A server with one bucket.

    Attributes:
        port: Its port.
    """

    port: int

    def make_bucket(self, name: str) -> None:
        httpx.put(f"http://127.0.0.1:{self.port}/{name}").raise_for_status()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start a server in a thread; it keeps its objects in memory."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    threaded = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    threaded.start()
    try:
        server = S3Server(threaded.get_host_and_port()[1])
        server.make_bucket(BUCKET)
        yield server
    finally:
        threaded.stop()


def s3_environment(port: int) -> dict[str, str]:
    """Return the variables by which S3's library finds the server; secrets of the machine are out of reach."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Proxy:
    """Forwards TCP connections to a port; a context manager.

    Attributes:
        port: Its own port.
        mode: What happens to connections, old and new: ``down`` cuts them off, ``silent`` takes bytes and never
            answers, ``slow`` passes answers on at `rate` bytes a second.
    """

    def __init__(self, behind: int, *, rate: float = 20_000.0) -> None:
        self._behind, self.rate = behind, rate
        self._mode: Mode = "forwards"
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode == "down":
            for connection in list(self._open):
                _cut(connection)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.mode = "down"
        _cut(self._listening)
        self._listening.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._mode == "down":
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._behind))
            self._open |= {client, server}
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, goal: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while block := source.recv(2_000 if self._mode == "slow" else 65_536):
                while self._mode == "silent":
                    time.sleep(0.01)
                if answers and self._mode == "slow":
                    time.sleep(len(block) / self.rate)
                goal.sendall(block)
        for connection in (source, goal):
            _cut(connection)
            connection.close()
            self._open.discard(connection)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _close_patiently(loop: Any, creator: Any) -> None:
    """Close the connections of a file system that nothing refers to any more, as s3fs does, but wait for the end.

    s3fs waits for 0.1 s. On a busy machine sockets stay open then, and warn in some later test.
    """
    try:
        asyncio.get_running_loop().create_task(creator.__aexit__(None, None, None))
    except RuntimeError:
        sync(loop, creator.__aexit__, None, None, None, timeout=20.0)


@contextmanager
def in_environment(port: int) -> Iterator[None]:
    """Let this process find the server."""
    with (
        mock.patch.dict("os.environ", s3_environment(port)),
        mock.patch.object(S3FileSystem, "close_session", staticmethod(_close_patiently)),
    ):
        yield
        gc.collect()
