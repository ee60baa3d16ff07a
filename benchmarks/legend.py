"""A hand-made legend: rows of keys above a chart, each drawn like its layer.

Vega's own legends put areas, lines and points into blocks that don't align.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import altair as alt

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Key", "legend"]

FONT_SIZE = 13
NARROW, WIDE = "ijlft.,()' r", "mw%MW"
SYMBOL, GAP, ROW = 24.0, 18.0, 22.0
"""Width of a symbol, space between keys and height of a row, pixels."""


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: the label of a layer and its looks."""

    label: str
    form: Literal["area", "line", "point"]
    colour: str
    dash: tuple[int, ...] = ()
    width: float = 2.0


def legend(keys: Sequence[Key], width: int) -> alt.LayerChart:
    """A chart of keys from left to right, in as many rows as necessary.

    Args:
        keys: The entries.
        width: Width of the rows, pixels.
    """
    layers: list[Any] = []
    left, row = 0.0, 0
    for key in keys:
        needed = SYMBOL + 6.0 + _text_width(key.label)
        if left and left + needed > width:
            left, row = 0.0, row + 1
        layers += _key(key, left, ROW * (row + 0.5))
        left += needed + GAP
    height = ROW * (row + 1)
    return alt.layer(*layers).properties(width=width, height=height, view=alt.ViewBackground(stroke=None, fill=None))


def _text_width(text: str) -> float:
    """Estimated width of a text in pixels, rather too large than too small."""
    return sum(4.3 if character in NARROW else 12.2 if character in WIDE else 7.8 for character in text)


def _key(key: Key, left: float, middle: float) -> list[Any]:
    """Symbol and text of a key, at a place in pixels."""
    right, centre = left + SYMBOL, left + SYMBOL / 2.0
    base = alt.Chart(alt.Data(values=[{}]))
    match key.form:
        case "area":
            symbol = base.mark_rect(color=key.colour, opacity=1.0).encode(
                x=alt.value(left), x2=alt.value(right), y=alt.value(middle - 7.0), y2=alt.value(middle + 7.0)
            )
        case "line":
            symbol = base.mark_rule(
                color=key.colour, strokeWidth=key.width, strokeDash=list(key.dash) or [1, 0]
            ).encode(x=alt.value(left), x2=alt.value(right), y=alt.value(middle))
        case "point":
            symbol = base.mark_point(filled=True, color=key.colour, size=60, opacity=1.0).encode(
                x=alt.value(centre), y=alt.value(middle)
            )
    text = base.mark_text(text=key.label, align="left", baseline="middle", fontSize=FONT_SIZE, color="#222222").encode(
        x=alt.value(right + 6.0), y=alt.value(middle)
    )
    return [symbol, text]
