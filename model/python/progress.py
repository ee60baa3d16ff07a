"""Progress of a training on stderr: one live display on a terminal, a line every ten seconds otherwise."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderResult

    from murho.model.bbb.fit_types import Epoch
    from murho.model.training.candidates import Attempt, Stage

__all__ = [
    "TerminalReporter",
]

SECONDS_BETWEEN_LINES = 10.0
EARLIEST_ETA = 0.02
"""Share of the training that must be done before its end is estimated."""


class TerminalReporter:
    """A `model.training.candidates.Reporter` for a terminal or a log; a context manager that removes the display.

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
        self._live: Live | None = None
        self._title, self._share = "", 0.0
        self._stage: Stage | None = None
        self._epoch: Epoch | None = None
        self._best: tuple[int, Attempt] | None = None
        self._began = self._said_at = time.monotonic()
        self._anchor = (self._began, 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the display; lines that were printed stay."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, message: str) -> None:
        """Print a line."""
        self._console.print(message, markup=False, soft_wrap=not self._console.is_terminal)

    def stage(self, stage: Stage) -> None:
        """Show that a stage of a training begins."""
        if self._stage is None:
            self._anchor = (time.monotonic(), stage.done)
        self._stage = stage
        self._title, self._share, self._epoch = stage.title, stage.done, None
        self._show()

    def scored(self, attempt: Attempt) -> None:
        """Show the scores of a finished fit, if they are the best so far."""
        if self._best is None or attempt.loss < self._best[1].loss:
            self._best = (1 if self._stage is None else self._stage.number, attempt)
        self._show()

    def begin(self, title: str) -> None:
        """Show that a fit begins."""
        self._title, self._epoch = title, None
        if self._stage is None:
            self._anchor = (time.monotonic(), 0.0)
        self._show()

    def epoch(self, epoch: Epoch) -> None:
        """Move the bar; without a terminal, print a line if the last one is long enough ago."""
        self._epoch = epoch
        start, share = (0.0, 1.0) if self._stage is None else (self._stage.done, self._stage.share)
        self._share = start + share * max(epoch.progress, epoch.number / epoch.epochs)
        self._show()

    def end(self) -> None:
        """Show that the fit is done."""
        if self._stage is None:
            self.close()

    def _show(self) -> None:
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(self, console=self._console, refresh_per_second=5, transient=True)
                self._live.start()
        elif time.monotonic() - self._said_at >= self._seconds_between_lines:
            self._said_at = time.monotonic()
            parts = [self._where(), f"{100.0 * self._share:.0f} %", self._times(), self._epoch_number(), self._scores()]
            self._console.print(", ".join(part for part in parts if part), markup=False, soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The display, of the width of the terminal."""
        bar = Table.grid(expand=True, padding=(0, 2, 0, 0))
        bar.add_column(ratio=1)
        bar.add_column(justify="right", no_wrap=True)
        bar.add_column(justify="right", no_wrap=True)
        bar.add_row(ProgressBar(total=1.0, completed=self._share), f"{100.0 * self._share:.0f} %", self._times())
        yield _line(": ".join(part for part in (self._where(), self._title) if part), "bold")
        yield bar
        for text in (self._figures(), self._scores()):
            if text:
                yield _line(text)

    def _where(self) -> str:
        if self._stage is None:
            return ""
        return f"fit {self._stage.number} of {self._stage.fits}" if self._stage.share else ""

    def _times(self) -> str:
        now = time.monotonic()
        since, share = self._anchor
        done = self._share - share
        spent = _clock(now - self._began)
        if done < EARLIEST_ETA:
            return f"{spent}, ETA ?"
        return f"{spent}, ETA {_clock((now - since) * (1.0 - self._share) / done)}"

    def _epoch_number(self) -> str:
        return "" if self._epoch is None else f"epoch {self._epoch.number}/{self._epoch.epochs}"

    def _figures(self) -> str:
        epoch = self._epoch
        if epoch is None:
            return ""
        validation = "not validated yet" if math.isnan(epoch.validation) else f"validation nll {epoch.validation:.3g}"
        energy = f"free energy {epoch.free_energy:.3g} = nll {epoch.negative_log_likelihood:.3g} + KL {epoch.kl:.3g}"
        return f"{self._epoch_number()}  {energy}  {validation}"

    def _scores(self) -> str:
        if self._best is None:
            return ""
        number, best = self._best
        if best.crps is None:
            return f"best so far: log loss {best.nll:.4f} nats (fit {number})"
        return f"best so far: CRPS {best.crps:.4g}, NLL {best.nll:.3f} nats (fit {number})"


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _clock(seconds: float) -> str:
    """``0:07``, ``12:30`` or ``1:02:03``."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
