"""Charts of doubt: the epistemic share along each feature, and the signal-to-noise ratios of the weights."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from murho.model.report.chart_style import BLUE, GREY, MUTED, axis, named, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["doubt_chart", "ratio_axis", "weight_chart"]

MOST_FEATURES = 12
PANELS_A_LINE = 3


def doubt_chart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The epistemic share of the variance in bins of each feature; features in which it differs most come first."""
    doubt = facts["doubt"]
    ordered = sorted(doubt["features"], key=_range, reverse=True)[:MOST_FEATURES]
    highest = max(part["share"] for feature in doubt["features"] for part in feature["bins"])
    domain = (0.0, min(1.0, 1.12 * highest + 0.01))
    panels = []
    for feature in ordered:
        rows = [
            {
                "bin": _bin_name(place),
                "share": place["share"],
                "rows": place["rows"],
                "missing": place.get("category", 0) is None,
            }
            for place in feature["bins"]
        ]
        names = [row["bin"] for row in rows]
        panels.append(
            {
                "title": named(feature["name"], feature["unit"]),
                "width": 175,
                "height": 120,
                "layer": [
                    {
                        "data": {"values": rows},
                        "mark": {"type": "bar", "color": BLUE, "opacity": 0.85},
                        "encoding": {
                            "x": {
                                "field": "bin",
                                "type": "ordinal",
                                "sort": names,
                                "axis": axis(None, labelAngle=-45, labelLimit=110, labelFontSize=10.5, grid=False),
                            },
                            "y": number("share", "", domain=domain, format="%", tickCount=4),
                        },
                    },
                    {
                        "data": {"values": [{"all": doubt["share"]}]},
                        "mark": {"type": "rule", "color": MUTED, "strokeDash": [4, 3]},
                        "encoding": {"y": number("all", None, domain=domain)},
                    },
                ],
            }
        )
    return {"concat": panels, "columns": PANELS_A_LINE, "spacing": {"row": 22, "column": 26}}


def _range(feature: Mapping[str, Any]) -> float:
    """How far the share differs along a feature, in bins of at least a few rows."""
    shares: list[float] = [place["share"] for place in feature["bins"] if place["rows"] >= 5] or [0.0]
    return max(shares) - min(shares)


def _bin_name(place: Mapping[str, Any]) -> str:
    if "category" in place:
        return {None: "missing", True: "yes", False: "no"}.get(place["category"], str(place["category"]))
    # Of a date, year and month: a label has little room.
    low, high = (f"{end:.4g}" if isinstance(end, float) else str(end)[:7] for end in (place["from"], place["to"]))
    return low if low == high else f"{low} to {high}"


def ratio_axis(edges: Sequence[float]) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """The logarithmic axis of signal-to-noise ratios.

    Args:
        edges: Edges of the bins, ratios.

    Returns:
        The encoding of the field ``from``, and the ends of each bin, log10 of the ratio.
    """
    powers = [math.log10(edge) for edge in edges]
    label = (
        f"datum.value <= {powers[0]} ? '≤ 0.001' : datum.value >= {powers[-1]} ? '≥ 100' : "
        "format(pow(10, datum.value), '~g')"
    )
    ticks = {"values": [-3, -2, -1, 0, 1, 2], "labelExpr": label, "grid": False}
    title = "signal-to-noise ratio |mu| / sigma of a weight"
    return number("from", title, domain=(powers[0], powers[-1]), **ticks), list(itertools.pairwise(powers))


def weight_chart(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Histogram of the signal-to-noise ratios; None where they are not known."""
    weights = facts["weights"]
    if weights is None:
        return None
    x, bins = ratio_axis(weights["edges"])
    bars = [
        {"from": low, "to": high, "count": count, "side": "below 1" if high <= 1e-6 else "above 1"}
        for (low, high), count in zip(bins, weights["counts"], strict=True)
    ]
    return {
        "width": 560,
        "height": 200,
        "data": {"values": bars},
        "mark": {"type": "rect"},
        "encoding": {
            "x": x,
            "x2": {"field": "to"},
            "y": number("count", "weights", domain=(0, 1.08 * max(weights["counts"])), tickCount=5, format=",d"),
            "y2": {"datum": 0},
            "color": {
                "field": "side",
                "type": "nominal",
                "scale": {"domain": ["below 1", "above 1"], "range": [GREY, BLUE]},
                "legend": {"labelExpr": "'ratio ' + datum.label"},
            },
        },
    }
