"""A place of checkpoints behind one interface, a directory or a URL, and the one function that decides between them."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from murho.model.checkpoint.checkpoint import (
    FACTS_FILE,
    TENSORS_FILE,
    CheckpointReference,
    check_writable,
    list_checkpoints,
    write_checkpoint,
)
from murho.model.checkpoint.directories import choose_checkpoint
from murho.model.errors import CheckpointError, OptionError
from murho.model.files import read_bounded

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from torch import Tensor

    from murho.model.checkpoint.object_store import CheckpointCache
    from murho.model.checkpoint.spec import ModelSpec

__all__ = [
    "PAGE_FILE",
    "CheckpointStore",
    "DirectoryStore",
    "Lease",
    "WrittenVersion",
    "directory_at",
    "is_url",
    "place_of",
    "shown_place",
    "store_at",
]


# Two letters at least: the drive of a path on Windows has one. ``a::b://`` is how fsspec chains protocols.
_URL = re.compile(r"[a-z][a-z0-9+.-]+(::[a-z][a-z0-9+.-]+)*://", flags=re.IGNORECASE)


def is_url(place: Path | str) -> bool:
    """Whether a place is the URL of a storage, and no path."""
    return isinstance(place, str) and _URL.match(place) is not None


def place_of(place: Path | str) -> Path | str:
    """A place as the product keeps it: a URL as text without a slash at its end, anything else as a path.

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
    """The directory that a place names, for functions that write to a disk alone.

    Raises:
        CheckpointError: It is a URL; the message says what to do.
    """
    chosen = place_of(place)
    if isinstance(chosen, str):
        raise CheckpointError(f"{chosen} is a URL: save into a directory, then `murho publish NAME/VERSION {chosen}`")
    return chosen


def shown_place(place: Path | str) -> str:
    """A place for messages: the absolute path, because a relative one is ambiguous in a container's log; or the URL."""
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


@dataclass(eq=False)
class Lease:
    """A directory with the files of a version, which stays as long as this object does.

    Attributes:
        directory: ``…/NAME/VERSION``.
        lock: Descriptor that holds a lock; None where nothing can take the directory away.
    """

    directory: Path
    lock: int | None = None

    def __del__(self) -> None:
        if self.lock is not None:
            os.close(self.lock)


class CheckpointStore(ABC):
    """A place of checkpoints.

    Attributes:
        place: The path or the URL, as it was given.
        in_place: Whether `find` gives the version itself, beside which a report may be put, and no copy of it.
    """

    in_place: bool

    def __init__(self, place: str) -> None:
        self.place = place
        self._leases: list[Lease] = []

    @abstractmethod
    def list(self) -> list[CheckpointReference]:
        """List every version, by name, then by rising version; raises `CheckpointError` where that is impossible."""

    @abstractmethod
    def stamp(self, reference: CheckpointReference) -> Hashable | None:
        """What changes with the content of a listed version; None while it is being written."""

    @abstractmethod
    def fetch(self, reference: CheckpointReference) -> Lease:
        """Return a directory with all files of a listed version; raises `CheckpointError`."""

    @abstractmethod
    def read_facts(self, reference: CheckpointReference) -> bytes:
        """Read ``model.json`` of a listed version; raises OSError or `CheckpointError`."""

    def find(self, name: str, version: str | None = None) -> Path:
        """A directory with all files of a version, by default the highest; it stays as long as this object does.

        Raises:
            CheckpointError: There is no such version, or it can't be fetched.
        """
        lease = self.fetch(choose_checkpoint(self.list(), self.place, name, version))
        self._leases.append(lease)
        return lease.directory

    @abstractmethod
    def check_writable(self, name: str) -> None:
        """Check that a version can be written; raises `CheckpointError`."""

    @abstractmethod
    def write(
        self, name: str, spec: ModelSpec, tensors: Mapping[str, Tensor], *, extras: Mapping[str, bytes] | None = None
    ) -> WrittenVersion:
        """Write the next version as `write_checkpoint` does, all of it or nothing; raises `CheckpointError`."""


class DirectoryStore(CheckpointStore):
    """A directory of checkpoints."""

    in_place = True

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.root, self._was_there = root, False

    def list(self) -> list[CheckpointReference]:
        """List every version in the directory.

        Raises:
            CheckpointError: The directory can't be read, or it was there before and is gone: a volume that was
                unmounted is no reason to drop what is served.
        """
        found, there = list_checkpoints(self.root), self.root.exists()
        if self._was_there and not there:
            raise CheckpointError(f"{shown_place(self.root)} is gone")
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

    def fetch(self, reference: CheckpointReference) -> Lease:
        """The directory of a version, which nobody removes."""
        return Lease(reference.path)

    def read_facts(self, reference: CheckpointReference) -> bytes:
        """Read ``model.json`` of a version."""
        return read_bounded(reference.path / FACTS_FILE)

    def check_writable(self, name: str) -> None:
        """Check that a version can be written."""
        check_writable(self.root, name)

    def write(
        self, name: str, spec: ModelSpec, tensors: Mapping[str, Tensor], *, extras: Mapping[str, bytes] | None = None
    ) -> WrittenVersion:
        """Write the next version."""
        directory = write_checkpoint(self.root, name, spec, tensors, extras=extras)
        page = directory / PAGE_FILE
        report = str(page) if page.is_file() else None
        return WrittenVersion(self.place, str(directory), name, directory.name, report)


def store_at(place: Path | str, cache: CheckpointCache | None = None) -> CheckpointStore:
    """Return the place of checkpoints that a path or a URL names. Only a URL takes fsspec.

    Args:
        place: A directory, or a URL such as ``s3://bucket/prefix``.
        cache: The cache of what is fetched from a URL; by default as the environment says.

    Raises:
        OptionError: The URL can't be used; the message says what to install.
    """
    chosen = place_of(place)
    if isinstance(chosen, str) and is_url(chosen):
        from murho.model.checkpoint.object_store import ObjectStore

        return ObjectStore(chosen, cache)
    return DirectoryStore(Path(chosen))
