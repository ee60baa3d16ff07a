"""Where checkpoints come from: a directory or a storage.

A version is read by the thread that loads, never by a request for a prediction; nothing of it is kept on a local disk.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from murho.model.checkpoint.stores import CheckpointStore, place_of, shown_place

if TYPE_CHECKING:
    from collections.abc import Hashable

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.model.predictive.draw_room import DrawRoom
    from murho.service.engine.jobs import ModelLike

Stamp: TypeAlias = "Hashable"
"""Changes whenever the content of a version may have changed."""


class CheckpointSource:
    """Checkpoints of a directory or a storage.

    Args:
        store: Where they are.
        device: auto, cpu or cuda.
        room: Memory for the draws of all versions; None: each has a room of its own.

    Attributes:
        place: The name of the place in messages.
    """

    def __init__(self, store: CheckpointStore, device: str, *, room: DrawRoom | None = None) -> None:
        self._store, self._device, self._room = store, device, room
        self.place = shown_place(place_of(store.place))
        self._loaded: weakref.WeakKeyDictionary[ModelLike, CheckpointReference] = weakref.WeakKeyDictionary()

    def list(self) -> list[CheckpointReference]:
        """Returns every version of every checkpoint, by name, then by rising version."""
        return self._store.list()

    def stamp(self, reference: CheckpointReference) -> Stamp | None:
        """Returns the stamp of one version; None while it is being written."""
        return self._store.stamp(reference)

    def prepare(self) -> None:
        """Loads the compiled code that versions on a CPU share; it takes minutes at the first start of all."""
        from murho.model.predictive.compiled_engine import load  # here, because torch takes seconds to import
        from murho.model.runtime import resolve_device

        if resolve_device(self._device) == "cpu":
            load()

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

    def reference_of(self, model: ModelLike) -> CheckpointReference | None:
        """Returns where a model was loaded from."""
        return getattr(model, "reference", None) or self._loaded.get(model)

    def report_facts(self, model: ModelLike) -> dict[str, Any]:
        """Returns the facts that a loaded version keeps for its report; empty if there are none that can be read."""
        from murho.model.report.facts import stored_facts  # here, because torch takes seconds to import

        reference = self.reference_of(model)
        return {} if reference is None else stored_facts(partial(self._store.read, reference))
