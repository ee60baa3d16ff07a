"""Where the service's checkpoints come from: a directory of NAME/VERSION, or anything else with the same interface.

`service.checkpoints.storage_source` is the other one, for object storage; `source_of` there decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from murho.model.checkpoint.checkpoint import FACTS_FILE, TENSORS_FILE, list_checkpoints
from murho.model.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.model.predictive.draw_room import DrawRoom
    from murho.service.scheduling.jobs import ModelLike

__all__ = ["CheckpointSource", "DirectorySource", "Stamp"]

Stamp: TypeAlias = "Hashable"
"""Changes whenever the content of a version may have changed."""


class CheckpointSource(Protocol):
    """Where checkpoints come from."""

    @property
    def place(self) -> str:
        """The name of the place in messages."""

    @property
    def marker(self) -> str:
        """The file without which a version is still being written."""

    def list(self) -> list[CheckpointReference]:
        """Returns every version of every checkpoint, by name, then by rising version."""

    def stamp(self, reference: CheckpointReference) -> Stamp | None:
        """Returns the stamp of one version; None while it is being written."""

    def load(self, reference: CheckpointReference) -> ModelLike:
        """Loads one version."""

    def report_facts(self, model: ModelLike) -> dict[str, Any] | None:
        """Returns the facts that a loaded version keeps for its report (`model.report.facts`); None without them."""


class DirectorySource:
    """A directory of NAME/VERSION checkpoints.

    Args:
        root: The directory.
        device: auto, cpu or cuda.
        room: Memory for the draws of all versions; None: each has a room of its own.
    """

    marker = FACTS_FILE

    def __init__(self, root: Path, device: str, *, room: DrawRoom | None = None) -> None:
        self.root = root
        self.device = device
        self._room = room
        self._was_there = False

    @property
    def place(self) -> str:
        """The absolute path of the directory, because a relative path is ambiguous in a container's log."""
        return str(self.root.absolute())

    def list(self) -> list[CheckpointReference]:
        """Returns every version in the directory.

        Raises:
            CheckpointError: The directory can't be read, or it was there before and is gone: a volume that was
                unmounted is no reason to drop what is served.
        """
        found = list_checkpoints(self.root)
        there = self.root.exists()
        if self._was_there and not there:
            raise CheckpointError(f"{self.place} is gone")
        self._was_there = there
        return found

    def stamp(self, reference: CheckpointReference) -> Stamp | None:
        """Returns inode, size and time of change of the version's files and directory; links are followed.

        None without a `model.json`: a version that is copied here, not renamed, is still being written. What can't be
        read has a stamp too, and is refused when it is loaded.
        """
        try:
            entries = [reference.path.stat()]
            for name in (FACTS_FILE, TENSORS_FILE):
                try:
                    entries.append((reference.path / name).stat())
                except FileNotFoundError:
                    if name == FACTS_FILE:
                        return None
        except OSError as error:
            return (error.errno,)
        return tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for each in entries)

    def load(self, reference: CheckpointReference) -> ModelLike:
        """Loads one version onto the device.

        Raises:
            CheckpointError: The checkpoint is damaged or of a newer format.
        """
        # Imported here, because torch takes seconds to import.
        from murho.model.checkpoint.posterior import Posterior
        from murho.model.runtime import resolve_device

        return Posterior.load(reference.path, resolve_device(self.device), room=self._room)

    def report_facts(self, model: ModelLike) -> dict[str, Any] | None:
        """Returns the facts that a loaded version keeps for its report; None without them."""
        from murho.model.report.facts import stored_facts  # here, because torch takes seconds to import

        return stored_facts(self.root / model.name / model.version)
