"""Charts of held-out rows: predicted against observed, reliability, PIT, and coverage of parts of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.report.chart_style import BAND, BLUE, GREY, INK, KINDS, MUTED, ORANGE, PAPER, axis, named, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "agreement_chart",
    "category_chart",
    "category_name",
    "class_reliability_chart",
    "confusion_chart",
    "kept_chart",
    "pit_chart",
    "reliability_chart",
    "sets_chart",
    "spread_chart",
    "std_chart",
]

MOST_CATEGORIES = 25
TWO_SIGMA = 1.96
POINTS = 400
"""Number of points from which on they are drawn small and thin."""


def _colour(kinds: Sequence[str], **options: Any) -> dict[str, Any]:
    order = [kind for kind in KINDS if kind in kinds]
    return {
        "field": "kind",
        "type": "nominal",
        "scale": {"domain": order, "range": [KINDS[kind] for kind in order]},
        "legend": {"title": None, **options},
    }


def agreement_chart(facts: Mapping[str, Any], points: Sequence[Mapping[str, float]] = ()) -> dict[str, Any]:
    """Predicted mean against the observed target, with the mean 90 % band, and points if there are any.

    Args:
        facts: The facts of a report with ``held_out``.
        points: ``points`` of `model.report.held_out_facts.shown_rows`.
    """
    target = facts["target"]
    bins = [
        {
            "predicted": part["predicted"],
            "lower": part["band"][0],
            "upper": part["band"][1],
            "low": part["observed"][0],
            "median": part["observed"][2],
            "high": part["observed"][4],
        }
        for part in facts["held_out"]["agreement"]
    ]
    shown = [part[name] for part in bins for name in ("predicted", "lower", "upper", "low", "high")]
    shown += [point[name] for point in points for name in ("predicted", "observed")]
    margin = 0.03 * (max(shown) - min(shown))
    domain = (min(shown) - margin, max(shown) + margin)
    diagonal = [{"predicted": end, "observed": end} for end in domain]
    area = bins if len(bins) > 1 else [bins[0] | {"predicted": end} for end in domain]
    title = named(target["name"], target["unit"])
    x = number("predicted", f"predicted mean of {title}", domain=domain)
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": area},
            "mark": {"type": "area", "color": BAND, "opacity": 0.8},
            "encoding": {"x": x, "y": number("lower", f"observed {title}", domain=domain), "y2": {"field": "upper"}},
        },
        {
            "data": {"values": diagonal},
            "mark": {"type": "line", "color": MUTED, "strokeDash": [5, 4], "strokeWidth": 1.2},
            "encoding": {"x": x, "y": number("observed", None, domain=domain)},
        },
    ]
    if points:
        rows = [
            {**point, "where": "inside" if point["lower"] <= point["observed"] <= point["upper"] else "outside"}
            for point in points
        ]
        many = len(rows) > POINTS
        layers.append(
            {
                "data": {"values": rows},
                "mark": {"type": "circle", "size": 14 if many else 26, "opacity": 0.6 if many else 0.75},
                "encoding": {
                    "x": x,
                    "y": number("observed", None, domain=domain),
                    "color": {
                        "field": "where",
                        "type": "nominal",
                        "scale": {"domain": ["inside", "outside"], "range": [BLUE, ORANGE]},
                        "legend": {"labelExpr": "datum.label + ' its own 90 % band'"},
                    },
                },
            }
        )
    else:
        layers += [
            {
                "data": {"values": bins},
                "mark": {"type": "rule", "color": BLUE, "strokeWidth": 1.6},
                "encoding": {"x": x, "y": number("low", None, domain=domain), "y2": {"field": "high"}},
            },
            {
                "data": {"values": bins},
                "mark": {"type": "circle", "color": BLUE, "size": 55, "opacity": 1},
                "encoding": {"x": x, "y": number("median", None, domain=domain)},
            },
        ]
    return {"width": 420, "height": 420, "layer": layers}


def reliability_chart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Observed share of the rows against the nominal level, of percentiles and of central bands."""
    held_out = facts["held_out"]
    levels = held_out["reliability"]["levels"]
    share = {"format": "%", "values": [0, 0.2, 0.4, 0.6, 0.8, 1]}
    panels = []
    for name, title in (("percentiles", "below the percentile"), ("bands", "inside the central band")):
        values = held_out["reliability"][name]
        rows = [
            {"level": level, "observed": seen, "kind": kind}
            for kind, observed in values.items()
            for level, seen in zip([0.0, *levels, 1.0], [0.0, *observed, 1.0], strict=True)
        ]
        chance = []
        for level in [0.0, *levels, 1.0]:
            reach = TWO_SIGMA * (level * (1.0 - level) / held_out["independent"]) ** 0.5
            chance.append({"level": level, "lower": max(0.0, level - reach), "upper": min(1.0, level + reach)})
        x = number("level", "nominal level", domain=(0, 1), **share)
        panels.append(
            {
                "width": 290,
                "height": 290,
                "title": f"rows {title}",
                "layer": [
                    {
                        "data": {"values": chance},
                        "mark": {"type": "area", "color": GREY, "opacity": 0.3},
                        "encoding": {
                            "x": x,
                            "y": number("lower", "observed share of rows", domain=(0, 1), **share),
                            "y2": {"field": "upper"},
                        },
                    },
                    {
                        "data": {"values": rows},
                        "mark": {"type": "line", "strokeWidth": 2.2, "interpolate": "linear"},
                        "encoding": {
                            "x": x,
                            "y": number("observed", "observed share of rows", domain=(0, 1), **share),
                            "color": _colour(list(values)),
                        },
                    },
                ],
            }
        )
    return {"hconcat": panels, "spacing": 30}


