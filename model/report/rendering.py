"""Charts as pictures: PNG files, and SVG that takes its colours from the page; needs the extra ``charts``."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from murho.model.report.chart_style import COLOURS

if TYPE_CHECKING:
    from murho.model.report.charts import Chart

__all__ = ["HOW_TO_GET_CHARTS", "can_draw", "png", "svg"]

HOW_TO_GET_CHARTS = "pip install '.[charts]' in a clone of Murho's repository"


def can_draw() -> bool:
    """Whether the package that draws is installed."""
    return find_spec("vl_convert") is not None


def png(chart: Chart, *, scale: float = 1.5) -> bytes:
    """A PNG file.

    Args:
        chart: The chart.
        scale: Pixels of the file per pixel of the chart.
    """
    import vl_convert

    picture: bytes = vl_convert.vegalite_to_png(chart.specification, scale=scale)
    return picture


def svg(chart: Chart) -> str:
    """An SVG element, without background, for a page that defines the variables of `chart_style.COLOURS`."""
    import vl_convert

    drawn = vl_convert.vegalite_to_svg({**chart.specification, "background": "transparent"})
    for colour, name in COLOURS.items():
        drawn = drawn.replace(colour, f"var(--{name})")
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', drawn)
    label = f'role="img" aria-label="{chart.name}"'
    if size is None:
        return drawn.replace("<svg ", f"<svg {label} ", 1)
    width = f'style="width:{size[1]}px" {label}'  # shrinks with the page, see `max-width` there
    return drawn.replace(size[0], width, 1)
