"""A place of checkpoints behind one interface, a directory or a URL, and the one function that decides between them.

In object storage versions are listed, read into memory, checked by hash, and published. Objects are called
``NAME/VERSION/FILE``, as the files of a directory of checkpoints are; other objects are skipped, and so is what is
hidden. ``model.json`` is the manifest of a version: it has the hash of the tensors, and one of itself. It is written
last: a version is there with it, and not before. What does not fit its hashes is never used. Nothing is kept on a local
disk: a version is read whenever it is loaded.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from murho.model.checkpoint.checkpoint import (
    FACTS_FILE,
    NAME_PATTERN,
    TENSORS_FILE,
    VERSION_PATTERN,
    CheckpointReference,
    StoredCheckpoint,
    check_writable,
    list_checkpoints,
    read_file,
    read_stored,
    read_version,
    validate_name,
)
from murho.model.checkpoint.object_storage import ObjectStorage, StoredObject
from murho.model.errors import CheckpointError, OptionError, StorageError
from murho.model.files import MOST_FACTS_BYTES

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from murho.model.checkpoint.posterior import Posterior

# Two letters at least: the drive of a path on Windows has one. ``a::b://`` is how fsspec chains protocols.
_URL = re.compile(r"[a-z][a-z0-9+.-]+(::[a-z][a-z0-9+.-]+)*://", flags=re.IGNORECASE)


def is_url(place: Path | str) -> bool:
    """Whether a place is the URL of a storage, and no path."""
    return isinstance(place, str) and _URL.match(place) is not None


def place_of(place: Path | str) -> Path | str:
    """Return a place as the product keeps it: a URL as text without a slash at its end, anything else as a path.

    Raises:
        OptionError: The URL has a password in it, which logs and messages would show.
    """
    if not isinstance(place, str) or not is_url(place):
        return Path(place)
    try:
        parts = urlsplit(place.rpartition("::")[2])
        password = parts.password
    except ValueError as error:
        raise OptionError(f"{place!r} is no valid URL: {error}") from error
    if password is not None:
        raise OptionError(
            f"the URL {parts.scheme}://… has a password in it, which logs would show: give credentials by the "
            "environment or the configuration of the storage's library"
        )
    if parts.scheme.lower() == "file":
        return Path(url2pathname(parts.path))
    return place.rstrip("/") if parts.netloc or parts.path.strip("/") else place


def directory_at(place: Path | str) -> Path:
    """Return the directory that a place names, for functions that write to a disk alone.

    Raises:
        CheckpointError: It is a URL; the message says what to do.
    """
    chosen = place_of(place)
    if isinstance(chosen, str):
        raise CheckpointError(f"{chosen} is a URL: save into a directory, then `murho publish NAME/VERSION {chosen}`")
    return chosen


def describe_place(place: Path | str) -> str:
    """Return a place for messages: the URL or the absolute path; a relative one is ambiguous in a container's log."""
    return place if isinstance(place, str) else str(place.absolute())


PAGE_FILE = "report.html"
"""As `model.report` calls it, which stands above this package."""


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """A version that was just written.

    Attributes:
        place: The place of checkpoints: a path or a URL.
        address: The path or the URL of the version.
        name: Name of the checkpoint.
        version: Its version.
        report: The path or the URL of its report; None without one.
    """

    place: str
    address: str
    name: str
    version: str
    report: str | None = None


