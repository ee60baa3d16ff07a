"""A storage for each kind that is tested."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from murho.model.checkpoint.stores import ObjectStore
from tests.model.checkpoint.cloud_servers import CLOUDS, Cloud, cloud_server, in_cloud_environment
from tests.model.checkpoint.s3_server import BUCKET, S3Server, in_environment, s3_server
from tests.support import ROOT

RENTS = ROOT / "tests" / "fixtures" / "checkpoints" / "rents" / "1"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server, in_environment(server.port):
        yield server


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's directory of caches, where what can't be published is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches"


@pytest.fixture
def memory() -> ObjectStore:
    return ObjectStore(f"memory://{uuid.uuid4().hex}/models")


@pytest.fixture(scope="module")
def gs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_server("gs", tmp_path_factory.mktemp("gs")) as cloud, in_cloud_environment(cloud.environment()):
        yield cloud


@pytest.fixture(scope="module")
def az(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_server("az", tmp_path_factory.mktemp("az")) as cloud, in_cloud_environment(cloud.environment()):
        yield cloud


@pytest.fixture(params=["memory", "s3", *(pytest.param(kind, marks=pytest.mark.slow) for kind in CLOUDS)])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    if request.param == "memory":
        return ObjectStore(f"memory://{uuid.uuid4().hex}/models")
    if request.param in CLOUDS:
        cloud: Cloud = request.getfixturevalue(request.param)
        return ObjectStore(f"{cloud.url}/{uuid.uuid4().hex}/models")
    request.getfixturevalue("server")
    return ObjectStore(f"s3://{BUCKET}/{uuid.uuid4().hex}/models")
