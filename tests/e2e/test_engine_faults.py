"""An engine that raises, hangs, answers NaN or runs out of memory: the service says so, and goes on afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.faults import EngineFault
from tests.e2e.support import Service, serve
from tests.e2e.traffic import PROBLEM, Traffic, asks, judge, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from murho.model.checkpoint.posterior import Posterior
    from tests.e2e.traffic import Ask

TIMEOUT = 1.5


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> EngineFault:
    return EngineFault(tmp_path_factory.mktemp("fault"))


@pytest.fixture(scope="module")
def started(trained: Path, fault: EngineFault, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    log = tmp_path_factory.mktemp("log") / "log"
    settings = {"request_timeout": str(TIMEOUT)}
    with serve(trained.parents[1], log, fault.environment, fresh=True, **settings) as service:
        service.wait_for_line("(Ready: )")
        yield service


@pytest.fixture
def service(started: Service, fault: EngineFault) -> Iterator[Service]:
    yield started
    fault.set("")


def ask(service: Service, request: Ask) -> httpx.Response:
    return httpx.post(f"{service.address}{request.path}", json=request.body, timeout=30.0)


def sampled(posterior: Posterior) -> list[Ask]:
    """Requests that need the engine's draws."""
    return [ask for ask in asks(posterior, 20) if ask.body["samples"]]


def require_answers_again(service: Service, requests: list[Ask]) -> None:
    def right() -> bool:
        response = ask(service, requests[0])
        return (
            judge(requests[0], response.status_code, response.headers["content-type"], response.content)[0] == "right"
        )

    wait_until(right)
    with Traffic(service.port, requests, threads=3) as traffic:
        traffic.wait_for(len(requests))
    traffic.require()


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [("raise", {500}), ("nan", {500}), ("memory", {500, 503}), ("torch memory", {503})],
)
def test_a_failure_is_told_without_its_insides_and_passes(
    service: Service, fault: EngineFault, posterior: Posterior, kind: str, statuses: set[int]
) -> None:
    requests = sampled(posterior)
    fault.set(kind)
    with ThreadPoolExecutor(4) as threads:
        responses = list(threads.map(lambda request: ask(service, request), requests[:8]))
    assert {response.status_code for response in responses} <= statuses
    for response in responses:
        assert response.headers["content-type"] == PROBLEM
        assert response.json()["detail"]
        for inside in ("a fault of the test", "Traceback", "NaN"):
            assert inside not in response.text
    assert service.client.get("/healthz").status_code == 200
    fault.set("")
    require_answers_again(service, requests)


def test_a_hung_engine_is_504_in_time_and_answers_again_when_it_goes_on(
    service: Service, fault: EngineFault, posterior: Posterior
) -> None:
    requests = sampled(posterior)
    fault.set("hang")
    with ThreadPoolExecutor(4) as threads:  # each waits for its answer 30 seconds at the most
        responses = list(threads.map(lambda request: ask(service, request), requests[:4]))
    assert {response.status_code for response in responses} <= {503, 504}
    assert all(response.json()["detail"] for response in responses)
    assert service.client.get("/healthz", timeout=30.0).status_code in {200, 503}
    fault.set("")
    require_answers_again(service, requests)


@pytest.mark.slow
def test_healthz_tells_that_the_engine_hangs(service: Service, fault: EngineFault, posterior: Posterior) -> None:
    fault.set("hang")
    with ThreadPoolExecutor(1) as threads:
        hung = threads.submit(ask, service, sampled(posterior)[0])
        try:
            wait_until(lambda: service.client.get("/healthz").status_code == 503, seconds=60.0, every=0.5)
        finally:
            fault.set("")
            hung.result()
    wait_until(lambda: service.client.get("/healthz").status_code == 200)


def test_a_slow_engine_fails_nobody_who_would_wait(service: Service, fault: EngineFault, posterior: Posterior) -> None:
    fault.set("slow 0.02")
    with Traffic(service.port, sampled(posterior), threads=6) as traffic:
        traffic.wait_for(20)
    traffic.require("refused")
