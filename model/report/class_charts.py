"""Charts of a classifier's held-out rows: reliability, confusion, accuracy of the certain rows, sets by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.report.chart_style import BLUE, GREY, INK, KINDS, MUTED, PAPER, axis, number

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["class_reliability_chart", "confusion_chart", "kept_chart", "sets_chart"]

MOST_CLASSES = 25
TWO_SIGMA = 1.96


def class_reliability_chart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """How often the likeliest class was right, against its probability, with what chance allows."""
    held_out = facts["held_out"]
    rows = []
    for kind, bins in held_out["reliability"].items():
        for part in bins:
            reach = TWO_SIGMA * (part["stated"] * (1.0 - part["stated"]) / max(1, part["rows"])) ** 0.5
            lower, upper = max(0.0, part["stated"] - reach), min(1.0, part["stated"] + reach)
            rows.append({**part, "kind": kind, "lower": lower, "upper": upper})
    order = [kind for kind in KINDS if kind in held_out["reliability"]]
    x = number("stated", "probability of the likeliest class", domain=(0, 1), format="%")
    colour = {
        "field": "kind",
        "type": "nominal",
        "scale": {"domain": order, "range": [KINDS[kind] for kind in order]},
        "legend": {"title": None},
    }
    return {
        "width": 380,
        "height": 380,
        "layer": [
            {
                "data": {"values": [{"stated": 0, "observed": 0}, {"stated": 1, "observed": 1}]},
                "mark": {"type": "line", "color": MUTED, "strokeDash": [5, 4], "strokeWidth": 1.2},
                "encoding": {
                    "x": x,
                    "y": number("observed", "share of rows that are of it", domain=(0, 1), format="%"),
                },
            },
            {
                "data": {"values": [row for row in rows if row["kind"] == order[0]]},
                "mark": {"type": "rule", "color": GREY, "strokeWidth": 7, "opacity": 0.35},
                "encoding": {"x": x, "y": number("lower", None, domain=(0, 1)), "y2": {"field": "upper"}},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "circle", "opacity": 0.8},
                "encoding": {
                    "x": x,
                    "y": number("observed", None, domain=(0, 1)),
                    "color": colour,
                    # The area tells the rows: a dot of a few rows, however far off, means little.
                    "size": {
                        "field": "share",
                        "type": "quantitative",
                        "scale": {"domain": [0, 1], "range": [25, 900]},
                        "legend": None,
                    },
                },
            },
        ],
    }


def confusion_chart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Rows by their class and the class that was predicted; the colour is the share within the class."""
    confusion = facts["held_out"]["confusion"]
    classes = confusion["classes"]
    cells = []
    for name, counts in zip(classes, confusion["counts"], strict=True):
        total = max(1, sum(counts))
        for other, count in zip(classes, counts, strict=True):
            share = count / total
            cells.append(
                {
                    "class": name,
                    "predicted": other,
                    "rows": count,
                    "share": share,
                    "light": share > 0.5,
                    "any": count > 0,
                }
            )
    side = max(26, min(64, 420 // len(classes)))
    encoding = {
        "x": {
            "field": "predicted",
            "type": "ordinal",
            "sort": classes,
            "axis": axis("predicted class", orient="top", labelAngle=-45 if len(classes) > 4 else 0, domain=False),
        },
        "y": {"field": "class", "type": "ordinal", "sort": classes, "axis": axis("class", domain=False)},
    }
    return {
        "width": {"step": side},
        "height": {"step": side},
        "data": {"values": cells},
        "encoding": encoding,
        "layer": [
            {
                "mark": {"type": "rect", "stroke": PAPER, "strokeWidth": 1, "color": BLUE},
                "encoding": {
                    "opacity": {
                        "field": "share",
                        "type": "quantitative",
                        "scale": {"domain": [0, 1], "range": [0.03, 1]},
                        "legend": None,
                    }
                },
            },
            {
                "transform": [{"filter": "datum.any"}],
                "mark": {"type": "text", "fontSize": 12},
                "encoding": {
                    "text": {"field": "rows", "type": "quantitative", "format": ",d"},
                    "color": {"condition": {"test": "datum.light", "value": PAPER}, "value": INK},
                },
            },
        ],
    }


def kept_chart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy against the share of rows that is kept when the least certain ones are set aside."""
    kept = [{"kept": int(share) / 100.0, "accuracy": value} for share, value in facts["held_out"]["kept"].items()]
    least = min(row["accuracy"] for row in kept)
    domain = (max(0.0, least - 0.25 * (1.0 - least) - 0.01), 1.0)
    return {
        "width": 420,
        "height": 260,
        "layer": [
            {
                "data": {"values": kept},
                "mark": {"type": "line", "color": BLUE, "strokeWidth": 1.8, "point": {"size": 40, "filled": True}},
                "encoding": {
                    "x": number("kept", "share of rows kept, the most certain ones", domain=(0, 1), format="%"),
                    "y": number("accuracy", "accuracy", domain=domain, format="%"),
                },
            },
            {
                "data": {"values": [kept[-1]]},
                "mark": {"type": "rule", "color": MUTED, "strokeDash": [4, 3]},
                "encoding": {"y": number("accuracy", None, domain=domain)},
            },
        ],
    }


def sets_chart(facts: Mapping[str, Any], coverage: str = "90") -> dict[str, Any] | None:
    """How often the prediction sets hold each class, with what chance allows; None without sets."""
    held_out = facts["held_out"]
    found = held_out["sets"].get(coverage)
    if not found:
        return None
    nominal = float(coverage) / 100.0
    rows = []
    for name, held in sorted(found.items(), key=lambda item: -held_out["by_class"][item[0]]["n"])[:MOST_CLASSES]:
        count = held_out["by_class"][name]["n"]
        reach = TWO_SIGMA * (nominal * (1.0 - nominal) / max(1, count)) ** 0.5
        rows.append(
            {
                "class": f"{name} ({count:,})",
                "held": held,
                "lower": max(0.0, nominal - reach),
                "upper": min(1.0, nominal + reach),
            }
        )
    order = [row["class"] for row in rows]
    y = {"field": "class", "type": "ordinal", "sort": order, "axis": axis(None, grid=True)}
    least = min(min(row["held"], row["lower"]) for row in rows)
    domain = (max(0.0, least - 0.05), 1.0)
    return {
        "width": 400,
        "height": {"step": 24},
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "rule", "color": GREY, "strokeWidth": 9, "opacity": 0.35},
                "encoding": {
                    "y": y,
                    "x": number(
                        "lower", f"rows of the class whose {coverage} % set holds it", domain=domain, format="%"
                    ),
                    "x2": {"field": "upper"},
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 85, "color": BLUE, "opacity": 1},
                "encoding": {"y": y, "x": number("held", None, domain=domain)},
            },
        ],
    }
