"""Progress of work on many rows, on stderr: a bar with an ETA on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance: TypeAlias = "Callable[[int], None]"
"""A function that takes the number of rows finished since the last call."""
SECONDS_BETWEEN_LINES = 2.0


def ignore_rows(rows: int) -> None:
    """Return an `Advance` that shows nothing."""


@contextmanager
def advancing(title: str, total: int) -> Iterator[Advance]:
    """Show the progress of work on rows. Without a terminal, the first line comes after two seconds.

    Args:
        title: Name of the work.
        total: Total number of rows.

    Yields:
        The function to call with the number of rows just finished.
    """
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines(title, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,} of {task.total:,} rows"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    # What is written to stdout meanwhile stays there: a bar that redirects it would write it to stderr.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(title, total=total)
        yield lambda rows: bar.update(task, advance=rows)


class _Lines:
    """Print a line at most every two seconds."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total, self._done = title, total, 0
        self._began = self._printed_at = time.monotonic()

    def __call__(self, rows: int) -> None:
        self._done += rows
        now = time.monotonic()
        if now - self._printed_at < SECONDS_BETWEEN_LINES:
            return
        self._printed_at = now
        elapsed = now - self._began
        remaining = elapsed / self._done * (self._total - self._done)
        sys.stderr.write(
            f"{self._title}: {self._done:,} of {self._total:,} rows, {elapsed:.0f} s, about {remaining:.0f} s more\n"
        )
        sys.stderr.flush()
