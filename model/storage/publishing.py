"""Puts a version into object storage, all of it or nothing: files first, the manifest last."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from murho.model.errors import CheckpointError
from murho.model.posterior.checkpoint_directories import validate_name
from murho.model.storage.manifest import MANIFEST_FILE, Manifest
from murho.model.storage.versions import highest_number

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.storage.objects import ObjectStorage

__all__ = ["check_publishable", "publish"]

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