class CheckpointStore(ABC):
    """A place of checkpoints.

    Attributes:
        place: The path or the URL, as it was given.
        root: The directory in which versions are written: the place, or one on this machine.
        in_place: Whether `find` gives the version itself, beside which a report may be put, and no copy of it.
    """

    place: str
    root: Path
    in_place: bool

    @abstractmethod
    def list(self) -> list[CheckpointReference]:
        """List every version, by name, then by rising version; raises `CheckpointError` where that is impossible."""

    @abstractmethod
    def stamp(self, reference: CheckpointReference) -> Hashable | None:
        """Return what changes with the content of a listed version; None while it is being written."""

    @abstractmethod
    def address(self, reference: CheckpointReference) -> str:
        """Return the path or the URL of a version, for messages."""

    @abstractmethod
    def read(self, reference: CheckpointReference, file: str, most: int = MOST_FACTS_BYTES, least: int = 0) -> bytes:
        """Read a file of a listed version whole, or nothing of it.

        Args:
            reference: The version.
            file: Path of the file within it.
            most: The most bytes that it may have.
            least: The fewest bytes.

        Raises:
            StorageError: The storage can't be reached.
            CheckpointError: The file is missing, can't be read, or has another size.
        """

    def fetch(self, reference: CheckpointReference) -> StoredCheckpoint:
        """Read and check a listed version; raises what `model.checkpoint.checkpoint.read_version` does."""
        read = partial(self.read, reference)
        return read_version(read, self.address(reference), reference.name, reference.version)

    def find(self, name: str, version: str | None = None) -> Path:
        """Return a directory with all files of a version, by default the highest; it stays as long as this object does.

        Raises:
            CheckpointError: There is no such version, and the message lists the existing ones; or it can't be fetched.
        """
        validate_name(name)
        known = [reference for reference in self.list() if reference.problem is None]
        versions = {reference.version: reference for reference in known if reference.name == name}
        if not versions:
            names = sorted({reference.name for reference in known})
            there = f"there are: {', '.join(names)}" if names else "there is none; train one with `murho train`"
            raise CheckpointError(f"{self.place} has no checkpoint {name!r}; {there}")
        chosen = next(reversed(versions)) if version is None else version
        if chosen not in versions:
            raise CheckpointError(f"checkpoint {name!r} has no version {version!r}; there are: {', '.join(versions)}")
        return self.directory(versions[chosen])

    @abstractmethod
    def directory(self, reference: CheckpointReference) -> Path:
        """Return a directory with all files of a listed version, see `find`."""

    def check_writable(self, name: str) -> None:
        """Check that a version can be written; raises `CheckpointError`."""
        check_writable(self.root, name)

    def write(self, name: str, posterior: Posterior, *, extras: Mapping[str, bytes] | None = None) -> WrittenVersion:
        """Write the next version as `Posterior.save` does, all of it or nothing; raises `CheckpointError`."""
        return self.place_version(posterior.save(self.root, name, extras=extras), name)

    @abstractmethod
    def place_version(self, made: Path, name: str) -> WrittenVersion:
        """Have a version that was written in `root` in the place, or keep it there; raises `CheckpointError`."""


class DirectoryStore(CheckpointStore):
    """A directory of checkpoints."""

    in_place = True

    def __init__(self, root: Path) -> None:
        self.place, self.root, self._was_there = str(root), root, False

    def list(self) -> list[CheckpointReference]:
        """List every version in the directory.

        Raises:
            CheckpointError: The directory can't be read, or it was there before and is gone: a volume that was
                unmounted is no reason to drop what is served.
        """
        found, there = list_checkpoints(self.root), self.root.exists()
        if self._was_there and not there:
            raise CheckpointError(f"{describe_place(self.root)} is gone")
        self._was_there = there
        return found

    def stamp(self, reference: CheckpointReference) -> Hashable | None:
        """Inode, size and time of change of the version's files and directory; links are followed.

        None without a ``model.json``: a version that is copied here, not renamed, is still being written. What can't be
        read has a stamp too, and is refused when it is loaded.
        """
        entries = []
        for name in ("", TENSORS_FILE, FACTS_FILE):
            try:
                each = (reference.path / name).stat()
                entries.append((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns))
            except FileNotFoundError:
                if name == FACTS_FILE:
                    return None
            except OSError as error:
                return error.errno
        return tuple(entries)

    def address(self, reference: CheckpointReference) -> str:
        """Return the path of a version."""
        return describe_place(reference.path)

    def read(self, reference: CheckpointReference, file: str, most: int = MOST_FACTS_BYTES, least: int = 0) -> bytes:
        """Read a file of a version."""
        return read_file(reference.path / file, most, least)

    def directory(self, reference: CheckpointReference) -> Path:
        """Return the directory of a version."""
        return reference.path

    def place_version(self, made: Path, name: str) -> WrittenVersion:
        """Tell where a version is."""
        page = made / PAGE_FILE
        return WrittenVersion(self.place, str(made), name, made.name, str(page) if page.is_file() else None)


