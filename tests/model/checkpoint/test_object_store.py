"""What is fetched is what was published, or it is refused by name: over memory and over a real S3 server."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from murho.model.checkpoint.checkpoint import read_stored
from murho.model.checkpoint.object_store import ObjectStore
from murho.model.errors import CheckpointError, OptionError, StorageError
from tests.model.checkpoint.cloud_servers import CLOUDS, in_cloud_environment
from tests.model.checkpoint.conftest import RENTS
from tests.model.checkpoint.s3_server import BUCKET, Proxy, in_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.model.checkpoint.cloud_servers import Cloud
    from tests.model.checkpoint.s3_server import S3Server

TENSORS = "rents/1/model.safetensors"


FACTS = "rents/1/model.json"


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_what_was_published_is_listed_and_found(store: ObjectStore) -> None:
    assert store.list() == []
    assert [store.publish(RENTS, "rents").version for _ in range(2)] == ["1", "2"]
    assert [(each.name, each.version) for each in store.list()] == [("rents", "1"), ("rents", "2")]
    found = store.find("rents")
    assert found.parts[-2:] == ("rents", "2")
    assert contents(found) == contents(RENTS)
    assert store.read(store.list()[0], "model.json") == (RENTS / "model.json").read_bytes()
    with pytest.raises(CheckpointError, match=r"has no checkpoint 'cars'; there are: rents"):
        store.find("cars")
    with pytest.raises(CheckpointError, match="no version '3'; there are: 1, 2"):
        store.find("rents", "3")


def test_what_was_written_is_read(store: ObjectStore) -> None:
    stored = read_stored(RENTS)
    spec, tensors = stored.spec, stored.tensors
    store.check_writable("rents")
    written = store.write("rents", spec, tensors, extras={"report.html": b"page", "report/facts.json": b"{}"})
    assert written.report == f"{store.place}/rents/1/report.html"
    found = store.find("rents")
    assert (found / "report" / "facts.json").read_bytes() == b"{}"
    again = read_stored(found).spec
    assert again.to_json() == spec.to_json()


def test_a_copy_stays_as_long_as_its_store(memory: ObjectStore) -> None:
    memory.publish(RENTS, "rents")
    other = ObjectStore(memory.place)
    found = other.find("rents")
    assert found.is_dir()
    del other
    gc.collect()
    assert not found.exists()


def test_a_version_without_its_manifest_is_not_there_yet(store: ObjectStore) -> None:
    store.publish(RENTS, "rents")
    store.storage.write("rents/2/model.safetensors", (RENTS / "model.safetensors").read_bytes())
    assert [each.version for each in store.list()] == ["1"]
    with pytest.raises(CheckpointError, match="no version '2'; there are: 1"):
        store.find("rents", "2")
    store.storage.write("rents/2/model.json", (RENTS / "model.json").read_bytes())
    assert store.find("rents").name == "2"


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # of aiohttp, to gcsfs and adlfs
@pytest.mark.parametrize("lie", ["cut", "changed", "missing", "manifest cut", "manifest empty", "manifest changed"])
def test_a_version_that_is_not_as_its_manifest_says_is_refused(store: ObjectStore, lie: str) -> None:
    store.publish(RENTS, "rents")
    content, manifest = (RENTS / "model.safetensors").read_bytes(), (RENTS / "model.json").read_bytes()
    if lie == "missing":
        store.storage.remove(TENSORS)
    elif lie.startswith("manifest"):
        other = manifest.replace(b'"seed":', b'"sead":', 1)
        changed = {"cut": manifest[:-9], "empty": b"", "changed": other}[lie.split()[1]]
        store.storage.write(FACTS, changed)
    else:
        store.storage.write(TENSORS, content[:-1] if lie == "cut" else b"x" + content[1:])
    said = {"changed": "sha256 is"}.get(lie, r"model\.json" if lie.startswith("manifest") else r"model\.safetensors")
    before = store.list()
    with pytest.raises(CheckpointError, match=said) as refused:
        store.fetch(before[0])
    assert store.place in str(refused.value)
    assert not isinstance(refused.value, StorageError)
    stamp = store.stamp(before[0])
    store.storage.write(TENSORS, content)
    store.storage.write(FACTS, manifest)
    (reference,) = store.list()
    assert store.stamp(reference) != stamp
    store.fetch(reference)


def test_an_object_that_changes_after_the_listing_is_refused_by_its_hash(store: ObjectStore) -> None:
    store.publish(RENTS, "rents")
    (reference,) = store.list()
    store.storage.write(TENSORS, b"short")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        store.fetch(reference)


def test_a_version_that_is_no_longer_listed_is_told(memory: ObjectStore) -> None:
    memory.publish(RENTS, "rents")
    (reference,) = memory.list()
    memory.storage.remove(FACTS)
    assert memory.list() == []
    assert memory.stamp(reference) is None
    with pytest.raises(CheckpointError, match="rents/1 is not there any more"):
        memory.fetch(reference)


def test_no_more_bytes_are_read_than_a_file_may_have(memory: ObjectStore) -> None:
    memory.publish(RENTS, "rents")
    (reference,) = memory.list()
    with pytest.raises(CheckpointError, match=r"rents/1/model\.json: it has .* 0 to 100 are expected"):
        memory.read(reference, "model.json", 100)


def test_a_bucket_that_is_not_there_is_told(server: S3Server) -> None:
    with pytest.raises(CheckpointError, match="no such object or bucket"):
        ObjectStore("s3://nowhere/models").list()


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLOUDS)
def test_a_bucket_of_another_cloud_that_is_not_there_is_told(request: pytest.FixtureRequest, kind: str) -> None:
    """Azure's library lists nothing then; a service would take all its versions for deleted."""
    cloud: Cloud = request.getfixturevalue(kind)
    assert ObjectStore(f"{cloud.url}/empty").list() == []
    with pytest.raises(CheckpointError, match="no such object or bucket"):
        ObjectStore(f"{kind}://nowhere/models").list()


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLOUDS)
def test_a_cut_network_is_told_and_works_again_later(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud: Cloud = request.getfixturevalue(kind)
    with Proxy(cloud.port) as proxy, in_cloud_environment(cloud.environment(proxy.port)):
        store = ObjectStore(f"{cloud.url}/cut")
        store.publish(RENTS, "rents")
        proxy.mode = "down"
        with monkeypatch.context() as patience:
            patience.setattr(store.storage, "seconds", 1.0)
            with pytest.raises(StorageError, match=f"{cloud.url}/cut can't be listed"):
                store.list()
        proxy.mode = "forwards"
        (reference,) = store.list()
        store.fetch(reference)


@pytest.mark.slow
def test_azure_without_an_account_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("adlfs")
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    with pytest.raises(OptionError, match=r"can't be opened: .*credentials") as refused:
        ObjectStore("az://container/models")
    assert "AZURE_STORAGE_CONNECTION_STRING" in str(refused.value)
    assert "reads directories" not in str(refused.value)


def test_a_silent_storage_ends_at_the_time_limit_and_works_again_later(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(server.port) as proxy, in_environment(proxy.port):
        store = ObjectStore(f"s3://{BUCKET}/silent")
        store.publish(RENTS, "rents")
        (reference,) = store.list()
        proxy.mode = "silent"
        # Short only while nothing answers: a busy machine takes longer than this for a first connection.
        with monkeypatch.context() as patience:
            patience.setattr(store.storage, "seconds", 0.5)
            with pytest.raises(StorageError, match="no answer within"):
                store.list()
            with pytest.raises(StorageError, match="no answer within"):
                store.fetch(reference)
        proxy.mode = "forwards"
        store.list()
        store.fetch(reference)
