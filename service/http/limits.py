"""What one connection may do, and how many there may be: the settings, and the process's limit of open files."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import structlog

from murho.service.errors import HeadersTooLargeError, TargetTooLongError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.service.errors import ServiceError
    from murho.service.settings import Settings

__all__ = ["RESERVED_FILES", "ConnectionLimits", "files_for", "is_out_of_files"]

# Open files that are no connections: libraries, checkpoints that are loaded, refused connections until they are closed.
RESERVED_FILES = 512


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of a server's connections.

    Attributes:
        connections: The most open connections.
        head_bytes: The most bytes of a request line and its headers.
        headers: The most headers of a request.
        target_bytes: The most bytes of a request's target, which is path and query.
        head_seconds: From the first byte of a request to the end of its headers.
        idle_seconds: Without any request.
        send_seconds: In which the client takes nothing of an answer.
    """

    connections: int = 10_000
    head_bytes: int = 32 * 1024
    headers: int = 100
    target_bytes: int = 16 * 1024
    head_seconds: float = 10.0
    idle_seconds: float = 65.0
    send_seconds: float = 60.0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Returns the limits that settings ask for; of connections, as many as there can be open files."""
        return cls(
            connections=min(settings.max_connections, files_for(settings.max_connections)),
            head_bytes=settings.max_header_bytes,
            headers=settings.max_headers,
            target_bytes=settings.max_target_bytes,
            head_seconds=settings.header_timeout,
            idle_seconds=settings.idle_timeout,
            send_seconds=settings.send_timeout,
        )

    def check_head(self, target: bytes, headers: Sequence[tuple[bytes, bytes]], received: int) -> None:
        """Checks a request's head.

        Args:
            target: Path and query.
            headers: The headers.
            received: Bytes that have arrived, which may be more than the head.

        Raises:
            ServiceError: A limit is passed.
        """
        if len(target) > self.target_bytes or len(headers) > self.headers:
            raise self.too_large(target)
        # The exact size is counted only where all that has arrived is above the limit.
        if received > self.head_bytes:
            size = len(target) + sum(len(name) + len(value) + 4 for name, value in headers)
            if size > self.head_bytes:
                raise self.too_large(target)

    def too_large(self, target: bytes) -> ServiceError:
        """Returns what to say of a head that passes a limit."""
        if len(target) > self.target_bytes:
            return TargetTooLongError(
                f"Path and query are longer than {self.target_bytes} bytes. Send options in the body."
            )
        return HeadersTooLargeError(
            f"This service takes at most {self.headers} headers, with {self.head_bytes} bytes in all."
        )


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
