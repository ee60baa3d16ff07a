"""The histogram of a pruning as a PNG file; needs altair and vl-convert-python (the extra ``charts``)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from murho.model.errors import OptionError
from murho.model.training.pruning import HISTOGRAM_EDGES

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.training.pruning import Cut

__all__ = [
    "check_figure",
    "draw",
    "specification",
]

GREY, DARK, RULE, INK = "#b9bec4", "#134b80", "#c2410c", "#333333"
FONT = "DejaVu Sans, Verdana, sans-serif"
WIDTH, HEIGHT = 720, 320


def check_figure(path: Path) -> None:
    """Check, before the pruning, that the figure can be drawn and written.

    Args:
        path: Path of the PNG file.

    Raises:
        OptionError: The extension is not ``.png``, or the directory or a package is missing.
    """
    if path.suffix.lower() != ".png":
        raise OptionError(f"--figure: {path} must end in .png")
    if not path.parent.is_dir():
        raise OptionError(f"--figure: the directory {path.parent} does not exist")
    try:
        import altair  # noqa: F401 - only checks that it is installed
        import vl_convert  # noqa: F401 - likewise
    except ModuleNotFoundError as error:
        raise OptionError(
            f"--figure needs {error.name}: run pip install '.[charts]' in a clone of Murho's repository"
        ) from error


def specification(cut: Cut, title: str) -> dict[str, Any]:
    """The histogram, as a Vega-Lite specification with its data.

    Args:
        cut: The removed weights.
        title: Name and version of the checkpoint.
    """
    import altair as alt

    low, high = float(HISTOGRAM_EDGES[0]), float(HISTOGRAM_EDGES[-1])
    bars = []
    for index, (removed, kept) in enumerate(zip(cut.removed, cut.kept, strict=True)):
        start, end = float(HISTOGRAM_EDGES[index]), float(HISTOGRAM_EDGES[index + 1])
        for what, base, top in (("removed", 0, removed), ("kept", removed, removed + kept)):
            if top > base:
                bars.append({"start": start, "end": end, "base": base, "top": top, "what": what})
    highest = max(removed + kept for removed, kept in zip(cut.removed, cut.kept, strict=True))
    ticks = [float(power) for power in range(math.ceil(low), math.floor(high) + 1)]
    label = (
        f"datum.value <= {low} ? '≤ {10**low:g}' : datum.value >= {high} ? '≥ {10**high:g}' : "
        "format(pow(10, datum.value), '~g')"
    )
    x = alt.X(
        "start:Q",
        title="signal-to-noise ratio |mu| / sigma",
        scale=alt.Scale(domain=[low, high], nice=False),
        axis=alt.Axis(values=ticks, labelExpr=label, grid=False),
    )
    y = alt.Y(
        "base:Q",
        title="weights",
        scale=alt.Scale(domain=[0, 1.12 * highest], nice=False),
        axis=alt.Axis(tickCount=6, format=",d"),
    )
    colour = alt.Color(
        "what:N",
        scale=alt.Scale(domain=["removed", "kept"], range=[GREY, DARK]),
        legend=alt.Legend(title=None, orient="top", symbolType="square"),
    )
    histogram = (
        alt.Chart(alt.Data(values=bars))
        .mark_rect(stroke="white", strokeWidth=0.6)
        .encode(x=x, x2="end:Q", y=y, y2="top:Q", color=colour)
    )
    at = min(max(math.log10(max(cut.threshold, 1e-30)), low), high)
    cutting = alt.Chart(alt.Data(values=[{"at": at}]))
    rule = cutting.mark_rule(color=RULE, strokeWidth=1.6).encode(x="at:Q")
    left = at > (low + high) / 2.0
    caption = cutting.mark_text(
        align="right" if left else "left",
        dx=-7 if left else 7,
        y=10,
        color=RULE,
        fontSize=12,
        text=f"removed up to {cut.threshold:.2g}",
    ).encode(x="at:Q")
    free = cut.total("weights") - cut.total("held")
    subtitle = [f"{cut.total('removed'):,} of {free:,} weights removed, those of the lowest ratio"]
    if cut.total("held"):
        held = f"{cut.total('held'):,} weights that set the uncertainty beyond the training range"
        subtitle.append(f"not shown: {held}, all kept")
    chart = (
        alt.layer(histogram, rule, caption)
        .properties(
            width=WIDTH,
            height=HEIGHT,
            padding=18,
            background="white",
            title=alt.TitleParams(
                f"Signal-to-noise ratio of the weights: {title}",
                subtitle=subtitle,
                anchor="start",
                fontSize=16,
                subtitleFontSize=12.5,
                subtitleColor="#555555",
                offset=10,
            ),
        )
        .configure(font=FONT)
        .configure_view(stroke=None)
        .configure_axis(
            labelFontSize=12, titleFontSize=13, titleFontWeight="normal", labelColor=INK, gridColor="#ececec"
        )
        .configure_legend(labelFontSize=12.5)
    )
    drawn: dict[str, Any] = chart.to_dict()
    return drawn


def draw(cut: Cut, title: str, path: Path, *, scale: float = 2.0) -> None:
    """Draw the histogram.

    Args:
        cut: The removed weights.
        title: Name and version of the checkpoint.
        path: Path of the PNG file.
        scale: Pixels of the file per pixel of the specification.

    Raises:
        OptionError: The file can't be written.
    """
    import vl_convert

    picture = vl_convert.vegalite_to_png(specification(cut, title), scale=scale)
    try:
        path.write_bytes(picture)
    except OSError as error:
        raise OptionError(f"--figure: {path} can't be written: {error.strerror or error}") from error
