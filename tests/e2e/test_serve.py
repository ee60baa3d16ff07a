"""`murho serve` as a user starts and ends it: a process of its own, over loopback; signals, and files that run out."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from murho.service.security import Caller, digest_of
from tests.e2e.support import MURHO, Service, serve
from tests.e2e.traffic import Traffic, asks, wait_until
from tests.service.support import ROW
from tests.support import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from murho.model.checkpoint.posterior import Posterior

HEAVY: dict[str, Any] = {"inputs": [ROW] * 3000, "samples": 256, "percentiles": [5, 50, 95]}
LONG: dict[str, Any] = {"inputs": [ROW] * 60_000, "samples": 1024, "include": ["mc_error"]}
"""Many seconds of work."""


@pytest.fixture(scope="module")
def directory(tiny_cars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one good checkpoint, one with an edited tensor file, and one of a newer format."""
    root = tmp_path_factory.mktemp("serve")
    shutil.copytree(tiny_cars, root / "checkpoints")
    good = root / "checkpoints" / "cars" / "1"
    for name in ("edited", "newer"):
        shutil.copytree(good, root / "checkpoints" / name / "1")
    tensors = root / "checkpoints" / "edited" / "1" / "model.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-3] ^= 1
    tensors.write_bytes(content)
    facts = root / "checkpoints" / "newer" / "1" / "model.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "format": 999}))
    return root / "checkpoints"


