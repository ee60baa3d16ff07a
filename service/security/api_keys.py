"""API keys: how one is made, how it is stored, and where a service finds those that it accepts.

A key is 256 random bits. Only its SHA-256 is stored. A slow hash such as bcrypt protects passwords that people choose,
because those can be guessed; nobody guesses 256 random bits, and a slow hash would cost milliseconds for every request.
This holds for random keys alone, so a presented key that is too short to be one is refused whatever is stored.

A stored key is one line: ``NAME:sha256:HEX``, with ``:admin``, ``:requests=N`` and ``:cost=N`` after it, if wanted.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = [
    "LEAST_KEY_LENGTH",
    "StoredKey",
    "check_name",
    "digest_of",
    "make_key",
    "parse_line",
    "parse_lines",
    "read_keys",
]

PREFIX = "murho_"
"""So that a scanner for leaked secrets, and a person, recognise a key."""
KEY_BYTES = 32
LEAST_KEY_LENGTH = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,31}")
DIGEST = re.compile(r"[0-9a-fA-F]{64}")
MOST_FILE_BYTES = 2**20
FORM = "NAME:sha256:HEX, and then :admin, :requests=N (a second) or :cost=N (row-draws a second) if wanted"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is stored.

    Attributes:
        name: Whose it is; in the access log, in messages and for fair turns.
        digest: The SHA-256 of the key, 32 bytes.
        admin: Whether it may load and unload models.
        requests: Requests a second; None for the limit of the settings.
        cost: Row-draws a second; None for the limit of the settings.
    """

    name: str
    digest: bytes
    admin: bool = False
    requests: float | None = None
    cost: float | None = None

    def line(self) -> str:
        """Returns the line that stores the key."""
        parts = [self.name, "sha256", self.digest.hex()]
        parts += ["admin"] if self.admin else []
        parts += [f"requests={self.requests:g}"] if self.requests is not None else []
        parts += [f"cost={self.cost:g}"] if self.cost is not None else []
        return ":".join(parts)


def make_key() -> str:
    """Returns a new random key."""
    return PREFIX + secrets.token_urlsafe(KEY_BYTES)


def digest_of(key: bytes) -> bytes:
    """Returns the SHA-256 of a key."""
    return hashlib.sha256(key).digest()


def parse_line(line: str) -> StoredKey:
    """Returns the key that a line stores.

    Raises:
        OptionError: The line has another form. The message never repeats the line: it may hold a key by mistake.
    """
    name, *rest = line.strip().split(":")
    check_name(name)
    if len(rest) < 2 or rest[0] != "sha256" or not DIGEST.fullmatch(rest[1]):
        raise OptionError(
            f"The API key {name!r} isn't stored as {FORM}. `murho key {name}` makes a key and its line: "
            "a key itself is never stored."
        )
    admin, requests, cost = False, None, None
    for option in rest[2:]:
        word, _, value = option.partition("=")
        if option == "admin":
            admin = True
        elif word == "requests":
            requests = _positive(name, word, value)
        elif word == "cost":
            cost = _positive(name, word, value)
        else:
            raise OptionError(f"The API key {name!r} has {option[:40]!r} after its hash. A key is stored as {FORM}.")
    return StoredKey(name, bytes.fromhex(rest[1]), admin, requests, cost)


def check_name(name: str) -> None:
    """Checks the name of a key.

    Raises:
        OptionError: It can't be one. The message doesn't repeat it: a key by mistake is longer than any name.
    """
    if not NAME.fullmatch(name):
        raise OptionError(
            f"An API key has no name, or one that isn't 1 to 32 letters, digits and . _ @ -. A key is stored as {FORM}."
        )


def _positive(name: str, word: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise OptionError(f"The API key {name!r} has {word}={value[:40]!r}; a number above 0 is expected.")
    return number


def parse_lines(lines: Iterable[str]) -> tuple[StoredKey, ...]:
    """Returns the keys of lines; empty lines and those that begin with # are passed over.

    Two keys may have the same name, while one replaces the other.

    Raises:
        OptionError: A line has another form, or two lines store the same key.
    """
    keys = tuple(parse_line(line) for line in lines if line.strip() and not line.lstrip().startswith("#"))
    owners: dict[bytes, str] = {}
    for key in keys:
        if key.digest in owners:
            raise OptionError(
                f"The API keys {owners[key.digest]!r} and {key.name!r} are the same key. Each has its own."
            )
        owners[key.digest] = key.name
    return keys


def read_keys(path: Path) -> tuple[StoredKey, ...]:
    """Returns the keys of a file.

    Raises:
        OptionError: The file can't be read, has a line of another form, or no key.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MOST_FILE_BYTES + 1).decode()
    except OSError as error:
        raise OptionError(f"The file of API keys, {path}, can't be read: {error.strerror or error}.") from error
    except UnicodeDecodeError:
        raise OptionError(f"The file of API keys, {path}, isn't UTF-8 text.") from None
    if len(text) > MOST_FILE_BYTES:
        raise OptionError(f"The file of API keys, {path}, is larger than {MOST_FILE_BYTES} bytes.")
    try:
        keys = parse_lines(text.splitlines())
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None
    if not keys:
        raise OptionError(f"The file of API keys, {path}, has no key. `murho key NAME` makes one and its line.")
    return keys
