"""Files that are written whole or not at all, and files of checkpoints that are read within limits.

A checkpoint is copied and mounted by many hands. A pipe in place of a file would be waited for without end, and a
device or a sparse file would fill the memory. So every reader of such a file reads it here.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import orjson

JSON: TypeAlias = dict[str, Any]
"""A JSON object as Python data."""


@contextmanager
def write_whole(path: Path) -> Iterator[BinaryIO]:
    """Return a context with a new file to write. It takes the place of the path at the end, unless an error ends it.

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


MOST_FACTS_BYTES = 64 * 2**20
"""The largest ``model.json``; one has about 6 kB a feature."""
MOST_VALUES = 4_000_000
"""The most values of a JSON file: in memory the smallest ones take 50 times their bytes."""


def read_bounded(path: Path, most: int = MOST_FACTS_BYTES, least: int = 0) -> bytes:
    """Read a plain file whole, or nothing of it; links are followed.

    Args:
        path: The file.
        most: The most bytes that it may have.
        least: The fewest bytes. A large file that is being copied is not read again and again.

    Raises:
        OSError: It can't be read, is no plain file, has another size, or changes while it is read.
    """
    # Without O_NONBLOCK, opening a pipe waits for its writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, and at most {most:,} are read")
        if found.st_size < least:
            raise OSError(
                errno.EIO, f"it has {found.st_size:,} of {least:,} bytes: it was truncated, or is still being copied"
            )
        content = file.read(found.st_size + 1)
    if len(content) != found.st_size:
        raise OSError(errno.EIO, "its size changed while it was read")
    return content


def parse_json(content: bytes) -> Any:
    """Return the data of a JSON file.

    Raises:
        ValueError: It is no JSON, or has more than `MOST_VALUES` values.
    """
    # Texts may hold these characters too: then the count is only higher.
    values = content.count(b",") + content.count(b"[") + content.count(b"{")
    if values > MOST_VALUES:
        raise ValueError(f"it has about {values:,} values, and at most {MOST_VALUES:,} are read")
    return orjson.loads(content)
