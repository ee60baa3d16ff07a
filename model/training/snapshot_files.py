"""The files behind snapshots: an index and tensor files that are always whole, held by one process at a time.

Every file is written to a temporary name, flushed to the disk, then renamed. The index comes last and names the
others with their sha256; only then are those that it no longer names removed. So whenever the process dies, what is
there is a whole snapshot, the last one or the one before it. Nothing is ever unpickled.
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
from murho.model.runtime.durable_files import replace_durably

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from torch import Tensor

__all__ = ["SnapshotFiles"]

INDEX, LOCK, TENSORS = "training.json", "lock", ".safetensors"
FORMAT = 2


class SnapshotFiles:
    """A directory of one index and the tensor files that it names.

    Attributes:
        directory: Where.
    """

    def __init__(self, directory: Path) -> None:
        """Touches nothing yet.

        Args:
            directory: Is made by `acquire`.
        """
        self.directory = directory
        self._lock: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process may write."""
        return self._lock is not None

    def acquire(self) -> bool:
        """Takes the directory for this process; the system gives it back when the process ends, however it does.

        Returns:
            False: another process holds it.

        Raises:
            CheckpointError: It can't be written.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise CheckpointError(
                f"{self.directory}: can't write snapshots here: {error.strerror or error}"
            ) from error
        if not _lock_for_us_alone(self._lock):
            os.close(self._lock)
            self._lock = None
        return self.held

    def release(self) -> None:
        """Gives the directory back, and leaves no trace of it if nothing was written."""
        if self._lock is None:
            return
        if not (self.directory / INDEX).exists():
            self.remove()
            with suppress(OSError):
                self.directory.parent.rmdir()  # only if it is empty
        os.close(self._lock)
        self._lock = None

    def remove(self) -> None:
        """Removes everything."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def read_index(self) -> dict[str, Any] | None:
        """What `write_index` was given last, or None if there is none.

        Raises:
            CheckpointError: It can't be read, is damaged, or of another format.
        """
        try:
            found = orjson.loads((self.directory / INDEX).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, orjson.JSONDecodeError) as error:
            raise self._damaged(INDEX, str(error)) from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise self._damaged(INDEX, f"it is not of format {FORMAT}, which this Murho reads")
        content = found.get("content")
        if not isinstance(content, dict) or _sha256(orjson.dumps(content)) != found.get("sha256"):
            raise self._damaged(INDEX, "its sha256 differs")
        return content

    def write_index(self, content: Mapping[str, Any], files: Iterable[str]) -> None:
        """Makes a snapshot the one that counts.

        Args:
            content: For JSON; infinity and NaN become null.
            files: The tensor files that it names; others are removed.

        Raises:
            OSError: It can't be written; the snapshot before it still counts.
        """
        body = orjson.dumps(content)
        index = {"format": FORMAT, "sha256": _sha256(body), "content": orjson.Fragment(body)}
        replace_durably(self.directory / INDEX, orjson.dumps(index))
        known = {INDEX, LOCK, *files}
        for path in self.directory.iterdir():
            if path.name not in known:
                path.unlink(missing_ok=True)

    def write_tensors(self, tensors: Mapping[str, Tensor]) -> tuple[str, str]:
        """Writes a tensor file, to be named by the next index.

        Returns:
            Its name and its sha256.

        Raises:
            OSError: It can't be written.
        """
        content = tensor_bytes(tensors)
        sha256 = _sha256(content)
        name = sha256[:32] + TENSORS
        replace_durably(self.directory / name, content)
        return name, sha256

    def check(self, name: str, sha256: str) -> bytes:
        """The content of a tensor file.

        Raises:
            CheckpointError: It is missing or damaged.
        """
        try:
            content = (self.directory / name).read_bytes()
        except OSError as error:
            raise self._damaged(name, error.strerror or str(error)) from error
        if _sha256(content) != sha256:
            raise self._damaged(name, "its sha256 differs")
        return content

    def read_tensors(self, name: str, sha256: str) -> dict[str, Tensor]:
        """The tensors of a file.

        Raises:
            CheckpointError: It is missing or damaged.
        """
        import safetensors.torch

        return safetensors.torch.load(self.check(name, sha256))

    def _damaged(self, file: str, reason: str) -> CheckpointError:
        return CheckpointError(
            f"{self.directory / file}: the snapshot is damaged ({reason}); "
            "leave out --resume to train from the start"
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _lock_for_us_alone(descriptor: int) -> bool:
    """False: another process has locked it. Where the system can't lock, nobody has."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True
