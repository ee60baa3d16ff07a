"""Charts of the course of a training: its curves, and its candidates."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from murho.model.bbb.registry import CLASS_KINDS
from murho.model.report.chart_style import BLUE, GREY, INK, MUTED, ORANGE, axis, named, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "MOST_FEATURES",
    "TITLES",
    "candidate_chart",
    "candidate_name",
    "curve_chart",
    "doubt_chart",
    "importance_chart",
    "ordered_features",
    "ratio_axis",
    "weight_chart",
]

CURVES = {"nll": ("training", BLUE), "validation": ("validation, rows not seen", ORANGE)}
PARTS = {"free_energy": ("free energy", INK), "kl": ("KL", BLUE)}
STAGES = {"full": ("full fit", "circle"), "settling": ("settling fit", "diamond"), "trial": ("trial", "square")}


def curve_chart(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Negative log likelihood, KL and free energy over the epochs of the fits that were kept; None without curves."""
    fits = facts["training"]["curves"]
    if not fits:
        return None
    rows, joints, offset = [], [], 0
    for place, fit in enumerate(fits):
        if offset:
            joints.append({"at": offset})
        for name in (*CURVES, *PARTS):
            label = (CURVES | PARTS)[name][0]
            for number_, value in zip(fit["epoch"], fit[name], strict=True):
                if value is not None:
                    rows.append({"epoch": offset + number_, "value": value, "curve": label, "fit": place})
        offset += fit["epoch"][-1]
    panels = [
        _panel(rows, joints, offset, CURVES, "negative log likelihood", nats="nats per row, standardised"),
        _panel(rows, joints, offset, PARTS, "free energy and its KL", nats="nats per row", symlog=True),
    ]
    return {
        "hconcat": panels,
        "spacing": 30,
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
    }


def _panel(
    rows: list[dict[str, Any]],
    joints: list[dict[str, Any]],
    last: int,
    curves: Mapping[str, tuple[str, str]],
    title: str,
    *,
    nats: str,
    symlog: bool = False,
) -> dict[str, Any]:
    labels = [label for label, _ in curves.values()]
    x = number("epoch", "epoch", domain=(0, last), tickCount=6, grid=False)
    y = number("value", nats)
    if symlog:  # the KL falls by powers of ten, and the free energy may be negative
        y["scale"] = {"type": "symlog", "constant": 1}
        y["axis"] |= {"values": [-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100, 300, 1000, 3000]}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [row for row in rows if row["curve"] in labels]},
            "mark": {"type": "line", "strokeWidth": 1.8, "clip": True},
            "encoding": {
                "x": x,
                "y": y,
                "detail": {"field": "fit"},  # no line from the end of a fit to the begin of the next
                "color": {
                    "field": "curve",
                    "type": "nominal",
                    "scale": {"domain": labels, "range": [colour for _, colour in curves.values()]},
                    "legend": {"title": None},
                },
                # Where two curves are the same, both are seen.
                "strokeDash": {
                    "field": "curve",
                    "type": "nominal",
                    "scale": {"domain": labels, "range": [[1, 0], [6, 4] if symlog else [1, 0]]},
                    "legend": None,
                },
            },
        }
    ]
    if joints:
        layers.append(
            {
                "data": {"values": joints},
                "mark": {"type": "rule", "color": MUTED, "strokeDash": [3, 3]},
                "encoding": {"x": {"field": "at", "type": "quantitative"}},
            }
        )
    return {"width": 290, "height": 230, "title": title, "layer": layers}


def candidate_name(candidate: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> str:
    """The choices of a candidate in words.

    Args:
        candidate: One of the facts' ``candidates``.
        other: Another one; choices that are the same in both are left out.
    """
    widths = "x".join(str(width) for width in candidate["hidden"]) or "no"
    temperature, unread = candidate["temperature"], len(candidate.get("unread", ()))
    words = {
        **({} if candidate["noise"] in CLASS_KINDS else _of_number(candidate)),
        "encoding": f"{candidate['encoding']} encoding",
        "whitened": "whitened" if candidate.get("whitened") else "not whitened",
        "unread": f"without {unread} idle features" if unread else "all features" if other else "",
        "hidden": f"hidden {widths}",
        "temperature": "" if temperature is None else f"temperature {temperature:.3g}",
    }
    return ", ".join(text for choice, text in words.items() if text and not (other and _same(candidate, other, choice)))


def _of_number(candidate: Mapping[str, Any]) -> dict[str, str]:
    transform = candidate["transform"]
    return {
        "noise": f"{candidate['noise']} noise",
        "transform": "no transform" if transform == "none" else f"{transform} transform",
    }


def _same(candidate: Mapping[str, Any], other: Mapping[str, Any], choice: str) -> bool:
    # A trial may leave the temperature to the fit, which then tells it to more digits than anyone reads.
    first, second = candidate.get(choice), other.get(choice)
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=0.01)
    return bool(first == second)


