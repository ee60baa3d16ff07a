"""`KeptVersions`: the versions that are loaded or listed, as long as they do not change; and why others are refused.

Whether a version has changed is told by its stamp (`service.models.source.CheckpointSource.stamp`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import structlog

from murho.model.checkpoint.checkpoint import FACTS_FILE
from murho.service.models.loading import LoadingError
from murho.service.models.on_demand import ListedVersion, at_hand
from murho.service.models.registry import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.service.models.on_demand import Served
    from murho.service.models.source import CheckpointSource, Stamp

__all__ = ["KeptVersions", "Key", "Look", "Outcome", "StoppingError"]

Key: TypeAlias = tuple[str, str]
"""Name and version."""
Outcome: TypeAlias = Literal["loaded", "refused", "unloaded"]
"""What happened to one version."""


@dataclass(frozen=True, slots=True)
class _Kept:
    stamp: Stamp
    model: Served
    since: datetime


@dataclass(frozen=True, slots=True)
class _Failed:
    """Why a version could not be loaded.

    Attributes:
        stamp: Its stamp.
        reason: The reason.
        passing: Whether it says nothing about the version, which is tried again at every look.
    """

    stamp: Stamp
    reason: str
    passing: bool = False


@dataclass(slots=True)
class Look:
    """One look at the source.

    Attributes:
        retry: Whether refused versions are tried again though they have not changed.
        patient: Whether a version that fails or is gone gets time until the next look: it may be in the middle of
            being copied or replaced.
        stopping: Whether the service stops: asked before each version.
        now: Whether what is wanted is to be in memory at the end.
        refused: What was refused.
    """

    retry: bool
    patient: bool
    stopping: Callable[[], bool]
    now: bool = False
    refused: list[Refused] = field(default_factory=list)


class StoppingError(Exception):
    """The service stops: nothing is swapped."""


class KeptVersions:
    """Loads or lists versions of a source, and keeps them.

    Args:
        source: Where checkpoints come from.
        load: Loads a version of the source, or lists it; raises a `LoadingError`.
        count: Called with what happened to each version.
    """

    def __init__(
        self,
        source: CheckpointSource,
        load: Callable[[CheckpointReference], Served],
        count: Callable[[Outcome], None],
    ) -> None:
        self._source, self._load, self._count = source, load, count
        self._kept: dict[Key, _Kept] = {}
        self._failed: dict[Key, _Failed] = {}
        self._doubtful: dict[Key, Stamp] = {}
        self._log = structlog.get_logger("murho.registry")

    def by_name(self) -> dict[str, dict[str, Served]]:
        """Name → version → what is kept of it."""
        found: dict[str, dict[str, Served]] = {}
        for (name, version), kept in self._kept.items():
            found.setdefault(name, {})[version] = kept.model
        return found

    def since(self, key: Key) -> datetime:
        """When a version that is kept was loaded or listed."""
        return self._kept[key].since

    def obtain(self, reference: CheckpointReference, look: Look) -> Served | None:
        """The model of a version: the one that is kept, if nothing changed, else loaded or listed now.

        A version that fails leaves the one in place that was loaded from the same directory before, if there is one.

        Args:
            reference: The version.
            look: Gets the reason if the version is refused.

        Raises:
            StoppingError: The service stops.
        """
        if look.stopping():
            raise StoppingError
        key = reference.name, reference.version
        stamp = self._source.stamp(reference)
        kept = self._kept.get(key)
        if kept is not None and kept.stamp == stamp:
            if look.now and isinstance(kept.model, ListedVersion):
                return _held(kept.model, look)
            return kept.model
        fallback = None if kept is None else kept.model
        if stamp is None:
            look.refused.append(Refused(*key, f"there is no {FACTS_FILE} yet", waiting=True))
            return fallback
        failed = self._failed.get(key)
        if failed is not None and failed.stamp == stamp and not failed.passing and not look.retry:
            look.refused.append(Refused(*key, failed.reason))
            return fallback
        try:
            model = self._load(reference)
            if look.now and isinstance(model, ListedVersion):
                model.memory.hold(model)
        except LoadingError as error:
            if look.patient and not error.passing and self._doubtful.get(key) != stamp:
                self._doubtful[key] = stamp
                return fallback
            self._refused(key, _Failed(stamp, str(error), error.passing))
            look.refused.append(Refused(*key, str(error)))
            return fallback
        self._kept[key] = _Kept(stamp, model, datetime.now(UTC))
        self._failed.pop(key, None)
        if at_hand(model) is not None:
            self._log.info("checkpoint loaded", model=key[0], version=key[1])
            self._count("loaded")
        return model

    def refuse(self, version: ListedVersion, reason: str) -> bool:
        """Lets go of a version that could not be loaded when it was asked for, and refuses it until it changes.

        Returns:
            Whether it was kept. If not, it has changed meanwhile, or somebody else was told first.
        """
        key = version.name, version.version
        kept = self._kept.get(key)
        if kept is None or kept.model is not version:
            return False
        if self._source.stamp(version.reference) == kept.stamp:
            self._refused(key, _Failed(kept.stamp, reason))
        del self._kept[key]
        return True

    def forget_failures_except(self, there: Collection[Key]) -> None:
        """Forgets why versions failed that are no longer there."""
        self._failed = {key: value for key, value in self._failed.items() if key in there}
        self._doubtful = {key: value for key, value in self._doubtful.items() if key in there}

    def keep_only(self, served: Collection[Key]) -> list[Key]:
        """Lets go of all versions but these; returns those it lets go of."""
        others = [key for key in self._kept if key not in served]
        for key in others:
            if at_hand(self._kept.pop(key).model) is not None:
                self._count("unloaded")
                self._log.info("checkpoint unloaded", model=key[0], version=key[1])
        return others

    def _refused(self, key: Key, failed: _Failed) -> None:
        """Remembers why a version is refused, and says so once."""
        if self._failed.get(key) != failed:
            self._log.warning("checkpoint refused", model=key[0], version=key[1], reason=failed.reason)
            self._count("refused")
        self._failed[key] = failed


def _held(version: ListedVersion, look: Look) -> ListedVersion:
    """A version that is listed; adds to the look why it can't be in memory."""
    try:
        version.memory.hold(version)
    except LoadingError as error:
        look.refused.append(Refused(version.name, version.version, str(error)))
    return version
