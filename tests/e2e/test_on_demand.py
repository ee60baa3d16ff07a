"""Twelve models and room for three: a real service loads what is asked for, and every answer is the right one."""

from __future__ import annotations

import json
import re
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.support import Service, serve
from tests.e2e.traffic import Traffic, asks, differences, wait_until
from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from murho.model.checkpoint.posterior import Posterior

RENTS = ROOT / "tests" / "fixtures" / "checkpoints" / "rents" / "1"
NAMES = [f"rents-{number:02}" for number in range(12)]
BOUND = 3


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve good models, and one whose tensors were cut."""
    root = tmp_path_factory.mktemp("many")
    for name in [*NAMES, "worn"]:
        shutil.copytree(RENTS, root / name / "1")
    tensors = root / "worn" / "1" / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-8])
    return root


@pytest.fixture(scope="module")
def service(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(root, tmp_path_factory.mktemp("log") / "log", loaded_models=str(BOUND)) as service:
        service.wait_for_line("(Ready: )")
        yield service


def loaded(service: Service) -> set[str]:
    return {each["name"] for each in service.client.get("/models").json()["models"] if each["loaded"]}


def metric(service: Service, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", service.client.get("/metrics").text, re.MULTILINE)
    assert found, name
    return float(found[1])


def test_the_start_reads_one_model_and_names_the_first_ten(service: Service) -> None:
    assert loaded(service) == {"rents-00"}
    said = service.wait_for_line(r"Ready: (.*?)\. Try:")
    assert said.count("rents-") == 10
    assert said.startswith("rents-00 (version 1, predicts ")
    assert said.endswith(" and 3 more")


def test_every_answer_is_the_offline_one_and_the_memory_keeps_its_bound(service: Service, rents: Posterior) -> None:
    """Eight clients go round all models, so that nearly every request evicts one: none is lost or wrong."""
    mixed = [ask for turn, name in enumerate(NAMES) for ask in asks(rents, 4, f"/models/{name}/predict", seed=turn)]
    most = 0
    with Traffic(service.port, mixed, threads=8) as traffic:
        for _ in range(4):
            traffic.wait_for(len(mixed) // 2)
            most = max(most, int(metric(service, "murho_loaded_models")))
    traffic.require()
    assert most <= BOUND + 8
    wait_until(lambda: metric(service, "murho_loaded_models") <= BOUND)
    assert len(loaded(service)) == BOUND
    assert metric(service, "murho_evictions_total") >= len(NAMES) - BOUND


def test_requests_for_one_model_at_the_same_time_load_it_once(service: Service, rents: Posterior) -> None:
    absent = sorted(set(NAMES) - loaded(service))[0]
    before = metric(service, 'murho_loads_total{outcome="loaded"}')
    (ask,) = asks(rents, 1, f"/models/{absent}/predict")
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: httpx.post(service.address + ask.path, json=ask.body), range(8)))
    assert ask.prediction is not None
    assert [differences(answer.json(), ask.prediction) for answer in answers] == [[]] * 8
    assert metric(service, 'murho_loads_total{outcome="loaded"}') == before + 1


def test_a_damaged_model_refuses_itself_alone_until_it_is_mended(
    service: Service, root: Path, rents: Posterior
) -> None:
    (ask,) = asks(rents, 1, "/models/worn/predict")

    def answer() -> httpx.Response:
        return service.client.post(ask.path, json=ask.body)

    before = metric(service, 'murho_loads_total{outcome="failed"}')
    details: set[Any] = {(each.status_code, each.json()["detail"]) for each in [answer() for _ in range(3)]}
    ((status, detail),) = details
    assert status == 404
    assert "worn version 1 was refused" in detail
    assert "model.safetensors" in detail
    assert metric(service, 'murho_loads_total{outcome="failed"}') == before + 1
    assert service.client.post(f"/models/{NAMES[0]}/predict", json=ask.body).status_code == 200
    mended = root / "worn" / "1" / "mended"
    mended.write_bytes((RENTS / "model.safetensors").read_bytes())
    mended.rename(root / "worn" / "1" / "model.safetensors")
    wait_until(lambda: answer().status_code == 200)


def test_a_client_that_leaves_and_one_in_a_hurry_stop_waiting(service: Service, rents: Posterior) -> None:
    """All of them ask for models that are not in memory; the others are answered all the same."""
    (ask,) = asks(rents, 1)
    body = json.dumps(ask.body).encode()
    absent = sorted(set(NAMES) - loaded(service))
    for name in absent:
        with socket.create_connection(("127.0.0.1", service.port)) as leaving:
            head = f"POST /models/{name}/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            leaving.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    hurried = httpx.post(
        f"{service.address}/models/{absent[-1]}/predict", json=ask.body, headers={"x-request-timeout": "0.001"}
    )
    assert hurried.status_code in {200, 504}
    assert service.client.post(f"/models/{absent[0]}/predict", json=ask.body).status_code == 200
    wait_until(lambda: metric(service, "murho_pending_loads") == 0)
    wait_until(lambda: metric(service, "murho_loaded_models") <= BOUND)
