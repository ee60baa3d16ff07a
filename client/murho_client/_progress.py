"""A progress bar on stderr, for tables that take longer than a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Progress", "ProgressBar"]

QUIET_SECONDS = 1.0
WIDTH = 30

Progress = bool | Callable[[int, int | None], object] | None
"""None: a bar on a terminal, for more than a second of work. True, False: always, never. A function is called with the
number of finished rows and of all rows (None if unknown)."""


class ProgressBar:
    """Shows the number of finished rows; a context manager.

    Args:
        total: Number of all rows; None if unknown.
        progress: Whether and how to show them; see `Progress`.
        stream: Where to write to; stderr by default.
    """

    def __init__(self, total: int | None, progress: Progress = None, stream: TextIO | None = None) -> None:
        self._total = total
        self._report = progress if callable(progress) else None
        self._stream = sys.stderr if stream is None else stream
        # In a process without a console there is no stderr.
        terminal = self._stream is not None and self._stream.isatty()
        self._shown = progress is True or (progress is None and terminal)
        self._from = time.monotonic() + (0.0 if progress is True else QUIET_SECONDS)
        self._begin = time.monotonic()
        self._done = 0
        self._length = 0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Ends the line, if there is one."""
        if self._length:
            self._stream.write("\n")
            self._stream.flush()

    def advance(self, rows: int) -> None:
        """Counts finished rows."""
        self._done += rows
        if self._report is not None:
            self._report(self._done, self._total)
        elif self._shown and time.monotonic() >= self._from:
            self._draw()

    def _draw(self) -> None:
        rate = self._done / max(time.monotonic() - self._begin, 1e-9)
        line = f"{self._done:,} rows, {rate:,.0f} a second"
        if self._total:
            part = min(self._done / self._total, 1.0)
            filled = round(part * WIDTH)
            left = (self._total - self._done) / rate
            bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}]"
            line = f"{bar} {part:4.0%}  {self._done:,} of {self._total:,} rows, {left:.0f} s left"
        self._stream.write("\r" + line.ljust(self._length))
        self._stream.flush()
        self._length = len(line)
