"""Real processes on the protocols of Google and Azure: publish, list, fetch, serve and replace, with emulators."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from murho.model.checkpoint.object_store import ObjectStore
from tests.e2e.support import serve
from tests.e2e.test_object_storage import Load, listed
from tests.e2e.test_versions import refused, version_of
from tests.e2e.traffic import wait_until as until
from tests.model.checkpoint.cloud_servers import CLOUDS, cloud_server, in_cloud_environment
from tests.model.checkpoint.conftest import RENTS
from tests.model.checkpoint.s3_server import Proxy
from tests.support import ROOT, call_murho

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.model.checkpoint.cloud_servers import Cloud

pytestmark = pytest.mark.slow


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
            service.wait_for_line("(Ready: )")
            with Load(service) as load:
                until(lambda: load.versions == {"1"})
                store.publish(RENTS, "rents")
                until(lambda: "2" in load.versions, 60)
                store.publish(RENTS, "rents")
                until(lambda: version_of(service, "rents") == "3", 60)
                store.storage.write("rents/3/model.safetensors", b"short")
                until(lambda: "3" in refused(service, "rents"), 60)
                proxy.mode = "down"
                until(lambda: not listed(service), 60)
                assert service.client.get("/readyz").status_code == 200
                proxy.mode = "forwards"
                store.publish(RENTS, "rents")
                until(lambda: "4" in load.versions, 120)
            assert "Traceback" not in service.log()
            assert service.stop() == 0


def test_commands_write_and_read(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, cars = f"{cloud.url}/commands", ROOT / "examples" / "cars.csv"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small = ("--epochs", 3, "--hidden", 8, "--members", 1)
    said = call_murho("train", cars, "--target", "Miles_per_Gallon", *small, "--checkpoints", url, cwd=tmp_path).stdout
    assert f"saved {url}/cars/1" in said
    shutil.copytree(RENTS, tmp_path / "local" / "rents" / "1")
    call_murho("publish", tmp_path / "local" / "rents" / "1", url, cwd=tmp_path)
    found = json.loads(call_murho("models", "--checkpoints", url, "--json", cwd=tmp_path).stdout)["models"]
    assert [(each["name"], each["versions"], each["problem"]) for each in found] == [
        ("cars", ["1"], None),
        ("rents", ["1"], None),
    ]
    call_murho("predict", cars, "--model", "cars", "--checkpoints", url, "--output", "scored.csv", cwd=tmp_path)
    assert len((tmp_path / "scored.csv").read_text().splitlines()) == 407
