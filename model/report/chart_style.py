"""The look of the charts: Vega-Lite without altair, so that the page of the service can draw the same ones.

Colours are placeholders in a sense: `model.report.page` replaces each one by a variable of the page's style, so
that one picture fits a light and a dark page. In PNG files they stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    "axis",
    "named",
    "number",
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
"""Kind of bands → its colour, in the order of legends."""

FONT = "DejaVu Sans, Verdana, sans-serif"


def axis(title: str | None, **options: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": title, **options}


def named(name: str, unit: str | None) -> str:
    """A name with its unit in brackets, if it has one."""
    return f"{name} ({unit})" if unit else name


def number(field: str, title: str | None, *, domain: Sequence[float] | None = None, **options: Any) -> dict[str, Any]:
    """The encoding of a quantity.

    Args:
        field: Field of the data.
        title: Title of the axis; None: another layer gives it.
        domain: Ends of the axis; None: those of the data.
        options: Further options of the axis.
    """
    scale: dict[str, Any] = {"zero": False} if domain is None else {"domain": list(domain), "nice": False}
    made: dict[str, Any] = {"field": field, "type": "quantitative", "scale": scale}
    return made if title is None else made | {"axis": axis(title, **options)}


def styled(chart: dict[str, Any]) -> dict[str, Any]:
    """A chart with font, colours and padding."""
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
