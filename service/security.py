"""Who calls, and how much a caller may take: API keys, and limits of requests and of work.

A key is 256 random bits, and only its SHA-256 is stored: a slow hash such as bcrypt protects passwords that people
choose, because those can be guessed; nobody guesses random bits, and a slow hash would cost milliseconds a request. So
a presented key that is too short to be random is refused whatever is stored. A stored key is one line:
``NAME:sha256:HEX``, with ``:admin``, ``:outcomes``, ``:requests=N`` and ``:cost=N`` after it, if wanted.

It knows no framework. `http.middleware.Paths` asks it for every request, the predict routes once more for the cost.
Without keys everybody may do everything, as it fits a service that only its own machine reaches.

Limits are token buckets. A bucket holds `burst` tokens at most and gains `rate` tokens a second; what is taken leaves
it. Work that costs more than a full bucket can never be taken, and is refused as too large. Reading a body that does is
taken once the bucket is full, and leaves it in debt.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import math
import mmap
import re
import secrets
import struct
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import structlog

from murho.model.errors import OptionError
from murho.service.errors import ForbiddenError, RateLimitError, TooLargeError, UnauthorizedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from murho.service.settings import Settings

ALWAYS_OPEN = frozenset({"/healthz", "/readyz", "/ping", "/v2/health/live", "/v2/health/ready", "/"})
"""Paths that need no key and count for no limit: those who ask whether the service lives have none, and nothing is said
there. Nor does the page at `/` say anything. It is the same files everywhere, and asks people for their key."""
OF_THE_PAGE = "/web/"
SECONDS_BETWEEN_LOOKS = 1.0
MOST_KEY_LENGTH = 1024
HOW = "Send the header `Authorization: Bearer KEY`, or `X-API-Key: KEY`."


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        name: The name of the key; the address of the client where the service has no keys.
        admin: Whether the caller may load and unload models, and all else.
        outcomes: Whether the caller may record predictions, tell their outcomes, and read decisions.
        requests: Requests a second of this key; None for the limit of the settings.
        cost: Row-draws a second of this key; None for the limit of the settings.
        digest: The SHA-256 of the key, 32 bytes; empty without one.
    """

    name: str
    admin: bool = False
    outcomes: bool = False
    requests: float | None = None
    cost: float | None = None
    digest: bytes = field(default=b"", compare=False, repr=False)

    def line(self) -> str:
        """Return the line that stores the key."""
        parts = [self.name, "sha256", self.digest.hex()]
        parts += ["admin"] if self.admin else []
        parts += ["outcomes"] if self.outcomes else []
        parts += [f"requests={self.requests:g}"] if self.requests is not None else []
        parts += [f"cost={self.cost:g}"] if self.cost is not None else []
        return ":".join(parts)

    def stored_id(self, own: str) -> str:
        """Return the id under which the store has a prediction that the caller gave an id: a key's ids are its own."""
        return f"{self.name}/{own}" if self.digest else own


