"""What a connection may do, and what it is told otherwise: limits, refusals, open files."""

from __future__ import annotations

import os
import resource
import uuid
from typing import TYPE_CHECKING

import orjson
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from murho.service.errors import (
    HeadersTooLargeError,
    MalformedRequestError,
    OutOfMemoryError,
    ProblemDetails,
    ServiceError,
    TargetTooLongError,
    problem_details,
)
from murho.service.telemetry.log import LogLimit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from httptools import HttpParserError

    from murho.service.settings import Settings
    from murho.service.telemetry.metrics import Telemetry


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


# Open files that are no connections: libraries, checkpoints that are loaded, refused connections until they are closed.
RESERVED_FILES = 512
# So many refused connections get time to read why; the others are closed as soon as it is sent.
LINGERING_REFUSED = 256


class ConnectionLimits:
    """The limits of a server's connections, as its settings have them, and the refusals.

    Args:
        settings: The settings.

    Attributes:
        connections: The most open connections: as many as there can be open files, at most.
        head_bytes: The most bytes of a request line and its headers.
        headers: The most headers of a request.
        target_bytes: The most bytes of its path and query.
        head_seconds: From the first byte of a request to the end of its headers.
        idle_seconds: Without any request.
        send_seconds: In which the client takes nothing of an answer.
        refused: Connections that are open only to be told that there are too many.
    """

    def __init__(self, settings: Settings) -> None:
        self.connections = min(settings.max_connections, files_for(settings.max_connections))
        self.head_bytes, self.headers = settings.max_header_bytes, settings.max_headers
        self.target_bytes = settings.max_target_bytes
        self.head_seconds, self.idle_seconds = settings.header_timeout, settings.idle_timeout
        self.send_seconds = settings.send_timeout
        self.refused = 0
        self._log = LogLimit(20, 1.0)

    @property
    def linger(self) -> bool:
        """Whether a refused connection gets time to read why."""
        return self.refused <= LINGERING_REFUSED

    def too_large(self, target: bytes) -> ServiceError:
        """Returns what to say of a head that passes a limit."""
        if len(target) > self.target_bytes:
            return TargetTooLongError(
                f"Path and query are longer than {self.target_bytes} bytes. Send options in the body."
            )
        return HeadersTooLargeError(
            f"This service takes at most {self.headers} headers, with {self.head_bytes} bytes in all."
        )

    def report(
        self, error: ServiceError, client: tuple[str, int] | None, telemetry: Telemetry
    ) -> tuple[ProblemDetails, str]:
        """Counts and logs an error of a client; a flood of errors is no flood of lines.

        Returns:
            The problem that answers it, and the id of the answer, which is in the log line too.
        """
        request_id = uuid.uuid4().hex
        problem = problem_details(error, request_id)
        kind = problem.type.rpartition(":")[2]
        telemetry.protocol_errors.labels(kind).inc()
        held_back = self._log.held_back()
        if held_back is not None:
            structlog.get_logger("murho.connection").warning(
                "connection refused",
                client="{}:{}".format(*client) if client else "unknown",
                kind=kind,
                status=problem.status,
                detail=problem.detail,
                request_id=request_id,
                **({} if error.__cause__ is None else {"cause": repr(error.__cause__)}),
                **({"lines_held_back": held_back} if held_back else {}),
            )
        return problem, request_id


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


def files_for(connections: int) -> int:
    """Raises this process's limit of open files as far as it is needed and allowed; returns what connections may take.

    A soft limit is often 1,024 (256 on macOS) for the sake of old programs, while the hard one is far above.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        wanted = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # a system may allow less than its hard limit says
            pass
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    # With a very low limit, half of it.
    left = max(soft - RESERVED_FILES, soft // 2)
    structlog.get_logger("murho.server").warning(
        f"This process may open {soft} files, so it takes at most {left} connections instead of {connections}. "
        "Raise the hard limit of open files (ulimit -Hn, LimitNOFILE), or lower MURHO_MAX_CONNECTIONS."
    )
    return left


def is_out_of_files() -> bool:
    """Returns whether this process can't open another file, by trying."""
    try:
        os.close(os.dup(2))
    except OSError:
        return True
    return False
