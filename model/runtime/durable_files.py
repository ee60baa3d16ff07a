"""Files that are on the disk when a function returns: a crash or a power cut right after it loses nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["replace_durably", "sync_directory", "write_durably"]


def write_durably(path: Path, content: bytes) -> None:
    """Writes a file and flushes it to the disk. Its name is on the disk only after `sync_directory`.

    Raises:
        OSError: It can't be written.
    """
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flushes the names in a directory to the disk.

    Raises:
        OSError: The directory can't be read or flushed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, content: bytes) -> None:
    """Puts a file in place of another. A reader finds the old content or the new one, never a part of it.

    Raises:
        OSError: It can't be written; the old file is still there.
    """
    temporary = path.with_name(path.name + ".writing")
    write_durably(temporary, content)
    temporary.replace(path)
    sync_directory(path.parent)
