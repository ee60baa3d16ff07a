"""Load by wrk on servers that misbehave, the claims, and the commands in small."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import service
from benchmarks.scale import Costs, PodAutoscaler, open_loop
from tests.service.support import train_checkpoint
from tests.support import made_once

Answer = Callable[[int], bytes | None]

needs_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk")


def test_claims_are_of_the_same_rounds_and_say_whether_they_are_met() -> None:
    def rounds(*rates: float) -> list[dict[str, float]]:
        return [{"rate": rate} for rate in rates]

    rates = {
        "Murho, 1 worker": rounds(480, 76),
        "Murho, 2 workers": rounds(400, 40),
        service.ROUTE: rounds(600, 100),
        "litserve, 1": rounds(100, 20),
        "mlserver, 1": rounds(150, 10),
    }
    overload = {"rate": 95.0, "capacity": 100.0, "refusal": 0.021, "lost": 0, "memory": [100, 104]}
    found = {
        "rates": rates,
        "one_connection": [{"latency": 2.0, "engine": 1.0, "route": 1.0}],
        "half_load": [{"p50": 1.0, "p99": 3.0}],
        "overload": overload | {"healthz": 0.05, "recovery": None},
        "memory": {"1": 100, "2": 160},
    }
    claims = {said: (value, met) for said, value, _, met in service.claims_of(found)}
    assert claims["32 connections, 1 worker: to the FastAPI route"] == ("0.78", "yes")
    assert claims["32 connections, 1 worker: to the better of LitServe and MLServer with as many"] == ("4.30", "yes")
    assert claims["32 connections, 2 workers: to the FastAPI route"] == ("0.53", "no")
    assert claims["1 connection: latency, to Posterior.predict and the route together"] == ("1.00", "yes")
    assert claims["3 x overload: answers, to what it can do"] == ("0.95", "yes")
    assert claims["3 x overload: median time of a refusal, ms"] == ("21", "no")
    assert claims["3 x overload: as fast as before after, s"] == ("inf", "no")
    assert claims["10 models: memory of two front ends to one"] == ("1.60", "no")


@pytest.fixture
def cars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = made_once(tmp_path_factory, "tiny cars", lambda directory: train_checkpoint(directory, "cars"))
    return made / "checkpoints"


@needs_wrk
@pytest.mark.slow
def test_the_benchmark_of_the_service_runs(cars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--rounds", "1", "--seconds", "1", "--overload-seconds", "2", "--workers", "1", "--systems", ""]
    assert service.main(["--checkpoints", str(cars), *small, "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "Murho, 1 worker" in said
    assert "3 x overload: as fast as before after, s" in said
    measured = json.loads((tmp_path / "results.jsonl").read_text())
    assert all(done["lost"] == done["not_200"] == 0 for of in measured["rates"].values() for done in of)
    assert measured["overload"]["lost"] == 0
    assert measured["memory"]["1"] > 50 << 20


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_single_requests_wait_as_pollaczek_and_khinchine_say(share: float) -> None:
    """M/D/1 with service s: the mean wait is ``load s / (2 (1 - load))``."""
    outcome = open_loop(Costs(fixed=0.004, each=0.006, largest=1), lambda _: share / 0.01, 400.0)
    assert np.mean(outcome.latencies) - 0.01 == pytest.approx(share * 0.01 / (2.0 * (1.0 - share)), rel=0.1)


def test_the_autoscaler_follows_the_rule_of_kubernetes() -> None:
    scaler = PodAutoscaler(target=4.0)
    assert scaler(0.0, [4, 4]) == 2
    assert scaler(15.0, [4, 4, 5]) == 3  # within the tolerance
    assert scaler(45.0, [40] * 10) == 20  # at most twice as many at a time
    assert scaler(60.0, [0] * 20) == 20  # 20 were wanted within five minutes
    assert scaler(400.0, [0] * 20) == 1
