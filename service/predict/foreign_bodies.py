"""Bodies in another form than announced, known by their first bytes, and what to do about them."""

from __future__ import annotations

__all__ = ["foreign_form"]

FORMS: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "It looks like gzip data: send the header Content-Encoding: gzip with it."),
    (b"\x28\xb5\x2f\xfd", "It looks like Zstandard data: send it as gzip, with Content-Encoding: gzip, or as it is."),
    (b"PK\x03\x04", "It looks like a ZIP archive or a spreadsheet: send CSV, JSON, Arrow or Parquet."),
    (b"PAR1", "It looks like a Parquet file: send the header Content-Type: application/vnd.apache.parquet with it."),
    (b"ARROW1", "It looks like an Arrow file: send an Arrow stream (pyarrow.ipc.new_stream)."),
    (b"\x93NUMPY", "It looks like a NumPy array: send the header Content-Type: application/x-npy with it."),
    (b"\xff\xff\xff\xff", "It looks like an Arrow stream: send Content-Type: application/vnd.apache.arrow.stream."),
    (b"\xef\xbb\xbf", "It begins with a byte order mark: send UTF-8 without one."),
    (b"\xff\xfe", "It looks like UTF-16: send UTF-8."),
    (b"\xfe\xff", "It looks like UTF-16: send UTF-8."),
)


def foreign_form(body: bytes) -> str | None:
    """Returns what a body looks like and how to send it; None if it looks like nothing known."""
    for start, advice in FORMS:
        if body.startswith(start):
            return advice
    head = body[:4]
    # ASCII characters in UTF-16 and UTF-32 without a byte order mark have zeros between them.
    if len(head) == 4 and b"\0" in head and head.replace(b"\0", b"").isascii() and head.strip(b"\0"):
        return "It looks like UTF-16 or UTF-32: send UTF-8."
    return None
