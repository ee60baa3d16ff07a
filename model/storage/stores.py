"""The two kinds of places of checkpoints behind one protocol, and the one function that decides between them by URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from murho.model.posterior.checkpoint import (
    FACTS_FILE,
    CheckpointReference,
    check_writable,
    find_checkpoint,
    list_checkpoints,
    write_checkpoint,
)
from murho.model.runtime.checkpoint_files import read_bounded
from murho.model.storage.places import is_url, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.posterior.model_spec import ModelSpec
    from murho.model.storage.cache import CacheOptions

__all__ = ["PAGE_FILE", "CheckpointStore", "DirectoryStore", "WrittenVersion", "store_at"]

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
        from murho.model.storage.object_store import ObjectStore

        return ObjectStore(chosen, cache)
    return DirectoryStore(Path(chosen))
