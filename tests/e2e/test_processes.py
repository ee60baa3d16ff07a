"""One engine and two front ends: the same answers, versions and limits; nothing is lost but what a dead one had."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.service.security import Caller, digest_of, make_key
from tests.e2e.support import Service, serve
from tests.e2e.traffic import Traffic, asks, wait_until
from tests.service.support import ROW
from tests.support import ROOT

KEY, LIMITED = make_key(), make_key()
KEYS = [
    Caller("admin", admin=True, digest=digest_of(KEY.encode())).line(),
    Caller("limited", requests=1.0, digest=digest_of(LIMITED.encode())).line(),
]


def metric_files(service: Service) -> set[str]:
    """Return the files into which front ends and engine write metrics."""
    places = [place for process in service.children() for place in Path(f"/proc/{process}/fd").iterdir()]
    return {name for name in map(os.path.realpath, places) if "murho-metrics-" in name}


def ask(service: Service, path: str = "/predict", key: str = KEY) -> httpx.Response:
    """One prediction on a connection of its own."""
    return httpx.post(service.address + path, json={"inputs": [ROW]}, headers={"x-api-key": key}, timeout=60)


def answered_by(response: httpx.Response) -> str:
    """Which process answered."""
    return response.headers["x-request-id"][:20]


@pytest.fixture(scope="module")
def pair(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two front ends, with keys."""
    root = tmp_path_factory.mktemp("pair")
    shutil.copytree(trained, root / "checkpoints" / "cars" / "1")
    shutil.copytree(ROOT / "tests" / "fixtures" / "checkpoints" / "rents", root / "checkpoints" / "rents")
    with serve(
        *(root / "checkpoints", root / "log"),
        workers="2",
        default_model="cars",
        api_keys=",".join(KEYS),
        open_paths="/metrics",
    ) as service:
        yield service


def test_both_front_ends_answer_and_to_the_same_bits(pair: Service) -> None:
    answers = [ask(pair) for _ in range(24)]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answered_by(answer) for answer in answers}) == 2
    assert len({answer.content for answer in answers}) == 1


def test_what_one_request_unloads_or_loads_is_so_everywhere_at_once(pair: Service) -> None:
    for change, status in (("unload", 404), ("load", 422), ("unload", 404), ("load", 422)):
        answer = httpx.post(f"{pair.address}/models/rents/{change}", headers={"x-api-key": KEY}, timeout=60)
        assert answer.status_code == 200, answer.text
        answers = [ask(pair, "/models/rents/predict") for _ in range(16)]  # a row of cars, which rents refuses
        assert {answer.status_code for answer in answers} == {status}
        assert len({answered_by(answer) for answer in answers}) == 2
    answer = httpx.post(f"{pair.address}/models/nobody/load", headers={"x-api-key": KEY}, timeout=60)
    assert answer.status_code == 404


def test_a_new_version_comes_everywhere(pair: Service, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "boats" / "1")
    root = Path(pair.wait_for_line(r"checkpoints of (\S+) on"))
    (tmp_path / "boats").rename(root / "boats")
    wait_until(lambda: ask(pair, "/models/boats/predict").status_code == 200)
    wait_until(lambda: {ask(pair, "/models/boats/predict").status_code for _ in range(12)} == {200})


def test_a_limit_of_a_key_holds_over_all_front_ends(pair: Service) -> None:
    begin = time.monotonic()
    answers = [ask(pair, key=LIMITED) for _ in range(40)]
    assert len({answered_by(answer) for answer in answers if answer.status_code == 200}) == 2
    taken = sum(answer.status_code == 200 for answer in answers)
    assert 10 <= taken <= 10 + (time.monotonic() - begin) + 1
    assert {answer.status_code for answer in answers} == {200, 429}


def test_metrics_and_health_are_of_all_front_ends(pair: Service) -> None:
    def rows() -> float:
        text = httpx.get(f"{pair.address}/metrics").text
        lines = [line for line in text.splitlines() if line.startswith('murho_rows_total{model="cars"')]
        return float(lines[0].rpartition(" ")[2])

    before = rows()
    assert len({answered_by(ask(pair)) for _ in range(20)}) == 2
    assert {rows() for _ in range(10)} == {before + 20}
    for path in ("/healthz", "/readyz"):
        assert {httpx.get(pair.address + path).status_code for _ in range(10)} == {200}


@pytest.mark.slow
def test_a_killed_front_end_loses_its_own_requests_and_is_replaced_and_sigterm_drains_all(
    trained: Path, posterior: Posterior, tmp_path: Path
) -> None:
    with serve(trained.parents[1], tmp_path / "log", workers="2") as service:
        before, files = service.children(), metric_files(service)
        with Traffic(service.port, asks(posterior, 30), threads=8) as traffic:
            traffic.wait_for(30)
            os.kill(before[1], signal.SIGKILL)
            wait_until(lambda: len(set(service.children()) - set(before)) == 1)
            lost = traffic.outcomes["lost"]
            traffic.wait_for(100)
            assert traffic.outcomes["lost"] == lost, traffic.faults  # nothing after its death
        assert lost <= 2 * 8, traffic.faults
        traffic.require("lost")
        assert f'"pid":{before[1]},"code":-9' in service.log()
        wait_until(lambda: len({answered_by(ask(service)) for _ in range(12)}) == 2)
        assert files
        assert metric_files(service) == files  # the new one writes where the dead one did
        assert "murho_worker_deaths_total 1.0" in httpx.get(f"{service.address}/metrics").text
        processes = service.children()
        with Traffic(service.port, asks(posterior, 30)) as traffic:
            traffic.wait_for(30)
            assert service.stop() == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in processes)
        assert "Traceback" not in service.log()
    traffic.require("refused", "unreachable")


def test_while_a_killed_engine_is_started_again_every_request_has_an_answer(
    trained: Path, posterior: Posterior, tmp_path: Path
) -> None:
    with serve(trained.parents[1], tmp_path / "log", workers="2") as service:
        engine, *front_ends = service.children()
        with Traffic(service.port, asks(posterior, 30), threads=8) as traffic:
            traffic.wait_for(30)
            os.kill(engine, signal.SIGKILL)
            wait_until(lambda: traffic.outcomes["refused"] > 0)
            assert httpx.get(f"{service.address}/healthz").status_code == 200
            answer = ask(service)
            assert answer.status_code in {200, 503}
            assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1
            wait_until(lambda: ask(service).status_code == 200)
            right = traffic.outcomes["right"]
            wait_until(lambda: traffic.outcomes["right"] > right + 50)
        traffic.require("refused")
        assert set(front_ends) < set(service.children())
        assert f'"process":"engine","pid":{engine},"code":-9' in service.log()
        assert service.log().count("Ready: ") == 1
        assert service.stop() == 0


@pytest.mark.slow
def test_all_end_with_their_supervisor(trained: Path, tmp_path: Path) -> None:
    with serve(trained.parents[1], tmp_path / "log", workers="2") as service:
        processes = service.children()
        service.process.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in processes))
