"""Faults of the engine, the files, the disk and the clients of a running service: answers go on, and stay right."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.support import MURHO, Service, serve
from tests.e2e.traffic import PROBLEM, REFUSALS, Traffic, asks, judge, wait_until
from tests.service.support import ROW
from tests.support import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from murho.model.checkpoint.posterior import Posterior
    from tests.e2e.traffic import Ask

TIMEOUT = 1.5

CODE = """
import importlib.machinery, os, sys, time
from pathlib import Path

MODULE = "murho.model.predictive.compiled_engine"
SWITCH = Path(os.environ["ENGINE_FAULT"])


def fault():
    return SWITCH.read_text() if SWITCH.exists() else ""


def faulty(engine):
    forward = engine.forward

    def wrapped(*arguments, **options):
        now = fault()
        if now == "raise":
            raise RuntimeError("a fault of the test")
        if now == "memory":
            raise MemoryError("a fault of the test")
        if now == "torch memory":
            import torch
            raise torch.OutOfMemoryError("a fault of the test")
        while fault() == "hang":
            time.sleep(0.02)
        if now.startswith("slow "):
            time.sleep(float(now.split()[1]))
        outputs = forward(*arguments, **options)
        return outputs * float("nan") if now == "nan" else outputs

    engine.forward = wrapped
    return engine


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            select = module.select_engine
            module.select_engine = lambda *given, **options: faulty(select(*given, **options))

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
"""


class EngineFault:
    """A switch for faults.

    Args:
        directory: Gets the module and the switch.

    Attributes:
        environment: Variables of the process.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "sitecustomize.py").write_text(CODE)
        self._switch = directory / "fault"
        path = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {"PYTHONPATH": os.pathsep.join(path), "ENGINE_FAULT": str(self._switch)}

    def set(self, fault: str) -> None:
        """raise, memory, torch memory, hang, nan, or ``slow SECONDS``; empty: none."""
        written = self._switch.with_suffix(".new")
        written.write_text(fault)
        written.rename(self._switch)


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> EngineFault:
    return EngineFault(tmp_path_factory.mktemp("fault"))


@pytest.fixture(scope="module")
def faulty_started(tiny_cars: Path, fault: EngineFault, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    log = tmp_path_factory.mktemp("log") / "log"
    settings = {"request_timeout": str(TIMEOUT)}
    with serve(tiny_cars, log, fault.environment, fresh=True, **settings) as faulty:
        faulty.wait_for_line("(Ready: )")
        yield faulty


@pytest.fixture
def faulty(faulty_started: Service, fault: EngineFault) -> Iterator[Service]:
    yield faulty_started
    fault.set("")


def ask(faulty: Service, request: Ask) -> httpx.Response:
    return httpx.post(f"{faulty.address}{request.path}", json=request.body, timeout=30.0)


def sampled(posterior: Posterior) -> list[Ask]:
    """Requests that need the engine's draws."""
    return [ask for ask in asks(posterior, 20) if ask.body["samples"]]


def require_answers_again(faulty: Service, requests: list[Ask]) -> None:
    def right() -> bool:
        response = ask(faulty, requests[0])
        return (
            judge(requests[0], response.status_code, response.headers["content-type"], response.content)[0] == "right"
        )

    wait_until(right)
    with Traffic(faulty.port, requests, threads=3) as traffic:
        traffic.wait_for(len(requests))
    traffic.require()


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [("raise", {500}), ("nan", {500}), ("memory", {500, 503}), ("torch memory", {503})],
)
def test_a_failure_is_told_without_its_insides_and_passes(
    faulty: Service, fault: EngineFault, posterior: Posterior, kind: str, statuses: set[int]
) -> None:
    requests = sampled(posterior)
    fault.set(kind)
    with ThreadPoolExecutor(4) as threads:
        responses = list(threads.map(lambda request: ask(faulty, request), requests[:8]))
    assert {response.status_code for response in responses} <= statuses
    for response in responses:
        assert response.headers["content-type"] == PROBLEM
        assert response.json()["detail"]
        for inside in ("a fault of the test", "Traceback", "NaN"):
            assert inside not in response.text
    assert faulty.client.get("/healthz").status_code == 200
    fault.set("")
    require_answers_again(faulty, requests)


