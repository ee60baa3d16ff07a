"""What can be said of a file of rows before anything is read: whether it is there, and whether its name tells a format.

This module imports neither numpy nor pyarrow, so that a mistyped name is answered at once.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from murho.model.errors import TableError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["EXTENSIONS", "format_of", "require_file"]

EXTENSIONS = (
    *(".csv", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".feather", ".arrows", ".ipc"),
    *(".json", ".jsonl", ".ndjson", ".xlsx"),
)
"""Extensions of the formats of tables; each may be packed, as ``.csv.gz`` or ``.zip``."""
_PACKED = (".gz", ".zip")
_JSON_STARTS = (b"{", b"[")
_PARTIAL = 64
"""Bytes of a file that tell whether its text is JSON."""


def format_of(name: str, start: bytes) -> str | None:
    """The extension that stands for the format of a file; None if neither its name nor its content tells one.

    Args:
        name: Name of the file, without ``.gz``.
        start: Its first bytes.
    """
    suffix = "." + name.lower().rpartition(".")[2] if "." in name else ""
    if suffix in EXTENSIONS:
        return suffix
    if start.startswith(b"PAR1"):
        return ".parquet"
    if start.startswith(b"ARROW1"):
        return ".arrow"
    if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_JSON_STARTS):
        return ".json"
    return None


def require_file(path: Path) -> str | None:
    """Check that a file can be read and that its name or its first bytes tell a format.

    Returns:
        The extension that stands for the format; None for a zip archive, whose member tells it.

    Raises:
        TableError: It does not exist, is a directory, can't be read, or has an unknown format.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_PARTIAL)
    except FileNotFoundError as error:
        raise TableError(f"{path} does not exist{_alike(path)}") from error
    except IsADirectoryError as error:
        raise TableError(f"{path} is a directory: give a file") from error
    except OSError as error:
        raise TableError(f"{path} can't be read: {error.strerror or error}") from error
    suffix = path.suffix.lower()
    name = path.name
    if suffix == ".gz":
        name = path.stem
        try:
            with gzip.open(path) as packed:
                start = packed.read(_PARTIAL)
        except (OSError, EOFError) as error:
            raise TableError(f"{path} is not a whole gzip file: {error}") from error
    extension = None if suffix == ".zip" else format_of(name, start)
    if suffix != ".zip" and extension is None:
        known = ", ".join((*EXTENSIONS, *_PACKED))
        raise TableError(f"{path}: the extension {path.suffix!r} is not known; use one of {known}")
    return extension


def _alike(path: Path) -> str:
    """The end of the message about a file that is not there: the name of one that may be meant."""
    import difflib

    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1)
    return f": did you mean {path.with_name(close[0])}?" if close else ""
