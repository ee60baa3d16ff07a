"""The loaded checkpoints, by name and version: an immutable snapshot, swapped as a whole.

A checkpoint that can't be loaded is refused by name with the reason; all others are served.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import structlog

from murho.model.errors import MurhoError
from murho.model.posterior.checkpoint import list_checkpoints
from murho.service.errors import NotReadyError, UnknownModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from murho.model.posterior.checkpoint import CheckpointReference
    from murho.service.jobs import ModelLike

__all__ = [
    "CheckpointSource",
    "DirectorySource",
    "LoadedModel",
    "Refused",
    "Registry",
    "Snapshot",
]


class CheckpointSource(Protocol):
    """Where checkpoints come from."""

    @property
    def place(self) -> str:
        """The name of the place in messages."""

    def list(self) -> list[CheckpointReference]:
        """Returns every version of every checkpoint, by name, then by rising version."""

    def load(self, reference: CheckpointReference) -> ModelLike:
        """Loads one version and warms it up."""


class DirectorySource:
    """A directory of NAME/VERSION checkpoints.

    Args:
        root: The directory.
        device: auto, cpu or cuda.
        draws_bytes: Memory for the draws of each model, in bytes; None for `model.engines.draw_cache.KEPT_BYTES`.
    """

    def __init__(self, root: Path, device: str, *, draws_bytes: int | None = None) -> None:
        self.root = root
        self.device = device
        self.draws_bytes = draws_bytes

    @property
    def place(self) -> str:
        """The absolute path of the directory, because a relative path is ambiguous in a container's log."""
        return str(self.root.absolute())

    def list(self) -> list[CheckpointReference]:
        """Returns every version in the directory.

        Raises:
            CheckpointError: The directory can't be read.
        """
        return list_checkpoints(self.root)

    def load(self, reference: CheckpointReference) -> ModelLike:
        """Loads one version onto the device.

        Raises:
            CheckpointError: The checkpoint is damaged or of a newer format.
        """
        # Imported here, because torch takes seconds to import.
        from murho.model.engines.draw_cache import KEPT_BYTES
        from murho.model.posterior.posterior import Posterior
        from murho.model.runtime.devices import resolve_device

        draws_bytes = KEPT_BYTES if self.draws_bytes is None else self.draws_bytes
        return Posterior.load(reference.path, resolve_device(self.device), draws_bytes=draws_bytes)


@dataclass(frozen=True, slots=True)
class Refused:
    """A checkpoint that isn't served.

    Attributes:
        name: Its name.
        version: Its version, empty if the name has none.
        reason: Why it is refused.
    """

    name: str
    version: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """All loaded versions of one name.

    Attributes:
        name: The name.
        versions: Version to checkpoint, by rising version; at least one.
    """

    name: str
    versions: Mapping[str, ModelLike]

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
    """

    models: Mapping[str, LoadedModel]
    refused: tuple[Refused, ...]
    loaded: bool
    place: str

    def require_models(self) -> None:
        """Checks that at least one model is loaded.

        Raises:
            NotReadyError: Loading has not ended, or there is no checkpoint; the message says what to do.
        """
        if not self.loaded:
            raise NotReadyError("The checkpoints are still being loaded. Try again in a moment.", retry_after=1)
        if self.models:
            return
        advice = "Train one with `murho train DATA --target COLUMN`, then start the service again."
        if self.refused:
            reasons = "; ".join(f"{_title(item.name, item.version)}: {item.reason}" for item in self.refused)
            raise NotReadyError(f"No checkpoint in {self.place} can be served: {reasons}. {advice}", retry_after=60)
        raise NotReadyError(f"There is no checkpoint in {self.place}. {advice}", retry_after=60)

    def find(self, name: str, version: str | None = None) -> ModelLike:
        """Returns a model by name, its highest version by default.

        Raises:
            NotReadyError: No model is loaded.
            UnknownModelError: There is no such model or version; the message names the existing ones.
        """
        self.require_models()
        model = self.models.get(name)
        if model is not None and (version is None or version in model.versions):
            return model.latest if version is None else model.versions[version]
        for item in self.refused:
            if item.name == name and (version is None or item.version == version):
                raise UnknownModelError(f"{_title(item.name, item.version)} was refused: {item.reason}")
        if model is None:
            raise UnknownModelError(f"There is no model {name[:80]!r}; there are: {', '.join(self.models)}.")
        there = ", ".join(model.versions)
        raise UnknownModelError(f"Model {name!r} has no version {str(version)[:80]!r}; there are: {there}.")

    def find_default(self, default: str | None) -> ModelLike:
        """Returns the model behind `POST /predict`: the named default, else the only one.

        Raises:
            NotReadyError: No model is loaded.
            UnknownModelError: There are several models and no default, or the default isn't loaded.
        """
        self.require_models()
        if default is not None:
            return self.find(default)
        if len(self.models) > 1:
            paths = ", ".join(f"/models/{name}/predict" for name in self.models)
            raise UnknownModelError(
                f"There are {len(self.models)} models and none is the default. POST to one of {paths}, or "
                "start the service with --default-model NAME."
            )
        return next(iter(self.models.values())).latest


class Registry:
    """Holds the current snapshot.

    Args:
        source: Where checkpoints come from.
    """

    def __init__(self, source: CheckpointSource) -> None:
        self._source = source
        self.snapshot = Snapshot(MappingProxyType({}), (), loaded=False, place=source.place)

    def load(self, stopping: Callable[[], bool] = lambda: False) -> Snapshot:
        """Loads and warms up every checkpoint, then swaps the snapshot; returns the current snapshot.

        Never raises: an error in one checkpoint becomes the reason why it is refused.

        Args:
            stopping: Called before each checkpoint; once it returns true, loading ends and nothing is swapped.
        """
        log = structlog.get_logger("murho.registry")
        models: dict[str, dict[str, ModelLike]] = {}
        refused: list[Refused] = []
        try:
            references = self._source.list()
        except MurhoError as error:
            references = []
            refused.append(Refused("", "", str(error)))
        for reference in references:
            if stopping():
                return self.snapshot
            reason = reference.problem
            if reason is None:
                try:
                    model = self._source.load(reference)
                    model.warm_up()
                except MurhoError as error:
                    reason = str(error)
                except Exception as error:
                    log.exception("checkpoint failed", model=reference.name, version=reference.version)
                    reason = f"loading failed unexpectedly with {type(error).__name__}: {error}"
                else:
                    models.setdefault(reference.name, {})[reference.version] = model
                    log.info("checkpoint loaded", model=reference.name, version=reference.version)
                    continue
            refused.append(Refused(reference.name, reference.version, reason))
            log.warning("checkpoint refused", model=reference.name, version=reference.version, reason=reason)
        loaded = {
            name: LoadedModel(name, MappingProxyType(dict(sorted(versions.items(), key=lambda item: int(item[0])))))
            for name, versions in sorted(models.items())
        }
        self.snapshot = Snapshot(MappingProxyType(loaded), tuple(refused), loaded=True, place=self._source.place)
        return self.snapshot

    def fail(self, reason: str) -> None:
        """Ends loading with no model to serve, for a reason that does not belong to a single checkpoint."""
        refused = (*self.snapshot.refused, Refused("", "", reason))
        self.snapshot = replace(self.snapshot, refused=refused, loaded=True)


def _title(name: str, version: str) -> str:
    return f"{name} version {version}" if version else name or "all of it"
