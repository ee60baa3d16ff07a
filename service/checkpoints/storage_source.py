"""Checkpoints of the service in object storage, fetched by the thread that loads and never by a request.

A version is loaded from its local copy, whose hashes were checked. The copy stays as long as the model does.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from murho.model.checkpoint.cache import CacheOptions, default_cache
from murho.model.checkpoint.objects import MANIFEST_FILE
from murho.model.errors import CheckpointError
from murho.service.checkpoints.source import DirectorySource

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.model.checkpoint.object_store import ObjectStore
    from murho.model.predictive.draw_room import DrawRoom
    from murho.service.checkpoints.source import CheckpointSource, Stamp
    from murho.service.scheduling.jobs import ModelLike
    from murho.service.settings import Settings

__all__ = ["DIRECTORY_SECONDS", "STORAGE_SECONDS", "StorageSource", "seconds_between_looks", "source_of"]

DIRECTORY_SECONDS = 1.0
STORAGE_SECONDS = 10.0
"""Seconds between two looks where the setting does not say: a look at a storage is a request that is paid for."""


class StorageSource:
    """Object storage of NAME/VERSION checkpoints.

    Args:
        store: The storage with its cache.
        device: auto, cpu or cuda.
        room: Memory for the draws of all versions; None: each has a room of its own.
    """

    marker = MANIFEST_FILE

    def __init__(self, store: ObjectStore, device: str, *, room: DrawRoom | None = None) -> None:
        self._store, self._device, self._room = store, device, room
        self._directories: weakref.WeakKeyDictionary[ModelLike, Path] = weakref.WeakKeyDictionary()

    @property
    def place(self) -> str:
        """The URL."""
        return self._store.place

    def list(self) -> list[CheckpointReference]:
        """Returns every version in the storage.

        Raises:
            CheckpointError: It can't be listed: no reason to drop what is served.
        """
        return self._store.list(unfinished=True)

    def stamp(self, reference: CheckpointReference) -> Stamp | None:
        """Returns what changes with any object of a version, as of the last listing; None without a manifest."""
        return self._store.stamp(reference)

    def load(self, reference: CheckpointReference) -> ModelLike:
        """Fetches one version, unless the cache has it, and loads it onto the device.

        Raises:
            StorageError: The storage can't be reached, or the cache can't be written.
            CheckpointError: The version is not what its manifest says, damaged or of a newer format.
        """
        # Imported here, because torch takes seconds to import.
        from murho.model.checkpoint.posterior import Posterior
        from murho.model.runtime import resolve_device

        lease = self._store.fetch(reference)
        try:
            model = Posterior.load(lease.directory, resolve_device(self._device), room=self._room)
        except CheckpointError as error:
            address = f"{self.place}/{reference.name}/{reference.version}"
            raise CheckpointError(str(error).replace(str(lease.directory), address)) from error
        weakref.finalize(model, lease.release)
        self._directories[model] = lease.directory
        return model

    def report_facts(self, model: ModelLike) -> dict[str, Any] | None:
        """Returns the facts that a loaded version keeps for its report; None without them."""
        from murho.model.report.facts import stored_facts  # here, because torch takes seconds to import

        directory = self._directories.get(model)
        return None if directory is None else stored_facts(directory)


def source_of(settings: Settings, room: DrawRoom | None = None) -> CheckpointSource:
    """Returns the source that the settings name: a directory or, by a URL, object storage.

    Args:
        settings: The settings.
        room: Memory for the draws of all versions.

    Raises:
        OptionError: The URL can't be used; the message says what to install.
    """
    if not isinstance(settings.checkpoints, str):
        return DirectorySource(settings.checkpoints, settings.device, room=room)
    from murho.model.checkpoint.object_store import ObjectStore  # here: only a URL takes fsspec

    cache = CacheOptions(settings.checkpoint_cache or default_cache(), settings.checkpoint_cache_bytes)
    store = ObjectStore(settings.checkpoints, cache)
    return StorageSource(store, settings.device, room=room)


def seconds_between_looks(settings: Settings) -> float:
    """Returns the seconds between two looks at the checkpoints; 0: none, only when asked to."""
    if settings.watch_seconds is not None:
        return settings.watch_seconds
    return STORAGE_SECONDS if isinstance(settings.checkpoints, str) else DIRECTORY_SECONDS
