"""Real processes, real S3 behind a proxy that can be down, silent or slow, and emulators of Google's and Azure's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from murho.model.checkpoint.object_storage import ObjectStorage
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.stores import ObjectStore
from tests.e2e.support import MURHO, Service, serve
from tests.e2e.test_versions import refused, version_of
from tests.e2e.traffic import OneRow, offline, wait_until
from tests.model.checkpoint.cloud_servers import CLOUDS, Cloud, cloud_server, in_cloud_environment
from tests.model.checkpoint.s3_server import BUCKET, Proxy, S3Server, in_environment, s3_environment, s3_server
from tests.rents import RENTS, ROWS
from tests.support import ROOT, call_murho

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs" / "kubernetes.md"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server, in_environment(server.port):
        yield server


def loaded(service: Service) -> OneRow:
    """Clients that ask for a row of ``rents`` again and again."""
    mean = float(offline(Posterior.load(RENTS), {"inputs": ROWS[:1]}).mean[0])
    return OneRow(service.address, "rents", ROWS[0], lambda _: mean, clients=2)


def read_object(storage: ObjectStorage, path: str) -> bytes:
    return b"".join(storage.read(path, storage.list()[path].size))


def listed(service: Service) -> bool:
    return "murho_checkpoints_listed 1.0" in service.client.get("/metrics").text


@pytest.mark.parametrize("kind", ["s3", *CLOUDS])
def test_commands_write_to_and_read_from_a_storage(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ExitStack() as stack:
        if kind == "s3":
            request.getfixturevalue("server")
            bucket = f"s3://{BUCKET}"
        else:
            cloud = stack.enter_context(cloud_server(kind, tmp_path))
            stack.enter_context(in_cloud_environment(cloud.environment()))
            bucket = cloud.url
        _write_and_read(f"{bucket}/commands", tmp_path)


def _write_and_read(url: str, tmp_path: Path) -> None:
    cars = ROOT / "examples" / "cars.csv"

    def murho(*words: object, code: int = 0) -> str:
        done = call_murho(*words, "--checkpoints", url, cwd=tmp_path, code=code)
        return done.stdout if code == 0 else done.stderr

    said = murho("train", cars, "--target", "Miles_per_Gallon", "--epochs", 3, "--hidden", 8, "--members", 1)
    assert f"saved {url}/cars/1" in said
    assert f"report: {url}/cars/1/report.html" in said
    assert f"murho serve --checkpoints {url}" in said
    assert b"<html" in read_object(ObjectStorage(url), "cars/1/report.html")
    assert json.loads(murho("evaluate", cars, "--json"))["n"] == 398
    murho("update", "cars", cars, "--epochs", 1)
    murho("prune", "cars", "--fraction", 0.1, "--json")
    assert "cars" in murho("models")
    found: dict[str, Any] = json.loads(murho("models", "--json"))["models"][0]
    assert (found["versions"], found["problem"]) == (["1", "2", "3"], None)
    murho("predict", cars, "--version", "1", "--output", "scored.csv")
    assert len((tmp_path / "scored.csv").read_text().splitlines()) == 407
    murho("report", "cars")
    assert (tmp_path / "cars-report.html").is_file()
    assert "has no version '9'" in murho("predict", cars, "--model", "cars", "--version", "9", code=1)
    shutil.copytree(RENTS, tmp_path / "local" / "rents" / "1")
    call_murho("publish", tmp_path / "local" / "rents" / "1", url, cwd=tmp_path)
    assert [each["name"] for each in json.loads(murho("models", "--json"))["models"]] == ["cars", "rents"]
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_the_page_on_object_storage_works_as_typed(server: S3Server, tmp_path: Path) -> None:
    text = PAGE.read_text().partition("\n## Object storage\n")[2]
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {
        **os.environ,
        **s3_environment(server.port),
        "PATH": f"{MURHO.parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    server.make_bucket("my-bucket")
    typed = re.findall(r"^```(sh|python)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(typed) >= 4
    for language, block in typed:
        if "murho serve" in block:
            assert block.strip().startswith("murho serve --checkpoints s3://my-bucket/models")
            command = block.strip().split()[1:]
            _serve_and_ask([*command, "--port", "0"], environment, tmp_path)
            continue
        if "pip install" in block:
            continue
        program = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else ["python", "-c"]
        done = subprocess.run(
            [*program, block], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, block + done.stdout + done.stderr
    assert {"cars/1/model.json", "cars/2/model.json"} <= set(ObjectStorage("s3://my-bucket/models").list())


def _serve_and_ask(words: list[str], environment: dict[str, str], directory: Path) -> None:
    log = directory / "log"
    with log.open("wb") as file, subprocess.Popen([str(MURHO), *words], stderr=file, env=environment) as process:
        try:
            service = Service(process, log)
            service.wait_for_line("(Ready: )")
            assert version_of(service, "cars") is not None
            service.client.close()
        finally:
            process.kill()


@pytest.fixture(scope="module", params=CLOUDS)
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with (
        cloud_server(request.param, tmp_path_factory.mktemp(request.param)) as cloud,
        in_cloud_environment(cloud.environment()),
    ):
        yield cloud


def test_a_version_is_replaced_a_lie_refused_and_a_cut_network_survived(cloud: Cloud, tmp_path: Path) -> None:
    """Two clients ask all the time; no request is lost or wrong."""
    store = ObjectStore(f"{cloud.url}/served")
    store.publish(RENTS, "rents")
    with Proxy(cloud.port) as proxy:
        environment = cloud.environment(proxy.port)
        with serve(store.place, tmp_path / "log", environment, watch_seconds="0.2") as service:
            with loaded(service) as load:
                wait_until(lambda: load.versions == {"1"})
                store.publish(RENTS, "rents")
                wait_until(lambda: "2" in load.versions, 60)
                store.publish(RENTS, "rents")
                wait_until(lambda: version_of(service, "rents") == "3", 60)
                store.storage.write("rents/3/model.safetensors", b"short")
                wait_until(lambda: "3" in refused(service, "rents"), 60)
                proxy.mode = "down"
                wait_until(lambda: not listed(service), 60)
                assert service.client.get("/readyz").status_code == 200
                proxy.mode = "forwards"
                store.publish(RENTS, "rents")
                wait_until(lambda: "4" in load.versions, 120)
            assert "Traceback" not in service.log()
            assert service.stop() == 0
