"""Charts of functions with bands, as PNG, drawn without a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Band", "Curve", "Points", "Span", "chart", "save"]

PALE, MIDDLE, DARK, GREY, ORANGE = "#dce9f5", "#9dc3e4", "#134b80", "#666666", "#c8500a"
FONT = "DejaVu Sans, Verdana, sans-serif"


@dataclass(frozen=True, slots=True)
class Band:
    """An area between two curves, ``[B]`` each; pale ones are drawn first."""

    label: str
    x: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    colour: str = MIDDLE


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through ``[B]`` points."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    colour: str = DARK
    dash: tuple[int, ...] = ()
    width: float = 2.0


@dataclass(frozen=True, slots=True)
class Points:
    """Single points, ``[N]``."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    colour: str = "#111111"
    size: float = 40.0
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """A range of x that is marked by two upright lines, with a caption between them."""

    label: str
    lower: float
    upper: float


def chart(
    *,
    title: str,
    subtitle: Sequence[str],
    x_title: str,
    y_title: str,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    bands: Sequence[Band],
    curves: Sequence[Curve],
    points: Sequence[Points],
    span: Span,
    faint: NDArray[np.float64] | None = None,
    width: int = 720,
    height: int = 400,
    x_format: str = "",
) -> alt.LayerChart:
    """Layers bands, curves and points, in that order.

    Args:
        title: What the figure shows.
        subtitle: Lines below it.
        x_title: Title of the x axis, with its unit.
        y_title: Title of the y axis, with its unit.
        x_range: First and last x.
        y_range: First and last y; what lies beyond is cut off.
        bands: Areas, the palest first.
        curves: Lines over them.
        points: Points over all.
        span: The range that the training rows cover.
        faint: Single draws over the x of the first curve, ``[S, B]``, as thin lines without a legend.
        width: Of the plot, in pixels at scale 1.
        height: Of the plot.
        x_format: d3 format of the numbers along x.
    """
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=x_range, nice=False, zero=False),
        axis=alt.Axis(title=x_title, grid=False, format=x_format),
    )
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(domain=y_range, nice=False, zero=False),
        axis=alt.Axis(title=y_title, tickCount=8),
    )
    fills = alt.Scale(domain=[band.label for band in bands], range=[band.colour for band in bands])
    strokes = alt.Scale(domain=[curve.label for curve in curves], range=[curve.colour for curve in curves])
    dashes = alt.Scale(
        domain=[curve.label for curve in curves], range=[list(curve.dash) or [1, 0] for curve in curves]
    )
    shapes = alt.Scale(domain=[some.label for some in points], range=["circle"] * len(points))
    layers: list[Any] = [
        alt.Chart(_rows(band.label, x=band.x, y=band.lower, upper=band.upper))
        .mark_area(clip=True, opacity=1.0)
        .encode(
            x=x,
            y=y,
            y2="upper:Q",
            fill=alt.Fill("label:N", scale=fills, legend=alt.Legend(title=None, symbolType="square")),
        )
        for band in bands
    ]
    layers += _span_layers(span, x, y_range[1])
    for draw in () if faint is None else faint:
        layers.append(
            alt.Chart(_rows("", x=curves[0].x, y=draw))
            .mark_line(clip=True, color=GREY, strokeWidth=0.7, opacity=0.45)
            .encode(x=x, y=y)
        )
    line_legend = alt.Legend(title=None, symbolType="stroke", symbolSize=500)
    layers += [
        alt.Chart(_rows(curve.label, x=curve.x, y=curve.y))
        .mark_line(clip=True, strokeWidth=curve.width)
        .encode(
            x=x,
            y=y,
            stroke=alt.Stroke("label:N", scale=strokes, legend=line_legend),
            strokeDash=alt.StrokeDash("label:N", scale=dashes, legend=line_legend),
        )
        for curve in curves
    ]
    layers += [
        alt.Chart(_rows(some.label, x=some.x, y=some.y))
        .mark_point(
            clip=True,
            filled=True,
            fill=some.colour,
            stroke="white",
            strokeWidth=0.6,
            size=some.size,
            opacity=some.opacity,
        )
        .encode(
            x=x,
            y=y,
            shape=alt.Shape(
                "label:N",
                scale=shapes,
                legend=alt.Legend(title=None, symbolFillColor=some.colour, symbolStrokeWidth=0),
            ),
        )
        for some in points
    ]
    return (
        alt.layer(*layers)
        .properties(width=width, height=height, title=alt.TitleParams(title, subtitle=list(subtitle)))
        .configure(font=FONT, background="white", padding=16)
        .configure_title(
            anchor="start",
            fontSize=17,
            subtitleFontSize=13,
            subtitleColor="#444444",
            offset=10,
            subtitlePadding=5,
        )
        .configure_axis(
            labelFontSize=13, titleFontSize=13, titleFontWeight="normal", gridColor="#eeeeee", titlePadding=8
        )
        .configure_legend(
            orient="bottom",
            direction="horizontal",
            labelFontSize=13,
            labelLimit=400,
            symbolSize=160,
            columnPadding=18,
        )
        .configure_view(stroke="#bbbbbb")
    )


def _span_layers(span: Span, x: alt.X, top: float) -> list[Any]:
    edges = (
        alt.Chart(_rows(span.label, x=[span.lower, span.upper]))
        .mark_rule(color=GREY, strokeDash=[2, 3])
        .encode(x=x)
    )
    caption = (
        alt.Chart(_rows(span.label, x=[(span.lower + span.upper) / 2.0], y=[top]))
        .mark_text(color=GREY, fontSize=12, dy=12, text=span.label)
        .encode(x=x, y="y:Q")
    )
    return [edges, caption]


def _rows(label: str, **columns: Sequence[float] | NDArray[np.float64]) -> alt.Data:
    rows = zip(*columns.values(), strict=True)
    return alt.Data(
        values=[{"label": label, **dict(zip(columns, map(float, row), strict=True))} for row in rows]
    )


def save(figure: alt.LayerChart, path: Path, *, scale: float = 2.0) -> None:
    """Writes a chart as PNG.

    Args:
        figure: The chart.
        path: Where to; its directory exists.
        scale: Pixels of the file a pixel of the chart.
    """
    figure.save(path, format="png", scale_factor=scale)
