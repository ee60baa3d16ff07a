"""A version that is loaded when it is asked for: what the snapshot has of it, whether it is in memory or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.service.engine.jobs import ModelLike
    from murho.service.models.model_cache import ModelCache

__all__ = ["ListedVersion", "Served", "at_hand"]


class ListedVersion:
    """One version with one content. Versions are compared by identity: a new content is another object.

    Attributes:
        reference: Where it is.
        memory: What may hold it.
    """

    __slots__ = ("memory", "reference")

    def __init__(self, reference: CheckpointReference, memory: ModelCache) -> None:
        self.reference, self.memory = reference, memory

    @property
    def name(self) -> str:
        """The checkpoint's name."""
        return self.reference.name

    @property
    def version(self) -> str:
        """The checkpoint's version."""
        return self.reference.version


Served: TypeAlias = "ModelLike | ListedVersion"
"""What a snapshot has of a version: with the setting `loaded_models` a `ListedVersion`, else the loaded model."""


def at_hand(served: Served) -> ModelLike | None:
    """Returns the model of a version if it is in memory."""
    if not isinstance(served, ListedVersion):
        return served
    held = served.memory.peek(served)
    return None if held is None else held.model
