"""The charts of a report in their order, each with a caption that says what is good; here those of held-out rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from murho.model.report.chart_style import (
    BAND,
    BLUE,
    GREY,
    INK,
    KINDS,
    ORANGE,
    PAPER,
    Chart,
    category,
    colours,
    dashed,
    layer,
    mark,
    named,
    quantity,
    styled,
)
from murho.model.report.training_charts import (
    candidate_chart,
    category_name,
    curve_chart,
    doubt_chart,
    importance_figure,
    pruning_figure,
    weight_chart,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Chart",
    "charts",
]

MOST_GROUPS = 25
TWO_SIGMA = 1.96
POINTS = 400
"""Number of points from which on they are drawn small and thin."""
GREY_AREA = "The grey area is what chance alone allows in 95 % of cases."
SHARES = {"format": "%", "values": [0, 0.2, 0.4, 0.6, 0.8, 1]}
UNIT = (0.0, 1.0)


def charts(facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> list[Chart]:
    """The charts that the facts allow.

    Args:
        facts: The facts of a report, `model.report.facts`.
        rows: Rows to show, `model.report.held_out_facts`; None: the chart of predictions has bins in place of points.
    """
    made: list[Chart | None] = [pruning_figure(facts)]
    if facts["held_out"] is not None:
        if "classes" in facts["target"]:
            made += [_class_reliability(facts), _confusion(facts), _kept(facts), _sets(facts)]
        else:
            points = [] if rows is None else rows["points"]
            made += [_predicted(facts, points), _reliability(facts), _pit(facts)]
            made += [_by_std(facts), _spread(facts), _by_category(facts)]
    made += [doubt_chart(facts), importance_figure(facts), weight_chart(facts), curve_chart(facts)]
    made.append(candidate_chart(facts))
    return [chart for chart in made if chart is not None]


def _allowed(share: float, error: float) -> dict[str, float]:
    """What chance allows in 95 % of cases: two standard errors about a share."""
    return {"lower": max(0.0, share - TWO_SIGMA * error), "upper": min(1.0, share + TWO_SIGMA * error)}


def _by_chance(share: float, rows: float) -> dict[str, float]:
    return _allowed(share, math.sqrt(share * (1.0 - share) / max(1.0, rows)))


def _diagonal(domain: Sequence[float], x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    return layer([{x["field"]: end, y["field"]: end} for end in domain], dashed("line"), x=x, y=y)


def _kinds(found: Mapping[str, Any]) -> dict[str, str]:
    """The colours of the kinds of answers that there are."""
    return {kind: colour for kind, colour in KINDS.items() if found.get(kind) is not None}


def _predicted(facts: Mapping[str, Any], points: Sequence[Mapping[str, float]]) -> Chart:
    """Predicted mean against the observed target, with the mean 90 % band; as points, else in bins."""
    bins = [
        {
            "predicted": part["predicted"],
            **dict(zip(("lower", "upper"), part["band"], strict=True)),
            **dict(zip(("low", "observed", "high"), part["observed"], strict=True)),
        }
        for part in facts["held_out"]["agreement"]
    ]
    shown = [value for part in bins for value in part.values()]
    shown += [point[name] for point in points for name in ("predicted", "observed")]
    margin = 0.03 * (max(shown) - min(shown))
    domain = (min(shown) - margin, max(shown) + margin)
    title = named(facts["target"]["name"], facts["target"]["unit"])
    x = quantity("predicted", f"predicted mean of {title}", domain)
    y = quantity("observed", f"observed {title}", domain)
    area = bins if len(bins) > 1 else [bins[0] | {"predicted": end} for end in domain]
    layers = [
        layer(area, mark("area", BAND, opacity=0.8), x=x, y=quantity("lower", domain=domain), y2="upper"),
        _diagonal(domain, x, y),
    ]
    if points:
        rows = [
            {**point, "where": "inside" if point["lower"] <= point["observed"] <= point["upper"] else "outside"}
            for point in points
        ]
        where = colours("where", {"inside": BLUE, "outside": ORANGE}, labelExpr="datum.label + ' its own 90 % band'")
        size, opacity = (14, 0.6) if len(rows) > POINTS else (26, 0.75)
        layers.append(layer(rows, mark("circle", size=size, opacity=opacity), x=x, y=y, color=where))
        dots = "Each dot is a row."
    else:
        layers += [
            layer(bins, mark("rule", BLUE, strokeWidth=1.6), x=x, y=quantity("low", domain=domain), y2="high"),
            layer(bins, mark("circle", BLUE, size=55, opacity=1), x=x, y=y),
        ]
        dots = "In bins of the prediction, a dot is the median of what was observed, and its line holds 90 % of it."
    kind = next(iter(_kinds(facts["held_out"]["pit"])))
    return Chart(
        "predicted",
        "predictions",
        "Predicted and observed",
        f"{dots} Good predictions lie along the dashed diagonal, and about one row in ten outside its 90 % band; "
        f"the light area is the mean {kind} band.",
        styled(width=420, height=420, layer=layers),
    )


def _reliability(facts: Mapping[str, Any]) -> Chart:
    """Observed share of the rows against the nominal level, of percentiles and of central bands."""
    held_out = facts["held_out"]
    levels = [0.0, *held_out["reliability"]["levels"], 1.0]
    x = quantity("level", "nominal level", UNIT, **SHARES)
    y = quantity("observed", "observed share of rows", UNIT, **SHARES)
    chance = [{"level": level, **_by_chance(level, held_out["independent"])} for level in levels]
    panels = []
    for name, title in (("percentiles", "below the percentile"), ("bands", "inside the central band")):
        values = held_out["reliability"][name]
        rows = [
            {"level": level, "observed": seen, "kind": kind}
            for kind, observed in values.items()
            for level, seen in zip(levels, [0.0, *observed, 1.0], strict=True)
        ]
        lines = layer(rows, mark("line", strokeWidth=2.2), x=x, y=y, color=colours("kind", _kinds(values)))
        area = layer(chance, mark("area", GREY, opacity=0.3), x=x, y=quantity("lower", domain=UNIT), y2="upper")
        panels.append({"width": 290, "height": 290, "title": f"rows {title}", "layer": [area, lines]})
    return Chart(
        "reliability",
        "predictions",
        "Reliability",
        "The share of rows below each percentile, and inside each central band, against the share that was "
        f"promised. Good curves follow the diagonal: above it, bands (right) are too wide. {GREY_AREA}",
        styled(hconcat=panels, spacing=30),
    )


def _class_reliability(facts: Mapping[str, Any]) -> Chart:
    """How often the likeliest class was right, against its probability."""
    found = facts["held_out"]["reliability"]
    palette = _kinds(found)
    rows = [
        {**part, **_by_chance(part["stated"], part["rows"]), "kind": kind}
        for kind, bins in found.items()
        for part in bins
    ]
    first = [row for row in rows if row["kind"] == next(iter(palette))]
    x = quantity("stated", "probability of the likeliest class", UNIT, format="%")
    y = quantity("observed", "share of rows that are of it", UNIT, format="%")
    # The area tells the rows: a dot of a few rows, however far off, means little.
    size = {"field": "share", "type": "quantitative", "scale": {"domain": UNIT, "range": [25, 900]}, "legend": None}
    chance = mark("rule", GREY, strokeWidth=7, opacity=0.35)
    layers = [
        _diagonal(UNIT, x, y),
        layer(first, chance, x=x, y=quantity("lower", domain=UNIT), y2="upper"),
        layer(rows, mark("circle", opacity=0.8), x=x, y=y, color=colours("kind", palette), size=size),
    ]
    return Chart(
        "reliability",
        "predictions",
        "Reliability",
        "How often the likeliest class was right, against the probability that it was given. Good dots lie along "
        "the diagonal; below it the model is too sure. The larger a dot, the more rows it stands for, and the grey "
        "bars are what chance alone allows in 95 % of cases.",
        styled(width=380, height=380, layer=layers),
    )


def _pit(facts: Mapping[str, Any]) -> Chart:
    """Histogram of the probability integral transform, calibrated and raw."""
    found = facts["held_out"]["pit"]
    highest = 1.05 * max(0.12, *(share for shares in found.values() for share in shares))
    x = quantity("from", "PIT of the observed value", UNIT, grid=False, tickCount=5)
    y = quantity("share", "share of rows", (0.0, highest), format="%", tickCount=5)
    panels = []
    for kind, colour in _kinds(found).items():
        count = len(found[kind])
        rows = [{"from": n / count, "to": (n + 1) / count, "share": share} for n, share in enumerate(found[kind])]
        flat = [{"from": 0, "to": 1, **_by_chance(1.0 / count, facts["held_out"]["independent"])}]
        bars = layer(rows, mark("rect", colour, opacity=0.8), x=x, x2="to", y=y, y2={"datum": 0})
        chance = mark("rect", GREY, opacity=0.4)
        area = layer(flat, chance, x=x, x2="to", y=quantity("lower", domain=(0.0, highest)), y2="upper")
        panels.append({"width": 290, "height": 200, "title": kind, "layer": [bars, area]})
    return Chart(
        "pit",
        "predictions",
        "Probability integral transform",
        "Where the observed values lie in their predicted distributions. Flat is good; a hill in the middle means "
        f"bands that are too wide, high ends too narrow ones, a slope a bias. {GREY_AREA}",
        styled(hconcat=panels, spacing=30),
    )


def _coverage(
    groups: Sequence[Mapping[str, Any]], title: str, along: dict[str, Any], *, vertical: bool = False
) -> dict[str, Any]:
    """Dots of the coverage at 90 % of each group, with the range that chance allows and a rule at 90 %.

    Args:
        groups: Each with ``group``, ``calibrated`` and ``raw`` coverage (None: there is none), and its standard error
            by ``chance``.
        title: Title of the axis of coverage.
        along: The axis of groups.
        vertical: Whether coverage goes up; else it goes to the right.
    """
    of_group, of_share = ("x", "y") if vertical else ("y", "x")
    chance = [{"group": group["group"], **_allowed(0.9, group["chance"])} for group in groups]
    dots = [
        {"group": group["group"], "kind": kind, "coverage": group[kind]} for group in groups for kind in _kinds(group)
    ]
    lowest = min(0.7, *(dot["coverage"] - 0.03 for dot in dots))
    domain = (max(0.0, round(lowest, 2)), 1.0)
    share = quantity("coverage", title, domain, format="%", tickCount=6)
    colour = colours("kind", _kinds(groups[0]))
    beside = {"xOffset": {"field": "kind", "type": "nominal", "sort": list(KINDS)}} if vertical else {}

    def drawn(rows: Sequence[Mapping[str, Any]], how: dict[str, Any], field: str, **channels: Any) -> dict[str, Any]:
        return layer(rows, how, **{of_share: share | {"field": field}}, **channels)

    ranges = mark("bar", GREY, opacity=0.3, size=26 if vertical else 16)
    return styled(
        width=420,
        height=230 if vertical else {"step": 22},
        layer=[
            drawn(chance, ranges, "lower", **{of_group: along, f"{of_share}2": "upper"}),
            drawn([{"nominal": 0.9}], dashed("rule", INK), "nominal"),
            drawn(dots, mark("circle", size=70, opacity=0.95), "coverage", **{of_group: along}, color=colour, **beside),
        ],
    )


def _by_std(facts: Mapping[str, Any]) -> Chart:
    """Coverage of 90 % bands in tenths of the rows by predicted standard deviation."""
    groups = [{**group, "group": place} for place, group in enumerate(facts["held_out"]["by_std"], start=1)]
    title = "tenth of the rows, from the smallest to the largest predicted std"
    return Chart(
        "coverage-by-std",
        "predictions",
        "Coverage where the model is sure, and where it is not",
        "Dots near 90 % from left to right are good: bands are then honest both for rows that the model calls easy "
        f"and for those that it calls hard. {GREY_AREA}",
        _coverage(
            groups,
            "coverage of 90 % bands",
            category("group", title=title, labelAngle=0, grid=False),
            vertical=True,
        ),
    )


def _spread(facts: Mapping[str, Any]) -> Chart:
    """Predicted standard deviation against the RMSE in tenths of the rows."""
    unit, groups = facts["target"]["unit"], facts["held_out"]["by_std"]
    domain = (0.0, 1.06 * max(group[name] for group in groups for name in ("rms_std", "rmse")))
    x = quantity("rms_std", named("predicted std, raw", unit), domain, tickCount=6)
    y = quantity("rmse", named("RMSE of the mean", unit), domain, tickCount=6)
    layers = [_diagonal(domain, x, y), layer(groups, mark("circle", BLUE, size=80, opacity=0.95), x=x, y=y)]
    return Chart(
        "spread",
        "predictions",
        "Does the predicted spread tell the error?",
        "Each dot is a tenth of the rows. Dots along the diagonal are good; a flat line would mean that the "
        "predicted standard deviation does not tell easy rows from hard ones.",
        styled(width=290, height=290, layer=layers),
    )


def _by_category(facts: Mapping[str, Any]) -> Chart | None:
    """Coverage of 90 % bands by category of each categorical and boolean feature; None without such features."""
    groups = [
        {**group, "group": f"{feature}: {category_name(group)} ({group['rows']})"}
        for feature, parts in facts["held_out"]["by_category"].items()
        for group in parts
    ][:MOST_GROUPS]
    if not groups:
        return None
    along = category("group", [group["group"] for group in groups], labelLimit=260, grid=False)
    return Chart(
        "coverage-by-category",
        "predictions",
        "Coverage by category",
        "The number of rows is in brackets. Look for dots outside of the grey range: bands are then too narrow "
        "(left) or too wide (right) for this group.",
        _coverage(groups, "coverage of 90 % bands", along),
    )


def _sets(facts: Mapping[str, Any]) -> Chart | None:
    """How often the 90 % prediction sets hold each class; None without sets."""
    found = sorted(facts["held_out"]["by_class"].items(), key=lambda item: -item[1]["n"])
    groups = [
        {"group": f"{name} ({part['n']:,})", "calibrated": part["in_set"], "chance": math.sqrt(0.09 / part["n"])}
        for name, part in found[:MOST_GROUPS]
        if part["in_set"] is not None
    ]
    if not groups:
        return None
    along = category("group", [group["group"] for group in groups], labelLimit=260, grid=False)
    return Chart(
        "sets",
        "predictions",
        "Prediction sets by class",
        "How often the 90 % prediction set of a row holds its class; the number of rows is in brackets. Dots in "
        "the grey range or right of it are good.",
        _coverage(groups, "rows of the class whose 90 % set holds it", along),
    )


def _confusion(facts: Mapping[str, Any]) -> Chart:
    """Rows by their class and the class that was predicted; the colour is the share within the class."""
    confusion = facts["held_out"]["confusion"]
    classes = confusion["classes"]
    cells = [
        {"class": name, "predicted": other, "rows": count, "share": count / max(1, sum(counts))}
        for name, counts in zip(classes, confusion["counts"], strict=True)
        for other, count in zip(classes, counts, strict=True)
    ]
    place = {
        "x": category(
            "predicted",
            classes,
            "predicted class",
            orient="top",
            labelAngle=-45 if len(classes) > 4 else 0,
            domain=False,
        ),
        "y": category("class", classes, "class", domain=False),
    }
    shade = {"field": "share", "type": "quantitative", "scale": {"domain": UNIT, "range": [0.03, 1]}, "legend": None}
    ink = {"condition": {"test": "datum.share > 0.5", "value": PAPER}, "value": INK}
    count = {"field": "rows", "type": "quantitative", "format": ",d"}
    side = {"step": max(26, min(64, 420 // len(classes)))}
    layers = [
        layer(cells, mark("rect", BLUE, stroke=PAPER, strokeWidth=1), **place, opacity=shade),
        layer([cell for cell in cells if cell["rows"]], mark("text", fontSize=12), **place, text=count, color=ink),
    ]
    return Chart(
        "confusion",
        "predictions",
        "Confusion",
        "Rows by their class (down) and the class that was predicted (across); the colour is the share within the "
        "class. Good models have colour on the diagonal alone.",
        styled(width=side, height=side, layer=layers),
    )


def _kept(facts: Mapping[str, Any]) -> Chart:
    """Accuracy against the share of rows that is kept when the least certain ones are set aside."""
    kept = [{"kept": int(share) / 100.0, "accuracy": value} for share, value in facts["held_out"]["kept"].items()]
    least = min(row["accuracy"] for row in kept)
    x = quantity("kept", "share of rows kept, the most certain ones", UNIT, format="%")
    y = quantity("accuracy", "accuracy", (max(0.0, least - 0.25 * (1.0 - least) - 0.01), 1.0), format="%")
    curve = mark("line", BLUE, strokeWidth=1.8, point={"size": 40, "filled": True})
    return Chart(
        "kept",
        "predictions",
        "Does the model know when it does not know?",
        "The accuracy of the rows that are left when the least certain ones are set aside. A curve that rises to "
        "the left is good: where the model is sure, it is right.",
        styled(width=420, height=260, layer=[layer(kept, curve, x=x, y=y), layer(kept[-1:], dashed("rule"), y=y)]),
    )
