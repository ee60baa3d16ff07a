"""Charts as pictures: PNG files, and SVG that takes its colours from the page; needs the extra ``charts``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from murho.model.report.chart_style import COLOURS, PAPER
from murho.model.report.charts import charts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.report.charts import Chart

__all__ = ["HOW_TO_GET_CHARTS", "Drawing", "can_draw", "draw"]

HOW_TO_GET_CHARTS = "pip install '.[charts]' in a clone of Murho's repository"


def can_draw() -> bool:
    """Whether the package that draws is installed."""
    return find_spec("vl_convert") is not None


def draw(facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> list[Drawing]:
    """The charts of a report; none where the extra ``charts`` is missing.

    Args:
        facts: The facts of the report.
        rows: Rows to show; None: no rows.
    """
    return [Drawing.of(chart) for chart in charts(facts, rows)] if can_draw() else []


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart that was drawn once, for a page and for a file.

    Attributes:
        chart: The chart.
        picture: An SVG document with its colours and its background.
    """

    chart: Chart
    picture: str

    @classmethod
    def of(cls, chart: Chart) -> Self:
        """Draw a chart."""
        import vl_convert

        return cls(chart, vl_convert.vegalite_to_svg(chart.specification))

    def png(self, *, scale: float = 1.5) -> bytes:
        """The picture as a PNG file, with ``scale`` pixels per pixel of the chart."""
        import vl_convert

        picture: bytes = vl_convert.svg_to_png(self.picture, scale=scale)
        return picture

    def element(self) -> str:
        """An SVG element, without background, for a page that defines the variables of `chart_style.COLOURS`."""
        drawn = re.sub(rf'<rect width="[^"]*" height="[^"]*" fill="{PAPER}"/>', "", self.picture, count=1)
        for colour, name in COLOURS.items():
            drawn = drawn.replace(colour, f"var(--{name})")
        label = f'role="img" aria-label="{escape(self.chart.title)}"'
        size = re.search(r'width="([\d.]+)" height="([\d.]+)"', drawn)
        if size is None:
            return drawn.replace("<svg ", f"<svg {label} ", 1)
        return drawn.replace(size[0], f'style="width:{size[1]}px" {label}', 1)  # it shrinks with the page
