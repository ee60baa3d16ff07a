"""`python -m benchmarks.client` in small, and the proxy that fails on purpose."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx
import pytest

from benchmarks.client import main
from benchmarks.faulty_proxy import FAULTS, FaultyProxy
from tests.service.support import train_checkpoint
from tests.support import made_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.slow
def test_the_benchmark_loses_no_call_and_answers_none_wrongly(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = made_once(tmp_path_factory, "tiny cars", lambda directory: train_checkpoint(directory, "cars"))
    counts = ["--rows", "300", "--calls", "60", "--rounds", "2"]
    assert main(["--checkpoints", str(made / "checkpoints"), *counts, "--output", str(tmp_path)]) == 0
    assert "60 calls" in capsys.readouterr().out
    measured = json.loads((tmp_path / "client.json").read_text())
    assert (measured["faults"]["lost"], measured["faults"]["wrong"]) == (0, 0), measured["faults"]
    assert sum(measured["faults"]["faults"].values()) >= 60
    assert [item["rows"] for item in measured["big_table"]] == [30, 300]
    assert measured["import"] > 0.0
    assert measured["small_call"]["client"] > 0.0


def test_a_missing_checkpoint_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--checkpoints", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")


class Echo(BaseHTTPRequestHandler):
    """Answers a POST with its own body."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:  # pytest shows stderr of failures
        pass


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a service that answers with what it gets."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_without_faults_the_proxy_forwards_everything(echo: int) -> None:
    with FaultyProxy("127.0.0.1", echo, rate=0.0) as proxy, httpx.Client() as client:
        bodies = [f"{index} {'x' * 1000}" for index in range(20)]
        assert [client.post(proxy.address, content=body).text for body in bodies] == bodies
    assert proxy.counts == {"forwarded": 20}


def test_with_faults_every_kind_comes_and_no_answer_is_another_one(echo: int) -> None:
    outcomes: Counter[str] = Counter()
    with FaultyProxy("127.0.0.1", echo, rate=1.0) as proxy, httpx.Client() as client:
        for index in range(60):
            body = f"{index} {'x' * 1000}"
            try:
                answer = client.post(proxy.address, content=body)
            except httpx.TransportError:
                outcomes["broken"] += 1
            else:
                assert answer.status_code in (429, 503) or answer.text == body
                outcomes[str(answer.status_code)] += 1
    assert set(proxy.counts) == set(FAULTS)
    counts = proxy.counts
    assert outcomes["broken"] == counts["reset before"] + counts["reset after"] + counts["cut body"]
    assert (outcomes["200"], outcomes["429"], outcomes["503"]) == (counts["delay"], counts["429"], counts["503"])
