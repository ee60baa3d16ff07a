"""Checkpoints in object storage: versions are listed, fetched into the cache, checked by hash, and published.

Which versions there are in a storage, from one listing of its objects.

Objects are called ``NAME/VERSION/FILE``, as the files of a directory of checkpoints are. Other objects are skipped, and
so is what is hidden, such as the claim of a writer that has only begun.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from murho.model.checkpoint.cache import CacheOptions, CheckpointCache, Lease
from murho.model.checkpoint.checkpoint import FACTS_FILE, check_writable, read_stored, write_checkpoint
from murho.model.checkpoint.directories import (
    NAME_PATTERN,
    VERSION_PATTERN,
    CheckpointReference,
    choose_checkpoint,
    validate_name,
)
from murho.model.checkpoint.objects import (
    MANIFEST_FILE,
    MOST_BYTES,
    FileFacts,
    Manifest,
    MissingObjectError,
    ObjectStorage,
)
from murho.model.checkpoint.stores import PAGE_FILE, WrittenVersion
from murho.model.errors import CheckpointError, StorageError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from torch import Tensor

    from murho.model.checkpoint.objects import StoredObject
    from murho.model.checkpoint.spec import ModelSpec

__all__ = [
    "ObjectStore",
    "StoredVersion",
    "check_publishable",
    "highest_number",
    "publish",
    "references_of",
    "stored_versions",
]


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version as a listing has it.

    Attributes:
        name: Name of the checkpoint.
        version: Its version; any text that may stand in its place.
        files: Its objects by path, relative to the version.
    """

    name: str
    version: str
    files: dict[str, StoredObject] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether its manifest is there, which is written last."""
        return MANIFEST_FILE in self.files

    @property
    def problem(self) -> str | None:
        """Why it can't be a version, or None."""
        if not NAME_PATTERN.fullmatch(self.name):
            return "the name breaks the rule: letters, digits, '.', '_' and '-', at most 64"
        if not VERSION_PATTERN.fullmatch(self.version):
            return "a version is a whole number from 1"
        return None


def stored_versions(objects: Mapping[str, StoredObject]) -> dict[tuple[str, str], StoredVersion]:
    """Sort the objects of a storage by name and version; versions by rising number, other folders last."""
    found: dict[tuple[str, str], StoredVersion] = {}
    for path, stored in objects.items():
        parts = path.split("/", 2)
        if len(parts) == 3 and not any(part.startswith(".") or not part for part in path.split("/")):
            name, version, file = parts
            found.setdefault((name, version), StoredVersion(name, version)).files[file] = stored
    return dict(sorted(found.items(), key=lambda item: _order(item[1])))


def references_of(versions: Mapping[tuple[str, str], StoredVersion]) -> list[CheckpointReference]:
    """The versions as a directory's are listed; their paths are relative to the storage."""
    return [
        CheckpointReference(each.name, each.version, Path(each.name) / each.version, each.problem)
        for each in versions.values()
    ]


def highest_number(objects: Mapping[str, StoredObject], name: str) -> int:
    """The highest number of a version of which anything is there, even a claim; 0 if there is none."""
    folders = [path.split("/", 2) for path in objects]
    return max(
        (int(each[1]) for each in folders if len(each) == 3 and each[0] == name and VERSION_PATTERN.fullmatch(each[1])),
        default=0,
    )


def _order(version: StoredVersion) -> tuple[str, bool, int, str]:
    number = VERSION_PATTERN.fullmatch(version.version) is not None
    return version.name, not number, int(version.version) if number else 0, version.version


CLAIM_FILE = ".claim"
"""Takes a number while its files are written; written only where it is not there yet."""
MOST_ATTEMPTS = 1_000


def check_publishable(storage: ObjectStorage, name: str) -> None:
    """Check that objects can be written and listed, so that a fit fails before it starts, not at its end.

    Raises:
        CheckpointError: The name is forbidden or the storage can't be written.
    """
    validate_name(name)
    probe = f"{name}/.probe-{secrets.token_hex(8)}"
    storage.write(probe, b"")
    with suppress(CheckpointError):  # a writer may lack the right to remove: readers skip what is hidden
        storage.remove(probe)
    storage.list(name)


