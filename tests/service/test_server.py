from __future__ import annotations

import os
import signal
import socket
import threading

import pytest

from murho.service.app import create_app
from murho.service.errors import ServiceError
from murho.service.lifecycle import Lifecycle
from murho.service.server import DrainingServer, address_of, configure, listen
from murho.service.settings import Settings
from tests.service.support import FakeModel, FakeSource
from tests.service.wire import wait_until


def test_a_port_of_ones_own_choice_is_found() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert address_of(listening) == f"http://127.0.0.1:{port}"


def test_the_address_of_every_interface_is_this_machine() -> None:
    with listen("0.0.0.0", 0) as listening:  # noqa: S104 - for a moment, without a server behind it
        assert address_of(listening).startswith("http://localhost:")


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"Port {port} of 127.0.0.1 is in use"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.1", "no such host"])
def test_an_address_of_another_machine_is_told(host: str) -> None:
    with pytest.raises(ServiceError, match="--host"):
        listen(host, 0)


def test_a_hangup_calls_the_hook_and_the_service_goes_on() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    calls: list[int] = []

    def reload() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise OSError("no such directory")

    settings, lifecycle = Settings(drain_delay=0), Lifecycle()
    app = create_app(settings, source=FakeSource(FakeModel()), lifecycle=lifecycle)
    server = DrainingServer(configure(app, settings), settings, lifecycle, reload)

    def send_signals() -> None:
        wait_until(lambda: server.started)
        for number in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            wait_until(lambda number=number: len(calls) == number + 1)  # type: ignore[misc]
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send_signals)
    try:
        with listen("127.0.0.1", 0) as listening:
            sender.start()
            server.run([listening])
        sender.join()
        assert calls == [0, 1]
        assert lifecycle.closing
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
