"""The log of the process, and its lines on requests: lines for people on a terminal, JSON for machines."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

import orjson
import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["REQUEST_ID", "AccessLog", "LogLimit", "configure_logging", "escaped"]

REQUEST_ID: ContextVar[str] = ContextVar("request_id")
"""The id of the request in hand, for every line of the log about it."""

FLUSH_SECONDS = 0.2
FLUSH_LINES = 1000
WHOLE_BYTES = 4096
"""What is written to a pipe at once stays in one piece up to here, whoever else writes to it."""


LINES = frozenset({"exception", "stack"})
"""What a traceback is called in a log line: it has several lines."""


def _for_people(style: Literal["auto", "console", "json"]) -> bool:
    """Returns whether log lines are for people rather than machines."""
    return style == "console" or (style == "auto" and sys.stderr.isatty())


def escaped(value: Any, *, lines: bool = False) -> Any:
    r"""Returns what a log line says, with what isn't printable in its texts as escapes, such as \x1b.

    Clients choose paths and values. A control character would command the terminal that shows the log, a line break
    would forge a line, and a mark of direction (U+202E) would show another text than there is.

    Args:
        value: A text, or a container of texts; another object as the text that it shows.
        lines: Whether it may have line breaks and tabs.
    """
    if isinstance(value, str):
        if value.isprintable():
            return value
        kept = "\n\t" if lines else ""
        return "".join(
            mark if mark.isprintable() or mark in kept else mark.encode("unicode_escape").decode() for mark in value
        )
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, dict):
        return {escaped(str(key)): escaped(item, lines=key in LINES) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, list | tuple | set) else escaped(str(value))


def _name_request(_logger: Any, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if "request_id" not in event and (request_id := REQUEST_ID.get(None)) is not None:
        event["request_id"] = request_id
    return event


def _escape(_logger: Any, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return cast("structlog.typing.EventDict", escaped(event))


class _Stderr:
    """stderr for a log: a full disk or a closed pipe loses lines, and stops nothing else."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def configure_logging(level: str, style: Literal["auto", "console", "json"]) -> None:
    """Sends the log of the whole process to stderr, the web server's lines included, in one form.

    Args:
        level: The least level: debug, info, warning or error.
        style: console for people, json for machines, auto by whether stderr is a terminal.
    """
    human = _for_people(style)
    shared: list[structlog.typing.Processor] = [
        _name_request,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
    ]
    render: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        _escape,
        # Of its tracebacks, the default shows the variables of every frame. That is slow, and shows users' rows.
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if human
        else structlog.processors.JSONRenderer(_dumps),
    ]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(cast("TextIO", _Stderr()))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # The web server logs its own start and end at info; the service already says both.
    root.setLevel(logging.DEBUG if level == "debug" else max(logging.WARNING, getattr(logging, level.upper())))
    logging.getLogger("murho").setLevel(level.upper())


def _dumps(value: Any, **_: Any) -> str:
    return orjson.dumps(value, default=str).decode()


class AccessLog:
    """Writes lines on requests to stderr, from one event loop, in batches where machines read them.

    A line of its own for each request would cost a system call, more than all else that the log does.

    Args:
        level: The least level of the log. Requests are of level info, those of quiet routes of level debug.
        style: console for people, json for machines, auto by whether stderr is a terminal. For people, a line is
            written at once.
    """

    def __init__(self, level: str, style: Literal["auto", "console", "json"]) -> None:
        self._written, self._quiet_written = level in ("debug", "info"), level == "debug"
        self._people = structlog.get_logger("murho.access") if _for_people(style) else None
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(self, facts: Mapping[str, str | float | None], *, quiet: bool = False) -> None:
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
        texts = "".join([each for each in facts.values() if isinstance(each, str)])
        line = {
            **(facts if texts.isprintable() else escaped(facts)),
            "event": "request",
            "level": level,
            "timestamp": datetime.now(UTC),
        }
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
        piece = b""
        for line in [*self._lines, b""]:
            if piece and (not line or len(piece) + len(line) >= WHOLE_BYTES):
                _Stderr().write(piece.decode(errors="replace"))
                _Stderr().flush()
                piece = b""
            piece += line + b"\n"
        self._lines.clear()


class LogLimit:
    """Lets a number of lines through in each period, and counts those that it holds back.

    Args:
        lines: The most lines of one period.
        seconds: The length of a period, which begins with its first line.
        clock: Monotonic seconds.
    """

    def __init__(self, lines: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._seconds = seconds
        self._clock = clock
        self._end = -float("inf")
        self._said = 0
        self._held_back = 0

    def held_back(self) -> int | None:
        """Asks for one line; returns None if it is to be held back, else how many were before it."""
        now = self._clock()
        if now >= self._end:
            self._end = now + self._seconds
            self._said = 0
        if self._said >= self._lines:
            self._held_back += 1
            return None
        self._said += 1
        held_back, self._held_back = self._held_back, 0
        return held_back
