"""Where the service's checkpoints come from: a directory or object storage, or anything else with the same interface.

A version of a storage is fetched by the thread that loads, never by a request, and loaded from its local copy, whose
hashes were checked. The copy stays as long as the model does.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from murho.model.checkpoint.object_store import CheckpointCache, default_cache
from murho.model.checkpoint.stores import place_of, shown_place, store_at
from murho.model.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.model.checkpoint.stores import CheckpointStore, Lease
    from murho.model.predictive.draws import DrawRoom
    from murho.service.engine.jobs import ModelLike
    from murho.service.settings import Settings

__all__ = ["CheckpointSource", "Stamp", "StoreSource", "seconds_between_looks", "source_of"]

DIRECTORY_SECONDS = 1.0
STORAGE_SECONDS = 10.0
"""Seconds between two looks where the setting does not say: a look at a storage is a request that is paid for."""

Stamp: TypeAlias = "Hashable"
"""Changes whenever the content of a version may have changed."""


class CheckpointSource(Protocol):
    """Where checkpoints come from."""

    @property
    def place(self) -> str:
        """The name of the place in messages."""

    def list(self) -> list[CheckpointReference]:
        """Returns every version of every checkpoint, by name, then by rising version."""

    def stamp(self, reference: CheckpointReference) -> Stamp | None:
        """Returns the stamp of one version; None while it is being written."""

    def load(self, reference: CheckpointReference) -> ModelLike:
        """Loads one version."""

    def report_facts(self, model: ModelLike) -> dict[str, Any] | None:
        """Returns the facts that a loaded version keeps for its report (`model.report.facts`); None without them."""


class StoreSource:
    """Checkpoints of a directory or a storage.

    Args:
        store: Where they are.
        device: auto, cpu or cuda.
        room: Memory for the draws of all versions; None: each has a room of its own.
    """

    def __init__(self, store: CheckpointStore, device: str, *, room: DrawRoom | None = None) -> None:
        self._store, self._device, self._room = store, device, room
        self.place = shown_place(place_of(store.place))
        self._leases: weakref.WeakKeyDictionary[ModelLike, Lease] = weakref.WeakKeyDictionary()

    def list(self) -> list[CheckpointReference]:
        """Returns every version.

        Raises:
            CheckpointError: They can't be listed: no reason to drop what is served.
        """
        return self._store.list()

    def stamp(self, reference: CheckpointReference) -> Stamp | None:
        """Returns what changes with the content of a version that was listed; None while it is being written."""
        return self._store.stamp(reference)

    def load(self, reference: CheckpointReference) -> ModelLike:
        """Loads one version onto the device; it is fetched first, if it comes from a storage and the cache lacks it.

        Raises:
            StorageError: The storage can't be reached, or the cache can't be written.
            CheckpointError: The version is damaged or of a newer format.
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
        self._leases[model] = lease
        return model

    def report_facts(self, model: ModelLike) -> dict[str, Any] | None:
        """Returns the facts that a loaded version keeps for its report; None without them."""
        from murho.model.report.facts import stored_facts  # here, because torch takes seconds to import

        lease = self._leases.get(model)
        return None if lease is None else stored_facts(lease.directory)


def source_of(settings: Settings, room: DrawRoom | None = None) -> CheckpointSource:
    """Returns the source that the settings name: a directory or, by a URL, object storage.

    Args:
        settings: The settings.
        room: Memory for the draws of all versions.

    Raises:
        OptionError: The URL can't be used; the message says what to install.
    """
    cache = CheckpointCache(settings.checkpoint_cache or default_cache(), settings.checkpoint_cache_bytes)
    return StoreSource(store_at(settings.checkpoints, cache), settings.device, room=room)


def seconds_between_looks(settings: Settings) -> float:
    """Returns the seconds between two looks at the checkpoints; 0: none, only when asked to."""
    if settings.watch_seconds is not None:
        return settings.watch_seconds
    return STORAGE_SECONDS if isinstance(settings.checkpoints, str) else DIRECTORY_SECONDS
