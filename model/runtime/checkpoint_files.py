"""Reading the files of checkpoints: what is no plain file, or is too large, is not read.

A checkpoint is copied and mounted by many hands. A pipe in place of a file would be waited for without end, and a
device or a sparse file would fill the memory. So every reader of such a file reads it here.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

__all__ = ["MOST_FACTS_BYTES", "memory_size", "parse_json", "read_bounded"]

MOST_FACTS_BYTES = 64 * 2**20
"""The largest ``model.json``; one has about 6 kB a feature."""
MOST_VALUES = 4_000_000
"""The most values of a JSON file: in memory the smallest ones take 50 times their bytes."""
CONTROL_GROUPS = Path("/sys/fs/cgroup")


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
    """The data of a JSON file.

    Raises:
        ValueError: It is no JSON, or has more than `MOST_VALUES` values.
    """
    # Texts may hold these characters too: then the count is only higher.
    values = content.count(b",") + content.count(b"[") + content.count(b"{")
    if values > MOST_VALUES:
        raise ValueError(f"it has about {values:,} values, and at most {MOST_VALUES:,} are read")
    return orjson.loads(content)


def memory_size(control_groups: Path = CONTROL_GROUPS) -> int | None:
    """Bytes of memory of the machine, or of the container where that has a limit; None where nothing tells.

    Args:
        control_groups: Mount point of the control groups, of version 2 or 1.
    """
    sizes = []
    with suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is no limit
            sizes.append(int((control_groups / name).read_text()))
    return min(sizes, default=None)
