"""The access log: one line for each request, written in batches where machines read it.

A line of its own for each request would cost a system call, more than all else that the log does.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson
import structlog

from murho.service.telemetry.log import escaped, for_people

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AccessLog"]

FLUSH_SECONDS = 0.2
FLUSH_LINES = 1000


class AccessLog:
    """Writes lines on requests to stderr, from one event loop.

    Args:
        level: The least level of the log. Requests are of level info, those of quiet routes of level debug.
        style: console for people, json for machines, auto by whether stderr is a terminal. For people, a line is
            written at once.
    """

    def __init__(self, level: str, style: Literal["auto", "console", "json"]) -> None:
        self._written, self._quiet_written = level in ("debug", "info"), level == "debug"
        self._people = structlog.get_logger("murho.access") if for_people(style) else None
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(self, facts: Mapping[str, Any], *, quiet: bool = False) -> None:
        """Writes a line, at once or a little later.

        Args:
            facts: What it says.
            quiet: Whether machines ask for this every few seconds.
        """
        if not (self._quiet_written if quiet else self._written):
            return
        if self._people is not None:
            self._people.info("request", **facts)
            return
        level = "debug" if quiet else "info"
        line = {**escaped(facts), "event": "request", "level": level, "timestamp": datetime.now(UTC)}
        self._lines.append(orjson.dumps(line, str, orjson.OPT_UTC_Z))
        if len(self._lines) >= FLUSH_LINES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Writes the lines that wait. A full disk loses them; it stops no request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lines:
            return
        text = b"\n".join([*self._lines, b""]).decode(errors="replace")
        self._lines.clear()
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # a full disk, a closed pipe; a closed stream
            pass
