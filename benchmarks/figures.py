"""Charts of functions with bands, as PNG, drawn without a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
import vl_convert

from benchmarks.legend import Key, legend

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["GREY", "MIDDLE", "PALE", "Axis", "Band", "Curve", "Points", "Span", "chart", "save"]

PALE, MIDDLE, DARK, GREY = "#d9e8f6", "#94bfe3", "#134b80", "#666666"
FONT = "DejaVu Sans, Verdana, sans-serif"


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of a chart.

    Attributes:
        title: The quantity, with its unit.
        lower: First value; marks beyond either end are cut off.
        upper: Last value.
        ticks: Approximate number of ticks.
        format: d3 format of the numbers; without trailing zeros by default.
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
    """One line, or several in the same style: ``x`` of ``[B]``, ``y`` of ``[B]`` or ``[lines, B]``."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    colour: str = DARK
    dash: tuple[int, ...] = ()
    width: float = 2.2


@dataclass(frozen=True, slots=True)
class Points:
    """Single points, ``[N]``, of a size in square pixels."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    colour: str = "#111111"
    size: float = 45.0
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """A range of x between two vertical lines, with a caption at the top."""

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
) -> dict[str, Any]:
    """A chart with title, legend and layers, as a Vega-Lite specification with its data.

    Args:
        layers: Bands, curves and points, from the back to the front.
        title: Title of the figure.
        subtitle: Lines below the title.
        x_axis: Horizontal axis.
        y_axis: Vertical axis.
        span: Range of the training rows.
        width: Width of the plot, in pixels at scale 1.
        height: Height of the plot.
    """
    x = alt.X("x:Q", scale=_scale(x_axis), axis=_axis(x_axis, grid=False))
    y = alt.Y("y:Q", scale=_scale(y_axis), axis=_axis(y_axis, grid=True))
    names = [f"layer{index}" for index in range(len(layers))]
    marks = [
        _mark(layer, alt.Chart(alt.NamedData(name))).encode(x=x, y=y) for layer, name in zip(layers, names, strict=True)
    ]
    # The span goes behind lines and points, in front of the bands.
    bands = sum(isinstance(layer, Band) for layer in layers)
    marks[bands:bands] = _span_marks(span, x, y, y_axis.upper)
    plot = alt.layer(*marks).properties(width=width, height=height)
    framed = (
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
    # Altair copies and checks its data several times, so the numbers are added afterwards.
    specification: dict[str, Any] = framed.to_dict()
    rows = {name: _rows(layer) for layer, name in zip(layers, names, strict=True)}
    specification["datasets"] = specification.get("datasets", {}) | rows
    return specification


def _scale(axis: Axis) -> alt.Scale:
    return alt.Scale(domain=[axis.lower, axis.upper], nice=False, zero=False)


def _axis(axis: Axis, *, grid: bool) -> alt.Axis:
    return alt.Axis(title=axis.title, grid=grid, tickCount=axis.ticks, format=axis.format)


def _mark(layer: Band | Curve | Points, base: alt.Chart) -> Any:
    match layer:
        case Band():
            return base.mark_area(clip=True, color=layer.colour, opacity=1.0).encode(y2="upper:Q")
        case Curve():
            return base.mark_line(
                clip=True,
                color=layer.colour,
                strokeWidth=layer.width,
                strokeDash=list(layer.dash) or [1, 0],
            ).encode(detail="line:N")
        case Points():
            return base.mark_point(
                clip=True,
                filled=True,
                color=layer.colour,
                stroke="white",
                strokeWidth=0.6,
                size=layer.size,
                opacity=layer.opacity,
            )


def _rows(layer: Band | Curve | Points) -> list[dict[str, float]]:
    match layer:
        case Band():
            return _records(x=layer.x, y=layer.lower, upper=layer.upper)
        case Curve():
            lines = np.atleast_2d(layer.y)
            x = np.tile(layer.x, len(lines))
            return _records(x=x, y=lines.ravel(), line=np.repeat(np.arange(len(lines)), len(layer.x)))
        case Points():
            return _records(x=layer.x, y=layer.y)


def _records(**columns: Sequence[float] | NDArray[Any]) -> list[dict[str, float]]:
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, map(float, row), strict=True)) for row in rows]


def _key(layer: Band | Curve | Points) -> Key:
    match layer:
        case Band():
            return Key(layer.label, "area", layer.colour)
        case Curve():
            return Key(layer.label, "line", layer.colour, layer.dash, layer.width)
        case Points():
            return Key(layer.label, "point", layer.colour)


def _span_marks(span: Span, x: alt.X, y: alt.Y, top: float) -> list[Any]:
    edges = alt.Chart(alt.Data(values=_records(x=[span.lower, span.upper])))
    middle = alt.Chart(alt.Data(values=_records(x=[(span.lower + span.upper) / 2.0], y=[top])))
    return [
        edges.mark_rule(color=GREY, strokeDash=[2, 3]).encode(x=x),
        middle.mark_text(color=GREY, fontSize=12, dy=12, text=span.label).encode(x=x, y=y),
    ]


def save(specification: dict[str, Any], path: Path, *, scale: float = 2.0) -> None:
    """Draws a chart as PNG.

    Args:
        specification: The chart, from `chart`.
        path: Path of the file; its directory exists.
        scale: Pixels of the file per pixel of the chart.
    """
    path.write_bytes(vl_convert.vegalite_to_png(specification, scale=scale))