def pit_chart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Histogram of the probability integral transform, calibrated and raw, with what chance allows."""
    held_out = facts["held_out"]
    kinds = [kind for kind in KINDS if kind in held_out["pit"]]
    panels = []
    for kind in kinds:
        shares = held_out["pit"][kind]
        count = len(shares)
        flat = 1.0 / count
        reach = TWO_SIGMA * (flat * (1.0 - flat) / held_out["independent"]) ** 0.5
        rows = [{"from": n / count, "to": (n + 1) / count, "share": share} for n, share in enumerate(shares)]
        highest = max(0.12, *(max(held_out["pit"][each]) for each in kinds)) * 1.05
        panels.append(
            {
                "width": 290,
                "height": 200,
                "title": kind,
                "layer": [
                    {
                        "data": {"values": rows},
                        "mark": {"type": "rect", "color": KINDS[kind], "opacity": 0.8, "stroke": None},
                        "encoding": {
                            "x": number("from", "PIT of the observed value", domain=(0, 1), grid=False, tickCount=5),
                            "x2": {"field": "to"},
                            "y": number("share", "share of rows", domain=(0, highest), format="%", tickCount=5),
                            "y2": {"datum": 0},
                        },
                    },
                    {
                        "data": {"values": [{"low": max(0.0, flat - reach), "high": flat + reach, "a": 0, "b": 1}]},
                        "mark": {"type": "rect", "color": GREY, "opacity": 0.4},
                        "encoding": {
                            "x": {"field": "a", "type": "quantitative"},
                            "x2": {"field": "b"},
                            "y": {"field": "low", "type": "quantitative"},
                            "y2": {"field": "high"},
                        },
                    },
                ],
            }
        )
    return {"hconcat": panels, "spacing": 30}


def std_chart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Coverage of 90 % bands in tenths of the rows by predicted standard deviation."""
    groups = facts["held_out"]["by_std"]
    rows, chance = [], []
    for place, group in enumerate(groups, start=1):
        chance.append(
            {
                "group": place,
                "low": max(0.0, 0.9 - TWO_SIGMA * group["chance"]),
                "high": min(1.0, 0.9 + TWO_SIGMA * group["chance"]),
            }
        )
        rows += [{"group": place, "kind": kind, "coverage": group[kind]} for kind in KINDS if group[kind] is not None]
    lowest = min(0.7, *(row["coverage"] - 0.03 for row in rows))
    title = "tenth of the rows, from the smallest to the largest predicted std"
    x = {"field": "group", "type": "ordinal", "axis": axis(title, labelAngle=0, grid=False)}
    return _coverage(rows, chance, x, lowest, width=420)


