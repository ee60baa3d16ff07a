"""Faults of the engine, the files, the disk and the clients of a running service: answers go on, and stay right."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from benchmarks.requests import records
from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from tests.e2e.support import Service, serve
from tests.e2e.traffic import PROBLEM, REFUSALS, Ask, Traffic, asks, judge, wait_until
from tests.service.bodies import ARROW, CSV, WRITERS, csv, read_table
from tests.service.support import ROW

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
    with serve(tiny_cars, log, fault.environment, fresh=True, request_timeout="1.5") as faulty:
        yield faulty


@pytest.fixture
def faulty(faulty_started: Service, fault: EngineFault) -> Iterator[Service]:
    yield faulty_started
    fault.set("")


def ask(faulty: Service, request: Ask) -> httpx.Response:
    return httpx.post(f"{faulty.address}{request.path}", json=request.body, timeout=30.0)


def sampled(posterior: Posterior) -> list[Ask]:
    """Return requests that need the engine's draws."""
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


NOTICED = 1.0
"""Seconds in which a service that watches its directory would notice a change."""
PATH = "/models/cars/predict"


def publish(trained: Path, place: Path, version: str, *, truncated: bool = False) -> None:
    """Put a copy of the checkpoint in place as a new version, in one step."""
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
    process, limit = busy.children()[1], resource.RLIMIT_FSIZE
    # Every write to the log fails, as on a full disk.
    resource.prlimit(process, limit, (len(busy.log().encode()), resource.RLIM_INFINITY))
    try:
        with Traffic(busy.port, asks(posterior, 20), threads=3) as traffic:
            traffic.wait_for(30)
    finally:
        resource.prlimit(process, limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
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
    """Close a connection without a farewell."""
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


HOSTILE: dict[str, dict[str, Any]] = {
    "extreme levels": {"percentiles": [10.0 ** -(3 + number / 10) for number in range(100)]},
    "extreme levels from above": {"percentiles": [100.0 - 10.0 ** -(3 + number / 10) for number in range(100)]},
    "all samples": {"samples": 4096, "include": ["mc_error"]},
    "all draws": {"samples": 4096, "include": ["draws"]},
    "thresholds": {"thresholds": [float(number) for number in range(5000)]},
    "huge thresholds": {"thresholds": [1e308, -1e308, 5e-324]},
    "new seed": {"seed": 2**63 - 1, "samples": 4096},
    "everything": {
        "samples": 4096,
        "percentiles": [0.001, 99.999],
        "thresholds": [0.0],
        "include": ["draws", "mc_error"],
        "noise": False,
    },
}


def test_hostile_options_get_finite_numbers_or_a_reason(busy: Service) -> None:
    for name, options in HOSTILE.items():
        response = httpx.post(f"{busy.address}/predict", json={"inputs": [ROW] * 3, **options}, timeout=60.0)
        if response.status_code == 200:
            assert not re.search("null|NaN|Infinity", response.text), name
        else:
            assert (response.status_code, response.headers["content-type"]) == (422, PROBLEM), name


def interleaved(*kinds: list[Any]) -> list[Any]:
    return list(chain.from_iterable(zip(*kinds, strict=True)))


def test_models_options_seeds_and_bad_rows_at_once_change_no_answer(
    busy: Service, posterior: Posterior, rents: Posterior
) -> None:
    mixed = interleaved(
        asks(posterior, 60, "/models/cars/predict", bad=0.2), asks(rents, 60, "/models/rents/predict", bad=0.2, seed=1)
    )
    with Traffic(busy.port, mixed, threads=15) as traffic:
        traffic.wait_for(2 * len(mixed))
    traffic.require()
    assert set(traffic.statuses) == {200, 422}


@pytest.mark.slow
def test_small_requests_are_answered_rightly_amid_hostile_ones(busy: Service, posterior: Posterior) -> None:
    end = time.monotonic() + 20.0

    def attack(number: int) -> set[int]:
        statuses = set()
        with httpx.Client(base_url=busy.address, timeout=120.0) as client:
            while time.monotonic() < end:
                for options in HOSTILE.values():
                    number += 1000
                    body = {"inputs": [ROW] * 20, **options, "seed": number}
                    statuses.add(client.post("/predict", json=body).status_code)
        return statuses

    with ThreadPoolExecutor(4) as threads, Traffic(busy.port, asks(posterior, 30), threads=4) as traffic:
        statuses = set().union(*threads.map(attack, range(4)))
        traffic.wait_for(1)
    traffic.require("refused")
    assert statuses <= {200, 413, 422, 429, 503, 504}


@pytest.mark.slow
def test_one_row_does_not_wait_for_long_work(busy: Service, posterior: Posterior) -> None:
    heavy = {"inputs": [ROW] * 60_000, "samples": 1024, "percentiles": [0.001, 99.999]}
    with ThreadPoolExecutor(1) as threads:
        long = threads.submit(httpx.post, f"{busy.address}/predict", json=heavy, timeout=300.0)
        time.sleep(1.0)
        waits: list[float] = []
        while not long.done() and len(waits) < 10:
            begin = time.monotonic()
            assert httpx.post(f"{busy.address}/predict", json={"inputs": [ROW]}, timeout=120.0).status_code == 200
            waits.append(time.monotonic() - begin)
        assert long.result().status_code in {200, 504}
    assert waits
    assert max(waits) < 2.0


ROWS = 600_000
PARTS = 20
MOST_MEMORY = 320 * 2**20
"""Bytes beyond the idle service: the body, its columns and the answer, of 217 MiB (Arrow) and 251 MiB (CSV)."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("media_type", [ARROW, CSV])
def test_a_large_table_is_answered_rightly_in_bounded_memory(
    media_type: str, trained: Path, posterior: Posterior, tmp_path: Path
) -> None:
    few = records(posterior.schema, ROWS // PARTS)
    part = pa.table(few)
    body = WRITERS[media_type](pa.concat_tables([part] * PARTS).combine_chunks())
    assert len(body) > 16 * 2**20
    exact = posterior.predict(columns_from_table(pa.table(few), posterior.schema), PredictOptions(samples=16))
    waits: list[float] = []
    sizes: list[int] = []
    done = threading.Event()
    with serve(trained.parents[1], tmp_path / "log", request_timeout="300") as service:

        def watch() -> None:
            with httpx.Client(base_url=service.address) as client:
                while not done.wait(0.02):
                    begin = time.monotonic()
                    assert client.get("/healthz").status_code == 200
                    waits.append(time.monotonic() - begin)
                    sizes.append(service.memory())

        service.client.post("/predict?samples=16", content=csv(part.slice(0, 100)), headers={"content-type": CSV})
        before = service.memory()
        watching = threading.Thread(target=watch)
        watching.start()
        try:
            headers = {"content-type": media_type, "accept": ARROW, "accept-encoding": "identity"}
            response = service.client.post("/predict?samples=16", content=body, headers=headers, timeout=300.0)
        finally:
            done.set()
            watching.join()
    answer = read_table(response)
    assert answer.num_rows == ROWS
    assert exact.std is not None
    for name, right in (("mean", exact.mean), ("std", exact.std)):
        given = answer.column(name).to_numpy().reshape(PARTS, -1)
        assert (np.abs(given - right) <= 1e-5 * np.maximum(np.abs(right), exact.std)).all()
    assert waits
    assert max(sizes) - before < MOST_MEMORY
