"""One request to the service: its address and headers, its attempts and its deadline, without any input or output.

A dialogue is a generator. It yields what is to be done (send a request, wait, hold several dialogues at the same time)
and is sent what came of it. So all of the client but that doing is written once, for threads and for asyncio.

Predictions change nothing in the service, or only the record of ids that the client has made, and loading a model twice
is loading it once: so each request can be sent again. The waits grow exponentially and are random, so that clients
that failed together don't return together. A `Retry-After` of the service comes before them.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from typing import Any, TypeAlias, TypedDict, TypeVar

import httpx2

from murho_client._errors import DeadlineExceeded, MurhoClientError, Transient, UnexpectedAnswer, Unreachable
from murho_client._responses import Response

__all__ = ["LIMITS", "Attempt", "Deadline", "Dialogue", "Options", "Settings", "Step", "Together", "ask"]


__version__ = "0.1.0"

FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0
CONNECT_SECONDS = 10.0
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
"""Of connections: as many as a program has calls at a time."""
LOG = logging.getLogger("murho_client")

Result = TypeVar("Result")


class Deadline:
    """A point in time by which an answer must be there.

    Args:
        seconds: From now on.
        within: Another deadline, which counts too.
    """

    def __init__(self, seconds: float, within: Deadline | None = None) -> None:
        if not seconds > 0:
            raise ValueError(f"timeout is {seconds!r}; it is a number of seconds above 0.")
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        if within is not None and within._end < self._end:
            self.seconds, self._end = within.seconds, within._end

    def remaining(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self._end - time.monotonic()

    def watch(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Return the chunks, as long as there is time: a body may come a byte at a time, each within its timeout.

        Raises:
            TimeoutError: The deadline is over.
        """
        for chunk in chunks:
            if self.remaining() <= 0:
                raise TimeoutError
            yield chunk


class Options(TypedDict, total=False):
    """Options of a client, and of `Client.with_options`; see `Client`."""

    timeout: float
    max_rows_per_request: int
    max_concurrency: int
    retries: int
    headers: Mapping[str, str]


