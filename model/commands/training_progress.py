"""Progress of a training on stderr: a bar with an ETA on a terminal, plain lines otherwise."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from murho.model.fitting.fit_types import Epoch

__all__ = ["TerminalReporter"]


class TerminalReporter:
    """A `model.training.candidates.Reporter` for a terminal or a log."""

    def __init__(self, *, seconds_between_lines: float = 2.0) -> None:
        """Check whether stderr is a terminal.

        Args:
            seconds_between_lines: Least time between two lines without a terminal.
        """
        self._seconds_between_lines = seconds_between_lines
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._title = ""
        self._last: Epoch | None = None
        self._said_at = 0.0

    def say(self, message: str) -> None:
        """Print a line."""
        self._console.print(message, markup=False)

    def begin(self, title: str) -> None:
        """Start a bar."""
        self._title, self._last, self._said_at = title, None, time.monotonic()
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("epoch {task.completed}/{task.total}"),
                TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(),
                TextColumn("ETA at most"),
                TimeRemainingColumn(),
                console=self._console,
                transient=False,
            )
            self._bar.start()
            self._task = self._bar.add_task(title, total=None, figures="")

    def epoch(self, epoch: Epoch) -> None:
        """Move the bar; without a terminal, print a line every two seconds."""
        self._last = epoch
        if self._bar is not None:
            self._bar.update(self._task, completed=epoch.number, total=epoch.epochs, figures=_figures(epoch))
        elif time.monotonic() - self._said_at >= self._seconds_between_lines:
            self._line(epoch)

    def end(self) -> None:
        """Stop the bar; without a terminal, print the last epoch."""
        if self._bar is not None:
            if self._last is not None:  # a fit that ends early shows a full bar
                self._bar.update(self._task, total=self._last.number)
            self._bar.stop()
            self._bar = None
        elif self._last is not None:
            self._line(self._last)

    def _line(self, epoch: Epoch) -> None:
        self._said_at = time.monotonic()
        remaining = epoch.seconds / epoch.number * (epoch.epochs - epoch.number)
        sys.stderr.write(
            f"{self._title}: epoch {epoch.number}/{epoch.epochs}, {_figures(epoch)}, "
            f"{epoch.seconds:.0f} s, at most {remaining:.0f} s more\n"
        )
        sys.stderr.flush()


def _figures(epoch: Epoch) -> str:
    validation = "not validated yet" if math.isnan(epoch.validation) else f"validation nll {epoch.validation:.3f}"
    return (
        f"free energy {epoch.free_energy:.3f} = nll {epoch.negative_log_likelihood:.3f} + KL {epoch.kl:.3f}, "
        f"{validation}"
    )
