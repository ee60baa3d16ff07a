"""A prediction as an HTML table for notebooks: each row has an error bar, drawn as SVG.

The page's own text colour is used, so the table is readable in light and dark notebooks. There is no script and no
style sheet.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from murho_client._text_table import body, number, shown_rows, title, warnings_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho_client._prediction import Prediction

__all__ = ["html_table"]

WIDTH, HEIGHT, MARGIN = 220, 18, 6
BLUE = "#3987e5"
"""Has a contrast of 3 or more to white and to a dark page."""
CELL = "padding: 2px 10px; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap"
RULE = "border-bottom: 1px solid rgba(128, 128, 128, 0.4)"


def html_table(prediction: Prediction) -> str:
    """The first and last rows of a prediction as a table.

    The bar spans the outermost percentiles, or twice the std on both sides without percentiles. Its thick part is the
    mean ± the epistemic std, where that lies within the bar. The dot is the mean. All bars share one scale. Those of a
    classifier show the probability of the likeliest class.
    """
    rows = shown_rows(prediction)
    cells = body(prediction, rows)
    bars, caption = _bars(prediction, rows)
    head = "".join(f'<th style="{CELL}; {RULE}; font-weight: 600">{escape(name)}</th>' for name in cells)
    if bars:
        head += f'<th style="{CELL}; {RULE}; font-weight: 600; text-align: left">{escape(caption)}</th>'
    lines = []
    for index in range(len(rows)):
        if index == len(rows) // 2 and len(rows) < len(prediction):
            lines.append(f'<tr><td colspan="{len(cells) + 1}" style="{CELL}; text-align: center">⋮</td></tr>')
        line = "".join(f'<td style="{CELL}">{escape(column[index])}</td>' for column in cells.values())
        lines.append(
            f"<tr>{line}" + (f'<td style="{CELL}; text-align: left">{bars[index]}</td>' if bars else "") + "</tr>"
        )
    warned = escape(warnings_line(prediction))
    listed = "".join(f"<li>{escape(str(warning))}</li>" for warning in prediction.warnings[:10])
    note = f'<details style="margin-top: 4px"><summary>{warned}</summary><ul>{listed}</ul></details>' if warned else ""
    return (
        '<div style="color: inherit; background: transparent; overflow-x: auto">'
        f'<div style="margin-bottom: 4px; opacity: 0.75">{escape(title(prediction))}</div>'
        '<table style="border-collapse: collapse; color: inherit; background: transparent; font-size: 90%">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{note}</div>"
    )


@dataclass(frozen=True)
class _Spans:
    """What the bars show, in one scale.

    Attributes:
        centre: Where the dots are, `[rows]`.
        lower: Where the bars begin.
        upper: Where they end.
        inner: Half the length of the thick part.
        scale: The values at the left and the right end of the picture.
        caption: What the bars span.
    """

    centre: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    inner: NDArray[np.float64]
    scale: tuple[float, float]
    caption: str


def _spans_of_numbers(prediction: Prediction, chosen: list[int]) -> _Spans | None:
    """The outermost percentiles, or twice the std on both sides."""
    if prediction.std is None:
        return None
    mean, std = prediction.mean[chosen], prediction.std[chosen]
    if prediction.percentiles is not None and len(prediction.levels) > 1:
        values = prediction.percentiles[chosen]
        lower, upper, caption = values.min(axis=1), values.max(axis=1), _outermost(prediction)
    else:
        lower, upper, caption = mean - 2 * std, mean + 2 * std, "mean ± 2 std"
    inner = np.zeros_like(std) if prediction.epistemic_std is None else prediction.epistemic_std[chosen]
    scale = float(min(lower.min(), mean.min())), float(max(upper.max(), mean.max()))
    return _Spans(mean, lower, upper, inner, scale, caption)


def _spans_of_classes(prediction: Prediction, chosen: list[int]) -> _Spans | None:
    """The same for the probability of each row's likeliest class, from 0 to 1."""
    if prediction.probabilities is None or prediction.epistemic_std is None:
        return None
    rows = np.arange(len(chosen))
    probabilities = prediction.probabilities[chosen]
    likeliest = probabilities.argmax(axis=1)
    centre, inner = probabilities[rows, likeliest], prediction.epistemic_std[chosen][rows, likeliest]
    if prediction.percentiles is not None and len(prediction.levels) > 1:
        values = prediction.percentiles[chosen][rows, likeliest]
        lower, upper, caption = values.min(axis=1), values.max(axis=1), _outermost(prediction)
    else:
        lower, upper, caption = np.maximum(centre - 2 * inner, 0), np.minimum(centre + 2 * inner, 1), "± 2 std"
    return _Spans(centre, lower, upper, inner, (0.0, 1.0), f"probability of the prediction, 0 to 1: {caption}")


def _outermost(prediction: Prediction) -> str:
    return f"p{number(min(prediction.levels))} to p{number(max(prediction.levels))}"


def _bars(prediction: Prediction, rows: Sequence[int]) -> tuple[list[str], str]:
    """An SVG picture for each row, and what the bars span; no pictures where there is no spread."""
    if not rows:
        return [], ""
    spans = (_spans_of_numbers if prediction.classes is None else _spans_of_classes)(prediction, list(rows))
    if spans is None or not spans.scale[1] > spans.scale[0]:
        return [], ""
    low, high = spans.scale

    def place(values: NDArray[np.float64]) -> NDArray[np.float64]:
        # Halves, because the difference of two large numbers may be beyond float64.
        share: NDArray[np.float64] = (values / 2 - low / 2) / (high / 2 - low / 2)
        return MARGIN + share * (WIDTH - 2 * MARGIN)

    inner = np.maximum(spans.centre - spans.inner, spans.lower), np.minimum(spans.centre + spans.inner, spans.upper)
    ends = np.stack([place(values) for values in (spans.lower, spans.upper, *inner, spans.centre)], axis=1)
    return [_bar(*map(float, row)) for row in ends], f"{spans.caption} (thick: epistemic)"


def _bar(lower: float, upper: float, inner_lower: float, inner_upper: float, mean: float) -> str:
    middle = HEIGHT / 2
    caps = "".join(f'<line x1="{x:.1f}" y1="{middle - 4}" x2="{x:.1f}" y2="{middle + 4}"/>' for x in (lower, upper))
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true" '
        'style="display: block; vertical-align: middle">'
        '<g stroke="currentColor" stroke-width="1.5" opacity="0.55">'
        f'<line x1="{lower:.1f}" y1="{middle}" x2="{upper:.1f}" y2="{middle}"/>{caps}</g>'
        f'<line x1="{inner_lower:.1f}" y1="{middle}" x2="{inner_upper:.1f}" y2="{middle}" '
        f'stroke="{BLUE}" stroke-width="7"/>'
        f'<circle cx="{mean:.1f}" cy="{middle}" r="2.6" fill="currentColor"/></svg>'
    )
