"""Signals under load: every accepted request is answered rightly, or refused with a reason."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.faults import EngineFault
from tests.e2e.support import Service, serve
from tests.e2e.traffic import Traffic, asks

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.checkpoint.posterior import Posterior


@pytest.fixture(scope="module")
def terminated(trained: Path, posterior: Posterior, tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    """What came of the requests to a service that was told to stop."""
    with serve(trained.parents[1], tmp_path_factory.mktemp("terminated") / "log") as service:
        service.wait_for_line("(Ready: )")
        with Traffic(service.port, asks(posterior, 30)) as traffic:
            traffic.wait_for(30)
            assert service.stop() == 0
        assert "Traceback" not in service.log()
    return traffic


def test_sigterm_under_load_answers_nothing_wrongly(terminated: Traffic) -> None:
    terminated.require("refused", "unreachable", "lost")


def test_sigterm_under_load_loses_no_request(terminated: Traffic) -> None:
    terminated.require("refused", "unreachable")


def test_a_stopped_process_goes_on_where_it_was(busy: Service, posterior: Posterior) -> None:
    with Traffic(busy.port, asks(posterior, 30)) as traffic:
        for _ in range(3):
            traffic.wait_for(10)
            busy.process.send_signal(signal.SIGSTOP)
            time.sleep(0.3)
            busy.process.send_signal(signal.SIGCONT)
        traffic.wait_for(10)
    assert busy.client.get("/healthz").status_code == 200
    traffic.require("refused")


@pytest.mark.slow
def test_a_killed_service_starts_again_and_answers_the_same(own: Path, posterior: Posterior, tmp_path: Path) -> None:
    requests = asks(posterior, 40)
    with serve(own, tmp_path / "log") as service:
        service.wait_for_line("(Ready: )")
        port = service.port
        with Traffic(port, requests) as traffic:
            traffic.wait_for(50)
            service.process.kill()
            service.process.wait(30)
        traffic.require("lost", "unreachable")
    with serve(own, tmp_path / "log", port=str(port)) as again:
        again.wait_for_line("(Ready: )")
        with Traffic(again.port, requests) as traffic:
            traffic.wait_for(50)
    traffic.require()


@pytest.mark.slow
def test_a_second_sigterm_stops_at_once(own: Path, posterior: Posterior, tmp_path: Path) -> None:
    fault = EngineFault(tmp_path / "fault")
    with serve(own, tmp_path / "log", fault.environment, fresh=True) as service:
        service.wait_for_line("(Ready: )")
        with Traffic(service.port, asks(posterior, 8), timeout=30.0) as traffic:
            traffic.wait_for(8)
            fault.set("hang")
            time.sleep(0.5)
            service.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            begin = time.monotonic()
            service.stop()
            assert time.monotonic() - begin < 5.0
    assert not traffic.outcomes["wrong"]
