"""Tests of `murho.ray:app` on a local Ray Serve: answers, replicas and rolling updates."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import OptionError
from murho.service.app import create_app
from murho.service.settings import Settings
from tests.e2e.traffic import Traffic, asks, wait_until
from tests.rents import CHECKPOINTS, RENTS
from tests.service.support import AppClient
from tests.support import ROOT, free_port

ROW = {"sqm": 80.0, "rooms": 3, "city": "Bern", "parking": "yes", "listed": "2021-05-01"}


def configuration(checkpoints: Path, **deployment: Any) -> dict[str, Any]:
    """Return that of deploy/ray, with other checkpoints, and what a test sets for the deployment."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "ray" / "serve.yaml").read_text())
    (application,) = found["applications"]
    application["args"] |= {"checkpoints": str(checkpoints), "watch_seconds": 0.2, "log_level": "warning"}
    application["deployments"][0] |= {"ray_actor_options": {"num_cpus": 0.1}, **deployment}
    return found


def deploy(found: dict[str, Any]) -> None:
    """Return what `serve run FILE` does."""
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    _get_global_client().deploy_apps(ServeDeploySchema(**found), _blocking=True)


def two_replicas(checkpoints: Path, **args: Any) -> dict[str, Any]:
    found = configuration(checkpoints, num_replicas=2)
    del found["applications"][0]["deployments"][0]["autoscaling_config"]
    found["applications"][0]["args"] |= args
    return found


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two models."""
    root = tmp_path_factory.mktemp("served")
    shutil.copytree(CHECKPOINTS / "rents", root / "rents")
    shutil.copytree(CHECKPOINTS / "rents", root / "lets")
    return root


@pytest.fixture(scope="module")
def address(local_ray: None) -> Iterator[str]:
    """Return the address of Ray Serve's proxy, with no application so far."""
    from ray import serve

    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config={"enable_access_log": False})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


def test_wrong_settings_are_refused_before_anything_is_deployed() -> None:
    from murho.ray import app

    with pytest.raises(OptionError, match="'max_sample' is no setting"):
        app({"max_sample": 3})
    with pytest.raises(OptionError, match="port is a setting of `murho serve`: here Ray's proxy listens"):
        app({"port": 8001})


def test_the_policy_asks_for_replicas_by_pending_cost() -> None:
    from types import SimpleNamespace

    from murho.ray.pending_cost import METRIC, PendingCost

    policy = PendingCost(row_draws_per_replica=1_000.0)
    busy = SimpleNamespace(aggregated_metrics={METRIC: {"a": 2_500.0, "b": 500.0}}, target_num_replicas=2)
    assert policy(busy) == (3.0, {})
    assert policy(SimpleNamespace(aggregated_metrics={}, target_num_replicas=2)) == (2, {})


@pytest.mark.slow
def test_every_route_answers_as_in_one_process(address: str, checkpoints: Path) -> None:
    deploy(two_replicas(checkpoints))
    with make_client_of(checkpoints) as one, httpx.Client(base_url=address, timeout=60) as many:
        for name in ("rents", "lets"):
            asked = {"inputs": [ROW], "samples": 64, "seed": 5, "thresholds": [1500], "include": ["draws"]}
            expected = one.post(f"/models/{name}/predict", json=asked).json()
            for _ in range(4):  # either replica
                found = many.post(f"/models/{name}/predict", json=asked).json()
                assert list(found) == list(expected)
                for key in ("mean", "std", "epistemic_std", "aleatoric_std", "draws"):
                    np.testing.assert_allclose(found[key], expected[key], rtol=1e-5)
                np.testing.assert_allclose(found["percentiles"]["values"], expected["percentiles"]["values"], rtol=1e-5)
        csv = {
            "content": "sqm,rooms,city,parking,listed\n80,3,Bern,yes,2021-05-01\n",
            "headers": {"content-type": "text/csv"},
        }
        asked_for = "/healthz /readyz /models /models/rents /openapi.json /docs / /v2 /v2/models/rents /nowhere"
        calls: list[tuple[str, str, dict[str, Any]]] = [
            *(("GET", path, {}) for path in asked_for.split()),
            ("POST", "/models/rents/predict?samples=8", csv),
            ("POST", "/models/rents/predict", {"json": {"inputs": [{**ROW, "sqm": "large"}]}}),
            ("POST", "/models/nothing/predict", {"json": {"inputs": [ROW]}}),
            ("POST", "/predict", {"content": b"{", "headers": {"content-type": "application/json"}}),
        ]
        for method, path, how in calls:
            expected, found = one.request(method, path, **how), many.request(method, path, **how)
            assert found.status_code == expected.status_code, path
            assert found.headers["content-type"] == expected.headers["content-type"], path
            if path != "/models/rents" and "predict?" not in path:
                assert without_times(found.text) == without_times(expected.text), path
        assert "murho_" in many.get("/metrics").text


@pytest.mark.slow
def test_a_rolling_update_loses_no_request(address: str, checkpoints: Path) -> None:
    deploy(two_replicas(checkpoints))
    requests = asks(Posterior.load(RENTS), 30, "/models/rents/predict")
    body = {"inputs": [ROW], "samples": 301}
    with Traffic(int(address.rpartition(":")[2]), requests, threads=2) as traffic:
        with httpx.Client(base_url=address, timeout=60) as client:

            def versions() -> set[str]:
                return {client.get("/models/rents").json()["version"] for _ in range(6)}  # of either replica

            # A new version of the model, which replicas load while they answer; then one of the deployment.
            shutil.copytree(RENTS, checkpoints / "rents" / ".2")
            (checkpoints / "rents" / ".2").rename(checkpoints / "rents" / "2")
            wait_until(lambda: versions() == {"2"}, 240.0)
            deploy(two_replicas(checkpoints, max_samples=300))
            wait_until(
                lambda: {client.post("/models/rents/predict", json=body).status_code for _ in range(6)} == {422}, 240.0
            )
        traffic.wait_for(50)
    traffic.require()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")
def test_replicas_come_with_pending_cost_and_go_without(address: str, checkpoints: Path) -> None:
    from ray import serve

    found = configuration(checkpoints)
    scaling = found["applications"][0]["deployments"][0]["autoscaling_config"]
    scaling |= {
        "max_replicas": 2,
        "metrics_interval_s": 0.5,
        "look_back_period_s": 1,
        "upscale_delay_s": 0.5,
        "downscale_delay_s": 1,
    }
    scaling["policy"]["policy_kwargs"] = {"row_draws_per_replica": 1_000}
    deploy(found)

    def replicas() -> int:
        states = serve.status().applications["murho"].deployments["Murho"].replica_states
        return int(states.get("RUNNING", 0))

    wait_until(lambda: replicas() == 1, 240.0)
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=address, timeout=120) as client:
            while not stop.is_set():
                answer = client.post("/models/rents/predict", json={"inputs": [ROW] * 4_000, "samples": 256})
                assert answer.status_code == 200

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        wait_until(lambda: replicas() == 2, 240.0)
    finally:
        stop.set()
        thread.join()
    wait_until(lambda: replicas() == 1, 240.0)


def without_times(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "TIME", text)


@contextmanager
def make_client_of(checkpoints: Path) -> Iterator[AppClient]:
    with AppClient(create_app(Settings(checkpoints=checkpoints, threads=1))) as client:
        yield client
