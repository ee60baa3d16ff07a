"""What people see: a prediction as a table of text or, in notebooks, of HTML, and the progress of a long one.

In HTML each row has an error bar, drawn as SVG. The page's own text colour is used, so the table is readable in light
and dark notebooks. There is no script and no style sheet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

__all__ = ["Bars", "Progress", "ProgressBar", "Table", "fixed", "number"]

MAX_WARNINGS = 3
MAX_TEXT = 32
QUIET_SECONDS = 1.0
WIDTH, HEIGHT, MARGIN = 220, 18, 6
BLUE = "#3987e5"
"""Has a contrast of 3 or more to white and to a dark page."""
CELL = "padding: 2px 10px; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap"
HEAD = f"{CELL}; border-bottom: 1px solid rgba(128, 128, 128, 0.4); font-weight: 600"

Progress: TypeAlias = bool | Callable[[int, int | None], object] | None
"""None: shown on a terminal, for more than a second of work. True, False: always, never. A function is called with the
number of finished rows and of all rows (None if unknown)."""


def number(value: float) -> str:
    """A level or threshold: `5`, `97.5`."""
    return f"{value:.12g}"


def fixed(values: NDArray[np.float64], spread: NDArray[np.float64]) -> Callable[[float], str]:
    """How numbers are written so that the typical spread has two significant digits.

    Args:
        values: The numbers, `[B]`.
        spread: Their spreads, `[B]`.
    """
    spread = spread[spread > 0]
    decimals = 3 if not len(spread) else max(1 - int(np.floor(np.log10(np.median(spread)))), 0)
    if decimals > 6 or np.abs(values).max(initial=0) >= 1e9:
        return "{:.4g}".format
    return f"{{:.{decimals}f}}".format


@dataclass(frozen=True, slots=True)
class Bars:
    """The error bars of rows, in one scale.

    Attributes:
        centre: Where the dots are, `[B]`.
        lower: Where the bars begin.
        upper: Where they end.
        inner: Half the length of the thick part, which stays within the bar.
        scale: The values at the left and the right end of the picture.
        caption: What the bars span.
    """

    centre: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    inner: NDArray[np.float64]
    scale: tuple[float, float]
    caption: str

    def pictures(self) -> list[str]:
        """An SVG picture for each row; none where there is no spread."""
        low, high = self.scale
        if not high > low:
            return []
        inner = np.maximum(self.centre - self.inner, self.lower), np.minimum(self.centre + self.inner, self.upper)
        ends = np.stack([self.lower, self.upper, *inner, self.centre], axis=1)
        # Halves, because the difference of two large numbers may be beyond float64.
        places = MARGIN + (ends / 2 - low / 2) / (high / 2 - low / 2) * (WIDTH - 2 * MARGIN)
        return [_bar(*row) for row in places.tolist()]


@dataclass(frozen=True, slots=True)
class Table:
    """The first and last rows of a prediction.

    Attributes:
        title: What was predicted, by which model and how.
        columns: The cells of the rows by column, the rows' labels first.
        cut: Whether rows in the middle are left out.
        warnings: All warnings.
        bars: The error bars of the rows; None if there are none.
    """

    title: str
    columns: Mapping[str, list[str]]
    cut: bool
    warnings: Sequence[object]
    bars: Bars | None

    @property
    def _cells(self) -> dict[str, list[str]]:
        """The cells, in short lines, with dots where rows are left out."""
        cells = {name: [_short(cell) for cell in column] for name, column in self.columns.items()}
        if self.cut:
            for column in cells.values():
                column.insert(len(column) // 2, "…")
        return cells

    @property
    def _warned(self) -> str:
        count = len(self.warnings)
        return f"{count} {'warning' if count == 1 else 'warnings'}: see .warnings" if count else ""

    def text(self) -> str:
        """The table as lines of text."""
        lines = [[name, *column] for name, column in self._cells.items()]
        widths = [max(map(len, column)) for column in lines]
        table = ["  ".join(map(str.rjust, line, widths)) for line in zip(*lines, strict=True)]
        note = [self._warned, *(f"  {warning}" for warning in self.warnings[:MAX_WARNINGS])] if self.warnings else []
        return "\n".join([self.title, *table, *note])

    def html(self) -> str:
        """The table as HTML.

        The bar spans the outermost percentiles, or twice the std on both sides without percentiles. Its thick part is
        the mean ± the epistemic std, where that lies within the bar. The dot is the mean. All bars share one scale.
        Those of a classifier show the probability of the likeliest class.
        """
        cells = {escape(name): list(map(escape, column)) for name, column in self._cells.items()}
        if self.bars is not None and (bars := self.bars.pictures()):
            if self.cut:
                bars.insert(len(bars) // 2, "")
            cells[f"{escape(self.bars.caption)} (thick: epistemic)"] = bars
        head = "".join(f'<th style="{HEAD}">{name}</th>' for name in cells)
        rows = ("".join(f'<td style="{CELL}">{cell}</td>' for cell in row) for row in zip(*cells.values(), strict=True))
        listed = "".join(f"<li>{escape(str(warning))}</li>" for warning in self.warnings[:10])
        note = f'<details style="margin-top: 4px"><summary>{self._warned}</summary><ul>{listed}</ul></details>'
        return (
            '<div style="color: inherit; background: transparent; overflow-x: auto">'
            f'<div style="margin-bottom: 4px; opacity: 0.75">{escape(self.title)}</div>'
            '<table style="border-collapse: collapse; color: inherit; background: transparent; font-size: 90%">'
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"
            f"{note if self.warnings else ''}</div>"
        )


def _short(cell: str) -> str:
    text = " ".join(cell.split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _bar(lower: float, upper: float, inner_lower: float, inner_upper: float, centre: float) -> str:
    middle = HEIGHT / 2
    caps = "".join(f'<line x1="{x:.1f}" y1="{middle - 4}" x2="{x:.1f}" y2="{middle + 4}"/>' for x in (lower, upper))
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true" '
        'style="display: block; vertical-align: middle">'
        '<g stroke="currentColor" stroke-width="1.5" opacity="0.55">'
        f'<line x1="{lower:.1f}" y1="{middle}" x2="{upper:.1f}" y2="{middle}"/>{caps}</g>'
        f'<line x1="{inner_lower:.1f}" y1="{middle}" x2="{inner_upper:.1f}" y2="{middle}" '
        f'stroke="{BLUE}" stroke-width="7"/>'
        f'<circle cx="{centre:.1f}" cy="{middle}" r="2.6" fill="currentColor"/></svg>'
    )


class ProgressBar:
    """Shows the number of finished rows on stderr; a context manager.

    Args:
        total: Number of all rows; None if unknown.
        progress: Whether and how to show them; see `Progress`.
    """

    def __init__(self, total: int | None, progress: Progress = None) -> None:
        self._total = total
        self._report = progress if callable(progress) else None
        # In a process without a console there is no stderr.
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown = progress is True or (progress is None and terminal)
        self._begin = time.monotonic()
        self._from = self._begin + (0.0 if progress is True else QUIET_SECONDS)
        self._done = 0
        self._length = 0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Ends the line, if there is one."""
        if self._length:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def advance(self, rows: int) -> None:
        """Counts finished rows."""
        self._done += rows
        if self._report is not None:
            self._report(self._done, self._total)
        elif self._shown and time.monotonic() >= self._from:
            rate = self._done / max(time.monotonic() - self._begin, 1e-9)
            line = f"{self._done:,} rows, {rate:,.0f} a second"
            if self._total:
                left = (self._total - self._done) / rate
                line = f"{self._done / self._total:4.0%}: {self._done:,} of {self._total:,} rows, {left:.0f} s left"
            sys.stderr.write("\r" + line.ljust(self._length))
            sys.stderr.flush()
            self._length = len(line)
