"""`murho serve` as a user starts it: a process of its own, over loopback."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.support import MURHO, Service, serve
from tests.e2e.traffic import wait_until
from tests.service.support import ROW, train_checkpoint
from tests.support import made_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAVY: dict[str, Any] = {"inputs": [ROW] * 3000, "samples": 256, "percentiles": [5, 50, 95]}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one good checkpoint, one with an edited tensor file, and one of a newer format."""
    made = made_once(tmp_path_factory, "tiny cars", lambda directory: train_checkpoint(directory, "cars"))
    root = tmp_path_factory.mktemp("serve")
    shutil.copytree(made / "checkpoints", root / "checkpoints")
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
def service(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(checkpoints, tmp_path_factory.mktemp("log") / "log", fresh=True) as service:
        service.wait_for_line("(Ready: )")
        yield service


def predict(service: Service, request: dict[str, Any]) -> dict[str, Any]:
    response = service.client.post("/predict", json=request)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_a_ready_service_answers_with_error_bars(service: Service) -> None:
    assert service.client.get("/readyz").status_code == 200
    answer = predict(service, {"inputs": [ROW], "seed": 7, "thresholds": [20.0]})
    assert answer["model"] == {"name": "cars", "version": "1"}
    std, epistemic, aleatoric = (answer[key][0] for key in ("std", "epistemic_std", "aleatoric_std"))
    assert std**2 == pytest.approx(epistemic**2 + aleatoric**2)
    assert answer["percentiles"]["values"][0] == sorted(answer["percentiles"]["values"][0])
    assert 0.0 <= answer["exceedance"]["values"][0][0] <= 1.0


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


def test_without_draws_the_answer_is_the_same_at_every_call(service: Service) -> None:
    answers = [predict(service, {"inputs": [ROW], "samples": 0}) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["std"] is answers[0]["percentiles"] is None


def test_concurrent_requests_give_the_same_answers_as_single_ones(service: Service) -> None:
    rows = [{**ROW, "Weight": 1000.0 + 40.0 * index} for index in range(40)]
    options = {"seed": 3, "samples": 64}
    alone = [predict(service, {"inputs": [row], **options}) for row in rows]
    together = predict(service, {"inputs": rows, **options})
    with ThreadPoolExecutor(16) as threads:
        concurrent = list(threads.map(lambda row: predict(service, {"inputs": [row], **options}), rows))
    for index in range(len(rows)):
        for key in ("mean", "std", "epistemic_std"):
            tolerance = 1e-5 * max(abs(alone[index][key][0]), alone[index]["std"][0])
            assert concurrent[index][key][0] == pytest.approx(alone[index][key][0], abs=tolerance)
            assert together[key][index] == pytest.approx(alone[index][key][0], abs=tolerance)


def test_the_page_and_what_it_draws_are_served(service: Service) -> None:
    assert "<main" in service.client.get("/").text
    shown = service.client.get("/models/cars/overview").json()
    assert shown["target"]["name"] == "Consumption"
    # Trainings note the distribution of their targets.
    assert sum(shown["target"]["histogram"]["counts"]) == pytest.approx(shown["training"]["rows"], abs=0.5)
    assert all(feature["histogram"] or feature["levels"] for feature in shown["features"])


def test_a_body_above_the_limit_is_413_also_when_it_is_sent_whole(service: Service) -> None:
    response = service.client.post("/predict", content=b" " * (65 * 2**20))
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_an_idle_service_with_exit_code_0(checkpoints: Path, tmp_path: Path, number: int) -> None:
    with serve(checkpoints, tmp_path / "log", fresh=True) as service:
        service.wait_for_line("(Ready: )")
        assert service.stop(number) == 0
        assert "Traceback" not in service.log()
        assert "Stopped." in service.log()


def test_a_signal_while_loading_ends_the_service_with_exit_code_0(checkpoints: Path, tmp_path: Path) -> None:
    with serve(checkpoints, tmp_path / "log", fresh=True) as service:
        while True:
            try:
                assert service.client.get("/healthz").status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.01)
        assert service.stop() == 0


def test_requests_in_flight_are_answered_before_the_service_ends(checkpoints: Path, tmp_path: Path) -> None:
    answers: list[httpx.Response] = []
    # A delay that a busy machine, too, needs no more of to notice the signal and answer.
    with serve(checkpoints, tmp_path / "log", drain_delay="3") as service:
        service.wait_for_line("(Ready: )")
        request = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{service.address}/predict", json=HEAVY, timeout=60))
        )
        request.start()
        while "murho_pending_requests 1.0" not in service.client.get("/metrics").text and not answers:
            time.sleep(0.01)
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: service.client.get("/readyz").status_code == 503)
        assert service.process.wait(30) == 0
        request.join(30)
    assert [answer.status_code for answer in answers] == [200]


def test_what_takes_longer_than_the_grace_is_answered_503(checkpoints: Path, tmp_path: Path) -> None:
    answers: list[httpx.Response] = []
    request = {"inputs": [ROW] * 100_000, "samples": 4096}
    with serve(checkpoints, tmp_path / "log", drain_grace="0.2", max_pending_cost="1000000000") as service:
        service.wait_for_line("(Ready: )")
        thread = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{service.address}/predict", json=request, timeout=60))
        )
        thread.start()
        while "murho_pending_requests 1.0" not in service.client.get("/metrics").text and not answers:
            time.sleep(0.01)
        assert service.stop() == 0
        thread.join(30)
        assert "Traceback" not in service.log()
    assert [answer.status_code for answer in answers] == [503]
    assert answers[0].headers["content-type"] == "application/problem+json"


def test_without_a_checkpoint_the_service_is_alive_and_says_what_to_do(tmp_path: Path) -> None:
    with serve(tmp_path / "nothing", tmp_path / "log", fresh=True) as service:
        service.wait_for_line("(Not ready: )")
        assert service.client.get("/healthz").status_code == 200
        response = service.client.get("/readyz")
        assert response.status_code == 503
        assert "murho train DATA --target COLUMN" in response.json()["detail"]
        assert "murho train DATA --target COLUMN" in service.log()
        assert service.client.get("/").status_code == 200


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