def category_chart(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Coverage of 90 % bands by category of each categorical and boolean feature; None without such features."""
    rows, chance = [], []
    names: list[str] = []
    for feature, groups in facts["held_out"]["by_category"].items():
        for group in groups:
            if len(names) >= MOST_CATEGORIES:
                break
            name = f"{feature}: {category_name(group)} ({group['rows']})"
            names.append(name)
            low, high = 0.9 - TWO_SIGMA * group["chance"], 0.9 + TWO_SIGMA * group["chance"]
            chance.append({"group": name, "low": max(0.0, low), "high": min(1.0, high)})
            rows += [
                {"group": name, "kind": kind, "coverage": group[kind]} for kind in KINDS if group[kind] is not None
            ]
    if not rows:
        return None
    lowest = min(0.7, *(row["coverage"] - 0.03 for row in rows))
    y = {"field": "group", "type": "ordinal", "sort": names, "axis": axis(None, labelLimit=260, grid=False)}
    return _coverage(rows, chance, y, lowest, vertical=False, width=420, height={"step": 22})


def category_name(group: Mapping[str, Any]) -> str:
    """The name of a group of rows by category, for people."""
    if "merged" in group:
        return f"{group['merged']} small ones"
    words = {None: "missing", True: "yes", False: "no"}
    return words.get(group["category"], str(group["category"]))


def _coverage(
    rows: list[dict[str, Any]],
    chance: list[dict[str, Any]],
    group: dict[str, Any],
    lowest: float,
    *,
    vertical: bool = True,
    **size: Any,
) -> dict[str, Any]:
    """Dots of coverage for each group, with the range that chance allows and a rule at 90 %."""
    of_group, of_share = ("x", "y") if vertical else ("y", "x")
    domain = (max(0.0, round(lowest, 2)), 1.0)
    title = "coverage of 90 % bands"
    kinds = list({row["kind"]: None for row in rows})
    return {
        "height": 230,
        **size,
        "layer": [
            {
                "data": {"values": chance},
                "mark": {"type": "bar", "color": GREY, "opacity": 0.3, "size": 26 if vertical else 16},
                "encoding": {
                    of_group: group,
                    of_share: number("low", title, domain=domain, format="%", tickCount=6),
                    f"{of_share}2": {"field": "high"},
                },
            },
            {
                "data": {"values": [{"nominal": 0.9}]},
                "mark": {"type": "rule", "color": INK, "strokeDash": [5, 4], "strokeWidth": 1.2},
                "encoding": {of_share: number("nominal", title, domain=domain, format="%", tickCount=6)},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "circle", "size": 70, "opacity": 0.95, "clip": False},
                "encoding": {
                    of_group: group,
                    **({"xOffset": {"field": "kind", "type": "nominal", "sort": list(KINDS)}} if vertical else {}),
                    of_share: number("coverage", title, domain=domain, format="%", tickCount=6),
                    "color": _colour(kinds),
                },
            },
        ],
    }


def spread_chart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Predicted standard deviation against the RMSE in tenths of the rows."""
    unit = facts["target"]["unit"]
    rows = [{"std": group["rms_std"], "rmse": group["rmse"]} for group in facts["held_out"]["by_std"]]
    highest = 1.06 * max(max(row["std"], row["rmse"]) for row in rows)
    x = number("std", named("predicted std, raw", unit), domain=(0, highest), tickCount=6)
    y = number("rmse", named("RMSE of the mean", unit), domain=(0, highest), tickCount=6)
    return {
        "width": 290,
        "height": 290,
        "layer": [
            {
                "data": {"values": [{"std": 0, "rmse": 0}, {"std": highest, "rmse": highest}]},
                "mark": {"type": "line", "color": MUTED, "strokeDash": [5, 4], "strokeWidth": 1.2},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "circle", "color": BLUE, "size": 80, "opacity": 0.95},
                "encoding": {"x": x, "y": y},
            },
        ],
    }


MOST_CLASSES = 25


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