def test_a_hung_engine_is_504_in_time_and_answers_again_when_it_goes_on(
    faulty: Service, fault: EngineFault, posterior: Posterior
) -> None:
    requests = sampled(posterior)
    fault.set("hang")
    with ThreadPoolExecutor(4) as threads:  # each waits for its answer 30 seconds at the most
        responses = list(threads.map(lambda request: ask(faulty, request), requests[:4]))
    assert {response.status_code for response in responses} <= {503, 504}
    assert all(response.json()["detail"] for response in responses)
    assert faulty.client.get("/healthz", timeout=30.0).status_code in {200, 503}
    fault.set("")
    require_answers_again(faulty, requests)


@pytest.mark.slow
def test_healthz_tells_that_the_engine_hangs(faulty: Service, fault: EngineFault, posterior: Posterior) -> None:
    fault.set("hang")
    with ThreadPoolExecutor(1) as threads:
        hung = threads.submit(ask, faulty, sampled(posterior)[0])
        try:
            wait_until(lambda: faulty.client.get("/healthz").status_code == 503, seconds=60.0, every=0.5)
        finally:
            fault.set("")
            hung.result()
    wait_until(lambda: faulty.client.get("/healthz").status_code == 200)


def test_a_slow_engine_fails_nobody_who_would_wait(faulty: Service, fault: EngineFault, posterior: Posterior) -> None:
    fault.set("slow 0.02")
    with Traffic(faulty.port, sampled(posterior), threads=6) as traffic:
        traffic.wait_for(20)
    traffic.require("refused")


NOTICED = 1.0


"""Seconds in which a service that watches its directory would notice a change."""


PATH = "/models/cars/predict"


def publish(trained: Path, place: Path, version: str, *, truncated: bool = False) -> None:
    """Puts a copy of the checkpoint in place as a new version, in one step."""
    hidden = place.parent / f"hidden-{version}"
    shutil.copytree(trained, hidden)
    if truncated:
        tensors = hidden / "model.safetensors"
        tensors.write_bytes(tensors.read_bytes()[:-100])
    hidden.rename(place / "cars" / version)


def test_nothing_that_happens_to_the_files_changes_an_answer(
    own: Path, trained: Path, posterior: Posterior, tmp_path: Path
) -> None:
    known, fresh = asks(posterior, 30, PATH), asks(posterior, 30, PATH, seed=1)
    with serve(own, tmp_path / "log") as service:
        service.wait_for_line("(Ready: )")
        with Traffic(service.port, known) as traffic:
            traffic.wait_for(20)
            publish(trained, own, "2")
            time.sleep(NOTICED)
            traffic.wait_for(20)
            publish(trained, own, "3", truncated=True)
            time.sleep(NOTICED)
            traffic.wait_for(20)
            assert service.client.get("/models/cars").json()["version"] != "3"
            for file in sorted(path for path in own.glob("cars/**/*") if path.is_file()):
                with file.open("r+b") as opened:
                    opened.truncate(10)
            traffic.requests = [*known, *fresh]  # with draws that are not made yet
            time.sleep(NOTICED)
            traffic.wait_for(40)
        traffic.require()
        # A service that watches may let a deleted model go: then it says so with 404.
        with Traffic(service.port, known, refusals=REFUSALS | {404}) as traffic:
            traffic.wait_for(20)
            shutil.rmtree(own / "cars")
            time.sleep(NOTICED)
        traffic.require("refused")
        assert service.client.get("/healthz").status_code == 200


