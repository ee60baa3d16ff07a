"""What is fetched is what was published, or it is refused by name: over memory and over a real S3 server."""

import gc
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fsspec.registry import _registry as loaded_file_systems

from murho.model.checkpoint.checkpoint import CheckpointReference, read_stored
from murho.model.checkpoint.object_storage import ObjectStorage
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.stores import (
    DirectoryStore,
    ObjectStore,
    describe_place,
    directory_at,
    is_url,
    place_of,
    store_at,
)
from murho.model.errors import CheckpointError, OptionError, StorageError
from tests.model.checkpoint.cloud_servers import CLOUDS, Cloud, in_cloud_environment
from tests.model.checkpoint.conftest import RENTS
from tests.model.checkpoint.s3_server import BUCKET, Proxy, S3Server, in_environment

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
    posterior = Posterior.load(RENTS)
    store.check_writable("rents")
    written = store.write("rents", posterior, extras={"report.html": b"page", "report/facts.json": b"{}"})
    assert written.report == f"{store.place}/rents/1/report.html"
    found = store.find("rents")
    assert (found / "report" / "facts.json").read_bytes() == b"{}"
    again = read_stored(found).spec
    assert again.to_json() == posterior.facts


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
@pytest.mark.parametrize("lie", ["cut", "changed", "missing", "manifest cut", "manifest changed"])
def test_a_version_that_is_not_as_its_manifest_says_is_refused(store: ObjectStore, lie: str) -> None:
    store.publish(RENTS, "rents")
    content, manifest = (RENTS / "model.safetensors").read_bytes(), (RENTS / "model.json").read_bytes()
    path, other, said = {
        "cut": (TENSORS, content[:-1], r"model\.safetensors"),
        "changed": (TENSORS, b"x" + content[1:], "sha256 is"),
        "missing": (TENSORS, b"", r"model\.safetensors"),
        "manifest cut": (FACTS, manifest[:-9], r"model\.json"),
        "manifest changed": (FACTS, manifest.replace(b'"seed":', b'"sead":', 1), r"model\.json"),
    }[lie]
    store.storage.write(path, other) if other else store.storage.remove(path)
    (before,) = store.list()
    with pytest.raises(CheckpointError, match=said) as refused:
        store.fetch(before)
    assert store.place in str(refused.value)
    assert not isinstance(refused.value, StorageError)
    stamp = store.stamp(before)
    store.storage.write(path, content if path == TENSORS else manifest)
    (reference,) = store.list()
    assert store.stamp(reference) != stamp
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


def test_a_url_stays_a_text_without_a_slash_at_its_end_and_anything_else_is_a_path() -> None:
    for url in ("s3://bucket/models", "memory://here", "abfs://c@account.example/x"):
        assert is_url(url)
        assert place_of(f"{url}/") == describe_place(url) == url
    for path in ("checkpoints", "/a/b", "c://x", "s3:/bucket", "a b://c"):
        assert not is_url(path)
        assert place_of(path) == Path(path)
        assert isinstance(store_at(path), DirectoryStore)
    assert place_of("file:///tmp/my%20models") == Path("/tmp/my models")  # noqa: S108 - nothing is written


def test_what_writes_to_a_disk_alone_says_what_to_do_with_a_url() -> None:
    assert directory_at("checkpoints") == Path("checkpoints")
    with pytest.raises(CheckpointError, match="murho publish NAME/VERSION s3://bucket/models"):
        directory_at("s3://bucket/models")


def test_a_library_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for protocol, library in (("gs", "gcsfs"), ("az", "adlfs")):
        monkeypatch.delitem(loaded_file_systems, protocol, raising=False)  # another test may have used it
        monkeypatch.setitem(sys.modules, library, None)  # what is imported then is not found
    with pytest.raises(OptionError, match=r"pip install 'murho\[gs\]'"):
        store_at("gs://bucket/models")
    with pytest.raises(OptionError, match=r"pip install 'murho\[az\]'"):
        store_at("az://bucket/models")


def test_an_unknown_protocol_is_told() -> None:
    with pytest.raises(OptionError, match="carrier-pigeon"):
        store_at("carrier-pigeon://bucket/models")


class Failing(ObjectStorage):
    """A storage that fails at the n-th upload, or after that of the manifest.

    Attributes:
        uploads: Uploads until it fails.
        error: What it raises.
    """

    def __init__(self, uploads: int, error: BaseException) -> None:
        super().__init__(f"memory://{uuid.uuid4().hex}/models")
        self.uploads, self.error = uploads, error

    def upload(self, file: Path, path: str) -> None:
        if self.uploads == 0:
            raise self.error
        self.uploads -= 1
        super().upload(file, path)
        if path.endswith("model.json"):  # it is there, and its answer is lost
            raise self.error