CLAIM_FILE, PROBE_FILE = ".claim", ".probe"
"""A claim takes a number while its files are written; it is written only where it is not there yet."""
_FILE = r"[^./\\\0][^/\\\0]*"
_PATH = re.compile(rf"({NAME_PATTERN.pattern})/({VERSION_PATTERN.pattern})/({_FILE}(?:/{_FILE})*)")


class ObjectStore(CheckpointStore):
    """Checkpoints below a URL."""

    in_place = False

    def __init__(self, url: str) -> None:
        """Open a storage, such as ``s3://bucket/prefix``; nothing is asked of it yet.

        Raises:
            OptionError: The protocol is unknown or its library is not installed.
        """
        self.place, self.storage = url, ObjectStorage(url)
        self._versions: dict[tuple[str, str], dict[str, StoredObject]] = {}
        # A version is made here before it is published.
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - raises nothing
        self.root = Path(caches, "murho", "unpublished", hashlib.sha256(url.encode()).hexdigest()[:16])

    def list(self) -> list[CheckpointReference]:
        """List every version that is complete.

        Raises:
            CheckpointError: The storage can't be listed.
        """
        found: dict[tuple[str, str], dict[str, StoredObject]] = {}
        for path, stored in self.storage.list().items():
            if parts := _PATH.fullmatch(path):
                found.setdefault((parts[1], parts[2]), {})[parts[3]] = stored
        self._versions = {key: files for key, files in found.items() if FACTS_FILE in files}
        keys = sorted(self._versions, key=lambda key: (key[0], int(key[1])))
        return [CheckpointReference(*key, Path(*key)) for key in keys]

    def stamp(self, reference: CheckpointReference) -> Hashable | None:
        """Return what changes with any object of a version, as of the last listing; None for one that was not listed.

        All objects count: one that was restored is reason to try a refused version again.
        """
        files = self._versions.get((reference.name, reference.version))
        return None if files is None else tuple(sorted(files.items()))

    def address(self, reference: CheckpointReference) -> str:
        """Return the URL of a version."""
        return self.storage.address(f"{reference.name}/{reference.version}")

    def read(self, reference: CheckpointReference, file: str, most: int = MOST_FACTS_BYTES, least: int = 0) -> bytes:
        """Read an object of a version, no more bytes than were listed."""
        address, stored = f"{self.address(reference)}/{file}", self._files(reference).get(file)
        if stored is None:
            raise CheckpointError(f"{address}: the file is missing")
        if not least <= stored.size <= most:
            raise CheckpointError(f"{address}: it has {stored.size:,} bytes, and {least:,} to {most:,} are expected")
        content = b"".join(self.storage.read(f"{reference.name}/{reference.version}/{file}", stored.size))
        if len(content) != stored.size:
            raise CheckpointError(f"{address} ended after {len(content):,} of {stored.size:,} bytes")
        return content

    def directory(self, reference: CheckpointReference) -> Path:
        """Return a temporary directory with the files of a version, which is removed with this object.

        Raises:
            StorageError: The storage can't be reached, or the directory can't be written.
            CheckpointError: A file is not as ``model.json`` says, or was cut; the message says which.
        """
        self.fetch(reference)
        try:
            temporary = tempfile.mkdtemp(prefix="murho-")
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
            directory = Path(temporary, reference.name, reference.version)
            for file, stored in self._files(reference).items():
                (directory / file).parent.mkdir(parents=True, exist_ok=True)
                with (directory / file).open("wb") as opened:
                    opened.writelines(self.storage.read(f"{reference.name}/{reference.version}/{file}", stored.size))
        except OSError as error:
            raise StorageError(
                f"{tempfile.gettempdir()} can't be written: {error.strerror or error}; TMPDIR names another directory"
            ) from error
        return directory

    def check_writable(self, name: str) -> None:
        """Check that objects can be written and listed, and the local directory in which a version is made first.

        Raises:
            CheckpointError: The name is forbidden, or one of both can't be written.
        """
        super().check_writable(name)
        self.storage.write(f"{name}/{PROBE_FILE}", b"")
        self.storage.remove(f"{name}/{PROBE_FILE}")
        self.storage.list(name)

    def place_version(self, made: Path, name: str) -> WrittenVersion:
        """Publish a version that was written on this machine, where it is kept if that fails.

        Raises:
            CheckpointError: It could not be published; the message says where it is kept, and how to try again.
        """
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

        Of two writers at the same moment each gets a number of its own, if the storage can write exclusively, as S3,
        Google and Azure can. With another one their files may mix; then hashes do not fit, and no reader uses them.

        Raises:
            CheckpointError: It is no sound version, or could not be written. No reader uses what may be left.
        """
        read_stored(directory)
        names = {each.relative_to(directory).as_posix(): each for each in directory.rglob("*") if each.is_file()}
        files = {file: path for file, path in names.items() if "/." not in f"/{file}"}
        version = self._claim(validate_name(name))
        folder = f"{name}/{version}"
        try:
            self._upload(folder, files)
        except BaseException:
            # The manifest first: it may be there though its writing seemed to fail.
            for file in (FACTS_FILE, *files):
                self.storage.remove(f"{folder}/{file}")
            raise
        finally:
            self.storage.remove(f"{folder}/{CLAIM_FILE}")
        address = self.storage.address(folder)
        report = f"{address}/{PAGE_FILE}" if PAGE_FILE in files else None
        return WrittenVersion(self.place, address, name, version, report)

    def _upload(self, folder: str, files: Mapping[str, Path]) -> None:
        """Write the files of a version, and the manifest once all others have arrived whole."""
        others = {f"{folder}/{file}": path for file, path in files.items() if file != FACTS_FILE}
        for path, file in others.items():
            self.storage.upload(file, path)
        there = self.storage.list(folder)
        for path, file in others.items():
            if path not in there or there[path].size != file.stat().st_size:
                raise CheckpointError(f"{self.storage.address(path)} did not arrive whole")
        self.storage.upload(files[FACTS_FILE], f"{folder}/{FACTS_FILE}")

    def _files(self, reference: CheckpointReference) -> dict[str, StoredObject]:
        try:
            return self._versions[reference.name, reference.version]
        except KeyError as error:
            raise CheckpointError(f"{self.address(reference)} is not there any more") from error

    def _claim(self, name: str) -> str:
        """Return the first free number above the highest version, which no other writer takes from now on."""
        taken = [path.split("/")[1] for path in self.storage.list(name)]
        number = max((int(each) for each in taken if VERSION_PATTERN.fullmatch(each)), default=0)
        while True:
            number += 1
            claim = f"{name}/{number}/{CLAIM_FILE}"
            try:
                self.storage.write(claim, b"", mode="create")
            except FileExistsError:
                continue
            except StorageError:  # it can't write exclusively
                self.storage.write(claim, b"")
            return str(number)


def store_at(place: Path | str) -> CheckpointStore:
    """Return the place of checkpoints that a path or a URL names. Only a URL takes fsspec.

    Args:
        place: A directory, or a URL such as ``s3://bucket/prefix``.

    Raises:
        OptionError: The URL can't be used; the message says what to install.
    """
    chosen = place_of(place)
    if isinstance(chosen, str):
        return ObjectStore(chosen)
    return DirectoryStore(chosen)
