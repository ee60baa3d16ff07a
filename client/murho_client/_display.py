"""What people see: a prediction as a table of text or, in notebooks, of HTML, and the progress of a long one.

In HTML each row has an error bar, drawn as SVG. The page's own text colour is used, so the table is readable in light
and dark notebooks. There is no script and no style sheet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Progress", "advancing", "fixed_format", "html_table", "number", "pictures", "short", "text_table"]


MAX_TEXT = 32
QUIET_SECONDS = 1.0
WIDTH, HEIGHT, MIDDLE, MARGIN = 220, 18, 9, 6
BLUE = "#3987e5"
"""Has a contrast of 3 or more to white and to a dark page."""
CELL = "padding: 2px 10px; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap"
HEAD = f"{CELL}; border-bottom: 1px solid rgba(128, 128, 128, 0.4); font-weight: 600"

Progress: TypeAlias = bool | Callable[[int, int | None], object] | None
"""None: shown on a terminal, for more than a second of work. True, False: always, never. A function is called with the
number of finished rows and of all rows (None if unknown)."""


def number(value: float) -> str:
    """Return a level or threshold: `5`, `97.5`."""
    return f"{value:.12g}"


def fixed_format(values: NDArray[np.float64], spread: NDArray[np.float64]) -> Callable[[float], str]:
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


def short(cell: str) -> str:
    """Return a cell in one short line."""
    text = " ".join(cell.split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _format_warnings(warnings: Sequence[object]) -> str:
    return f"{len(warnings)} {'warning' if len(warnings) == 1 else 'warnings'}: see .warnings"


def text_table(title: str, columns: Mapping[str, list[str]], warnings: Sequence[object]) -> str:
    """Return a table as lines of text.

    Args:
        title: What was predicted, by which model and how.
        columns: The cells by column.
        warnings: All warnings; the first three are shown.
    """
    lines = [[name, *column] for name, column in columns.items()]
    widths = [max(map(len, column)) for column in lines]
    table = ["  ".join(map(str.rjust, line, widths)) for line in zip(*lines, strict=True)]
    note = [_format_warnings(warnings), *(f"  {warning}" for warning in warnings[:3])] if warnings else []
    return "\n".join([title, *table, *note])


def html_table(
    title: str, columns: Mapping[str, list[str]], warnings: Sequence[object], bars: Mapping[str, list[str]]
) -> str:
    """Return a table as HTML; see `text_table`. `bars` are further columns, which are markup."""
    cells = {escape(name): list(map(escape, column)) for name, column in columns.items()}
    cells |= {escape(name): column for name, column in bars.items()}
    head = "".join(f'<th style="{HEAD}">{name}</th>' for name in cells)
    rows = ("".join(f'<td style="{CELL}">{cell}</td>' for cell in row) for row in zip(*cells.values(), strict=True))
    listed = "".join(f"<li>{escape(str(warning))}</li>" for warning in warnings[:10])
    note = (
        f'<details style="margin-top: 4px"><summary>{_format_warnings(warnings)}</summary><ul>{listed}</ul></details>'
    )
    return (
        '<div style="color: inherit; background: transparent; overflow-x: auto">'
        f'<div style="margin-bottom: 4px; opacity: 0.75">{escape(title)}</div>'
        '<table style="border-collapse: collapse; color: inherit; background: transparent; font-size: 90%">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"
        f"{note if warnings else ''}</div>"
    )


def pictures(
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    centre: NDArray[np.float64],
    inner: NDArray[np.float64],
    scale: tuple[float, float],
) -> list[str]:
    """Return an error bar as SVG for each row, all in one scale; none where there is no spread.

    Args:
        lower: Where the bars begin, `[B]`.
        upper: Where they end.
        centre: Where the dots are.
        inner: Half the length of the thick part, which stays within the bar.
        scale: The values at the left and the right end of the picture.
    """
    low, high = scale
    if not high > low:
        return []
    ends = np.stack(
        [lower, upper, np.maximum(centre - inner, lower), np.minimum(centre + inner, upper), centre], axis=1
    )
    # Halves, because the difference of two large numbers may be beyond float64.
    places = MARGIN + (ends.clip(low, high) / 2 - low / 2) / (high / 2 - low / 2) * (WIDTH - 2 * MARGIN)
    return [
        f'<svg width="{WIDTH}" height="{HEIGHT}" aria-hidden="true" style="display: block">'
        f'<path d="M{begin:.1f} 5v8 m0-4 H{end:.1f} m0-4v8" stroke="currentColor" stroke-width="1.5" fill="none" '
        'opacity="0.55"/>'
        f'<path d="M{thick:.1f} {MIDDLE}H{until:.1f}" stroke="{BLUE}" stroke-width="7"/>'
        f'<circle cx="{dot:.1f}" cy="{MIDDLE}" r="2.6" fill="currentColor"/></svg>'
        for begin, end, thick, until, dot in places.tolist()
    ]


@contextmanager
def advancing(total: int | None, progress: Progress = None) -> Iterator[Callable[[int], None]]:
    """Yield what is called with more finished rows, and show on stderr how many there are.

    Args:
        total: Number of all rows; None if unknown.
        progress: Whether and how to show them; see `Progress`.
    """
    begin, done, length = time.monotonic(), 0, 0
    # In a process without a console there is no stderr.
    shown = progress is True or (progress is None and sys.stderr is not None and sys.stderr.isatty())

    def advance(rows: int) -> None:
        nonlocal done, length
        done += rows
        seconds = time.monotonic() - begin
        if callable(progress):
            progress(done, total)
        elif shown and (progress or seconds >= QUIET_SECONDS):
            rate = done / max(seconds, 1e-9)
            line = f"{done:,} rows, {rate:,.0f} a second"
            if total:
                line = f"{done / total:4.0%}: {done:,} of {total:,} rows, {(total - done) / rate:.0f} s left"
            sys.stderr.write("\r" + line.ljust(length))
            sys.stderr.flush()
            length = len(line)

    try:
        yield advance
    finally:
        if length:
            sys.stderr.write("\n")
            sys.stderr.flush()
