"""The service over object storage: a bad version is refused, a network that is gone changes nothing that is served."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from murho.model.checkpoint.object_store import ObjectStore
from murho.model.checkpoint.stores import store_at
from murho.model.errors import StorageError
from murho.service.app import create_app
from murho.service.models.loader import Change, Loader, Registry
from murho.service.models.watcher import CheckpointSource, seconds_between_looks
from murho.service.settings import Settings
from tests.service.support import AppClient
from tests.support import ROOT

RENTS = ROOT / "tests" / "fixtures" / "checkpoints" / "rents" / "1"

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.checkpoint.checkpoint import CheckpointReference, StoredCheckpoint


class Bench:
    """A storage in memory, and a loader of what is in it."""

    def __init__(self) -> None:
        self.store = ObjectStore(f"memory://{uuid.uuid4().hex}/models")
        self.source = CheckpointSource(self.store, "cpu")
        self.registry = Registry("here")
        self.loader = Loader(self.source, self.registry)
        self.publish()

    def publish(self) -> None:
        self.store.publish(RENTS, "rents")

    def look(self) -> None:
        self.loader.refresh(retry=False, patient=True)

    def served(self) -> list[str]:
        model = self.registry.snapshot.models.get("rents")
        return [] if model is None else list(model.versions)

    def refused(self) -> dict[str, str]:
        return {item.version: item.reason for item in self.registry.snapshot.refused}


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.look()
    return bench


def test_a_version_that_lies_is_refused_and_serves_once_it_is_restored(bench: Bench) -> None:
    bench.publish()
    path = "rents/2/model.safetensors"
    good = (RENTS / "model.safetensors").read_bytes()
    bench.store.storage.write(path, b"x" + good[1:])
    bench.look()
    bench.look()  # the first look gives a version time that is perhaps being replaced
    assert bench.served() == ["1"]
    assert "sha256 is" in bench.refused()["2"]
    assert bench.store.storage.address(path) in bench.refused()["2"]
    bench.store.storage.write(path, good)
    bench.look()
    assert (bench.served(), bench.refused()) == (["2"], {})


def test_what_cannot_be_fetched_now_is_told_at_once_and_tried_at_every_look(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.publish()
    tried = []

    def fail(reference: CheckpointReference) -> StoredCheckpoint:
        tried.append(reference.version)
        raise StorageError("no answer within 30 s")

    with monkeypatch.context() as broken:
        broken.setattr(bench.store, "fetch", fail)
        for _ in range(3):
            bench.look()
            assert (bench.served(), bench.refused()) == (["1"], {"2": "no answer within 30 s"})
    assert tried == ["2"] * 3
    bench.look()
    assert (bench.served(), bench.refused()) == (["2"], {})


def test_a_storage_that_is_gone_leaves_what_is_served(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: str = "") -> dict[str, Any]:
        raise StorageError("memory:// can't be listed: Connection refused")

    with monkeypatch.context() as broken:
        broken.setattr(bench.store.storage, "list", fail)
        for _ in range(3):
            bench.look()
            assert bench.served() == ["1"]
            assert bench.registry.snapshot.unreachable
            assert bench.refused() == {"": "memory:// can't be listed: Connection refused"}
    bench.publish()
    bench.look()
    assert (bench.served(), bench.refused()) == (["2"], {})
    assert not bench.registry.snapshot.unreachable


def test_the_setting_decides_by_the_url(tmp_path: Path) -> None:
    directory = Settings(checkpoints=tmp_path)
    assert CheckpointSource(store_at(directory.checkpoints), "cpu").place == str(tmp_path)
    assert seconds_between_looks(directory) == 1.0
    stored = Settings(checkpoints="memory://bucket/models/")
    assert CheckpointSource(store_at(stored.checkpoints), "cpu").place == "memory://bucket/models"
    assert seconds_between_looks(stored) == 10.0
    assert seconds_between_looks(Settings(watch_seconds=0)) == 0.0


def test_a_url_with_a_password_is_no_setting() -> None:
    with pytest.raises(ValueError, match="has a password") as refused:
        Settings(checkpoints="sftp://me:secret@host/models")
    assert "secret@" not in str(refused.value).partition("[type=")[0]


def test_metrics_models_and_readiness_tell_of_a_storage_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    settings = Settings(watch_seconds=0, log_level="error")
    with AppClient(create_app(settings, source=bench.source)) as client:
        client.wait_until_loaded()
        watcher = client.state["parts"].watcher
        assert "murho_checkpoints_listed 1.0" in client.get("/metrics").text
        monkeypatch.setattr(bench.source, "list", _gone)
        watcher.ask(Change()).result(20)
        assert "murho_checkpoints_listed 0.0" in client.get("/metrics").text
        assert client.get("/readyz").status_code == 200
        models = client.get("/models").json()
        assert [model["name"] for model in models["models"]] == ["rents"]
        assert models["refused"] == [{"name": "", "version": "", "reason": "the storage is gone"}]
        monkeypatch.undo()
        watcher.ask(Change()).result(20)
        assert "murho_checkpoints_listed 1.0" in client.get("/metrics").text
        assert client.get("/models").json()["refused"] == []


def _gone(*_: object, **__: object) -> list[CheckpointReference]:
    raise StorageError("the storage is gone")
