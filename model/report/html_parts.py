"""Pieces of HTML: tables, lists of facts and small histograms. All text is escaped here."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Markup", "bars", "facts_list", "number", "percent", "table", "text"]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> str:
    """A value as HTML; None is a dash."""
    if value is None:
        return "&ndash;"
    return value if isinstance(value, Markup) else escape(str(value))


def number(value: float | None, digits: int = 4) -> str | None:
    """A number with some significant digits; None stays None."""
    return None if value is None else f"{value:.{digits}g}"


def percent(share: float | None, decimals: int = 1) -> str | None:
    """A share in per cent; None stays None."""
    return None if share is None else f"{100.0 * share:.{decimals}f} %"


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, texts: int = 1) -> Markup:
    """A table that scrolls sideways where the page is narrow.

    Args:
        heads: Titles of the columns.
        rows: Cells.
        texts: How many columns, from the left, hold text; the others hold numbers, aligned to the right.
    """
    kinds = ["" if place < texts else ' class="number"' for place in range(len(heads))]
    head = "".join(f"<th{kind}>{text(cell)}</th>" for kind, cell in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{text(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>\n"
        for row in rows
    )
    return Markup(f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>')


def facts_list(facts: Mapping[str, object]) -> Markup:
    """A list of names and values; those that are None are left out."""
    items = "".join(
        f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in facts.items() if value is not None
    )
    return Markup(f"<dl>{items}</dl>")


def bars(counts: Sequence[float], label: str) -> Markup:
    """A small histogram.

    Args:
        counts: Heights of the bars.
        label: What it shows, for those who do not see it.
    """
    highest = max(counts, default=0) or 1
    width = 120.0 / max(1, len(counts))
    shapes: list[Any] = []
    for place, count in enumerate(counts):
        height = 22.0 * count / highest
        if count:
            height = max(height, 1.0)
        shapes.append(
            f'<rect x="{place * width:.1f}" y="{24 - height:.1f}" width="{width - 1:.1f}" height="{height:.1f}"/>'
        )
    return Markup(
        f'<svg class="bars" viewBox="0 0 120 24" role="img" aria-label="{escape(label)}">{"".join(shapes)}</svg>'
    )
