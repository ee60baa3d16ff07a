"""A bounded directory of versions that were fetched from object storage; the least recently used ones leave.

A version is fetched under a hidden name and renamed when it is complete, so several processes may share a cache. Who
uses a version holds a lock of its directory (``flock``), which the system releases when the process ends: what is in
use stays, even where that takes more than the bound. What a killed process left half-fetched has no lock, and goes.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from murho.model.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CacheOptions",
    "CheckpointCache",
    "Lease",
    "default_cache",
]

MOST_BYTES = 10 * 2**30
FETCHING, REMOVING = ".fetching-", ".removing-"
GRACE_SECONDS = 60.0
"""Age from which a hidden directory without a lock is taken for a left-over: its maker locks it right after making."""


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Where the cache is, and how large it may be.

    Attributes:
        root: Its directory, made when it is needed; on a local disk.
        most_bytes: The most bytes of the versions that nobody uses, together with those in use.
    """

    root: Path
    most_bytes: int = MOST_BYTES

    @classmethod
    def from_environment(cls) -> CacheOptions:
        """What ``MURHO_CHECKPOINT_CACHE`` and ``MURHO_CHECKPOINT_CACHE_BYTES`` say, for commands."""
        size = os.environ.get("MURHO_CHECKPOINT_CACHE_BYTES", "")
        root = os.environ.get("MURHO_CHECKPOINT_CACHE")
        most = int(size) if size.isascii() and size.isdigit() and int(size) > 0 else MOST_BYTES
        return cls(Path(root) if root else default_cache(), most)


def default_cache() -> Path:
    """``murho/checkpoints`` in the user's directory of caches."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - raises nothing
    return Path(home) / "murho" / "checkpoints"


class Lease:
    """A directory of the cache that stays as long as the lease does.

    Attributes:
        directory: ``…/NAME/VERSION``, complete.
    """

    def __init__(self, directory: Path, descriptor: int) -> None:
        self.directory = directory
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let the directory go; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


class CheckpointCache:
    """Versions by key. The key must change with the content, so what is in the cache never changes."""

    def __init__(self, options: CacheOptions) -> None:
        self.options = options
        self._entries = options.root / "versions"

    def get(self, key: str, name: str, version: str) -> Lease | None:
        """A lease of a version, which counts as used now; None if the cache does not have it."""
        entry = self._entries / key
        while True:
            try:
                descriptor = os.open(entry, os.O_RDONLY)
            except OSError:
                return None
            _lock(descriptor, exclusive=False, wait=True)
            # Between both steps another process may have removed it.
            with suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), entry.stat()):
                    with suppress(OSError):
                        os.utime(entry)
                    return Lease(entry / name / version, descriptor)
            os.close(descriptor)

    def put(self, key: str, name: str, version: str, size: int, fill: Callable[[Path], None]) -> Lease:
        """Have a version filled in, and return a lease of it; others leave first, if it needs their room.

        Args:
            key: Its key.
            name: Name of the checkpoint.
            version: Its version.
            size: Bytes that it will take.
            fill: Writes the files into a directory; what it raises goes on, and nothing is left.

        Raises:
            StorageError: The cache can't be written.
        """
        temporary, descriptor = None, None
        try:
            self._entries.mkdir(parents=True, exist_ok=True)
            self.tidy()
            self._make_room(size)
            temporary = Path(tempfile.mkdtemp(prefix=FETCHING, dir=self._entries))
            descriptor = os.open(temporary, os.O_RDONLY)
            _lock(descriptor, exclusive=False, wait=True)
            home = temporary / name / version
            home.mkdir(parents=True)
            fill(home)
            try:
                temporary.rename(self._entries / key)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            else:
                lease = Lease(self._entries / key / name / version, descriptor)
                descriptor = None
                return lease
        except OSError as error:
            raise StorageError(
                f"{self.options.root}: the cache of checkpoints can't be written: {error.strerror or error}; "
                "MURHO_CHECKPOINT_CACHE names another directory"
            ) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            if descriptor is not None:
                os.close(descriptor)
        return self.get(key, name, version) or self.put(key, name, version, size, fill)  # another process was faster

    def drop(self, key: str) -> None:
        """Remove a version that is damaged, even if it is in use."""
        _remove(self._entries / key)

    def tidy(self) -> None:
        """Remove what killed processes have left half-fetched or half-removed."""
        for left in (*self._entries.glob(f"{FETCHING}*"), *self._entries.glob(f"{REMOVING}*")):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > GRACE_SECONDS:
                    _remove_unused(left)

    def _make_room(self, size: int) -> None:
        """Remove the least recently used versions until another one fits, but none that is in use."""
        entries = []
        for entry in self._entries.iterdir():
            if not entry.name.startswith("."):
                with suppress(OSError):
                    entries.append((entry.stat().st_mtime_ns, _bytes_in(entry), entry))
        total = sum(each for _, each, _ in entries)
        for _, bytes_of, entry in sorted(entries):
            if total + size <= self.options.most_bytes:
                return
            if _remove_unused(entry):
                total -= bytes_of


def _bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _remove(directory: Path) -> None:
    """Remove a directory; it vanishes at once, before its files do."""
    hidden = directory.with_name(f"{REMOVING}{os.getpid()}-{time.monotonic_ns()}")
    with suppress(OSError):
        directory.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _remove_unused(directory: Path) -> bool:
    """Remove a directory unless somebody holds a lease of it; returns whether it was removed."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return True  # another process has removed it
    try:
        # The lock is held until the directory has its hidden name: whoever waits for it then finds nothing.
        if not _lock(descriptor, exclusive=True, wait=False):
            return False
        _remove(directory)
        return True
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, exclusive: bool, wait: bool) -> bool:
    """Lock a directory until the descriptor is closed; returns whether it is locked."""
    try:
        import fcntl

        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):  # held by another, or a file system without locks
        return False
    return True
