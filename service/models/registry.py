"""The served checkpoints, by name and version: an immutable snapshot, swapped as a whole.

A checkpoint that can't be loaded is refused by name with the reason; all others are served. A request holds the model
that it began with, so it ends on that version, whatever is swapped meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from murho.service.errors import NotReadyError, UnknownModelError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from murho.service.engine.jobs import ModelLike

__all__ = [
    "MOST_LISTED",
    "LoadedModel",
    "Refused",
    "Registry",
    "Snapshot",
    "first_of",
    "title_of",
]

MOST_LISTED = 10
"""Names in a message."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A checkpoint that isn't served.

    Attributes:
        name: Its name.
        version: Its version, empty if the name has none.
        reason: Why it is refused.
        waiting: Whether it is still being written, which is no error.
    """

    name: str
    version: str
    reason: str
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The served versions of one name.

    Attributes:
        name: The name.
        versions: Version to checkpoint, by rising version; at least one.
        since: Version to the time at which it was loaded, UTC.
    """

    name: str
    versions: Mapping[str, ModelLike]
    since: Mapping[str, datetime]

    @property
    def latest(self) -> ModelLike:
        """The highest version that loaded."""
        return self.versions[list(self.versions)[-1]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The checkpoints that are served at one moment.

    Attributes:
        models: Name to model, by name.
        refused: Checkpoints that are not served, and why.
        loaded: Whether loading has ended.
        place: Where the checkpoints come from.
        not_served: Name to the versions that are there, and are neither served nor refused.
        unloaded: Names that were unloaded by hand.
    """

    models: Mapping[str, LoadedModel]
    refused: tuple[Refused, ...]
    loaded: bool
    place: str
    not_served: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unloaded: tuple[str, ...] = ()

    @property
    def unreachable(self) -> bool:
        """Whether the place of the checkpoints could not be listed at the last look."""
        return any(not item.name for item in self.refused)

    @property
    def served(self) -> list[ModelLike]:
        """Every version that is served, by name, then by rising version."""
        return [model for each in self.models.values() for model in each.versions.values()]

    def require_models(self) -> None:
        """Checks that at least one model is loaded.

        Raises:
            NotReadyError: Loading has not ended, or there is no checkpoint; the message says what to do.
        """
        if self.models:
            return
        if not self.loaded:
            raise NotReadyError("The checkpoints are still being loaded. Try again in a moment.", retry_after=1)
        if self.unloaded:
            paths = first_of([f"/models/{name}/load" for name in self.unloaded])
            raise NotReadyError(f"No model is loaded. What was unloaded comes back by POST to {paths}.", retry_after=60)
        advice = "Train one with `murho train DATA --target COLUMN`."
        if self.refused:
            reasons = first_of([f"{title_of(item.name, item.version)}: {item.reason}" for item in self.refused], "; ")
            raise NotReadyError(f"No checkpoint in {self.place} can be served: {reasons}. {advice}", retry_after=60)
        raise NotReadyError(f"There is no checkpoint in {self.place}. {advice}", retry_after=60)

    def find(self, name: str, version: str | None = None) -> ModelLike:
        """Returns a model by name, its highest version by default.

        Raises:
            NotReadyError: No model is loaded.
            UnknownModelError: There is no such model or version; the message names the existing ones.
        """
        model = self.models.get(name)
        if model is not None and (version is None or version in model.versions):
            return model.latest if version is None else model.versions[version]
        self.require_models()
        for item in self.refused:
            if item.name == name and (version is None or item.version == version):
                raise UnknownModelError(f"{title_of(item.name, item.version)} was refused: {item.reason}")
        if name in self.unloaded:
            raise UnknownModelError(f"Model {name!r} was unloaded; POST /models/{name}/load loads it again.")
        if model is None:
            raise UnknownModelError(f"There is no model {name[:80]!r}; there are: {first_of(self.models)}.")
        there = ", ".join(model.versions)
        if version in self.not_served.get(name, ()):
            raise UnknownModelError(
                f"Version {version} of model {name!r} is there, but is not served; served is: {there}. "
                "The setting MURHO_VERSIONS=all serves every version."
            )
        raise UnknownModelError(f"Model {name!r} has no version {str(version)[:80]!r}; there are: {there}.")

    def find_default(self, default: str | None) -> ModelLike:
        """Returns the model behind `POST /predict`: the named default, else the only one.

        Raises:
            NotReadyError: No model is loaded.
            UnknownModelError: There are several models and no default, or the default isn't loaded.
        """
        if default is not None:
            return self.find(default)
        self.require_models()
        if len(self.models) > 1:
            paths = first_of([f"/models/{name}/predict" for name in self.models])
            raise UnknownModelError(
                f"There are {len(self.models)} models and none is the default. POST to one of {paths}, or "
                "start the service with --default-model NAME."
            )
        return next(iter(self.models.values())).latest


class Registry:
    """Holds the current snapshot; `service.models.loader.Loader` makes the next one.

    Args:
        place: Where checkpoints come from, for messages.
    """

    def __init__(self, place: str) -> None:
        self.snapshot = Snapshot(MappingProxyType({}), (), loaded=False, place=place)

    def fail(self, reason: str) -> None:
        """Ends loading with no model to serve, for a reason that does not belong to a single checkpoint."""
        refused = (*self.snapshot.refused, Refused("", "", reason))
        self.snapshot = replace(self.snapshot, refused=refused, loaded=True)


def first_of(words: Collection[str], between: str = ", ") -> str:
    """Returns words for a message: all, or the first ten and how many more there are."""
    more = len(words) - MOST_LISTED
    return between.join(islice(words, MOST_LISTED)) + (f" and {more} more" if more > 0 else "")


def title_of(name: str, version: str) -> str:
    """Returns what a checkpoint is called in messages."""
    return f"{name} version {version}" if version else name or "all of it"
