"""The look of the charts, and the few forms of Vega-Lite that they are made of.

Specifications are plain dictionaries, without altair: the page of the service draws the same ones.
`model.report.page` replaces each colour by a variable of the page's style, so that one picture fits a light and a dark
page. In PNG files they stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "BAND",
    "BLUE",
    "COLOURS",
    "GREY",
    "INK",
    "KINDS",
    "MUTED",
    "ORANGE",
    "PAPER",
    "RULE",
    "Chart",
    "category",
    "colours",
    "dashed",
    "layer",
    "mark",
    "named",
    "quantity",
    "styled",
]

INK, MUTED, RULE, PAPER = "#1f2a37", "#5b6675", "#e3e7ec", "#fffffe"
BLUE, ORANGE, GREY, BAND = "#1862b0", "#c8590d", "#98a2ae", "#cfe0f4"
COLOURS = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    PAPER: "paper",
    BLUE: "blue",
    ORANGE: "orange",
    GREY: "grey",
    BAND: "band",
}
"""Colour → name of the style variable that stands for it."""
KINDS = {"calibrated": BLUE, "raw": ORANGE}
"""Kind of answers → its colour, in the order of legends."""

FONT = "DejaVu Sans, Verdana, sans-serif"


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of a report.

    Attributes:
        name: Name of its PNG file, without the extension.
        section: Section of the report: ``changes``, ``predictions``, ``doubt`` or ``training``.
        title: What it shows.
        caption: What to look for and what is good, in one to three sentences.
        specification: The Vega-Lite specification, with its data.
    """

    name: str
    section: str
    title: str
    caption: str
    specification: dict[str, Any]


def named(name: str, unit: str | None) -> str:
    """A name with its unit in brackets, if it has one."""
    return f"{name} ({unit})" if unit else name


def quantity(
    field: str, title: str | None = None, domain: Sequence[float] | None = None, **axis: Any
) -> dict[str, Any]:
    """The encoding of a number.

    Args:
        field: Field of the data.
        title: Title of the axis; None: another layer gives it.
        domain: Ends of the axis; None: those of the data.
        axis: Further options of the axis.
    """
    scale: dict[str, Any] = {"zero": False} if domain is None else {"domain": list(domain), "nice": False}
    made: dict[str, Any] = {"field": field, "type": "quantitative", "scale": scale}
    return made if title is None else made | {"axis": {"title": title, **axis}}


def category(field: str, order: Sequence[Any] | None = None, title: str | None = None, **axis: Any) -> dict[str, Any]:
    """The encoding of a category, in an order (None: that of the values), with options of the axis."""
    return {"field": field, "type": "ordinal", "sort": order, "axis": {"title": title, **axis}}


def colours(field: str, palette: Mapping[str, str], **legend: Any) -> dict[str, Any]:
    """The encoding of a category by colour, with options of the legend."""
    scale = {"domain": list(palette), "range": list(palette.values())}
    return {"field": field, "type": "nominal", "scale": scale, "legend": {"title": None, **legend}}


def mark(kind: str, colour: str | None = None, **options: Any) -> dict[str, Any]:
    """A mark, in one colour if no encoding gives it."""
    return {"type": kind, **options} | ({} if colour is None else {"color": colour})


def dashed(kind: str, colour: str = MUTED) -> dict[str, Any]:
    """The mark of a line to compare with."""
    return mark(kind, colour, strokeDash=[5, 4], strokeWidth=1.2)


def layer(rows: Sequence[Mapping[str, Any]], drawn: dict[str, Any], **channels: Any) -> dict[str, Any]:
    """Rows of data, drawn by a mark; a channel is an encoding or the name of a field."""
    encoding = {name: {"field": made} if isinstance(made, str) else made for name, made in channels.items()}
    return {"data": {"values": list(rows)}, "mark": drawn, "encoding": encoding}


def styled(**chart: Any) -> dict[str, Any]:
    """A whole chart, with font, colours and padding."""
    text = {"labelColor": INK, "titleColor": MUTED, "labelFontSize": 12, "titleFontSize": 12.5}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": PAPER,
        "padding": 8,
        **chart,
        "config": {
            "font": FONT,
            "view": {"stroke": None},
            "axis": {
                **text,
                "titleFontWeight": "normal",
                "titlePadding": 8,
                "gridColor": RULE,
                "domainColor": GREY,
                "tickColor": GREY,
                "labelLimit": 220,
                "labelFlush": False,
            },
            "legend": {**text, "orient": "top", "title": None, "symbolSize": 90, "labelLimit": 400},
            "header": {**text, "titleFontWeight": "normal", "labelFontSize": 12.5, "labelLimit": 260},
            "title": {"color": INK, "fontSize": 13, "fontWeight": "normal", "anchor": "start"},
        },
    }
