"""The log of the process: lines for people on a terminal, JSON for machines."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, Literal, TextIO, cast

import orjson
import structlog

__all__ = ["configure_logging", "for_people"]


def for_people(style: Literal["auto", "console", "json"]) -> bool:
    """Returns whether log lines are for people rather than machines."""
    return style == "console" or (style == "auto" and sys.stderr.isatty())


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
    render: list[structlog.typing.Processor] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                # The default shows the variables of every frame. That is slow, and puts users' rows into the log.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
        if human
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_dumps)]
    )
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