@pytest.mark.parametrize("uploads", [0, 1, 2])
@pytest.mark.parametrize("error", [StorageError("gone"), KeyboardInterrupt()])
def test_a_publishing_that_fails_leaves_nothing(memory: ObjectStore, uploads: int, error: BaseException) -> None:
    storage = Failing(uploads, error)
    memory.storage = storage
    with pytest.raises(type(error)):
        memory.publish(RENTS, "rents")
    assert storage.list() == {}


def test_an_upload_that_arrives_cut_is_noticed(memory: ObjectStore) -> None:
    class Cutting(ObjectStorage):
        def upload(self, file: Path, path: str) -> None:
            self.write(path, file.read_bytes()[:-1])

    memory.storage = Cutting(memory.place)
    with pytest.raises(CheckpointError, match=r"rents/1/model\.safetensors did not arrive whole"):
        memory.publish(RENTS, "rents")
    assert memory.storage.list() == {}


def test_writers_at_the_same_moment_get_numbers_of_their_own(store: ObjectStore) -> None:
    writers, meeting = 4, threading.Barrier(4)

    def write(_: int) -> str:
        meeting.wait(20)
        return store.publish(RENTS, "rents").version

    with ThreadPoolExecutor(writers) as threads:
        numbers = sorted(threads.map(write, range(writers)))
    assert numbers == ["1", "2", "3", "4"]
    assert [each.version for each in store.list()] == numbers
    assert not any(path.endswith(".claim") for path in store.storage.list())


def test_a_storage_without_exclusive_writing_is_written_all_the_same(memory: ObjectStore) -> None:
    class Simple(ObjectStorage):
        def write(self, path: str, content: bytes, **options: object) -> None:
            if "mode" in options:
                raise StorageError("a header you provided implies functionality that is not implemented")
            super().write(path, content)

    memory.storage = Simple(memory.place)
    assert [memory.publish(RENTS, "rents").version for _ in range(2)] == ["1", "2"]


def test_a_name_that_leads_elsewhere_is_refused(memory: ObjectStore) -> None:
    with pytest.raises(CheckpointError, match="can't be the name"):
        memory.publish(RENTS, "../rents")
    with pytest.raises(CheckpointError, match="can't be the name"):
        memory.check_writable("../rents")


def test_a_checkpoint_that_cannot_be_published_is_kept_and_the_message_says_how_to_try_again(
    memory: ObjectStore, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior = Posterior.load(RENTS)
    with monkeypatch.context() as broken:
        broken.setattr(memory.storage, "upload", _raise)
        with pytest.raises(CheckpointError, match="tries again") as said:
            memory.write("rents", posterior)
    kept = str(said.value).partition("`murho publish ")[2].split()[0]
    assert Path(kept).is_relative_to(caches)
    read_stored(Path(kept))
    assert memory.list() == []
    written = memory.write("rents", posterior)
    assert (written.address, written.version) == (f"{memory.place}/rents/1", "1")


def _raise(*_: object) -> None:
    raise StorageError("gone")


PATHS = (
    "README.md",
    "cars/notes.txt",
    "cars/10/model.json",
    "cars/10/report/facts.json",
    "cars/10/report/.hidden",
    "cars/10/..\\away",
    "cars/9/model.json",
    "cars/11/model.safetensors",
    "cars/12/.claim",
    "cars/latest/model.json",
    "cars/013/model.json",
    "b@d/1/model.json",
    ".trash/cars/1/model.json",
)


def test_versions_are_listed_by_rising_number_and_what_can_be_none_is_skipped(memory: ObjectStore) -> None:
    for path in PATHS:
        memory.storage.write(path, b"x")
    nine, ten = memory.list()
    assert nine == CheckpointReference("cars", "9", Path("cars/9"))
    assert ten == CheckpointReference("cars", "10", Path("cars/10"))
    memory.storage.write("cars/10/report/.hidden", b"yy")
    memory.storage.write("cars/10/..\\away", b"yy")
    before = memory.stamp(ten)
    memory.list()
    assert memory.stamp(ten) == before
    memory.storage.write("cars/10/report/facts.json", b"yy")
    memory.list()
    assert memory.stamp(ten) != before
