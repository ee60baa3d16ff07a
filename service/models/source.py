"""Where the service's checkpoints come from: a directory or object storage, or anything else with the same interface.

A version is read by the thread that loads, never by a request for a prediction. Nothing of it is kept on a local disk.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from murho.model.checkpoint.stores import place_of, shown_place, store_at

if TYPE_CHECKING:
    from collections.abc import Hashable

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.model.checkpoint.stores import CheckpointStore
    from murho.model.predictive.draw_room import DrawRoom
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
        self._loaded: weakref.WeakKeyDictionary[ModelLike, CheckpointReference] = weakref.WeakKeyDictionary()

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
        """Loads one version onto the device.

        Raises:
            StorageError: The storage can't be reached.
            CheckpointError: The version is damaged or of a newer format.
        """
        # Imported here, because torch takes seconds to import.
        from murho.model.checkpoint.posterior import Posterior
        from murho.model.runtime import resolve_device

        model = Posterior.of_stored(self._store.fetch(reference), resolve_device(self._device), room=self._room)
        self._loaded[model] = reference
        return model

    def report_facts(self, model: ModelLike) -> dict[str, Any] | None:
        """Returns the facts that a loaded version keeps for its report; None without them, or if they can't be read."""
        from murho.model.report.facts import stored_facts  # here, because torch takes seconds to import

        reference = self._loaded.get(model)
        return None if reference is None else stored_facts(partial(self._store.read, reference))


def source_of(settings: Settings, room: DrawRoom | None = None) -> CheckpointSource:
    """Returns the source that the settings name: a directory or, by a URL, object storage.

    Args:
        settings: The settings.
        room: Memory for the draws of all versions.

    Raises:
        OptionError: The URL can't be used; the message says what to install.
    """
    return StoreSource(store_at(settings.checkpoints), settings.device, room=room)


def seconds_between_looks(settings: Settings) -> float:
    """Returns the seconds between two looks at the checkpoints; 0: none, only when asked to."""
    if settings.watch_seconds is not None:
        return settings.watch_seconds
    return STORAGE_SECONDS if isinstance(settings.checkpoints, str) else DIRECTORY_SECONDS
