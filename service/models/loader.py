"""The loader: decides which versions of the source are served, and makes the next snapshot of them.

A new version is loaded and warmed up beside the old one, then the snapshot is swapped as a whole. A version that can't
be loaded is refused with the reason, and what served before serves on. A stamp
(`service.models.source.CheckpointSource.stamp`) tells whether a version has changed. Nothing here computes answers: it
may run in any one thread, and so it runs beside the compute thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import structlog

from murho.model.checkpoint.checkpoint import FACTS_FILE, CheckpointReference
from murho.model.errors import MurhoError
from murho.service.errors import CheckpointRefusedError, NotReadyError, UnknownModelError
from murho.service.models.source import LoadingError
from murho.service.settings import VersionPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from murho.service.engine.jobs import ModelLike
    from murho.service.models.source import CheckpointSource, Stamp

Key: TypeAlias = tuple[str, str]
"""Name and version."""
Outcome: TypeAlias = Literal["loaded", "refused", "unloaded"]
"""What happened to one version."""


class Change(NamedTuple):
    """What somebody wants served from now on. Of several for one name the last one counts alone.

    Attributes:
        name: The name; empty: all are looked at, and refused versions are tried again.
        version: The only version of the name to serve; None: what the policy says.
        unload: Whether the name is taken out of service instead, until it is loaded again.
        patient: Of all: whether this is a look in between, see `Loader.refresh`; refused versions are not tried again.
    """

    name: str = ""
    version: str | None = None
    unload: bool = False
    patient: bool = False


class Swap(NamedTuple):
    """The snapshots before and after a change."""

    before: Snapshot
    after: Snapshot


class _Kept(NamedTuple):
    """A version in memory, as long as its stamp is the same."""

    stamp: Stamp
    model: ModelLike
    since: datetime


class _Failed(NamedTuple):
    """Why a version could not be loaded, and whether it is tried again though its stamp is the same."""

    stamp: Stamp
    reason: str
    again: bool


@dataclass(slots=True)
class _Look:
    """One look at the source.

    Attributes:
        retry: Whether refused versions are tried again though they have not changed.
        patient: Whether a version that fails or is gone gets time until the next look: it may be in the middle of
            being copied or replaced.
        refused: What was refused.
    """

    retry: bool
    patient: bool
    refused: list[Refused] = field(default_factory=list)


class Loader:
    """Loads what the policy wants served, and swaps the registry's snapshot. One thread uses it at a time.

    Args:
        source: Where checkpoints come from.
        registry: Gets the snapshots.
        policy: Which versions are served.
        count: Called with what happened to each version.
        seconds: The most time that loading a version may take; None: any.
        stopping: Asked before each version; once it returns true, loading ends and nothing is swapped.
    """

    def __init__(
        self,
        source: CheckpointSource,
        registry: Registry,
        policy: VersionPolicy | None = None,
        *,
        count: Callable[[Outcome], None] = lambda _: None,
        seconds: float | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source, self._registry, self._policy = source, registry, policy or VersionPolicy()
        self._count, self._seconds, self._stopping = count, seconds, stopping
        self._kept: dict[Key, _Kept] = {}
        self._failed: dict[Key, _Failed] = {}
        self._missing: set[Key] = set()  # kept, and gone at the last look
        self._unloaded: set[str] = set()
        self._chosen: dict[str, str] = {}
        self._log = structlog.get_logger("murho.registry")

    def refresh(self, *, retry: bool = True, patient: bool = False) -> Snapshot:
        """Look at the source, load what is new, and swap the snapshot if anything changed; return the current one.

        Never raises: an error in one checkpoint becomes the reason why it is refused.

        Args:
            retry: Whether refused versions are tried again though they have not changed.
            patient: Whether a version that fails or is gone gets time until the next look.
        """
        before = self._registry.snapshot
        try:
            references = self._source.list()
        except MurhoError as error:
            if not before.loaded or not before.unreachable:
                self._log.warning("checkpoints can't be listed", reason=str(error))
            return self._swap(replace(before, refused=(Refused("", "", str(error)),), loaded=True))
        if before.unreachable:
            self._log.info("checkpoints can be listed again")
        try:
            return self._swap(self._snapshot(references, _Look(retry, patient)))
        except NotReadyError:
            return before

    def apply(self, change: Change) -> None:
        """Do what is wanted at once, and return when it is served.

        Raises:
            UnknownModelError: There is no such name or version.
            CheckpointRefusedError: It can't be loaded; what was served before is served on.
        """
        if not change.name:
            self.refresh(retry=not change.patient, patient=change.patient)
        elif change.unload:
            if change.name not in self._registry.snapshot.models and change.name not in self._unloaded:
                self._references(change.name)
            self._unloaded.add(change.name)
            self._chosen.pop(change.name, None)
            self.refresh(retry=False)
        else:
            self._load(change.name, change.version)

    def _load(self, name: str, version: str | None) -> None:
        """Serve a name, also one that was unloaded; of one that was, the newest version that can be loaded."""
        references = self._references(name)
        there = [each.version for each in references if each.name == name and each.version]
        if version is not None and version not in there:
            raise UnknownModelError(
                f"Model {name!r} has no version {version[:80]!r}; there are: {', '.join(there) or 'none'}."
            )
        was_served = self._registry.snapshot.models.get(name)
        unloaded, chosen = self._unloaded.copy(), self._chosen.copy()
        self._unloaded.discard(name)
        self._chosen.pop(name, None)
        if version is not None:
            self._chosen[name] = version
        self._failed = {key: failed for key, failed in self._failed.items() if key[0] != name}
        snapshot = self._snapshot(references, _Look(retry=False, patient=False))
        served = snapshot.models.get(name)
        refused = [each for each in snapshot.refused if each.name == name and version in (None, each.version)]
        worst = max(refused, key=lambda each: int(each.version or 0), default=Refused(name, "", "nothing to serve"))
        if served is not None and not (was_served and int(worst.version or 0) >= int(served.latest.version)):
            self._swap(snapshot)
            return
        self._unloaded, self._chosen = unloaded, chosen
        self.refresh(retry=False)
        on = f" Version {was_served.latest.version} is served on." if was_served else ""
        raise CheckpointRefusedError(f"{title_of(name, worst.version)} was refused: {worst.reason}.{on}")

    def _references(self, name: str) -> list[CheckpointReference]:
        """Return all versions in the source.

        Raises:
            UnknownModelError: There is none of this name.
            CheckpointRefusedError: They can't be listed.
        """
        try:
            found = self._source.list()
        except MurhoError as error:
            raise CheckpointRefusedError(f"{error}.") from error
        names = dict.fromkeys(each.name for each in found)
        if name not in names:
            there = ", ".join(names) or "none"
            raise UnknownModelError(f"There is no model {name[:80]!r} in {self._source.place}; there are: {there}.")
        return found

    def _snapshot(self, references: list[CheckpointReference], look: _Look) -> Snapshot:
        by_name: dict[str, list[CheckpointReference]] = {name: [] for name in self._policy.pins}
        by_name |= {name: [] for name, _ in self._kept}
        for reference in references:
            by_name.setdefault(reference.name, []).append(reference)
        there = {(each.name, each.version) for each in references}
        self._failed = {key: failed for key, failed in self._failed.items() if key in there}
        models, not_served = {}, {}
        for name, mine in sorted(by_name.items()):
            if name in self._unloaded:
                continue
            before = len(look.refused)
            serving = self._serving(name, mine, look)
            if serving:
                versions = {version: serving[version] for version in sorted(serving, key=int)}
                since = {version: self._kept[name, version].since for version in versions}
                latest = versions[list(versions)[-1]]
                models[name] = LoadedModel(name, latest, MappingProxyType(versions), MappingProxyType(since))
            told = {*serving, *(each.version for each in look.refused[before:])}
            if others := tuple(each.version for each in mine if each.version not in told):
                not_served[name] = others
        unloaded = tuple(sorted(self._unloaded & by_name.keys()))
        return Snapshot(MappingProxyType(models), tuple(look.refused), True, self._source.place, not_served, unloaded)

    def _serving(self, name: str, references: list[CheckpointReference], look: _Look) -> dict[str, ModelLike]:
        """Return the versions of a name to serve, from those there and kept; add what is refused to the look."""
        look.refused.extend(Refused(name, each.version, each.problem) for each in references if each.problem)
        unreadable = {each.version for each in references if each.unreadable}
        there = {each.version: each for each in references if each.problem is None}
        self._missing -= {(name, version) for version in there}
        held: dict[str, ModelLike] = {}
        for (of, version), kept in self._kept.items():
            patient = look.patient and (name, version) not in self._missing
            if of == name and version not in there and (patient or unreadable & {version, ""}):
                held[version] = kept.model
                self._missing.add((name, version))
        chosen = self._chosen.get(name)
        if chosen is not None and chosen not in there and chosen not in held:
            self._log.warning("the version chosen by hand is gone", model=name, version=chosen)
            del self._chosen[name]
        wanted = {*there, *held}
        pin = self._chosen.get(name, self._policy.pins.get(name))
        if pin is not None:
            if pin not in wanted and pin not in {each.version for each in references}:
                look.refused.append(Refused(name, pin, "pinned version not found"))
            wanted &= {pin}
        serving = {}
        for version in sorted(wanted, key=int, reverse=True):
            found = held[version] if version in held else self._obtain(there[version], look)
            if found is not None:
                serving[version] = found
                if not self._policy.every_version:
                    break
        return serving

    def _obtain(self, reference: CheckpointReference, look: _Look) -> ModelLike | None:
        """Return the model of a version: the one that is kept, if nothing changed, else loaded now.

        A version that fails leaves the one in place that was loaded from the same directory before, if there is one.

        Raises:
            NotReadyError: The service stops.
        """
        if self._stopping():
            raise NotReadyError("The service is shutting down.")
        key = reference.name, reference.version
        stamp = self._source.stamp(reference)
        kept, failed = self._kept.get(key), self._failed.get(key)
        if kept is not None and kept.stamp == stamp:
            return kept.model
        before = None if kept is None else kept.model
        if stamp is None:
            look.refused.append(Refused(*key, f"there is no {FACTS_FILE} yet", waiting=True))
            return before
        known = failed is not None and failed.stamp == stamp
        if failed is not None and known and not failed.again and not look.retry:
            look.refused.append(Refused(*key, failed.reason))
            return before
        try:
            model = self._source.load_warm(reference, self._seconds)
        except LoadingError as error:
            first = look.patient and not error.passing and not known
            now = self._failed[key] = _Failed(stamp, str(error), first or error.passing)
            if first:
                return before
            look.refused.append(Refused(*key, now.reason))
            if failed != now:
                self._log.warning("checkpoint refused", model=key[0], version=key[1], reason=now.reason)
                self._count("refused")
            return before
        self._kept[key] = _Kept(stamp, model, datetime.now(UTC))
        self._failed.pop(key, None)
        self._log.info("checkpoint loaded", model=key[0], version=key[1])
        self._count("loaded")
        return model

    def _swap(self, snapshot: Snapshot) -> Snapshot:
        """Make a snapshot the current one, and lets go of the versions that are no longer in it."""
        before = self._registry.snapshot
        self._registry.snapshot = snapshot
        served = {(model.name, version) for model in snapshot.models.values() for version in model.versions}
        for key in self._kept.keys() - served:
            del self._kept[key]
            self._log.info("checkpoint unloaded", model=key[0], version=key[1])
            self._count("unloaded")
        self._missing &= served
        for name, model in snapshot.models.items():
            old = before.models.get(name)
            if old is not None and old.latest is not model.latest:
                self._log.info(
                    "checkpoint swapped", model=name, version=model.latest.version, before=old.latest.version
                )
        return snapshot


MOST_LISTED = 10
"""Names in a message."""


class Refused(NamedTuple):
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


class LoadedModel(NamedTuple):
    """The served versions of one name.

    Attributes:
        name: The name.
        latest: The highest version that loaded.
        versions: Version to checkpoint, by rising version; at least one.
        since: Version to the time at which it was loaded, UTC.
    """

    name: str
    latest: ModelLike
    versions: Mapping[str, ModelLike]
    since: Mapping[str, datetime]


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
        """Check that at least one model is loaded.

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

    def find(self, name: str | None, version: str | None = None) -> ModelLike:
        """Return a model by name, its highest version by default; without a name, the only one.

        Raises:
            NotReadyError: No model is loaded.
            UnknownModelError: There is no such model or version, or more than one; the message names the existing ones.
        """
        if name is None:
            self.require_models()
            if len(self.models) > 1:
                paths = first_of([f"/models/{each}/predict" for each in self.models])
                raise UnknownModelError(
                    f"There are {len(self.models)} models and none is the default. POST to one of {paths}, or "
                    "start the service with --default-model NAME."
                )
            return next(iter(self.models.values())).latest
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


class Registry:
    """Holds the current snapshot; `service.models.loader.Loader` makes the next one.

    Args:
        place: Where checkpoints come from, for messages.
    """

    def __init__(self, place: str) -> None:
        self.snapshot = Snapshot(MappingProxyType({}), (), loaded=False, place=place)

    def fail(self, reason: str) -> None:
        """End loading with no model to serve, for a reason that does not belong to a single checkpoint."""
        refused = (*self.snapshot.refused, Refused("", "", reason))
        self.snapshot = replace(self.snapshot, refused=refused, loaded=True)


def first_of(words: Collection[str], between: str = ", ") -> str:
    """Return words for a message: all, or the first ten and how many more there are."""
    more = len(words) - MOST_LISTED
    return between.join(islice(words, MOST_LISTED)) + (f" and {more} more" if more > 0 else "")


def title_of(name: str, version: str) -> str:
    """Return what a checkpoint is called in messages."""
    return f"{name} version {version}" if version else name or "all of it"
