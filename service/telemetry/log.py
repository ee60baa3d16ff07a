"""The log of the process: lines for people on a terminal, JSON for machines."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, Literal, TextIO, cast

import orjson
import structlog

__all__ = ["configure_logging", "escaped", "for_people"]


LINES = frozenset({"exception", "stack"})
"""What a traceback is called in a log line: it has several lines."""


def for_people(style: Literal["auto", "console", "json"]) -> bool:
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
    human = for_people(style)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
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
