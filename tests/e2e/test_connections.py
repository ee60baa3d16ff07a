"""Connections and signals of a real process: a second signal, files that run out, thousands of idle clients."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.support import Service, serve
from tests.service.support import ROW, train_checkpoint
from tests.support import made_once

if TYPE_CHECKING:
    from pathlib import Path

# Many seconds of work.
HEAVY: dict[str, Any] = {"inputs": [ROW] * 60_000, "samples": 1024, "include": ["mc_error"]}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = made_once(tmp_path_factory, "tiny cars", lambda directory: train_checkpoint(directory, "cars"))
    root = tmp_path_factory.mktemp("connections")
    shutil.copytree(made / "checkpoints", root / "checkpoints")
    return root / "checkpoints"


def place_of(service: Service) -> tuple[str, int]:
    url = httpx.URL(service.address)
    assert url.port is not None
    return url.host, url.port


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_second_signal_ends_the_service_at_once(checkpoints: Path, tmp_path: Path, number: int) -> None:
    with serve(checkpoints, tmp_path / "log", max_pending_cost="100000000000") as service:
        service.wait_for_line("(Ready: )")

        def ask() -> None:
            with contextlib.suppress(httpx.TransportError):
                httpx.post(f"{service.address}/predict", json=HEAVY, timeout=60)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        while "murho_pending_requests 4.0" not in service.client.get("/metrics").text:
            time.sleep(0.01)
        service.process.send_signal(number)
        time.sleep(0.5)
        assert service.process.poll() is None
        begin = time.monotonic()
        assert service.stop(number) == 128 + number
        assert time.monotonic() - begin < 10  # the work that it stops takes much longer
        assert "Stopped at once" in service.log()
        assert "Traceback" not in service.log()
        for thread in threads:
            thread.join(20)


@pytest.mark.slow
def test_files_that_run_out_are_told_once_and_the_service_recovers(checkpoints: Path, tmp_path: Path) -> None:
    with serve(checkpoints, tmp_path / "log") as service:
        service.wait_for_line("(Ready: )")
        assert service.client.get("/healthz").status_code == 200
        process, kind = service.process.pid, resource.RLIMIT_NOFILE
        soft, hard = resource.prlimit(process, kind)
        resource.prlimit(process, kind, (10, hard))
        for _ in range(100):
            with socket.create_connection(place_of(service), timeout=5) as dropped:
                dropped.setblocking(False)
        service.wait_for_line("(can't open another file)")
        time.sleep(2.5)
        # A connection from before is served.
        assert service.client.get("/healthz").status_code == 200
        resource.prlimit(process, kind, (soft, hard))
        time.sleep(0.1)
        assert httpx.get(f"{service.address}/readyz", timeout=10).status_code == 200
        assert service.log().count("open another file") == 1
        assert service.log().count("\n") < 30
        assert service.stop() == 0


@pytest.mark.slow
def test_thousands_of_idle_connections_leave_room_for_requests(checkpoints: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = min(3000, hard - 1000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, many + 500), hard))
    with (
        contextlib.ExitStack() as idle,
        serve(checkpoints, tmp_path / "log", max_connections=str(many), idle_timeout="600") as service,
    ):
        service.wait_for_line("(Ready: )")
        assert service.client.get("/healthz").status_code == 200
        for _ in range(many - 1):
            idle.enter_context(socket.create_connection(place_of(service), timeout=20))
        response = service.client.post("/predict", json={"inputs": [ROW]})
        assert response.status_code == 200
        begin = time.monotonic()
        assert service.client.get("/healthz").status_code == 200
        assert time.monotonic() - begin < 1
        for _ in range(3):
            refused = httpx.get(f"{service.address}/healthz", timeout=10)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
        idle.close()
        time.sleep(0.5)
        assert httpx.get(f"{service.address}/healthz", timeout=10).status_code == 200
        assert service.stop() == 0
