"""SIGHUP acts; from a terminal that is closed it ends the service. In processes of their own: signals are theirs."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest
import uvloop

from murho.service.app import create_app
from murho.service.context import Lifecycle
from murho.service.errors import ServiceError
from murho.service.process import DrainingServer, address_of, configure, listen
from murho.service.settings import Settings
from tests.service.support import FakeModel, FakeSource
from tests.service.wire import served


def test_a_port_of_ones_own_choice_is_found() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert address_of(listening) == f"http://127.0.0.1:{port}"


def test_the_address_of_every_interface_is_this_machine() -> None:
    with listen("0.0.0.0", 0) as listening:  # noqa: S104 - for a moment, without a server behind it
        assert address_of(listening).startswith("http://localhost:")


@pytest.mark.parametrize("host", ["203.0.113.1", "no such host"])
def test_an_address_of_another_machine_is_told(host: str) -> None:
    with pytest.raises(ServiceError, match="--host"):
        listen(host, 0)


HANGING = """
import os, signal, socket, threading, urllib.request
from functools import partial
from murho.service import process as server
from murho.service.settings import Settings
from tests.service.support import FakeModel, FakeSource

class Hanging(FakeSource):
    def report_facts(self, model):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()

listening = server.listen("127.0.0.1", 0)
address = server.address_of(listening) + "/models/cars/overview"
ask = threading.Thread(target=lambda: urllib.request.urlopen(address), daemon=True)
server.create_app = partial(server.create_app, source=Hanging(FakeModel("cars")))
server.END_SECONDS = 0.5
server.serve_until_stopped(Settings(drain_delay=0.0), listening, lambda _: ask.start())
"""


def test_a_file_system_that_hangs_does_not_hold_up_the_end() -> None:
    assert subprocess.run([sys.executable, "-c", HANGING], timeout=120, check=False).returncode == 0


def test_a_server_in_a_thread_does_not_end_the_process() -> None:
    # It ended the tests, with success, ten seconds after the first that had used one.
    with served() as service:
        running = service.server
    assert running.end is None


PROGRAM = """
import asyncio, os, signal, sys, time
from murho.service.process import on_hangup

async def main():
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    with on_hangup(asked.set):
        print("waiting", flush=True)
        await asyncio.wait_for(asked.wait(), 20)
    with open(sys.argv[1], "w") as file:
        file.write("asked")

asyncio.run(main())
"""


@pytest.mark.parametrize("nohup", [False, True])
def test_a_terminal_that_is_closed_ends_the_service_unless_it_was_told_to_stay(
    tmp_path: os.PathLike[str], *, nohup: bool
) -> None:
    said = os.path.join(tmp_path, "said")  # noqa: PTH118 - a path for another process
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)  # these tests may run under nohup
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, said])  # noqa: S606
    line = b""
    while b"\n" not in line:
        line += os.read(terminal, 1000)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (0 if nohup else -signal.SIGTERM)
    assert os.path.exists(said) is nohup  # noqa: PTH110 - a path for another process


def test_all_connections_that_wait_are_accepted_at_once() -> None:
    settings, lifecycle = Settings(), Lifecycle()
    app = create_app(settings, source=FakeSource(FakeModel()), lifecycle=lifecycle)
    server = DrainingServer(configure(app, settings), settings, lifecycle)

    async def opened(listening: socket.socket) -> int:
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup([listening])
        with ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(socket.create_connection(listening.getsockname()))
            for _ in range(10):  # rounds of the event loop
                await asyncio.sleep(0)
            count = len(server.server_state.connections)
        server.listening.append(listening)
        await server.shutdown([listening])
        return count

    with listen("127.0.0.1", 0) as listening:
        assert uvloop.run(opened(listening)) == 50
