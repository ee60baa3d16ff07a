"""`murho serve` as a user starts and ends it: a process of its own, over loopback; signals, and files that run out."""

from __future__ import annotations

import json
import resource
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.service.security import Caller, digest_of
from tests.e2e.support import Service, serve
from tests.e2e.traffic import Traffic, asks, wait_until
from tests.service.support import ROW
from tests.support import ROOT, free_port

HEAVY: dict[str, Any] = {"inputs": [ROW] * 3000, "samples": 256, "percentiles": [5, 50, 95]}
LONG: dict[str, Any] = {"inputs": [ROW] * 60_000, "samples": 1024, "include": ["mc_error"]}
"""Many seconds of work."""


def test_what_the_terminal_says_to_try_works_and_a_signal_ends_it(tiny_cars: Path, tmp_path: Path) -> None:
    with serve(tiny_cars, tmp_path / "log", fresh=True) as service:
        line = service.wait_for_line(r"\n  (curl .*)\n")
        done = subprocess.run(shlex.split(line), check=True, capture_output=True, timeout=30)
        assert json.loads(done.stdout)["model"]["name"] == "cars"
        assert httpx.get(service.wait_for_line(r"API documentation: (\S+)")).status_code == 200
        assert service.stop() == 0
        assert "Stopped." in service.log()


def test_a_signal_while_loading_ends_the_service_with_exit_code_0(tiny_cars: Path, tmp_path: Path) -> None:
    with serve(tiny_cars, tmp_path / "log", fresh=True, ready=False) as service:
        wait_until(lambda: answers(service))
        assert service.stop() == 0


def answers(service: Service) -> bool:
    """Whether the process answers already; its socket listens before."""
    with suppress(httpx.TransportError):
        return service.client.get("/healthz").status_code == 200
    return False


STARTS = """
import json, os, sys
from murho.command_line import main
for words, variables in json.loads(sys.argv[1]):
    sys.argv = ["murho", "serve", *words]
    os.environ |= variables
    try:
        main()
    except SystemExit as ended:
        print(f"exit {ended.code}", file=sys.stderr)
"""


def test_what_can_not_start_says_why_in_one_line(tmp_path: Path) -> None:
    """One process tries all, which imports PyTorch once."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, here = str(taken.getsockname()[1]), ["--checkpoints", str(tmp_path)]
        store = str(tmp_path / "no" / "folder.db")
        wrong: list[tuple[list[str], dict[str, str], str, int]] = [
            ([*here, "--port", port], {}, f"Port {port} of 127.0.0.1 is in use", 1),
            ([*here, "--port", "0", "--device", "cuda"], {"CUDA_VISIBLE_DEVICES": ""}, "--device cuda", 2),
            ([*here, "--port", "0", "--store", store], {}, "can't be opened", 2),
            (
                ["--workers", "2", "--port", "0"],
                {"MURHO_API_KEYS": "a-key-itself"},
                "Line 1 of the API keys is wrong",
                2,
            ),
        ]
        command = [sys.executable, "-c", STARTS, json.dumps([each[:2] for each in wrong])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True, cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "exit "))]
    assert len(lines) == 2 * len(wrong), done.stderr
    assert "Traceback" not in done.stderr
    for (_, _, said, code), error, ended in zip(wrong, lines[::2], lines[1::2], strict=True):
        assert said in error
        assert ended == f"exit {code}"


@pytest.mark.slow
def test_files_that_run_out_are_told_once_and_the_service_recovers(tiny_cars: Path, tmp_path: Path) -> None:
    with serve(tiny_cars, tmp_path / "log") as service:
        assert service.client.get("/healthz").status_code == 200
        process, kind = service.children()[1], resource.RLIMIT_NOFILE
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
        with Traffic(service.port, asks(posterior, 30)) as traffic:
            traffic.wait_for(30)
            assert service.stop() == 0
        assert "Traceback" not in service.log()
    traffic.require("refused", "unreachable")


@contextmanager
def asking(service: Service, body: dict[str, Any], clients: int = 1) -> Iterator[list[httpx.Response]]:
    """Let clients ask the same at once, and wait for their requests to be pending; the list gets their answers."""
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
    with serve(tiny_cars, tmp_path / "log", drain_delay="3") as service, asking(service, HEAVY) as answers:
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: service.client.get("/readyz").status_code == 503)
        assert service.process.wait(30) == 0
    assert [answer.status_code for answer in answers] == [200]


def test_what_takes_longer_than_the_grace_is_answered_503(tiny_cars: Path, tmp_path: Path) -> None:
    with serve(tiny_cars, tmp_path / "log", drain_grace="0.2", max_pending_cost="1000000000") as service:
        with asking(service, LONG) as answers:
            assert service.stop() == 0
        assert "Traceback" not in service.log()
    assert [answer.status_code for answer in answers] == [503]
    assert answers[0].headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_second_signal_ends_the_service_at_once(tiny_cars: Path, tmp_path: Path, number: int) -> None:
    with serve(tiny_cars, tmp_path / "log", max_pending_cost="100000000000") as service:
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
    certify(certificate, key)
    settings: dict[str, Any] = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key), "metrics_port": str(port)}
    keys = Caller("app", digest=digest_of(b"k" * 40)).line()
    with serve(tiny_cars, tmp_path / "log", **settings, workers=workers, api_keys=keys) as service:
        assert service.address.startswith("https://")
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
        check = [sys.executable, "-I", str(ROOT / "scripts" / "container_health.py"), "/readyz"]
        encrypted = {"MURHO_PORT": service.address.rpartition(":")[2], "MURHO_SSL_CERTFILE": str(certificate)}
        for variables in (encrypted, {"MURHO_METRICS_PORT": str(port)}):
            assert subprocess.run(check, env=variables, check=False).returncode == 0
        with pytest.raises(httpx.HTTPError):
            httpx.get(service.address.replace("https", "http"))
        address = ("127.0.0.1", service.port)
        before = ssl.get_server_certificate(address)
        certificate.write_text("half written")
        service.wait_for_line("(can't be used)")
        assert ssl.get_server_certificate(address) == before
        certify(certificate, key)
        wait_until(lambda: all(ssl.get_server_certificate(address) in certificate.read_text() for _ in range(8)))
        assert service.stop() == 0


def test_a_client_that_encrypts_nothing_is_cut_off(tiny_cars: Path, tmp_path: Path) -> None:
    certificate = tmp_path / "both.pem"
    certify(certificate, certificate)
    with serve(tiny_cars, tmp_path / "log", ssl_certfile=str(certificate), header_timeout="0.5") as service:
        for begun in (b"", b"\x16\x03\x01\x02\x00\x01\x00"):
            with socket.create_connection(("127.0.0.1", service.port), timeout=10) as client:
                client.sendall(begun)
                assert client.recv(1) == b""


def certify(certificate: Path, key: Path) -> None:
    """Write a certificate for this machine that signs itself, and its key."""
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, "-keyout", "-", "-out", "-")
    text = subprocess.run(made, check=True, capture_output=True, text=True).stdout
    for file in {certificate, key}:
        file.write_text(text)
