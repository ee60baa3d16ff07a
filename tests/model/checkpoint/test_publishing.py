"""A version is in a storage as a whole or not at all, whatever fails on the way."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from murho.model.checkpoint.checkpoint import read_stored
from murho.model.checkpoint.object_store import ObjectStorage, ObjectStore
from murho.model.errors import CheckpointError, StorageError
from tests.model.checkpoint.conftest import RENTS


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
    stored = read_stored(RENTS)
    spec, tensors = stored.spec, stored.tensors
    with monkeypatch.context() as broken:
        broken.setattr(memory.storage, "upload", _raise)
        with pytest.raises(CheckpointError, match="tries again") as said:
            memory.write("rents", spec, tensors)
    kept = str(said.value).partition("`murho publish ")[2].split()[0]
    assert Path(kept).is_relative_to(caches)
    read_stored(Path(kept))
    assert memory.list() == []
    written = memory.write("rents", spec, tensors)
    assert (written.address, written.version) == (f"{memory.place}/rents/1", "1")


def _raise(*_: object) -> None:
    raise StorageError("gone")
