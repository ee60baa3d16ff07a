"""Text of files in other encodings than UTF-8: UTF-16 and UTF-32, and the Latin-1 of older programs."""

from __future__ import annotations

import codecs

__all__ = ["to_utf8"]

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BLOCK = 2**20
_SAMPLE = 4096


def to_utf8(data: bytes) -> tuple[bytes, str]:
    """The bytes of a text in UTF-8, and a note on its encoding (empty for UTF-8).

    Without a byte order mark, zeros at every other byte tell UTF-16. What is no UTF-8 is taken for Windows-1252, the
    usual superset of Latin-1, unless it has characters in UTF-8 as well: then a part of it is damaged, and the bytes
    are returned unchanged, for the reader to name the line.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _decoded(data, name)
    sample = data[:_SAMPLE]
    if b"\0" in sample:
        even, odd = sample[::2].count(0), sample[1::2].count(0)
        if max(even, odd) * 4 >= len(sample) and min(even, odd) * 8 <= max(even, odd):
            return _decoded(data, "utf-16-be" if even > odd else "utf-16-le")
        return data, ""
    if _is_utf8(data) or not data.decode("utf-8", "ignore").isascii():
        return data, ""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.encode(), "the file is not UTF-8: read as Latin-1 (Windows-1252)"


def _decoded(data: bytes, name: str) -> tuple[bytes, str]:
    try:
        return data.decode(name).encode(), f"the file is in {name[:6].upper()}"
    except UnicodeDecodeError:
        return data, ""


def _is_utf8(data: bytes) -> bool:
    """Whether all bytes are UTF-8; a block at a time, because the text would take several times their memory."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(data)
    try:
        for start in range(0, len(data), _BLOCK):
            decoder.decode(view[start : start + _BLOCK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