class Buckets:
    """One bucket for each caller and each kind of thing that is limited.

    A table of fixed size: the sets of it have some places each, and a bucket is in the set that its hash says. A new
    one takes the place of the one in its set that was asked longest ago, and is full.

    Args:
        shared: Whether processes that are forked from this one share the buckets.
        clock: Monotonic seconds, the same in all processes.
        sets: Sets of the table.
    """

    _PLACE = struct.Struct("<qdd")  # the hash of the caller, its tokens, when they were counted
    _PLACES = 8

    def __init__(self, *, shared: bool = False, clock: Callable[[], float] = time.monotonic, sets: int = 4096) -> None:
        self._clock, self._sets = clock, sets
        size = sets * self._PLACES * self._PLACE.size
        self._file = tempfile.TemporaryFile() if shared else None  # noqa: SIM115 - as long as the service
        if self._file is None:
            self._memory: bytearray | mmap.mmap = bytearray(size)
        else:
            self._file.truncate(size)
            self._memory = mmap.mmap(self._file.fileno(), size)

    def take(self, caller: str, amount: float, rate: float, burst: float, kind: str = "", paid: float = 0.0) -> float:
        """Take tokens from a caller's bucket, if it has them.

        Args:
            caller: Whose bucket.
            amount: Tokens to take.
            rate: Tokens a second that the bucket gains.
            burst: The most tokens it holds.
            kind: What is limited.
            paid: Tokens that the request has taken before, and will take again if it is repeated.

        Returns:
            0 if they were taken; otherwise nothing was, and it is the seconds until the request can be repeated.
        """
        who, needed = hash((caller, kind)), min(amount, burst)
        first = who % self._sets * self._PLACES * self._PLACE.size
        with self._turn():
            now, oldest = self._clock(), math.inf
            for place in range(first, first + self._PLACES * self._PLACE.size, self._PLACE.size):
                known, tokens, changed = self._PLACE.unpack_from(self._memory, place)
                if known == who and changed:
                    at, tokens = place, min(burst, tokens + rate * (now - changed))
                    break
                if changed < oldest:
                    at, oldest = place, changed
            else:
                tokens = burst
            # Sums of many small gains round; a token short by a billionth is a token.
            taken = tokens >= needed * (1 - 1e-9)
            self._PLACE.pack_into(self._memory, at, who, tokens - amount if taken else tokens, now)
        return 0.0 if taken else (needed + paid - tokens) / rate

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Keep other processes out. The system takes the lock of one that dies."""
        if self._file is None:
            yield
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


class Security:
    """The keys and the limits of one service.

    Its methods are called in the event loop. None of them waits.

    Attributes:
        enabled: Whether there are keys.
        limited: Whether anything is limited for anybody.

    Args:
        settings: Keys, their file, open paths and limits.
        buckets: What callers have taken, of all front ends; None: this process is the only one.
        clock: Monotonic seconds.

    Raises:
        OptionError: A key is stored in a wrong form, or the file of keys can't be read.
    """

    def __init__(
        self, settings: Settings, buckets: Buckets | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._given = parse_lines(settings.api_keys)
        self._file = settings.api_keys_file
        self._seen = self._look()
        self._looked = clock()
        self.enabled = bool(self._given) or self._file is not None
        self._open = ALWAYS_OPEN.union(path.rstrip("/") or "/" for path in settings.open_paths)
        self._requests = settings.requests_per_second
        self._cost = settings.row_draws_per_second
        self._burst = settings.burst_seconds
        self._use(read_keys(self._file) if self._file is not None else ())
        self._buckets = buckets or Buckets(clock=clock)

    def authenticate(self, path: str, headers: Iterable[tuple[bytes, bytes]], client: str) -> Caller:
        """Return who sent a request to a path, which counts for their limit; see `caller_of`.

        Raises:
            UnauthorizedError, RateLimitError: The request has no key, or the caller asks too much.
        """
        if path in ALWAYS_OPEN or path.startswith(OF_THE_PAGE):
            return Caller(client)
        # On a path that is open by a setting nobody is asked who they are.
        open_by_setting = self.enabled and path in self._open
        caller = Caller(client) if open_by_setting else self.caller_of(headers, client)
        if self.limited:
            self.admit(caller)
        return caller

    def caller_of(self, headers: Iterable[tuple[bytes, bytes]], client: str) -> Caller:
        """Return who sent a request.

        Args:
            headers: The request's headers, their names in lower case, as ASGI has them.
            client: The client's address, which names the caller where there are no keys.

        Raises:
            UnauthorizedError: There is no key, or none that the service knows.
        """
        if not self.enabled:
            return _anybody(client)
        if self._file is not None:
            self._look_again()
        key = _key_of(headers)
        if len(key) < LEAST_KEY_LENGTH:
            # No hash of a short key is accepted either: such keys can be guessed.
            raise UnauthorizedError(
                f"The API key is shorter than {LEAST_KEY_LENGTH} characters: `murho key NAME` makes one that isn't."
            )
        digest = digest_of(key)
        found: Caller | None = None
        for caller in self._keys:  # all of them, so that the time says nothing about which one fits
            if hmac.compare_digest(caller.digest, digest):
                found = caller
        if found is None:
            raise UnauthorizedError("The API key isn't one of this service's.")
        return found

    def is_open(self, path: str) -> bool:
        """Return whether a path needs no key."""
        return not self.enabled or path in self._open or path.startswith(OF_THE_PAGE)

    def admit(
        self, caller: Caller, cost: float = 0.0, *, requests: int = 1, paid: float = 0.0, reading: bool = False
    ) -> None:
        """Take a request, or its work, off what a caller may take.

        A predict route calls it twice: before the body is read, and with `requests=0` once the cost is known.

        Args:
            caller: Who sent the request.
            cost: Its cost in row-draws, but for what is paid.
            requests: Number of requests to count.
            paid: Row-draws that the request has taken before.
            reading: Whether this is for a body that has been read already.

        Raises:
            RateLimitError: It is too much for now.
            TooLargeError: It is too much at any time.
        """
        for amount, before, own, common, kind in (
            (requests, 0.0, caller.requests, self._requests, "requests"),
            (cost, paid, caller.cost, self._cost, "row-draws (rows x samples)"),
        ):
            rate = common if own is None else own
            if rate is None or amount <= 0:
                continue
            burst = max(1.0, rate * self._burst)
            if amount + before > burst and not reading:
                raise TooLargeError(
                    f"The request takes {amount + before:.0f} {kind}, and {caller.name!r} may take at most {burst:.0f} "
                    f"at once ({rate:g} a second, for {self._burst:g} s). Send fewer rows, or ask for fewer samples."
                )
            if wait := self._buckets.take(caller.name, amount, rate, burst, kind, before):
                seconds = min(3600, max(1, math.ceil(wait)))
                raise RateLimitError(
                    f"Rate limit of {rate:g} {kind} a second exceeded by {caller.name!r}. Try again in {seconds} s.",
                    retry_after=seconds,
                )

    def require_admin(self, caller: Caller) -> None:
        """Check that a caller may load and unload models.

        Raises:
            ForbiddenError: The caller's key is an ordinary one.
        """
        if not caller.admin:
            raise ForbiddenError(
                f"The API key {caller.name!r} may predict, but not load or unload models. Use an admin key."
            )

    def require_outcomes(self, caller: Caller) -> None:
        """Check that a caller may record predictions, tell their outcomes, and read decisions.

        Raises:
            ForbiddenError: The caller's key lacks this right.
        """
        if not (caller.outcomes or caller.admin):
            raise ForbiddenError(
                f"The API key {caller.name!r} may predict, but not record predictions or tell outcomes. Use a key that "
                "`murho key NAME --outcomes` has made."
            )

    def reload(self) -> None:
        """Read the file of keys again. If that fails, the keys stay as they are and the log says why."""
        if self._file is None:
            return
        self._seen = self._look()
        log = structlog.get_logger("murho.security")
        try:
            self._use(read_keys(self._file))
        except OptionError as error:
            log.error("the API keys stay as they are", reason=str(error))  # noqa: TRY400 - no traceback: it's for people
        else:
            log.info("API keys read", keys=[caller.name for caller in self._keys])

    def _use(self, of_file: tuple[Caller, ...]) -> None:
        self._keys = tuple({key.digest: key for key in (*self._given, *of_file)}.values())
        own = [limit for key in self._keys for limit in (key.requests, key.cost)]
        self.limited = any(limit is not None for limit in (self._requests, self._cost, *own))

    def _look_again(self) -> None:
        now = self._clock()
        if now - self._looked >= SECONDS_BETWEEN_LOOKS:
            self._looked = now
            if self._look() != self._seen:
                self.reload()

    def _look(self) -> tuple[int, int, int] | None:
        """Return what changes when the file does: a mounted secret is replaced by another file behind a link."""
        if self._file is None:
            return None
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size


@lru_cache(4096)
def _anybody(client: str) -> Caller:
    """Return the caller of an address, where there are no keys."""
    return Caller(client, admin=True)


def _key_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the key of a request.

    Raises:
        UnauthorizedError: There is none, or more than one.
    """
    found: set[bytes] = set()
    for name, value in headers:
        if name == b"authorization":
            scheme, _, credentials = value.partition(b" ")
            if scheme.lower() != b"bearer":
                raise UnauthorizedError(f"The Authorization header isn't of the kind Bearer. {HOW}")
            found.add(credentials.strip())
        elif name == b"x-api-key":
            found.add(value.strip())
    if not found:
        raise UnauthorizedError(f"This service needs an API key. {HOW}")
    if len(found) > 1:
        raise UnauthorizedError("The request has more than one API key. Send one.")
    key = found.pop()
    if len(key) > MOST_KEY_LENGTH:
        raise UnauthorizedError("The API key isn't one of this service's.")
    return key


