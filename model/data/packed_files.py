"""Files that are packed: gzip, and a zip archive with one table."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from typing import TYPE_CHECKING, NamedTuple

from murho.model.data.file_checks import EXTENSIONS
from murho.model.errors import TableError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Unpacked", "unpack"]


class Unpacked(NamedTuple):
    """The content of a file.

    Attributes:
        name: Name of the content: without ``.gz``, or that of the member of an archive.
        data: Its bytes.
        note: What to tell about it; empty if there is nothing.
    """

    name: str
    data: bytes
    note: str = ""


def unpack(path: Path) -> Unpacked | None:
    """The content of a packed file; None if its name is not that of a packed one.

    Raises:
        TableError: The file is damaged or locked, or an archive has not exactly one table.
        OSError: The file can't be read.
    """
    suffix = path.suffix.lower()
    if suffix == ".gz":
        try:
            return Unpacked(path.stem, gzip.decompress(path.read_bytes()))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TableError(f"{path} is not a whole gzip file: {error}") from error
    return _member(path) if suffix == ".zip" else None


def _member(path: Path) -> Unpacked:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir() and _visible(info.filename)]
            tables = [name for name in names if name.lower().endswith(EXTENSIONS)]
            if len(tables) != 1:
                listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
                count = f"{len(tables)} tables" if tables else "no table"
                raise TableError(
                    f"{path} holds {count} ({listed or 'it is empty'}): unpack it, and give the file that is meant"
                )
            data = archive.read(tables[0])
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise TableError(f"{path} is not a whole zip archive: {error}") from error
    except RuntimeError as error:
        raise TableError(f"{path} is locked with a password: unpack it, and give the file within") from error
    others = len(names) - 1
    beside = f", beside {others} other files" if others else ""
    return Unpacked(tables[0].rpartition("/")[2], data, f"read {tables[0]} in the archive{beside}")


def _visible(name: str) -> bool:
    return not name.startswith("__MACOSX/") and not name.rpartition("/")[2].startswith(".")
