"""The service over object storage: a bad version is refused, a network that is gone changes nothing that is served."""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from murho.model.checkpoint.checkpoint import CheckpointReference, StoredCheckpoint
from murho.model.checkpoint.stores import DirectoryStore, ObjectStore
from murho.model.errors import CheckpointError, StorageError
from murho.service.app import create_app
from murho.service.errors import NotReadyError
from murho.service.models.loader import Change, Loader, Registry, Swap
from murho.service.models.source import CheckpointSource
from murho.service.models.watcher import Watcher
from murho.service.settings import Settings
from tests.rents import RENTS
from tests.service.support import AppClient, FakeModel, FakeSource


class Watched:
    def __init__(self, seconds: float) -> None:
        self.source = FakeSource(FakeModel())
        self.registry = Registry("here")
        self.changes: list[tuple[list[str], list[str]]] = []
        self.watcher = Watcher(Loader(self.source, self.registry), self.registry, seconds, self._changed)
        self.watcher.load_first()
        self.watcher.start()

    def _changed(self, swap: Swap) -> None:
        self.changes.append((list(swap.before.models), list(swap.after.models)))


@pytest.fixture(params=[0.01])
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    made = Watched(request.param)
    yield made
    assert made.watcher.close(10)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_new_version_is_found_and_told_once(watched: Watched) -> None:
    new = FakeModel(version="2")
    watched.source.found = (new,)
    until(lambda: watched.registry.snapshot.find("cars") is new)
    assert watched.changes[0] == ([], ["cars"])
    until(lambda: len(watched.changes) == 2)
    time.sleep(0.05)
    assert len(watched.changes) == 2


@pytest.mark.parametrize("watched", [0.0], indirect=True)
def test_without_an_interval_it_looks_only_when_asked(watched: Watched) -> None:
    new = FakeModel(version="2")
    watched.source.found = (new,)
    time.sleep(0.05)
    assert watched.registry.snapshot.find("cars") is not new
    watched.watcher.ask(Change()).result(10)
    assert watched.registry.snapshot.find("cars") is new


def test_it_outlives_a_failing_look(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def fail() -> list[object]:
        failed.set()
        raise RuntimeError

    monkeypatch.setattr(watched.source, "list", fail)
    assert failed.wait(10)
    monkeypatch.undo()
    assert "cars" in watched.watcher.ask(Change("cars")).result(10).after.models


def test_after_closing_nothing_is_taken(watched: Watched) -> None:
    assert watched.watcher.close(10)
    with pytest.raises(NotReadyError, match="shutting down"):
        watched.watcher.ask(Change("cars")).result(1)


@pytest.fixture
def version(tmp_path: Path) -> Path:
    directory = tmp_path / "cars" / "1"
    directory.mkdir(parents=True)
    for name in ("model.json", "model.safetensors"):
        (directory / name).write_text("{}")
    return directory


def test_a_directory_that_was_there_and_is_gone_is_an_error(version: Path) -> None:
    root = version.parents[1] / "root"
    (version.parent).rename(root)
    source = CheckpointSource(DirectoryStore(root), "cpu")
    assert len(source.list()) == 1
    root.rename(root.with_name("away"))
    with pytest.raises(CheckpointError, match="is gone"):
        source.list()


def test_a_directory_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    snapshot = Loader(CheckpointSource(DirectoryStore(tmp_path / "file"), "cpu"), Registry("here")).refresh()
    with pytest.raises(NotReadyError, match="file"):
        snapshot.require_models()


def test_a_directory_without_files_is_still_being_written(tmp_path: Path) -> None:
    (tmp_path / "cars" / "1").mkdir(parents=True)
    source = CheckpointSource(DirectoryStore(tmp_path), "cpu")
    assert source.stamp(source.list()[0]) is None
    with pytest.raises(CheckpointError, match=r"model\.json"):
        source.load(source.list()[0])


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_the_stamp_changes_with_either_file(version: Path, name: str) -> None:
    source = CheckpointSource(DirectoryStore(version.parents[1]), "cpu")
    (reference,) = source.list()
    before = source.stamp(reference)
    assert source.stamp(reference) == before
    os.utime(version / name, ns=(1, 1))
    assert source.stamp(reference) != before
    (version / "model.safetensors").unlink()
    assert source.stamp(reference) is not None


def test_the_stamp_follows_a_link(version: Path) -> None:
    root = version.parents[1]
    (root / "cars" / "2").mkdir()
    for name in ("model.json", "model.safetensors"):
        (root / "cars" / "2" / name).write_text("{}")
    link = root / "boats"
    link.symlink_to("cars")
    (version.parent / "3").symlink_to("1")
    source = CheckpointSource(DirectoryStore(root), "cpu")
    third = next(each for each in source.list() if (each.name, each.version) == ("boats", "3"))
    before = source.stamp(third)
    (version.parent / "3").unlink()
    (version.parent / "3").symlink_to("2")
    assert source.stamp(third) != before


def test_facts_of_a_report_are_read_where_a_version_keeps_them(tmp_path: Path) -> None:
    home = tmp_path / "rents" / "1"
    shutil.copytree(RENTS, home)
    source = CheckpointSource(DirectoryStore(tmp_path), "cpu")
    assert source.report_facts(FakeModel()) == {}
    model = source.load(source.list()[0])
    assert source.report_facts(model) == {}
    (home / "report").mkdir()
    (home / "report" / "facts.json").write_text('{"format": 4, "rows_are": "held out"}')
    assert source.report_facts(model) == {"format": 4, "rows_are": "held out"}
    (home / "report" / "facts.json").write_text('{"format": 1')
    assert source.report_facts(model) == {}


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
        watcher = client.state["service"].versions
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
