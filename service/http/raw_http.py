"""HTTP as bytes: what the connection writes and reads beside uvicorn."""

from __future__ import annotations

import fcntl
import struct
import termios
from typing import TYPE_CHECKING

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from murho.service.errors import MalformedRequestError, OutOfMemoryError, ServiceError, TransferCodingError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from httptools import HttpParserError

    from murho.service.errors import ProblemDetails

__all__ = [
    "CONTINUE",
    "AnswerTransport",
    "check_head",
    "head_without_offer",
    "problem_bytes",
    "refusal_of",
    "unread_bytes",
]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

HEAD_OF_ANSWER = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4", b"HTTP/1.1 5")
MOST_JOINED = 2**16


class AnswerTransport:
    """The transport as an answer sees it.

    The head of an answer is sent together with the first part of its body: that is one system call and one packet
    instead of two. What closes the connection is said by `connection: close`, and goes by `close`.

    Args:
        transport: The transport of the connection.
        close: Closes the connection.
    """

    __slots__ = ("_close", "_head", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self._close = close
        self._head: bytes | None = None
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Sends data, after the head that is kept."""
        head = self._head
        if head is None:
            if data.startswith(HEAD_OF_ANSWER):
                self._head = data
            else:
                self._transport.write(data)
            return
        self._head = None
        if len(data) <= MOST_JOINED:
            self._transport.write(head + data)
        else:
            self._transport.write(head)
            self._transport.write(data)

    def flush(self) -> None:
        """Sends the head of an answer without a body."""
        if self._head is not None:
            self.write(b"")

    def close(self) -> None:
        """Closes the connection once all is sent."""
        self.flush()
        self._close()


def check_head(method: bytes, version: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Checks what the parser lets pass, and what servers beside this one may understand in another way.

    Raises:
        MalformedRequestError: The version isn't HTTP/1, or the request doesn't say its host once (RFC 9112, 3.2).
        TransferCodingError: The body is in another transfer coding than chunked (RFC 9112, 6.1).
    """
    if version not in {"1.1", "1.0"}:
        raise MalformedRequestError(f"This is no HTTP/1.1 request: its version is {version}.")
    hosts = []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            if version == "1.0":
                raise MalformedRequestError("This is no HTTP/1.1 request: HTTP/1.0 has no transfer codings.")
            if value.strip().lower() != b"chunked":
                raise TransferCodingError("This service takes the transfer coding chunked alone.")
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise MalformedRequestError(f"This is no HTTP/1.1 request: it has {len(hosts)} Host headers instead of one.")
    if target[:1] == b"/" or (target == b"*" and method == b"OPTIONS"):
        return
    scheme, _, rest = target.partition(b"://")
    authority = rest.partition(b"/")[0].partition(b"?")[0]
    if scheme.lower() not in {b"http", b"https"} or not authority:
        raise MalformedRequestError("This is no HTTP/1.1 request: its target isn't a valid path.")
    if hosts and authority.lower() != hosts[0].lower():
        raise MalformedRequestError("This is no HTTP/1.1 request: its target and its Host header name two hosts.")


def refusal_of(error: HttpParserError) -> ServiceError:
    """Returns what to say of an error of the parser; its cause is the failure of a callback, if it was one."""
    cause = error.__context__
    if isinstance(cause, ServiceError):
        return cause
    if isinstance(cause, MemoryError):
        return OutOfMemoryError()
    reason = str(error) if cause is None else "its target isn't a valid path"
    refusal = MalformedRequestError(f"This is no HTTP/1.1 request: {reason}.")
    refusal.__cause__ = cause
    return refusal


def problem_bytes(problem: ProblemDetails, request_id: str, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns a whole answer that closes the connection."""
    body = orjson.dumps(problem.document())
    headers = {
        "content-type": "application/problem+json",
        "content-length": str(len(body)),
        "x-request-id": request_id,
        "connection": "close",
        **problem.headers,
    }
    lines = [STATUS_LINE[problem.status]]
    lines += [name + b": " + value + b"\r\n" for name, value in default_headers]
    lines += [f"{name.lower()}: {value}\r\n".encode("ascii") for name, value in headers.items()]
    return b"".join((*lines, b"\r\n", body))


def head_without_offer(method: bytes, target: bytes, version: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns the head of a request without the headers that offer to upgrade to another protocol."""
    lines = [method + b" " + target + b" HTTP/" + version]
    for name, value in headers:
        if name == b"connection":
            kept = [token for token in value.split(b",") if token.strip().lower() != b"upgrade"]
            lines.append(b"connection: " + b",".join(kept))
        elif name != b"upgrade":
            lines.append(name + b": " + value)
    return b"\r\n".join((*lines, b"", b""))


def unread_bytes(transport: asyncio.Transport) -> int:
    """Returns the number of bytes that have arrived at a socket and are not read."""
    place = transport.get_extra_info("socket").fileno()
    (count,) = struct.unpack("i", fcntl.ioctl(place, termios.FIONREAD, struct.pack("i", 0)))
    return int(count)