@pytest.fixture(scope="module")
def service(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(directory, tmp_path_factory.mktemp("log") / "log", fresh=True) as service:
        service.wait_for_line("(Ready: )")
        yield service


def test_what_the_terminal_says_to_try_works(service: Service) -> None:
    line = service.wait_for_line(r"\n  (curl .*)\n")
    done = subprocess.run(shlex.split(line), check=True, capture_output=True, timeout=30)
    assert json.loads(done.stdout)["model"]["name"] == "cars"
    assert httpx.get(service.wait_for_line(r"API documentation: (\S+)")).status_code == 200


def test_broken_checkpoints_are_refused_by_name_and_the_others_served(service: Service) -> None:
    listed = service.client.get("/models").json()
    assert [model["name"] for model in listed["models"]] == ["cars"]
    refused = {item["name"]: item["reason"] for item in listed["refused"]}
    assert set(refused) == {"edited", "newer"}
    assert "sha256" in refused["edited"]
    assert "999" in refused["newer"]
    assert "Refused edited 1" in service.log()
    response = service.client.post("/models/edited/predict", json={"inputs": [ROW]})
    assert response.status_code == 404
    assert "sha256" in response.json()["detail"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_an_idle_service_with_exit_code_0(directory: Path, tmp_path: Path, number: int) -> None:
    with serve(directory, tmp_path / "log") as service:
        service.wait_for_line("(Ready: )")
        assert service.stop(number) == 0
        assert "Traceback" not in service.log()
        assert "Stopped." in service.log()


def test_a_signal_while_loading_ends_the_service_with_exit_code_0(directory: Path, tmp_path: Path) -> None:
    with serve(directory, tmp_path / "log", fresh=True) as service:
        while True:
            try:
                assert service.client.get("/healthz").status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.01)
        assert service.stop() == 0


def test_a_port_in_use_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [MURHO, "serve", "--checkpoints", tmp_path, "--port", port],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"Port {port} of 127.0.0.1 is in use" in done.stderr


def test_a_gpu_that_is_not_there_is_told(tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command: list[str | Path] = [MURHO, "serve", "--checkpoints", tmp_path, "--port", "0", "--device", "cuda"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode != 0
    assert "--device cuda" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_files_that_run_out_are_told_once_and_the_service_recovers(tiny_cars: Path, tmp_path: Path) -> None:
    with serve(tiny_cars, tmp_path / "log") as service:
        service.wait_for_line("(Ready: )")
        assert service.client.get("/healthz").status_code == 200
        process, kind = service.process.pid, resource.RLIMIT_NOFILE
        soft, hard = resource.prlimit(process, kind)
        resource.prlimit(process, kind, (10, hard))
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", service.port), timeout=5) as dropped:
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


def test_sigterm_under_load_loses_no_request(tiny_cars: Path, posterior: Posterior, tmp_path: Path) -> None:
    with serve(tiny_cars, tmp_path / "log") as service:
        service.wait_for_line("(Ready: )")
        with Traffic(service.port, asks(posterior, 30)) as traffic:
            traffic.wait_for(30)
            assert service.stop() == 0
        assert "Traceback" not in service.log()
    traffic.require("refused", "unreachable")


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


@contextmanager
def asking(service: Service, body: dict[str, Any], clients: int = 1) -> Iterator[list[httpx.Response]]:
    """Lets clients ask the same at once, and waits for their requests to be pending; the list gets their answers."""
    answers: list[httpx.Response] = []

    def ask() -> None:
        with suppress(httpx.TransportError):
            answers.append(httpx.post(f"{service.address}/predict", json=body, timeout=60))

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    pending = f"murho_pending_requests {clients}.0"
    wait_until(lambda: bool(answers) or pending in service.client.get("/metrics").text)
    yield answers
    for thread in threads:
        thread.join(30)


def test_requests_in_flight_are_answered_before_the_service_ends(tiny_cars: Path, tmp_path: Path) -> None:
    # A delay that a busy machine, too, needs no more of to notice the signal and answer.
    with serve(tiny_cars, tmp_path / "log", drain_delay="3") as service:
        service.wait_for_line("(Ready: )")
        with asking(service, HEAVY) as answers:
            service.process.send_signal(signal.SIGTERM)
            wait_until(lambda: service.client.get("/readyz").status_code == 503)
            assert service.process.wait(30) == 0
    assert [answer.status_code for answer in answers] == [200]


def test_what_takes_longer_than_the_grace_is_answered_503(tiny_cars: Path, tmp_path: Path) -> None:
    with serve(tiny_cars, tmp_path / "log", drain_grace="0.2", max_pending_cost="1000000000") as service:
        service.wait_for_line("(Ready: )")
        with asking(service, LONG) as answers:
            assert service.stop() == 0
        assert "Traceback" not in service.log()
    assert [answer.status_code for answer in answers] == [503]
    assert answers[0].headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_second_signal_ends_the_service_at_once(tiny_cars: Path, tmp_path: Path, number: int) -> None:
    with serve(tiny_cars, tmp_path / "log", max_pending_cost="100000000000") as service:
        service.wait_for_line("(Ready: )")
        with asking(service, LONG, clients=4):
            service.process.send_signal(number)
            time.sleep(0.5)
            assert service.process.poll() is None
            begin = time.monotonic()
            assert service.stop(number) == 128 + number
            assert time.monotonic() - begin < 10  # the work that it stops takes much longer
        assert "Stopped at once" in service.log()
        assert "Traceback" not in service.log()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_https_and_a_port_of_its_own_for_machines(tiny_cars: Path, tmp_path: Path, workers: str) -> None:
    certificate, key, port = tmp_path / "cert.pem", tmp_path / "key.pem", free_port()
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, "-keyout", key, "-out", certificate)
    subprocess.run(made, check=True, capture_output=True)
    settings: dict[str, Any] = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key), "metrics_port": str(port)}
    keys = Caller("app", digest=digest_of(b"k" * 40)).line()
    with serve(tiny_cars, tmp_path / "log", **settings, workers=workers, api_keys=keys) as service:
        assert service.address.startswith("https://")
        service.wait_for_line("(Ready: )")
        machines = f"http://127.0.0.1:{port}"
        wait_until(lambda: httpx.get(f"{machines}/readyz").status_code == 200)
        assert "murho_http_requests_total" in httpx.get(f"{machines}/metrics").text
        assert httpx.get(f"{machines}/models").status_code == 404
        assert httpx.post(f"{machines}/predict", json={"inputs": [ROW]}).status_code == 404
        with httpx.Client(verify=ssl.create_default_context(cafile=certificate), base_url=service.address) as secure:
            secure.headers["x-api-key"] = "k" * 40
            assert secure.post("/predict", json={"inputs": [ROW]}).status_code == 200
            assert secure.get("/metrics").status_code == 404
            assert secure.get("/healthz").status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(service.address.replace("https", "http"))
        assert service.stop() == 0
