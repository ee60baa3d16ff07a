"""The process around the application: the listening socket, draining on a signal, the exit code."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from murho.service.app import create_app
from murho.service.errors import ServiceError
from murho.service.lifecycle import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from murho.service.registry import Snapshot
    from murho.service.settings import Settings

__all__ = ["DrainingServer", "address_of", "listen", "serve_until_stopped"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket.

    Raises:
        ServiceError: The port is taken, or the address isn't one of this machine.
    """
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ServiceError(f"Can't listen on {host}: {error.strerror or error}. Choose another --host.") from error
    try:
        # After a restart the same port can be used at once, even if its last connections still linger.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(2048)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ServiceError(
                f"Port {port} of {host} is in use. Stop what listens there, or choose another --port."
            ) from error
        raise ServiceError(
            f"Can't listen on port {port} of {host}: {error.strerror or error}. Choose another --host or --port."
        ) from error
    return listening


def address_of(listening: socket.socket) -> str:
    """Returns the URL of a listening socket, as seen from this machine."""
    host, port = listening.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class DrainingServer(uvicorn.Server):
    """Stops in steps, so that no request is lost, and ends with exit code 0.

    After the first signal the service reports that it isn't ready, and still serves for `drain_delay` seconds. Then it
    takes no new predictions and waits for those in flight, at most `drain_grace` seconds. A second signal ends it at
    once.
    """

    def __init__(self, config: uvicorn.Config, settings: Settings, lifecycle: Lifecycle) -> None:
        super().__init__(config)
        self._settings = settings
        self._lifecycle = lifecycle
        self._draining: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles the signals; unlike the parent, does not raise them again, because a stop is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.stop, number)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the parent's signature
        """Stops as on a signal."""
        self.stop(sig)

    def stop(self, number: int) -> None:
        """Begins to drain; at the second call, ends at once."""
        if self._lifecycle.draining:
            self.should_exit = self.force_exit = True
            return
        self._lifecycle.draining = True
        # Ctrl-C comes from a person at the terminal, without a load balancer in front.
        delay = 0.0 if number == signal.SIGINT else self._settings.drain_delay
        self._draining = asyncio.get_running_loop().create_task(self._drain(delay))

    async def _drain(self, delay: float) -> None:
        await asyncio.sleep(delay)
        self._lifecycle.closing = True
        end = asyncio.get_running_loop().time() + self._settings.drain_grace
        while self._lifecycle.in_flight and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        self.should_exit = True


def serve_until_stopped(settings: Settings, listening: socket.socket, on_loaded: Callable[[Snapshot], None]) -> None:
    """Serves on a listening socket until a signal comes and the requests in flight are answered."""
    lifecycle = Lifecycle()
    app = create_app(settings, lifecycle=lifecycle, on_loaded=on_loaded)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=65,  # longer than the idle timeout of common load balancers
        timeout_graceful_shutdown=1,  # after draining, only answers that are being sent are left
    )
    DrainingServer(config, settings, lifecycle).run(sockets=[listening])
    if lifecycle.unfinished:
        # The process would abort if the interpreter ended while a thread still computes in C++.
        logging.shutdown()
        os._exit(0)