def test_a_disk_that_fills_up_stops_no_answer(busy: Service, posterior: Posterior) -> None:
    process, limit = busy.process.pid, resource.RLIMIT_FSIZE
    # Every write to the log fails, as on a full disk.
    resource.prlimit(process, limit, (len(busy.log().encode()), resource.RLIM_INFINITY))
    try:
        with Traffic(busy.port, asks(posterior, 20), threads=3) as traffic:
            traffic.wait_for(30)
    finally:
        resource.prlimit(process, limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    traffic.require()


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_start_stops_no_answer(own: Path, posterior: Posterior) -> None:
    port = free_port()
    command = [str(MURHO), "serve", "--checkpoints", str(own), "--port", str(port), "--device", "cpu"]
    with Path("/dev/full").open("wb") as full, subprocess.Popen(command, stderr=full) as process:
        try:

            def ready() -> bool:
                assert process.poll() is None, "the service has ended"
                try:
                    return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
                except httpx.TransportError:
                    return False

            wait_until(ready)
            with Traffic(port, asks(posterior, 20), threads=3) as traffic:
                traffic.wait_for(20)
            process.terminate()
            process.wait(30)
        finally:
            process.kill()
    traffic.require()


BODY: dict[str, Any] = {"inputs": [ROW], "samples": 64}


IDLE = 10_000


def raw(body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def connect(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=30.0)


def reset(connection: socket.socket) -> None:
    """Closes a connection without a farewell."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def pending(service: Service) -> float:
    line = next(
        line for line in service.client.get("/metrics").text.splitlines() if line.startswith("murho_pending_requests ")
    )
    return float(line.split()[1])


def test_clients_that_vanish_leave_nothing_behind(busy: Service, posterior: Posterior) -> None:
    request, heavy = raw(BODY), raw({"inputs": [ROW] * 500, "samples": 256})
    with Traffic(busy.port, asks(posterior, 30), threads=3) as traffic:
        for number in range(60):
            connection = connect(busy)
            sent = (request, heavy, request[: 20 + number], heavy[: len(heavy) // 2])[number % 4]
            connection.sendall(sent)
            if number % 3:
                time.sleep(0.005)
            reset(connection)
        traffic.wait_for(10)
    traffic.require()
    wait_until(lambda: pending(busy) == 0.0)


def test_a_request_in_single_bytes_is_answered_and_keeps_nobody_waiting(busy: Service, posterior: Posterior) -> None:
    with Traffic(busy.port, asks(posterior, 30), threads=2) as traffic, connect(busy) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in raw(BODY):
            slow.sendall(bytes([byte]))
            time.sleep(0.002)
        assert slow.recv(4096).startswith(b"HTTP/1.1 200")
        traffic.wait_for(5)
    traffic.require()


@pytest.mark.slow
def test_a_client_that_sends_a_byte_a_second_is_let_go(busy: Service) -> None:
    begin = time.monotonic()
    with connect(busy) as slow:
        try:
            for byte in raw(BODY):
                slow.sendall(bytes([byte]))
                slow.settimeout(1.0)
                try:
                    said = slow.recv(4096)
                except TimeoutError:
                    continue
                assert not said or said.startswith((b"HTTP/1.1 408", b"HTTP/1.1 400"))
                break
        except OSError:
            pass
    assert time.monotonic() - begin < 65.0


@pytest.mark.slow
def test_ten_thousand_idle_connections_keep_nobody_waiting(busy: Service, posterior: Posterior) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE + 500:
        pytest.skip(f"the most open files are {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = busy.memory()
    idle: list[socket.socket] = []
    try:
        with Traffic(busy.port, asks(posterior, 30), threads=2) as traffic:
            traffic.wait_for(5)
            idle += (connect(busy) for _ in range(IDLE))
            traffic.wait_for(50)
        assert busy.memory() - before < IDLE * 50_000
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    traffic.require()
    assert httpx.post(f"{busy.address}/predict", json=BODY).status_code == 200