@dataclass(frozen=True, repr=False)
class Settings:
    """How to reach a service, checked. Its repr has neither the key nor a password.

    Attributes:
        url: The address of the service.
        timeout: Seconds for each request, with its retries.
        max_rows_per_request: The most rows of one request.
        max_concurrency: The most requests of one call at a time.
        retries: The most attempts after the first.
        headers: Further headers of each request.
        api_key: The key.

    Raises:
        ValueError: One of them can't be used.
    """

    url: str
    timeout: float = 60.0
    max_rows_per_request: int = 2048
    max_concurrency: int = 4
    retries: int = 6
    headers: Mapping[str, str] = field(default_factory=dict)
    api_key: str | None = None

    @classmethod
    def of(cls, url: str | None, api_key: str | None, options: Options) -> Settings:
        """Return the settings of a client, with `MURHO_URL` and `MURHO_API_KEY` of the environment as defaults."""
        if url is None and not (url := os.environ.get("MURHO_URL")):
            raise ValueError("There is no address: give url, or set MURHO_URL.")
        if api_key is None:
            api_key = os.environ.get("MURHO_API_KEY") or None
        return cls(url, api_key=api_key, **options)

    def __post_init__(self) -> None:
        try:
            address = httpx2.URL(self.url)
        except (httpx2.InvalidURL, TypeError):
            address = httpx2.URL("")
        if address.scheme not in ("http", "https") or not address.host:
            # The address may hold a password, so it isn't repeated.
            raise ValueError("url is not the address of a service, which looks like 'http://127.0.0.1:8000'.")
        for name, least in (("max_rows_per_request", 1), ("max_concurrency", 1), ("retries", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}; it is a whole number from {least} on.")
        Deadline(self.timeout)
        key = self.api_key
        if key is not None and address.userinfo:
            raise ValueError("url has a user and a password, and there is an api_key: a request can carry only one.")
        if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
            raise ValueError(
                "api_key, or MURHO_API_KEY, is empty, or has a space, a line break or another character no key has."
            )

    def address(self, *, shown: bool = True) -> str:
        """Return the address that the paths follow, without a query; if it is shown, without a password, too."""
        url = httpx2.URL(self.url).copy_with(query=None)
        return str(url.copy_with(username=None, password=None) if shown else url).rstrip("/")

    def headers_with(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of one request but the key; those of the trace that it belongs to, where there is one."""
        headers = {"User-Agent": f"murho-client/{__version__}", "Accept": "application/json"}
        if "opentelemetry.trace" in sys.modules:
            import_module("opentelemetry.propagate").inject(headers)
        return {**headers, **self.headers, **more}

    @property
    def authorization(self) -> dict[str, str]:
        """The header with the key."""
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """A step of a dialogue: a request to send once. Its response is the answer to the step.

    Attributes:
        method: Such as GET.
        path: The path below the address of the service, with its query.
        headers: The headers; the key is added as it is sent.
        body: The body.
        shown: The address without a password.
        deadline: When there must be a response.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    shown: str
    deadline: Deadline

    def request(self, http: httpx2.Client | httpx2.AsyncClient, settings: Settings) -> httpx2.Request:
        """Return the request with the key, and how long to wait for a connection and for each part of the response."""
        remaining = max(self.deadline.remaining(), 0.001)
        return http.build_request(
            self.method,
            settings.address(shown=False) + self.path,
            content=self.body,
            headers={**settings.authorization, **self.headers},
            timeout=httpx2.Timeout(remaining, connect=min(remaining, CONNECT_SECONDS)),
        )

    def response(self, response: httpx2.Response, body: bytes) -> Response:
        """Return the response in the client's own form."""
        return Response(self.shown, response.status_code, response.headers, body)

    def failure(self, error: Exception, *, answering: bool) -> Exception:
        """Return what to raise instead of an error of httpx2, which has the request and so the key.

        Args:
            error: The error.
            answering: Whether the response had begun.
        """
        if isinstance(error, TimeoutError | httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
            seconds = self.deadline.seconds
            return DeadlineExceeded(f"There was no answer within {seconds:g} seconds. A longer timeout may help.")
        if isinstance(error, httpx2.LocalProtocolError):  # its words have the header, which may be secret
            return ValueError("The request can't be sent: a header has characters that HTTP does not allow there.")
        reason = str(error).rstrip(".") or type(error).__name__
        if answering:
            fault = f"{self.shown} closed the connection half-way through its answer: {reason}."
            return Transient(UnexpectedAnswer(fault))
        fault = f"{self.shown} can't be reached: {reason}. Is the service running, and the address right?"
        return Transient(Unreachable(fault))


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """A step of a dialogue: others, to be held at the same time; the first error ends all. Answered by their results.

    Attributes:
        dialogues: The dialogues.
        done: Called with the number of each one that has ended.
    """

    dialogues: list[Dialogue[Any]]
    done: Callable[[int], None]


Step: TypeAlias = "Attempt | Together | float"
"""What a dialogue yields; a number is seconds to wait."""
Dialogue: TypeAlias = Generator[Step, Any, Result]


def ask(
    settings: Settings,
    method: str,
    path: str,
    read: Callable[[Response], Result],
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    within: Deadline | None = None,
    retried: bool = True,
) -> Dialogue[Result]:
    """Send a request, as often as it takes.

    Args:
        settings: How to reach the service.
        method: Such as GET.
        path: The path below the address of the service.
        read: What the response means; raises an error or `Transient`.
        body: The body.
        headers: Further headers.
        within: The deadline of the whole call.
        retried: Whether to try again after failures that may mend themselves.

    Returns:
        What `read` makes of the response.
    """
    deadline, begin = Deadline(settings.timeout, within), time.monotonic()
    address = f"{settings.address()}{path.partition('?')[0]}"
    for tried in count(1):
        attempt = Attempt(method, path, settings.headers_with(headers or {}), body, address, deadline)
        try:
            response = yield attempt
            LOG.debug("%s %s: %d, request %s", method, address, response.status, response.request_id)
            try:
                return read(response)
            except MurhoClientError as fault:
                fault.request_id = response.request_id
                raise
            except Transient as failure:
                failure.error.request_id = response.request_id
                raise
        except Transient as failure:
            error, retry_after = failure.error, failure.retry_after
        most = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tried - 1))
        wait = random.uniform(most / 2, most)  # noqa: S311 - no secret
        if retry_after is not None:
            wait = retry_after + random.uniform(0, FIRST_WAIT)  # noqa: S311 - no secret
        if not retried or tried > settings.retries or wait >= deadline.remaining():
            break
        LOG.info("%s %s: %s Trying again in %.1f seconds.", method, address, error, wait)
        yield wait
    times = "once" if tried == 1 else f"{tried} times in {time.monotonic() - begin:.1f} seconds"
    error.args = (f"{error.args[0]} (Tried {times}.)", *error.args[1:])
    raise error