PREFIX = "murho_"
"""So that a scanner for leaked secrets, and a person, recognise a key."""
KEY_BYTES = 32
LEAST_KEY_LENGTH = 32
NAME = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._@-]{0,31})")
NUMBER = r"[0-9]*\.?[0-9]+(?:e\+?[0-9]{1,2})?"
STORED = re.compile(
    rf"{NAME.pattern}:sha256:(?P<digest>[0-9a-fA-F]{{64}})(?P<options>(?::admin|:outcomes|:(?:requests|cost)={NUMBER})*)"
)
MOST_FILE_BYTES = 2**20
FORM = "NAME:sha256:HEX, and then :admin, :outcomes, :requests=N (a second) or :cost=N (row-draws a second) if wanted"


def make_key() -> str:
    """Return a new random key."""
    return PREFIX + secrets.token_urlsafe(KEY_BYTES)


def digest_of(key: bytes) -> bytes:
    """Return the SHA-256 of a key."""
    return hashlib.sha256(key).digest()


def parse_line(line: str, number: int = 1) -> Caller:
    """Return the key that the line of this number stores.

    Raises:
        OptionError: The line has another form. The message never repeats the line: it may hold a key by mistake.
    """
    found = STORED.fullmatch(line.strip())
    options = dict(option.partition("=")[::2] for option in found["options"].split(":")[1:]) if found else {}
    limits = {name: float(value) for name, value in options.items() if value}
    if found is None or 0.0 in limits.values():
        raise OptionError(
            f"Line {number} of the API keys is wrong. A key is stored as {FORM}. `murho key NAME` makes one and its "
            "line."
        )
    digest = bytes.fromhex(found["digest"])
    rights = "admin" in options, "outcomes" in options
    return Caller(found["name"], *rights, limits.get("requests"), limits.get("cost"), digest)


def check_name(name: str) -> None:
    """Check the name of a key.

    Raises:
        OptionError: It can't be one. The message doesn't repeat it: a key by mistake is longer than any name.
    """
    if not NAME.fullmatch(name):
        raise OptionError(
            f"An API key has no name, or one that isn't 1 to 32 letters, digits and . _ @ -. A key is stored as {FORM}."
        )


def parse_lines(lines: Iterable[str]) -> tuple[Caller, ...]:
    """Return the keys of lines; empty lines and those that begin with # are passed over.

    Two keys may have the same name, while one replaces the other.

    Raises:
        OptionError: A line has another form, or two lines store the same key.
    """
    keys = tuple(
        parse_line(line, number)
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    )
    owners: dict[bytes, str] = {}
    for key in keys:
        if key.digest in owners:
            raise OptionError(
                f"The API keys {owners[key.digest]!r} and {key.name!r} are the same key. Each has its own."
            )
        owners[key.digest] = key.name
    return keys


def read_keys(path: Path) -> tuple[Caller, ...]:
    """Return the keys of a file.

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