def publish(directory: Path, storage: ObjectStorage, name: str) -> str:
    """Put the files of a version into a storage as the next version of a checkpoint; returns its number.

    Of two writers at the same moment each gets a number of its own, if the storage can write exclusively, as S3, Google
    and Azure can. With another one their files may mix; then hashes do not fit the manifest, and no reader uses them.

    Args:
        directory: ``NAME/VERSION`` on disk.
        storage: Where to put it.
        name: Name of the checkpoint there.

    Raises:
        CheckpointError: It could not be written. No reader uses what may be left.
    """
    validate_name(name)
    manifest = Manifest.of_directory(directory)
    version = _claim(storage, name)
    folder = f"{name}/{version}"
    try:
        for path in manifest.files:
            storage.upload(directory / path, f"{folder}/{path}")
        _require_written(storage, folder, manifest)
        storage.write(f"{folder}/{MANIFEST_FILE}", manifest.to_bytes())
    except BaseException:
        # The manifest first: it may be there though its writing seemed to fail.
        for path in (MANIFEST_FILE, *manifest.files, CLAIM_FILE):
            with suppress(CheckpointError):
                storage.remove(f"{folder}/{path}")
        raise
    with suppress(CheckpointError):
        storage.remove(f"{folder}/{CLAIM_FILE}")
    return version


def _require_written(storage: ObjectStorage, folder: str, manifest: Manifest) -> None:
    there = storage.list(folder)
    for path, facts in manifest.files.items():
        stored = there.get(f"{folder}/{path}")
        if stored is None or stored.size != facts.size:
            size = "missing" if stored is None else f"of {stored.size} bytes"
            address = storage.address(f"{folder}/{path}")
            raise CheckpointError(f"{address} is {size} after {facts.size} bytes were written")


def _claim(storage: ObjectStorage, name: str) -> str:
    """The first free number above the highest version, which no other writer takes from now on."""
    first = highest_number(storage.list(name), name) + 1
    for number in range(first, first + MOST_ATTEMPTS):
        if storage.create(f"{name}/{number}/{CLAIM_FILE}", b""):
            return str(number)
    raise CheckpointError(f"{storage.address(name)}: other writers take every number; try again")


