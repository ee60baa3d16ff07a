"""Durable file writes: content is on the disk when a function returns, so a crash or power cut loses nothing."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["replace_durably", "sync_directory", "write_durably", "written_whole"]


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A context with a new file to write. It takes the place of the path at the end, unless an error ends it.

    Several processes may write the same path: the last one to end has it.

    Raises:
        OSError: The file can't be written; the old one, if any, is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and flush it to the disk. Its name is on the disk only after `sync_directory`.

    Raises:
        OSError: The file can't be written.
    """
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush the file names of a directory to the disk.

    Raises:
        OSError: The directory can't be read or flushed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, content: bytes) -> None:
    """Replace a file atomically. A reader finds the old content or the new content, never a part of it.

    Raises:
        OSError: The file can't be written; the old file is unchanged.
    """
    temporary = path.with_name(path.name + ".writing")
    write_durably(temporary, content)
    temporary.replace(path)
    sync_directory(path.parent)
