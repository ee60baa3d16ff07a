"""The process around the application: the listening socket, draining on a signal, SIGHUP, the exit code."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import signal
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import structlog
import uvicorn

from murho.service.app import create_app
from murho.service.context import Lifecycle, ServiceContext
from murho.service.errors import ServiceError
from murho.service.http.connection import NEW_SECONDS, Connection, files_for
from murho.service.models.loader import Change, Snapshot, Swap
from murho.service.telemetry.log import LogLimit, Stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from starlette.types import ASGIApp

    from murho.service.engine_process.remote import FrontEnd
    from murho.service.settings import Settings

LATE_SECONDS = 0.2
"""In this time a client whose connection came at the very end sends its request, and is sent elsewhere."""

END_SECONDS = 5.0
"""In this time threads that still read or write a file come to an end."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)

FULL_SECONDS = 0.1
"""In this time no connections are accepted where there is no file for one: they wait."""

CLOSING_SECONDS = 0.1
"""So long a terminal may still open after the signal that says that it was closed."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket.

    Args:
        host: Name or address of this machine.
        port: Port; 0: the system chooses.
        shared: Whether other sockets may listen on the same port; the kernel shares connections out among them.

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
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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


def listen_together(host: str, port: int, count: int) -> list[socket.socket]:
    """Return listening sockets on one port, among which the kernel shares connections out.

    Raises:
        ServiceError: The port is taken, or the address isn't one of this machine.
    """
    free = listen(host, port)  # a shared one would not see that others share it
    if count == 1:
        return [free]
    port = free.getsockname()[1]
    free.close()
    return [listen(host, port, shared=True) for _ in range(count)]


def address_of(listening: socket.socket, scheme: str = "http") -> str:
    """Return the URL of a listening socket, as seen from this machine."""
    host, port = listening.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = "localhost"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class DrainingServer(uvicorn.Server):
    """Stops in steps, so that no request is lost, and ends with exit code 0.

    After the first signal the service reports that it isn't ready, and still serves for `drain_delay` seconds; each
    answer closes its connection. Then it closes the idle connections, takes no new predictions and waits for those in
    flight, at most `drain_grace` seconds. A second signal ends the process at once, with exit code 128 + signal.

    Args:
        config: uvicorn's configuration.
        settings: The settings of the service.
        lifecycle: Shared with the application.
        front_end: This process as a front end of an engine process; None: it has an engine of its own.

    Attributes:
        listening: The listening sockets.
        end: Ends the process after `END_SECONDS`, once it serves no more; None before.
    """

    def __init__(
        self, config: uvicorn.Config, settings: Settings, lifecycle: Lifecycle, front_end: FrontEnd | None = None
    ) -> None:
        super().__init__(config)
        self._settings = settings
        self._lifecycle = lifecycle
        self._front_end = front_end
        self.listening: list[socket.socket] = []
        self._signals = 0
        self._draining: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._reloading: asyncio.Future[Swap] | None = None
        self._out_of_files = LogLimit(1, 60.0)
        self._changed: list[int] = []  # when the certificate and its key were
        self._encryption: dict[str, Any] = {}
        self.end: threading.Timer | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals; unlike the parent, does not raise them again, because a stop is no failure.

        The handlers are the interpreter's, not the event loop's, so that a second signal is heard while the loop is
        busy.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()

        def heed(number: int, _: FrameType | None) -> None:
            self._signals += 1
            if self._signals > 1:
                end_at_once(number)
            loop.call_soon_threadsafe(self.stop, number)

        before = {number: signal.signal(number, heed) for number in SIGNALS}
        try:
            with on_hangup(self._reload):
                yield
        finally:
            # From here on the process only ends; another signal still ends it at once.
            for number, handler in before.items():
                signal.signal(number, handler if self._signals == 0 else lambda number, _: end_at_once(number))
            # asyncio waits for its threads without a limit, and one may hang in a file system.
            self.end = threading.Timer(END_SECONDS, _end)
            self.end.daemon = True
            self.end.start()

    def _reload(self) -> None:
        """Look for new versions and keys."""
        if self.started:
            service: ServiceContext = self.lifespan.state["service"]
            service.security.reload()
            if self._front_end is None:  # else the engine looks, whom the supervisor tells
                self._reloading = asyncio.ensure_future(service.versions.apply(Change()))

    def stop(self, number: int) -> None:
        """Begins to drain, unless it has begun."""
        if self._lifecycle.draining:
            return
        self._lifecycle.draining = True
        # Ctrl-C comes from a person at the terminal, without a load balancer in front.
        delay = 0.0 if number == signal.SIGINT else self._settings.drain_delay
        self._draining = asyncio.get_running_loop().create_task(self._drain(delay))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and show the number of connections in the metrics."""
        self._renew_encryption()
        await super().startup([])
        for listening in sockets or []:
            self._accept_from(listening)
        service: ServiceContext = self.lifespan.state["service"]
        service.telemetry.follow(service.telemetry.connections, lambda: len(self.server_state.connections))
        if self._settings.metrics_port is not None:
            shared = self._front_end is not None  # any of them tells of all
            listening = listen(self._settings.host, self._settings.metrics_port, shared=shared)
            self._accept_from(listening)
            self.listening.append(listening)
        if self._front_end is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._front_end.supervisor, self._end_alone, loop, self._front_end.supervisor)

    def _end_alone(self, loop: asyncio.AbstractEventLoop, supervisor: int) -> None:
        """Stop as on a signal where the supervisor has died: nobody is there to send one."""
        loop.remove_reader(supervisor)
        self.stop(signal.SIGTERM)

    def _accept_from(self, listening: socket.socket) -> None:
        """Accept all connections that wait whenever some do: uvloop's server would accept one in each round."""
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        encryption = {} if listening.getsockname()[1] == self._settings.metrics_port else self._encryption
        while True:
            try:
                one = listening.accept()[0]
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError:  # there is no file for more
                service: ServiceContext = self.lifespan.state["service"]
                service.telemetry.protocol_errors.labels("out-of-files").inc()
                if self._out_of_files.hold_back() is not None:
                    structlog.get_logger("murho.server").error(
                        "This process can't open another file, so new connections wait. Raise the limit of open files "
                        "(ulimit -n, LimitNOFILE), or lower MURHO_MAX_CONNECTIONS.",
                        connections=len(self.server_state.connections),
                    )
                loop.remove_reader(listening)
                loop.call_later(FULL_SECONDS, lambda: None if listening.fileno() < 0 else self._accept_from(listening))
                return
            one.setblocking(False)
            opening = loop.create_task(self._open(one, encryption))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    async def _open(self, one: socket.socket, encryption: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        make: Any = self.config.http_protocol_class
        connection = partial(make, self.config, self.server_state, self.lifespan.state, loop)
        with suppress(OSError):  # the client has gone, or encrypts in another way
            await loop.connect_accepted_socket(connection, one, **encryption)

    def _renew_encryption(self) -> None:
        """Encrypt with the certificate as it is now; while that can't be used, with the one before."""
        certificate, key = self._settings.ssl_certfile, self._settings.ssl_keyfile
        changed = [file.stat().st_ctime_ns for file in (certificate, key) if file and file.exists()]
        if certificate is None or changed == self._changed:
            return
        self._changed = changed
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self._encryption = {"ssl": context, "ssl_handshake_timeout": self._settings.header_timeout}
        except OSError as error:
            message = "The renewed certificate and key can't be used, so the earlier ones still are."
            structlog.get_logger("murho.server").error(message, error=str(error))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening. The system may have accepted connections that nobody has looked at: they get answers.

        One that is accepted between the last look and the close is reset; its client connects again, elsewhere.
        """
        loop = asyncio.get_running_loop()
        for listening in self.listening:
            self._accept(listening)
            loop.remove_reader(listening)
            listening.close()
        if self._opening:
            await asyncio.wait(self._opening, timeout=LATE_SECONDS)
        if self._any_new():
            await asyncio.sleep(LATE_SECONDS)
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Look for a new certificate once a second; a front end says that it lives."""
        if counter % 10 == 0:
            self._renew_encryption()
            service: ServiceContext = self.lifespan.state["service"]
            if self._front_end is not None:
                self._front_end.board.beat(self._front_end.number)
                service.telemetry.refresh()
        return await super().on_tick(counter)

    async def _drain(self, delay: float) -> None:
        loop = asyncio.get_running_loop()
        for connection in self._connections():
            connection.drain()
        await asyncio.sleep(delay)
        self._lifecycle.closing = True
        for connection in self._connections():
            connection.close_if_idle()
        end = loop.time() + self._settings.drain_grace
        while self._lifecycle.in_flight and loop.time() < end:
            await asyncio.sleep(0.02)
        end = min(end, loop.time() + NEW_SECONDS)  # clients that come again and again must not hold it up
        while self._any_new() and loop.time() < end:
            await asyncio.sleep(0.02)
        self.should_exit = True

    def _any_new(self) -> bool:
        """Return whether the first request of some connection may still arrive."""
        return any(connection.is_new for connection in self._connections())

    def _connections(self) -> list[Connection]:
        return [connection for connection in self.server_state.connections if isinstance(connection, Connection)]


def serve_until_stopped(
    settings: Settings,
    listening: socket.socket,
    on_loaded: Callable[[Snapshot], None],
    front_end: FrontEnd | None = None,
) -> None:
    """Serve until a signal comes and the requests in flight are answered.

    Args:
        settings: The settings.
        listening: A listening socket.
        on_loaded: See `create_app`.
        front_end: This process as a front end of an engine process; None: it has an engine of its own.
    """
    lifecycle = Lifecycle()
    app = create_app(settings, lifecycle=lifecycle, on_loaded=on_loaded, front_end=front_end)
    server = DrainingServer(configure(app, settings), settings, lifecycle, front_end)
    server.listening.append(listening)
    with Stderr.in_thread():
        server.run(sockets=server.listening)
    if lifecycle.unfinished:
        # The process would abort if the interpreter ended while a thread still computes in C++.
        _end()
    if server.end is not None:
        server.end.cancel()


def configure(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return uvicorn's configuration: its event loop is uvloop, its HTTP protocol `Connection`."""
    limits = settings.model_copy(update={"max_connections": files_for(settings.max_connections)})
    return uvicorn.Config(
        app,
        # uvicorn calls it like a class.
        http=cast("type[asyncio.Protocol]", partial(Connection, settings=limits)),
        loop="auto",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the application knows which proxies are trusted
        lifespan="on",
        timeout_graceful_shutdown=1,  # after draining, only answers that are being sent are left
    )


def _end() -> NoReturn:
    """End the process without waiting for its threads; no request is left."""
    logging.shutdown()
    os._exit(0)


def end_at_once(number: int) -> NoReturn:
    """End the process without waiting for anything: threads compute, and the loop may be busy."""
    # No log: its lock may be held by what the signal interrupts.
    if select.select((), (2,), (), 0.0)[1]:  # somebody reads it
        os.write(2, b"Stopped at once, at a second signal. Requests in flight were not answered.\n")
    os._exit(128 + number)


@contextmanager
def on_hangup(act: Callable[[], object]) -> Iterator[None]:
    """Call a function at every SIGHUP during the block, in the event loop of the main thread.

    A terminal that is closed sends SIGHUP too. A service that was started in one, without nohup, ends then, as if by
    SIGTERM.
    """
    in_terminal, loop = is_in_terminal(), asyncio.get_running_loop()

    def decide() -> None:
        if in_terminal and not has_terminal():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            act()

    loop.add_signal_handler(signal.SIGHUP, loop.call_later, CLOSING_SECONDS if in_terminal else 0, decide)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def is_in_terminal() -> bool:
    """Return whether the process was started in a terminal, and is to end with it."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and has_terminal()


def has_terminal() -> bool:
    """Return whether the process has a terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
