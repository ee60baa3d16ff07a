"""The loader: decides which versions of the source are served, and makes the next snapshot of them.

A new version is loaded and warmed up beside the old one, then the snapshot is swapped as a whole. A version that can't
be loaded is refused with the reason, and what served before serves on. Nothing here computes answers: it may run in
any one thread, and so it runs beside the compute thread.

With the setting `loaded_models`, a version is only listed here, and `checkpoints.model_cache` loads it when it is asked
for; one that can't be loaded then is refused here too, so that what is left of its name takes its place.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import structlog

from murho.model.errors import MurhoError
from murho.service.errors import CheckpointRefusedError, UnknownModelError
from murho.service.models.kept_versions import KeptVersions, Look, StoppingError
from murho.service.models.loading import load_warm
from murho.service.models.registry import LoadedModel, Refused, Snapshot, title_of
from murho.service.models.version_policy import VersionPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.service.models.kept_versions import Key, Outcome
    from murho.service.models.on_demand import ListedVersion, Served
    from murho.service.models.registry import Registry
    from murho.service.models.source import CheckpointSource

__all__ = ["Loader"]


class Loader:
    """Loads what the policy wants served, and swaps the registry's snapshot. Calls from several threads take turns.

    Args:
        source: Where checkpoints come from.
        registry: Gets the snapshots.
        policy: Which versions are served.
        count: Called with what happened to each version.
        load: Loads a version of the source, or lists it; raises a `LoadingError`.
    """

    def __init__(
        self,
        source: CheckpointSource,
        registry: Registry,
        policy: VersionPolicy | None = None,
        count: Callable[[Outcome], None] = lambda _: None,
        load: Callable[[CheckpointReference], Served] | None = None,
    ) -> None:
        self._source, self._registry = source, registry
        self._kept = KeptVersions(source, load or partial(load_warm, source), count)
        self._policy = policy or VersionPolicy()
        self._turn = threading.RLock()
        self._missing: set[Key] = set()
        self._unloaded: set[str] = set()
        self._chosen: dict[str, str] = {}
        self._log = structlog.get_logger("murho.registry")

    def refresh(
        self,
        *,
        retry: bool = True,
        patient: bool = False,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Snapshot:
        """Looks at the source, loads what is new, and swaps the snapshot if anything changed; returns the current one.

        Never raises: an error in one checkpoint becomes the reason why it is refused.

        Args:
            retry: Whether refused versions are tried again though they have not changed.
            patient: Whether a version that fails or is gone gets time until the next look.
            stopping: Called before each version; once it returns true, loading ends and nothing is swapped.
        """
        look = Look(retry, patient, stopping)
        with self._turn:
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
                return self._swap(self._snapshot(references, look))
            except StoppingError:
                return before

    def load(self, name: str, version: str | None = None) -> LoadedModel:
        """Loads a name at once, also if it was unloaded, and returns what is served then.

        Of a name of which nothing is served it is the newest version that can be loaded; the snapshot says why newer
        ones are refused.

        Args:
            name: The name.
            version: The only version to serve from now on; None: what the policy says.

        Raises:
            UnknownModelError: There is no such name or version.
            CheckpointRefusedError: It can't be loaded; what was served before is served on.
        """
        with self._turn:
            references = {each.version: each for each in self._references(name)}
            if version is not None and version not in references:
                there = ", ".join(each for each in references if each) or "none"
                raise UnknownModelError(f"Model {name!r} has no version {version[:80]!r}; there are: {there}.")
            before = self._unloaded.copy(), self._chosen.copy()
            was_served = name in self._registry.snapshot.models
            self._unloaded.discard(name)
            self._chosen.pop(name, None)
            if version is not None:
                self._chosen[name] = version
            wanted = self._wanted(name, list(references.values()))
            refused: list[Refused] = []
            for each in wanted[:1] if was_served else wanted:
                look = Look(retry=True, patient=False, stopping=lambda: False, now=True)
                if self._kept.obtain(each, look) is not None and not look.refused:
                    break
                refused.extend(look.refused)
            else:
                self._unloaded, self._chosen = before
            snapshot = self.refresh(retry=False)
            problem = refused[0].reason if refused else None
            if not wanted:
                problem = next((each.reason for each in snapshot.refused if each.name == name), "nothing to serve")
            served = snapshot.models.get(name)
            if served is None or (was_served and problem is not None):
                on = "" if served is None else f" Version {served.latest.version} is served on."
                title = title_of(name, wanted[0].version if wanted else "")
                raise CheckpointRefusedError(f"{title} was refused: {problem}.{on}")
            return served

    def unload(self, name: str) -> tuple[str, ...]:
        """Takes a name out of service until `load`; returns the versions that were served.

        Raises:
            UnknownModelError: There is no such name.
        """
        with self._turn:
            served = self._registry.snapshot.models.get(name)
            if served is None and name not in self._unloaded:
                self._references(name)
            self._unloaded.add(name)
            self._chosen.pop(name, None)
            self.refresh(retry=False)
            return () if served is None else tuple(served.versions)

    def refuse(self, version: ListedVersion, reason: str) -> None:
        """Takes a version out of service that could not be loaded when it was asked for, until it changes.

        One that has changed or is gone meanwhile is looked at again instead.
        """
        with self._turn:
            if self._kept.refuse(version, reason):
                self.refresh(retry=False)

    def _references(self, name: str) -> list[CheckpointReference]:
        """The versions of a name in the source.

        Raises:
            UnknownModelError: There are none.
        """
        try:
            found = self._source.list()
        except MurhoError as error:
            raise CheckpointRefusedError(f"{error}.") from error
        mine = [each for each in found if each.name == name]
        if not mine:
            names = ", ".join(dict.fromkeys(each.name for each in found)) or "none"
            raise UnknownModelError(f"There is no model {name[:80]!r} in {self._source.place}; there are: {names}.")
        return mine

    def _snapshot(self, references: list[CheckpointReference], look: Look) -> Snapshot:
        by_name: dict[str, list[CheckpointReference]] = {}
        for reference in references:
            by_name.setdefault(reference.name, []).append(reference)
        kept = self._kept.by_name()
        for name in (*self._policy.pins, *kept):
            by_name.setdefault(name, [])
        models, not_served = {}, {}
        for name, mine in sorted(by_name.items()):
            if name in self._unloaded:
                continue
            before = len(look.refused)
            serving = self._serving(name, mine, kept.get(name, {}), look)
            if serving:
                models[name] = self._loaded_model(name, serving)
            refused = {each.version for each in look.refused[before:]}
            others = [each.version for each in mine if each.version not in {*serving, *refused}]
            if others:
                not_served[name] = tuple(others)
        there = {(each.name, each.version) for each in references}
        self._kept.forget_failures_except(there)
        unloaded = tuple(sorted(name for name in self._unloaded if name in by_name))
        place = self._source.place
        return Snapshot(MappingProxyType(models), tuple(look.refused), True, place, not_served, unloaded)

    def _serving(
        self, name: str, references: list[CheckpointReference], kept: Mapping[str, Served], look: Look
    ) -> dict[str, Served]:
        """The versions of a name to serve, from those that are there and kept; adds what is refused to the look."""
        look.refused.extend(
            Refused(name, each.version, each.problem) for each in references if each.problem is not None
        )
        unreadable = {each.version for each in references if each.unreadable}
        there = {each.version: each for each in references if each.problem is None}
        held: dict[str, Served] = {}
        for version, model in kept.items():
            if version in there:
                continue
            patient = look.patient and (name, version) not in self._missing
            if version in unreadable or "" in unreadable or patient:
                held[version] = model
                self._missing.add((name, version))
        self._missing -= {(name, version) for version in there}
        chosen = self._chosen.get(name)
        if chosen is not None and chosen not in there and chosen not in held:
            self._log.warning("the version chosen by hand is gone", model=name, version=chosen)
            del self._chosen[name]
        pin = self._chosen.get(name, self._policy.pins.get(name))
        if pin is not None:
            if pin not in {each.version for each in references} and pin not in held:
                look.refused.append(Refused(name, pin, "it is pinned, and is not there"))
            there = {pin: there[pin]} if pin in there else {}
            held = {pin: held[pin]} if pin in held else {}
        serving = {}
        for version in sorted({*there, *held}, key=int, reverse=True):
            found = held[version] if version in held else self._kept.obtain(there[version], look)
            if found is not None:
                serving[version] = found
                if not self._policy.every_version:
                    break
        return serving

    def _wanted(self, name: str, references: list[CheckpointReference]) -> list[CheckpointReference]:
        """The versions without a problem that the policy may serve, the one that it wants most first."""
        pin = self._chosen.get(name, self._policy.pins.get(name))
        good = [each for each in references if each.problem is None and pin in (None, each.version)]
        return sorted(good, key=lambda each: int(each.version), reverse=True)

    def _loaded_model(self, name: str, serving: Mapping[str, Served]) -> LoadedModel:
        versions = {version: serving[version] for version in sorted(serving, key=int)}
        since = {version: self._kept.since((name, version)) for version in versions}
        return LoadedModel(name, MappingProxyType(versions), MappingProxyType(since))

    def _swap(self, snapshot: Snapshot) -> Snapshot:
        """Makes a snapshot the current one, and lets go of the versions that are no longer in it."""
        before = self._registry.snapshot
        served = {(model.name, version) for model in snapshot.models.values() for version in model.versions}
        self._registry.snapshot = snapshot
        self._missing.difference_update(self._kept.keep_only(served))
        for name, model in snapshot.models.items():
            old = before.models.get(name)
            if old is not None and old.latest is not model.latest:
                self._log.info(
                    "checkpoint swapped", model=name, version=model.latest.version, before=old.latest.version
                )
        return snapshot
