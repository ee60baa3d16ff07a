"""The page of a report: one HTML file with everything in it, which asks nothing of a network.

``page.html`` beside this module is its template, and has all that is said on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import ChainableUndefined, Environment, FileSystemLoader

from murho.model.evaluation.summary import plus_minus, significant, verdict
from murho.model.report.charts import COLOURS, PAPER, charts, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from murho.model.report.charts import Chart


HOW_TO_GET_CHARTS = "pip install '.[charts]' in a clone of Murho's repository"


def can_draw() -> bool:
    """Whether the package that draws is installed."""
    return find_spec("vl_convert") is not None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart that was drawn once, for a page and for a file.

    Attributes:
        chart: The chart.
        picture: An SVG document with its colours and its background.
    """

    chart: Chart
    picture: str

    def png(self, *, scale: float = 1.5) -> bytes:
        """The picture as a PNG file, with ``scale`` pixels per pixel of the chart."""
        import vl_convert

        picture: bytes = vl_convert.svg_to_png(self.picture, scale=scale)
        return picture

    def element(self) -> str:
        """An SVG element, without background, for a page that defines the variables of `COLOURS`."""
        label = f'role="img" aria-label="{escape(self.chart.title)}"'
        drawn = re.sub(rf'<rect width="[^"]*" height="[^"]*" fill="{PAPER}"/>', "", self.picture, count=1)
        # It shrinks with the page.
        drawn = re.sub(r'width="([\d.]+)" height="[\d.]+"', rf'style="width:\1px" {label}', drawn, count=1)
        return re.sub("|".join(COLOURS), lambda colour: f"var(--{COLOURS[colour[0]]})", drawn)


def draw(facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> list[Drawing]:
    """The charts of a report; none where the extra ``charts`` is missing.

    Args:
        facts: The facts of the report.
        rows: Rows to show; None: no rows.
    """
    if not can_draw():
        return []
    import vl_convert

    return [Drawing(chart, vl_convert.vegalite_to_svg(chart.specification)) for chart in charts(facts, rows)]


def html_page(
    name: str, facts: Mapping[str, Any], drawn: Sequence[Drawing], rows: Mapping[str, Any] | None = None
) -> str:
    """The whole page.

    Args:
        name: Name of the checkpoint, and its version if it is known.
        facts: The facts of the report.
        drawn: Its charts.
        rows: Rows to show, `model.report.facts.shown_rows`; None: no rows.
    """
    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=ChainableUndefined,
        finalize=lambda value: "\u2013" if value is None else value,
    )
    pages.filters |= {
        "named": named,
        "count": lambda value: f"{value:,}",
        "end": lambda value: value if isinstance(value, str) else f"{value:.6g}",
        "error": lambda value, error: plus_minus(value, error or None) if _known(value) else None,
        "number": lambda value, digits=4: significant(value, digits) if _known(value) else None,
        "percent": lambda share, decimals=1: f"{100.0 * share:.{decimals}f} %" if _known(share) else None,
    }
    return pages.get_template("page.html").render(
        name=name,
        facts=facts,
        verdict=verdict(facts["scores"], facts["target"]["unit"]) if facts["scores"] else None,
        drawn=drawn,
        rows=rows,
        can_draw=can_draw(),
        how_to_get_charts=HOW_TO_GET_CHARTS,
    )


def _known(value: object) -> bool:
    """Whether it is a number, and neither None nor missing in the facts."""
    return isinstance(value, int | float)
