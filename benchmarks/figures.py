"""Charts of functions with bands, as PNG, drawn without a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from benchmarks.legend import Key, legend

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Axis", "Band", "Curve", "Points", "Span", "chart", "save"]

PALE, MIDDLE, DARK, GREY = "#d9e8f6", "#94bfe3", "#134b80", "#666666"
FONT = "DejaVu Sans, Verdana, sans-serif"


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of a chart.

    Attributes:
        title: What it shows, with its unit.
        lower: Its first value; what lies beyond either end is cut off.
        upper: Its last value.
        ticks: About how many ticks.
        format: d3 format of its numbers; without trailing zeros by default.
    """

    title: str
    lower: float
    upper: float
    ticks: int = 8
    format: str = "~f"


@dataclass(frozen=True, slots=True)
class Band:
    """An area between two curves, ``[B]`` each."""

    label: str
    x: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    colour: str = MIDDLE


@dataclass(frozen=True, slots=True)
class Curve:
    """One line, or several of the same look: ``x`` of ``[B]``, ``y`` of ``[B]`` or ``[lines, B]``."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    colour: str = DARK
    dash: tuple[int, ...] = ()
    width: float = 2.2


@dataclass(frozen=True, slots=True)
class Points:
    """Single points, ``[N]``; a size in square pixels."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    colour: str = "#111111"
    size: float = 45.0
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """A range of x between two upright lines, with a caption at its top."""

    label: str
    lower: float
    upper: float


def chart(
    layers: Sequence[Band | Curve | Points],
    *,
    title: str,
    subtitle: Sequence[str],
    x_axis: Axis,
    y_axis: Axis,
    span: Span,
    width: int = 760,
    height: int = 400,
) -> alt.VConcatChart:
    """Title, legend and layers.

    Args:
        layers: What to draw, from the back to the front.
        title: What the figure shows.
        subtitle: Lines below it.
        x_axis: To the right.
        y_axis: Upwards.
        span: The range that the training rows cover.
        width: Of the plot, in pixels at scale 1.
        height: Of the plot.
    """
    x = alt.X("x:Q", scale=_scale(x_axis), axis=_axis(x_axis, grid=False))
    y = alt.Y("y:Q", scale=_scale(y_axis), axis=_axis(y_axis, grid=True))
    marks = [_mark(layer, x, y) for layer in layers]
    # Behind lines and points, in front of the bands.
    bands = sum(isinstance(layer, Band) for layer in layers)
    marks[bands:bands] = _span_marks(span, x, y, y_axis.upper)
    plot = alt.layer(*marks).properties(width=width, height=height)
    return (
        alt.vconcat(legend([_key(layer) for layer in layers], width), plot, spacing=10)
        .properties(title=alt.TitleParams(title, subtitle=list(subtitle)))
        .configure(font=FONT, background="white", padding=16)
        .configure_title(
            anchor="start",
            fontSize=18,
            subtitleFontSize=13,
            subtitleColor="#444444",
            subtitlePadding=6,
            subtitleLineHeight=18,
            offset=12,
        )
        .configure_axis(
            labelFontSize=13,
            titleFontSize=13,
            titleFontWeight="normal",
            titlePadding=8,
            gridColor="#eeeeee",
            labelFlush=False,
        )
        .configure_view(stroke="#bbbbbb")
    )


def _scale(axis: Axis) -> alt.Scale:
    return alt.Scale(domain=[axis.lower, axis.upper], nice=False, zero=False)


def _axis(axis: Axis, *, grid: bool) -> alt.Axis:
    return alt.Axis(title=axis.title, grid=grid, tickCount=axis.ticks, format=axis.format)


def _mark(layer: Band | Curve | Points, x: alt.X, y: alt.Y) -> Any:
    match layer:
        case Band():
            data = _data(x=layer.x, y=layer.lower, upper=layer.upper)
            area = alt.Chart(data).mark_area(clip=True, color=layer.colour, opacity=1.0)
            return area.encode(x=x, y=y, y2="upper:Q")
        case Curve():
            lines = layer.y if layer.y.ndim == 2 else layer.y[None]
            line = {"clip": True, "color": layer.colour, "strokeWidth": layer.width}
            dash = list(layer.dash) or [1, 0]
            return alt.layer(
                *(
                    alt.Chart(_data(x=layer.x, y=values)).mark_line(strokeDash=dash, **line).encode(x=x, y=y)
                    for values in lines
                )
            )
        case Points():
            points = alt.Chart(_data(x=layer.x, y=layer.y)).mark_point(
                clip=True,
                filled=True,
                color=layer.colour,
                stroke="white",
                strokeWidth=0.6,
                size=layer.size,
                opacity=layer.opacity,
            )
            return points.encode(x=x, y=y)


def _key(layer: Band | Curve | Points) -> Key:
    match layer:
        case Band():
            return Key(layer.label, "area", layer.colour)
        case Curve():
            return Key(layer.label, "line", layer.colour, layer.dash, layer.width)
        case Points():
            return Key(layer.label, "point", layer.colour)


def _span_marks(span: Span, x: alt.X, y: alt.Y, top: float) -> list[Any]:
    edges = alt.Chart(_data(x=[span.lower, span.upper])).mark_rule(color=GREY, strokeDash=[2, 3])
    caption = alt.Chart(_data(x=[(span.lower + span.upper) / 2.0], y=[top])).mark_text(
        color=GREY, fontSize=12, dy=12, text=span.label
    )
    return [edges.encode(x=x), caption.encode(x=x, y=y)]


def _data(**columns: Sequence[float] | NDArray[np.float64]) -> alt.Data:
    rows = zip(*columns.values(), strict=True)
    return alt.Data(values=[dict(zip(columns, map(float, row), strict=True)) for row in rows])


def save(figure: alt.VConcatChart, path: Path, *, scale: float = 2.0) -> None:
    """Writes a chart as PNG.

    Args:
        figure: The chart.
        path: Where to; its directory exists.
        scale: Pixels of the file a pixel of the chart.
    """
    figure.save(path, format="png", scale_factor=scale)
