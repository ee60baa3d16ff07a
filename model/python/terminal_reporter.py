"""Progress of a training on stderr: one live display on a terminal, a line every ten seconds otherwise."""

from __future__ import annotations

import math
import time
from datetime import timedelta

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from murho.model.bbb.fit import Epoch
from murho.model.runtime import interrupts_held_back
from murho.model.training.candidates import Attempt, Reporter, Stage

SECONDS_BETWEEN_LINES = 10.0
EARLIEST_ETA = 0.02
"""Share of the training that must be done before its end is estimated."""


class TerminalReporter(Reporter):
    """A reporter for a terminal or a log; a context manager that removes the display.

    A terminal shows the stage, a bar with the time left, the epoch and the best scores so far, in place, and readable
    at 80 columns. Without a terminal, the same goes into one line, at most every ten seconds.
    """

    def __init__(self, *, seconds_between_lines: float = SECONDS_BETWEEN_LINES, console: Console | None = None) -> None:
        """Check whether stderr is a terminal.

        Args:
            seconds_between_lines: Least time between two lines without a terminal.
            console: Where to write; stderr by default.
        """
        self._seconds_between_lines = seconds_between_lines
        self._console = console or Console(stderr=True, highlight=False)
        self._live = Live(self, console=self._console, refresh_per_second=5, transient=True)
        self._stage: Stage | None = None
        self._title, self._share, self._epoch, self._best = "", 0.0, "", ""
        self._figures, self._loss = "", math.inf
        self._began = self._said_at = time.monotonic()

    def __exit__(self, *_: object) -> None:
        """Remove the display; lines that were printed stay."""
        self._live.stop()

    def say(self, message: str) -> None:
        """Print a line."""
        self._print(message, soft_wrap=not self._console.is_terminal)

    def stage(self, stage: Stage) -> None:
        """Show that a stage of a training begins."""
        self._stage, self._share = stage, stage.done
        self.begin(stage.title)

    def show_scores(self, attempt: Attempt) -> None:
        """Show the scores of a finished fit, if they are the best so far."""
        if attempt.loss < self._loss:
            self._loss = attempt.loss
            of_classes, of_numbers = f"log loss {attempt.nll:.4f} nats", f", NLL {attempt.nll:.3f} nats"
            scores = of_classes if attempt.crps is None else f"CRPS {attempt.crps:.4g}{of_numbers}"
            self._best = f"best so far: {scores} (fit {1 if self._stage is None else self._stage.number})"
        self._show()

    def begin(self, title: str) -> None:
        """Show that a fit begins."""
        self._title, self._epoch, self._figures = title, "", ""
        self._show()

    def epoch(self, epoch: Epoch) -> None:
        """Move the bar; without a terminal, print a line if the last one is long enough ago."""
        start, share = (0.0, 1.0) if self._stage is None else (self._stage.done, self._stage.share)
        self._share = start + share * max(epoch.progress, epoch.number / epoch.epochs)
        self._epoch = f"epoch {epoch.number}/{epoch.epochs}"
        validation = "not validated yet" if math.isnan(epoch.validation) else f"validation nll {epoch.validation:.3g}"
        parts = f"free energy {epoch.free_energy:.3g} = nll {epoch.negative_log_likelihood:.3g} + KL {epoch.kl:.3g}"
        self._figures = f"{self._epoch}  {parts}  {validation}"
        self._show()

    def end(self) -> None:
        """End the display of a fit; it stays to the end of the context."""

    def _show(self) -> None:
        if self._console.is_terminal:
            self._live.start()
        elif time.monotonic() - self._said_at >= self._seconds_between_lines:
            self._said_at = time.monotonic()
            parts = [self._where(), f"{100.0 * self._share:.0f} %", self._times(), self._epoch, self._best]
            self._print(", ".join(filter(None, parts)), soft_wrap=True)

    def _print(self, text: str, *, soft_wrap: bool) -> None:
        with interrupts_held_back() as held_back:  # a console that is interrupted in a line prints no other line
            self._console.print(text, markup=False, soft_wrap=soft_wrap)
        if held_back.came:
            raise KeyboardInterrupt

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Return the display, of the width of the terminal."""
        bar = Table.grid(expand=True, padding=(0, 2, 0, 0))
        bar.add_column(ratio=1)
        bar.add_row(ProgressBar(total=1.0, completed=self._share), f"{100.0 * self._share:.0f} %", self._times())
        yield _line(": ".join(filter(None, (self._where(), self._title))), "bold")
        yield bar
        yield from map(_line, filter(None, (self._figures, self._best)))

    def _where(self) -> str:
        return f"fit {self._stage.number} of {self._stage.fits}" if self._stage and self._stage.share else ""

    def _times(self) -> str:
        spent = time.monotonic() - self._began
        left = "?" if self._share < EARLIEST_ETA else _clock(spent * (1.0 - self._share) / self._share)
        return f"{_clock(spent)}, ETA {left}"


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _clock(seconds: float) -> str:
    """``0:00:07``, or ``1:02:03``."""
    return str(timedelta(seconds=round(seconds)))
