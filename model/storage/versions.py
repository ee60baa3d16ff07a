"""Which versions there are in a storage, from one listing of its objects.

Objects are called ``NAME/VERSION/FILE``, as the files of a directory of checkpoints are. Other objects are skipped, and
so is what is hidden, such as the claim of a writer that has only begun.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from murho.model.posterior.checkpoint_directories import (
    NAME_PATTERN,
    VERSION_PATTERN,
    CheckpointReference,
)
from murho.model.storage.manifest import MANIFEST_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.storage.objects import StoredObject

__all__ = ["StoredVersion", "highest_number", "references_of", "stored_versions"]


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version as a listing has it.

    Attributes:
        name: Name of the checkpoint.
        version: Its version; any text that may stand in its place.
        files: Its objects by path, relative to the version.
    """

    name: str
    version: str
    files: dict[str, StoredObject] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether its manifest is there, which is written last."""
        return MANIFEST_FILE in self.files

    @property
    def problem(self) -> str | None:
        """Why it can't be a version, or None."""
        if not NAME_PATTERN.fullmatch(self.name):
            return "the name breaks the rule: letters, digits, '.', '_' and '-', at most 64"
        if not VERSION_PATTERN.fullmatch(self.version):
            return "a version is a whole number from 1"
        return None


def stored_versions(objects: Mapping[str, StoredObject]) -> dict[tuple[str, str], StoredVersion]:
    """Sort the objects of a storage by name and version; versions by rising number, other folders last."""
    found: dict[tuple[str, str], StoredVersion] = {}
    for path, stored in objects.items():
        parts = path.split("/", 2)
        if len(parts) == 3 and not any(part.startswith(".") or not part for part in path.split("/")):
            name, version, file = parts
            found.setdefault((name, version), StoredVersion(name, version)).files[file] = stored
    return dict(sorted(found.items(), key=lambda item: _order(item[1])))


def references_of(versions: Mapping[tuple[str, str], StoredVersion]) -> list[CheckpointReference]:
    """The versions as a directory's are listed; their paths are relative to the storage."""
    return [
        CheckpointReference(each.name, each.version, Path(each.name) / each.version, each.problem)
        for each in versions.values()
    ]


def highest_number(objects: Mapping[str, StoredObject], name: str) -> int:
    """The highest number of a version of which anything is there, even a claim; 0 if there is none."""
    folders = [path.split("/", 2) for path in objects]
    return max(
        (int(each[1]) for each in folders if len(each) == 3 and each[0] == name and VERSION_PATTERN.fullmatch(each[1])),
        default=0,
    )


def _order(version: StoredVersion) -> tuple[str, bool, int, str]:
    number = VERSION_PATTERN.fullmatch(version.version) is not None
    return version.name, not number, int(version.version) if number else 0, version.version
