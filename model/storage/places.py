"""Places of checkpoints: the path of a directory, or the URL of a storage such as ``s3://bucket/prefix``."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from murho.model.errors import CheckpointError, OptionError

__all__ = ["directory_at", "is_url", "place_of", "shown_place"]

# Two letters at least: the drive of a path on Windows has one. ``a::b://`` is how fsspec chains protocols.
_URL = re.compile(r"[a-z][a-z0-9+.-]+(::[a-z][a-z0-9+.-]+)*://", flags=re.IGNORECASE)


def is_url(place: Path | str) -> bool:
    """Whether a place is the URL of a storage, and no path."""
    return isinstance(place, str) and _URL.match(place) is not None


def place_of(place: Path | str) -> Path | str:
    """A place as the product keeps it: a URL as text without a slash at its end, anything else as a path.

    Raises:
        OptionError: The URL has a password in it, which logs and messages would show.
    """
    if not isinstance(place, str) or not is_url(place):
        return Path(place)
    try:
        parts = urlsplit(place.rpartition("::")[2])
        password = parts.password
    except ValueError as error:
        raise OptionError(f"{place!r} is no valid URL: {error}") from error
    if password is not None:
        raise OptionError(
            f"the URL {parts.scheme}://… has a password in it, which logs would show: give credentials by the "
            "environment or the configuration of the storage's library"
        )
    if parts.scheme.lower() == "file":
        return Path(url2pathname(parts.path))
    return place.rstrip("/") if parts.netloc or parts.path.strip("/") else place


def directory_at(place: Path | str) -> Path:
    """The directory that a place names, for functions that write to a disk alone.

    Raises:
        CheckpointError: It is a URL; the message says what to do.
    """
    chosen = place_of(place)
    if isinstance(chosen, str):
        raise CheckpointError(f"{chosen} is a URL: save into a directory, then `murho publish NAME/VERSION {chosen}`")
    return chosen


def shown_place(place: Path | str) -> str:
    """A place for messages: the absolute path, because a relative one is ambiguous in a container's log; or the URL."""
    return place if isinstance(place, str) else str(place.absolute())