def candidate_chart(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """CRPS, or log loss, of every candidate on rows that it has not seen; None with fewer than two."""
    candidates = facts["training"]["candidates"]
    if len(candidates) < 2:
        return None
    kept = next((candidate for candidate in candidates if candidate["chosen"]), None)
    rows = []
    for place, candidate in enumerate(candidates, start=1):
        name = f"{place}. {'kept' if candidate is kept else candidate_name(candidate, kept) or 'the same choices'}"
        stage = STAGES.get(candidate["stage"], (candidate["stage"], "circle"))[0]
        score = candidate["nll" if "classes" in facts["target"] else "crps"]
        if score is not None:
            rows.append(
                {
                    "name": name,
                    "score": score,
                    "stage": stage,
                    "kept": "kept" if candidate["chosen"] else "not kept",
                }
            )
    order = [row["name"] for row in rows]
    title = named("CRPS on validation rows", facts["target"]["unit"])
    if "classes" in facts["target"]:
        title = "log loss on validation rows (nats)"
    known = [stage for stage in STAGES.values() if stage[0] in {row["stage"] for row in rows}]
    return {
        "width": 330,
        "height": {"step": 24},
        "data": {"values": rows},
        "mark": {"type": "point", "filled": True, "size": 85, "opacity": 1},
        "encoding": {
            "y": {"field": "name", "type": "ordinal", "sort": order, "axis": axis(None, labelLimit=300, grid=True)},
            "x": number("score", title, tickCount=6),
            "shape": {
                "field": "stage",
                "type": "nominal",
                "scale": {"domain": [stage[0] for stage in known], "range": [stage[1] for stage in known]},
                "legend": {"title": None, "symbolFillColor": GREY},
            },
            "color": {
                "field": "kept",
                "type": "nominal",
                "scale": {"domain": ["kept", "not kept"], "range": [BLUE, GREY]},
                "legend": None,
            },
        },
    }


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


TITLES = {
    "mean": "change of the mean",
    "crps": "increase of the CRPS",
    "epistemic_std": "change of epistemic_std",
    "probabilities": "change of the probabilities",
    "log_loss": "increase of the log loss",
    "epistemic_entropy": "change of epistemic_entropy",
}
"""Measure → what a chart or table calls it."""
WITHOUT_UNIT = ("probabilities",)
IN_NATS = ("log_loss", "epistemic_entropy")
MOST_BARS = 20
"""Bars of a chart; a report judges no more features."""


def ordered_features(importance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The features, the most important first: by the score if there is one, else by the first measure."""
    measures = importance["measures"]
    first = measures[1] if len(measures) == 3 else measures[0]
    return sorted(importance["features"], key=lambda feature: -float(feature[first]["value"]))


def importance_chart(importance: Mapping[str, Any], unit: str | None) -> dict[str, Any]:
    """The chart, as a Vega-Lite specification with its data.

    Args:
        importance: What `model.evaluation.importance` returns.
        unit: The unit of the target; None: it has none.
    """
    shown = ordered_features(importance)[:MOST_BARS]
    names = [feature["name"] for feature in shown]
    panels = []
    for place, measure in enumerate(importance["measures"]):
        rows = [
            {
                "feature": feature["name"],
                "value": feature[measure]["value"],
                "low": feature[measure]["value"] - 2.0 * feature[measure]["standard_error"],
                "high": feature[measure]["value"] + 2.0 * feature[measure]["standard_error"],
            }
            for feature in shown
        ]
        y = {
            "field": "feature",
            "type": "nominal",
            "sort": names,
            "axis": axis(None, labels=place == 0, ticks=False, domain=False),
        }
        in_unit = None if measure in WITHOUT_UNIT else "nats" if measure in IN_NATS else unit
        x = number("value", named(TITLES[measure], in_unit), tickCount=4)
        x["scale"] = {"zero": True}
        panels.append(
            {
                "width": 185,
                "height": {"step": 22},
                "data": {"values": rows},
                "layer": [
                    {
                        "mark": {"type": "bar", "color": BLUE, "opacity": 0.85, "height": 12},
                        "encoding": {"x": x, "y": y},
                    },
                    {
                        "mark": {"type": "rule", "color": INK},
                        "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "y": y},
                    },
                ],
            }
        )
    return {"hconcat": panels, "spacing": 18}
