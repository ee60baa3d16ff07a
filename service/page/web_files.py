"""The files of the page at `/`: their types, entity tags and compression.

They lie in `service/page/web/`: `index.html`, the page's own files in `page/`, with a folder for each kind of target,
and the chart library in `vega/`, which is stored compressed.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePosixPath

from murho.service.predict.compression import compressed

__all__ = ["CONTENT_SECURITY_POLICY", "WebFile", "file_names", "web_file"]

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOLDERS = ("page", "page/numbers", "page/classes", "vega")
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""What the page may load: nothing but what this service sends, and no code from text."""


@dataclass(frozen=True, slots=True)
class WebFile:
    """One file of the page.

    Attributes:
        content: Its bytes.
        compressed: The same as gzip data; None if it is too small to be worth it.
        media_type: The `Content-Type`.
        tag: The `ETag`: weak, as both forms share it.
        changes: Whether it changes with Murho itself; the chart library is kept by browsers for a day.
    """

    content: bytes
    compressed: bytes | None
    media_type: str
    tag: str
    changes: bool


def web_file(name: str) -> WebFile | None:
    """Returns a file by its path below `service/page/web/`, such as `page/main.js`; None if there is no such file."""
    return _read(name) if name in file_names() else None


@lru_cache(maxsize=1)
def file_names() -> frozenset[str]:
    """Returns the names that `web_file` knows."""
    root = files("murho.service.page") / "web"
    names = {"index.html"}
    for folder in FOLDERS:
        for entry in (root / folder).iterdir():
            name = entry.name.removesuffix(".gz")
            if PurePosixPath(name).suffix in TYPES:
                names.add(f"{folder}/{name}")
    return frozenset(names)


@lru_cache(maxsize=64)
def _read(name: str) -> WebFile:
    root = files("murho.service.page") / "web"
    place = root / name
    gzipped: bytes | None
    if place.is_file():
        content = place.read_bytes()
        gzipped = compressed(content)
    else:
        gzipped = (root / f"{name}.gz").read_bytes()
        content = gzip.decompress(gzipped)
    return WebFile(
        content=content,
        compressed=gzipped,
        media_type=TYPES[PurePosixPath(name).suffix],
        tag=f'W/"{hashlib.sha256(content).hexdigest()[:20]}"',
        changes=not name.startswith("vega/"),
    )
