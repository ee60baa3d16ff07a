"""The files of snapshots: an index and tensor files, always complete, written by one process at a time.

Every file is written to a temporary name, flushed to disk, then renamed. The index is written last. It names the tensor
files with their sha256. Files that it does not name are then removed. So at any time a complete snapshot exists, the
last one or the one before it, even if the process dies. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from murho.model.errors import CheckpointError
from murho.model.networks.named_tensors import tensor_bytes
from murho.model.runtime.checkpoint_files import read_bounded
from murho.model.runtime.durable_files import replace_durably

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from torch import Tensor

__all__ = ["SnapshotFiles"]

INDEX, LOCK, TENSORS = "training.json", "lock", ".safetensors"
FORMAT = 4
"""Raise it too where the same table and options lead to other networks: the tensors of an earlier one do not fit."""


class SnapshotFiles:
    """A directory with an index and the tensor files that the index names.

    Attributes:
        directory: Path of the directory.
    """

    def __init__(self, directory: Path) -> None:
        """Store the path, without reading or writing.

        Args:
            directory: Path of the directory; `acquire` creates it.
        """
        self.directory = directory
        self._lock: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lock and may write."""
        return self._lock is not None

    def acquire(self) -> bool:
        """Lock the directory for this process. The system releases the lock when the process ends, even after a crash.

        Returns:
            True if this process holds the lock, False if another process does.

        Raises:
            CheckpointError: The directory can't be written.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise CheckpointError(f"{self.directory}: can't write snapshots here: {error.strerror or error}") from error
        if not _lock_exclusively(self._lock):
            os.close(self._lock)
            self._lock = None
        return self.held

    def release(self) -> None:
        """Release the lock, and remove the directory if it has no index."""
        if self._lock is None:
            return
        if not (self.directory / INDEX).exists():
            self.remove()
            with suppress(OSError):
                self.directory.parent.rmdir()  # fails unless the parent is empty
        os.close(self._lock)
        self._lock = None

    def remove(self) -> None:
        """Remove the directory with all files."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def read_index(self) -> dict[str, Any] | None:
        """The content of the last `write_index`, or None if there is no index.

        Raises:
            CheckpointError: The index can't be read, is damaged, or has another format.
        """
        try:
            index = orjson.loads(read_bounded(self.directory / INDEX, None))
        except FileNotFoundError:
            return None
        except (OSError, orjson.JSONDecodeError) as error:
            raise self._damaged(INDEX, str(error)) from error
        if not isinstance(index, dict) or index.get("format") != FORMAT:
            raise self._damaged(INDEX, f"it is not of format {FORMAT}, which this Murho reads")
        content = index.get("content")
        if not isinstance(content, dict) or _sha256(orjson.dumps(content)) != index.get("sha256"):
            raise self._damaged(INDEX, "its sha256 differs")
        return content

    def write_index(self, content: Mapping[str, Any], files: Iterable[str]) -> None:
        """Write the index, which makes the new snapshot the current one.

        Args:
            content: Content of the index, for JSON; infinity and NaN become null.
            files: The tensor files that the index names; other files are removed.

        Raises:
            OSError: The index can't be written; the previous snapshot stays the current one.
        """
        body = orjson.dumps(content)
        index = {"format": FORMAT, "sha256": _sha256(body), "content": orjson.Fragment(body)}
        replace_durably(self.directory / INDEX, orjson.dumps(index))
        known = {INDEX, LOCK, *files}
        for path in self.directory.iterdir():
            if path.name not in known:
                path.unlink(missing_ok=True)

    def write_tensors(self, tensors: Mapping[str, Tensor]) -> tuple[str, str]:
        """Write a tensor file, for the next index.

        Returns:
            Name and sha256 of the file.

        Raises:
            OSError: The file can't be written.
        """
        content = tensor_bytes(tensors)
        sha256 = _sha256(content)
        name = sha256[:32] + TENSORS
        replace_durably(self.directory / name, content)
        return name, sha256

    def check(self, name: str, sha256: str) -> bytes:
        """The content of a tensor file, after a check of its sha256.

        Raises:
            CheckpointError: The file is missing or damaged.
        """
        try:
            content = read_bounded(self.directory / name, None)
        except OSError as error:
            raise self._damaged(name, error.strerror or str(error)) from error
        if _sha256(content) != sha256:
            raise self._damaged(name, "its sha256 differs")
        return content

    def read_tensors(self, name: str, sha256: str) -> dict[str, Tensor]:
        """The tensors of a file.

        Raises:
            CheckpointError: The file is missing or damaged.
        """
        import safetensors.torch

        return safetensors.torch.load(self.check(name, sha256))

    def _damaged(self, file: str, reason: str) -> CheckpointError:
        return CheckpointError(
            f"{self.directory / file}: the snapshot is damaged ({reason}); leave out --resume to train from the start"
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _lock_exclusively(descriptor: int) -> bool:
    """Lock a file; False if another process holds its lock. True where the system has no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True
