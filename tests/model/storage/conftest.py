"""A storage for each kind that is tested, and a cache of its own for each test."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from murho.model.storage.cache import CacheOptions
from murho.model.storage.object_store import ObjectStore
from tests.model.storage.s3_server import BUCKET, S3Server, in_environment, s3_server
from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RENTS = ROOT / "tests" / "fixtures" / "checkpoints" / "rents" / "1"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server, in_environment(server.port):
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> CacheOptions:
    return CacheOptions(tmp_path / "cache")


@pytest.fixture
def memory(cache: CacheOptions) -> ObjectStore:
    return ObjectStore(f"memory://{uuid.uuid4().hex}/models", cache)


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest, cache: CacheOptions) -> ObjectStore:
    if request.param == "memory":
        return ObjectStore(f"memory://{uuid.uuid4().hex}/models", cache)
    request.getfixturevalue("server")
    return ObjectStore(f"s3://{BUCKET}/{uuid.uuid4().hex}/models", cache)
