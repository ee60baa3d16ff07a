"""Where the records of CSV end, found in one pass with bounded memory, so that pieces of it can be read by themselves.

A line break ends a record unless it is within a quoted cell. As in the reader (`model.data.csv_files`), a quote opens a
quoted cell only at the beginning of a cell; within it, two quotes stand for one.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["file_chunks", "record_ends"]

CHUNK_BYTES = 2**24
MOST_RECORD_BYTES = 2**26
"""A longer record is taken for a quote that is not closed."""

NEW_LINE, RETURN = 10, 13


def record_ends(
    chunks: Iterable[bytes], separator: str, where: str, *, most_bytes: int = MOST_RECORD_BYTES
) -> Iterator[NDArray[np.int64]]:
    """Yield the offsets behind the records of a text, rising, some thousands at a time.

    Blank lines are no records. The header is the first record.

    Args:
        chunks: The text from its beginning to its end, in parts of any size.
        separator: What separates its cells.
        where: Its name, for messages.
        most_bytes: The most bytes of a record.

    Raises:
        TableError: A record has more bytes.
    """
    mark = re.escape(separator.encode())
    quoted = re.compile(rb"(?:\A|(?<=[\r\n])|(?<=" + mark + rb'))"[^"]*+(?:""[^"]*+)*+("|\Z)')
    rest, begin = b"", 0  # what is read of a record that has not ended, and its offset
    for chunk in chain(chunks, [b""]):
        data = rest + chunk
        last = not chunk
        ends = _ends(data, quoted, last=last)
        if len(ends):
            yield begin + _not_blank(data, ends)
            begin, rest = begin + int(ends[-1]), data[int(ends[-1]) :]
        else:
            rest = data
        if last:
            return
        if len(rest) > most_bytes:
            raise TableError(
                f"{where}, from byte {begin} on: a row takes more than {most_bytes // 2**20} MiB: is a quote not "
                "closed?"
            )


def file_chunks(path: Path, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the content of a file, so many bytes at a time.

    Raises:
        TableError: It can't be read.
    """
    try:
        with path.open("rb") as file:
            while chunk := file.read(size):
                yield chunk
    except OSError as error:
        raise TableError(f"{path} can't be read: {error.strerror or error}") from error


def _ends(data: bytes, quoted: re.Pattern[bytes], *, last: bool) -> NDArray[np.int64]:
    """Offsets behind the lines that end outside of quoted cells."""
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == NEW_LINE)
    if b'"' in data:
        spans = np.array([match.span() for match in quoted.finditer(data)], np.int64).reshape(-1, 2)
        if len(spans) and spans[-1, 1] == len(data) and not last:
            # It may go on in the next chunk.
            breaks = breaks[breaks < spans[-1, 0]]
        before = np.searchsorted(spans[:, 0], breaks) - 1
        inside = (before >= 0) & (breaks < spans[np.maximum(before, 0), 1]) if len(spans) else np.zeros(0, bool)
        breaks = breaks[~inside] if len(spans) else breaks
    ends = breaks + 1
    if last and data and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))  # the last line has no line break
    return ends.astype(np.int64)


def _not_blank(data: bytes, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ends of lines that hold more than a line break."""
    values = np.frombuffer(data, np.uint8)
    starts = np.concatenate([[0], ends[:-1]])
    first, second = values[starts], values[np.minimum(starts + 1, len(values) - 1)]
    lengths = ends - starts
    blank = ((lengths == 1) & ((first == NEW_LINE) | (first == RETURN))) | (
        (lengths == 2) & (first == RETURN) & (second == NEW_LINE)
    )
    kept: NDArray[np.int64] = ends[~blank]
    return kept