class ObjectStore:
    """Checkpoints below a URL; a `model.checkpoint.stores.CheckpointStore`."""

    in_place = False

    def __init__(self, url: str, cache: CacheOptions | None = None, *, storage: ObjectStorage | None = None) -> None:
        """Open a storage; nothing is asked of it yet.

        Args:
            url: Such as ``s3://bucket/prefix``.
            cache: The cache; by default as the environment says.
            storage: The storage, if its limits are to be others than the usual ones.

        Raises:
            OptionError: The protocol is unknown or its library is not installed.
        """
        self.storage = storage or ObjectStorage(url)
        self.cache = CheckpointCache(cache or CacheOptions.from_environment())
        self._versions: dict[tuple[str, str], StoredVersion] = {}
        self._found: list[Lease] = []

    @property
    def place(self) -> str:
        """The URL."""
        return self.storage.url

    def list(self, *, unfinished: bool = False) -> list[CheckpointReference]:
        """List every version.

        Args:
            unfinished: Whether to list those, too, that are still being written.

        Raises:
            CheckpointError: The storage can't be listed.
        """
        self._versions = found = stored_versions(self.storage.list())
        complete = {key: each for key, each in found.items() if each.complete or each.problem is not None}
        return references_of(found if unfinished else complete)

    def stamp(self, reference: CheckpointReference) -> Hashable | None:
        """What changes with any object of a version, as of the last listing; None without a manifest.

        All objects count: one that was restored is reason to try a refused version again.
        """
        found = self._versions.get((reference.name, reference.version))
        if found is None or not found.complete:
            return None
        return tuple(sorted((path, each.size, each.tag) for path, each in found.files.items()))

    def fetch(self, reference: CheckpointReference) -> Lease:
        """Return a directory with the files of a version, each with the size and the hash that the manifest says.

        Raises:
            StorageError: The storage can't be reached, or the cache can't be written.
            CheckpointError: The manifest is broken, or a file is not as it says; the message says which.
        """
        name, version = reference.name, reference.version
        content, manifest = self._manifest(name, version)
        self._check_sizes(name, version, manifest)
        # Another checkpoint of the same content has a directory of its own, because its name is that of the directory.
        key = hashlib.sha256(f"{name}/{version}\0".encode() + content).hexdigest()[:40]
        lease = self.cache.get(key, name, version)
        if lease is not None:
            if manifest.differs_from(lease.directory) is None:
                return lease
            lease.release()
            self.cache.drop(key)

        def fill(directory: Path) -> None:
            for path, facts in manifest.files.items():
                self._fetch_file(f"{name}/{version}/{path}", facts, directory / path)

        return self.cache.put(key, name, version, manifest.size, fill)

    def read_facts(self, reference: CheckpointReference) -> bytes:
        """Read ``model.json`` of a version, checked by its hash, and nothing else.

        Raises:
            CheckpointError: It can't be read, or is not as the manifest says.
        """
        _, manifest = self._manifest(reference.name, reference.version)
        path = f"{reference.name}/{reference.version}/{FACTS_FILE}"
        facts = manifest.files[FACTS_FILE]
        content = b"".join(self.storage.read(path, facts.size))
        self._check_hash(path, facts, len(content), hashlib.sha256(content).hexdigest())
        return content

    def find(self, name: str, version: str | None = None) -> Path:
        """Fetch a version, by default the highest complete one; its directory stays as long as this object does.

        Raises:
            CheckpointError: There is no such version, or it can't be fetched.
        """
        lease = self.fetch(choose_checkpoint(self.list(), self.place, name, version))
        self._found.append(lease)
        return lease.directory

    def check_writable(self, name: str) -> None:
        """Check that objects can be written, and the local directory in which a version is made first.

        Raises:
            CheckpointError: The name is forbidden, or one of both can't be written.
        """
        validate_name(name)
        check_publishable(self.storage, name)
        check_writable(self._local("unpublished"), name)

    def write(
        self, name: str, spec: ModelSpec, tensors: Mapping[str, Tensor], *, extras: Mapping[str, bytes] | None = None
    ) -> WrittenVersion:
        """Write the next version, all of it or nothing. Where it can't be published it is kept on this machine.

        Raises:
            CheckpointError: It could not be published; the message says where it is kept, and how to try again.
        """
        made = write_checkpoint(self._local("unpublished"), name, spec, tensors, extras=extras)
        try:
            written = self.publish(made, name)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; nothing of the checkpoint is served from there. It is kept in {made}: "
                f"`murho publish {made} {self.place}` tries again"
            ) from error
        shutil.rmtree(made, ignore_errors=True)
        return written

    def publish(self, directory: Path, name: str) -> WrittenVersion:
        """Put a version from disk into the storage as the next version of a name, all of it or nothing.

        Raises:
            CheckpointError: It is no sound version, or could not be written.
        """
        read_stored(directory)
        address = self.storage.address(f"{name}/{publish(directory, self.storage, name)}")
        report = f"{address}/{PAGE_FILE}" if (directory / PAGE_FILE).is_file() else None
        return WrittenVersion(self.place, address, name, address.rpartition("/")[2], report)

    def _local(self, purpose: str) -> Path:
        """A directory on this machine for one URL and one purpose."""
        return self.cache.options.root / purpose / hashlib.sha256(self.place.encode()).hexdigest()[:16]

    def _manifest(self, name: str, version: str) -> tuple[bytes, Manifest]:
        path = f"{name}/{version}/{MANIFEST_FILE}"
        try:
            content = b"".join(self.storage.read(path, self._manifest_size(name, version)))
            return content, Manifest.from_bytes(content)
        except (StorageError, MissingObjectError):
            raise
        except CheckpointError as error:
            raise CheckpointError(f"{self.storage.address(path)}: {error}") from error

    def _manifest_size(self, name: str, version: str) -> int:
        found = self._versions.get((name, version))
        stored = None if found is None else found.files.get(MANIFEST_FILE)
        if stored is None:
            raise CheckpointError("it is not there: the version is still being written")
        if not 0 < stored.size <= MOST_BYTES:
            raise CheckpointError(f"it has {stored.size} bytes; a manifest has 1 to {MOST_BYTES}")
        return stored.size

    def _check_sizes(self, name: str, version: str, manifest: Manifest) -> None:
        """Refuse at once what the listing already contradicts, and what the cache may not hold."""
        for path, facts in manifest.files.items():
            stored = self._versions[name, version].files.get(path)
            address = self.storage.address(f"{name}/{version}/{path}")
            if stored is None:
                raise CheckpointError(f"{address} is missing; the manifest lists it")
            if stored.size != facts.size:
                raise CheckpointError(
                    f"{address} has {stored.size} bytes, the manifest says {facts.size}: it was cut or replaced"
                )
        most, address = self.cache.options.most_bytes, self.storage.address(f"{name}/{version}")
        if manifest.size > most:
            raise CheckpointError(
                f"{address} has {manifest.size} bytes, the cache may hold {most}: raise MURHO_CHECKPOINT_CACHE_BYTES"
            )

    def _fetch_file(self, path: str, facts: FileFacts, goal: Path) -> None:
        goal.parent.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        with goal.open("wb") as file:
            for block in self.storage.read(path, facts.size):
                digest.update(block)
                size += len(block)
                file.write(block)
        self._check_hash(path, facts, size, digest.hexdigest())

    def _check_hash(self, path: str, facts: FileFacts, size: int, sha256: str) -> None:
        address = self.storage.address(path)
        if size != facts.size:
            raise CheckpointError(f"{address} ended after {size} of {facts.size} bytes")
        if sha256 != facts.sha256:
            raise CheckpointError(
                f"{address}: sha256 is {sha256[:12]}…, the manifest says {facts.sha256[:12]}…: it was changed"
            )
