"""The figures: lines and densities side by side, as PNG, drawn without a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from benchmarks.figures import save

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Panel", "density", "draw"]

COLOURS = ("#134b80", "#c2410c", "#4d7c0f", "#7e22ce")
INK, GREY = "#333333", "#888888"
WIDTH, HEIGHT = 420, 280


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a figure.

    Attributes:
        title: What it shows.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        lines: Label → x ``[n]`` and y ``[n]``.
        rules: Vertical lines: x → caption.
        x_range: Ends of the horizontal axis; None: those of the lines.
        y_range: Likewise.
        logarithmic: Whether the vertical axis is logarithmic.
        points: Whether each value is marked by a point.
        percent: Whether y is a share, shown in per cent.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
    rules: Mapping[float, str] | None = None
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    logarithmic: bool = False
    points: bool = False
    percent: bool = False


def density(values: NDArray[np.float64], edges: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Density of values in bins: the bins' centres and densities; values beyond the edges are in no bin."""
    counts, _ = np.histogram(values, edges)
    return (edges[:-1] + edges[1:]) / 2.0, counts / len(values) / np.diff(edges)


def draw(path: Path, panels: Sequence[Panel], *, title: str, subtitle: Sequence[str] = ()) -> None:
    """Draw panels side by side into a PNG file.

    Args:
        path: The file; its directory exists.
        panels: The panels, from left to right.
        title: Title of the figure.
        subtitle: Lines below the title.
    """
    labels = list(dict.fromkeys(label for panel in panels for label in panel.lines))
    figure = (
        alt.hconcat(*(_chart(panel, labels) for panel in panels), spacing=36)
        .properties(title=alt.TitleParams(title, subtitle=list(subtitle), anchor="start", fontSize=17, offset=14))
        .configure(font="DejaVu Sans, Verdana, sans-serif", background="white", padding=16)
        .configure_title(subtitleFontSize=12, subtitleColor="#444444", subtitlePadding=6)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor="#eeeeee")
        .configure_view(stroke="#bbbbbb")
        .configure_legend(labelFontSize=12, orient="top", title=None, labelLimit=360, symbolStrokeWidth=3)
    )
    save(figure.to_dict(), path)


def _chart(panel: Panel, labels: Sequence[str]) -> Any:
    rows = [
        {"x": float(x), "y": float(y), "label": label}
        for label, (xs, ys) in panel.lines.items()
        for x, y in zip(xs, ys, strict=True)
        if not (panel.logarithmic and y <= 0.0)
    ]
    x_scale = alt.Scale(zero=False, nice=False) if panel.x_range is None else alt.Scale(domain=list(panel.x_range))
    options: dict[str, Any] = {"type": "log"} if panel.logarithmic else {}
    y_scale = alt.Scale(**options) if panel.y_range is None else alt.Scale(domain=list(panel.y_range), **options)
    axis = alt.Axis(format=".1%") if panel.percent else alt.Axis(tickCount=6)
    shown = [label for label in labels if label in panel.lines]
    colours = [COLOURS[labels.index(label) % len(COLOURS)] for label in shown]
    base = alt.Chart(alt.Data(values=rows))
    marks = base.mark_line(clip=True, strokeWidth=2, point=panel.points).encode(
        x=alt.X("x:Q", title=panel.x, scale=x_scale, axis=alt.Axis(grid=False, tickCount=7)),
        y=alt.Y("y:Q", title=panel.y, scale=y_scale, axis=axis),
        color=alt.Color("label:N", scale=alt.Scale(domain=shown, range=colours)),
    )
    layers = [marks]
    if panel.rules:
        ruled = [{"x": x, "label": caption} for x, caption in panel.rules.items()]
        rules = alt.Chart(alt.Data(values=ruled))
        layers.append(rules.mark_rule(color=GREY, strokeDash=[3, 3]).encode(x="x:Q"))
        layers.append(
            rules.mark_text(color=INK, align="left", dx=4, dy=8, fontSize=11).encode(
                x="x:Q", y=alt.value(0), text="label:N"
            )
        )
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return chart.properties(width=WIDTH, height=HEIGHT, title=alt.TitleParams(panel.title, fontSize=13))
