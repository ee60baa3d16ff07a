"""The two kinds of places of checkpoints behind one protocol, and the one function that decides between them by URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

from murho.model.checkpoint.checkpoint import (
    FACTS_FILE,
    CheckpointReference,
    check_writable,
    find_checkpoint,
    list_checkpoints,
    write_checkpoint,
)
from murho.model.errors import CheckpointError, OptionError
from murho.model.runtime import read_bounded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.checkpoint.cache import CacheOptions
    from murho.model.checkpoint.spec import ModelSpec

__all__ = [
    "PAGE_FILE",
    "CheckpointStore",
    "DirectoryStore",
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


class CheckpointStore(Protocol):
    """A place of checkpoints, as commands use it."""

    @property
    def place(self) -> str:
        """The path or the URL, as it was given."""

    @property
    def in_place(self) -> bool:
        """Whether `find` gives the version itself, beside which a report may be put, and no copy of it."""

    def list(self) -> list[CheckpointReference]:
        """List every version, by name, then by rising version; raises `CheckpointError` where that is impossible."""

    def read_facts(self, reference: CheckpointReference) -> bytes:
        """Read ``model.json`` of a listed version; raises OSError or `CheckpointError`."""

    def find(self, name: str, version: str | None = None) -> Path:
        """Find a directory with all files of a version, by default the highest; raises `CheckpointError`."""

    def check_writable(self, name: str) -> None:
        """Check that a version can be written; raises `CheckpointError`."""

    def write(
        self, name: str, spec: ModelSpec, tensors: Mapping[str, Tensor], *, extras: Mapping[str, bytes] | None = None
    ) -> WrittenVersion:
        """Write the next version as `write_checkpoint` does, all of it or nothing; raises `CheckpointError`."""


class DirectoryStore:
    """A directory of checkpoints."""

    in_place = True

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def place(self) -> str:
        """The path, as it was given."""
        return str(self.root)

    def list(self) -> list[CheckpointReference]:
        """List every version in the directory."""
        return list_checkpoints(self.root)

    def read_facts(self, reference: CheckpointReference) -> bytes:
        """Read ``model.json`` of a version."""
        return read_bounded(reference.path / FACTS_FILE)

    def find(self, name: str, version: str | None = None) -> Path:
        """Find the directory of a version."""
        return find_checkpoint(self.root, name, version)

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
        return WrittenVersion(str(self.root), str(directory), name, directory.name, report)


def store_at(place: Path | str, cache: CacheOptions | None = None) -> CheckpointStore:
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
