"""The charts of a report in their order, as Vega-Lite, each with a caption that says what is good.

Specifications are plain dictionaries, without altair: the page of the service draws the same ones.
`model.report.reports` replaces each colour by a variable of the page's style, so that one picture fits a light and a
dark page.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from murho.model.files import JSON
    from murho.model.tables.schema import Target

INK, MUTED, RULE, PAPER = "#1f2a37", "#5b6675", "#e3e7ec", "#fffffe"
BLUE, ORANGE, GREY, BAND = "#1862b0", "#c8590d", "#98a2ae", "#cfe0f4"
COLOURS = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    PAPER: "paper",
    BLUE: "blue",
    ORANGE: "orange",
    GREY: "grey",
    BAND: "band",
}
"""Colour → name of the style variable that stands for it."""
MOST_PARTS = 25
"""Most parts of the rows, or classes, that a chart shows."""
MOST_BARS = 20
"""Bars of the chart of importance; a report judges no more features."""
TWO_SIGMA = 1.96
UNIT = (0.0, 1.0)
MEASURES = {
    "mean": "change of the mean",
    "crps": "increase of the CRPS",
    "epistemic_std": "change of epistemic_std",
    "probabilities": "change of the probabilities",
    "log_loss": "increase of the log loss",
    "epistemic_entropy": "change of epistemic_entropy",
}
"""Measure of importance → what a chart or table calls it."""
REFERENCE = {"type": "rule", "color": MUTED, "strokeDash": [5, 4], "strokeWidth": 1.2}
"""The mark of a line to compare with."""
CHANCE = {"type": "rule", "color": GREY, "strokeWidth": 7, "opacity": 0.35}
"""The mark of the range that chance allows."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of a report.

    Attributes:
        name: Its name, unique in the report.
        title: What it shows.
        caption: What to look for and what is good, in one to three sentences.
        specification: The Vega-Lite specification, with its data.
    """

    name: str
    title: str
    caption: str
    specification: JSON


def charts(target: Target, facts: Mapping[str, Any]) -> list[Chart]:
    """Return the charts that the facts of a report allow (`model.report.facts`)."""
    made: list[Chart | None] = []
    if held_out := facts.get("held_out"):
        first = _confusion(held_out) if target.classes else _predicted_chart(target, held_out)
        made += [first, _reliability(held_out), _coverage(held_out)]
    if importance := facts.get("importance"):
        made.append(_importance(target, importance))
    if curves := facts.get("curves"):
        made.append(_curves(curves))
    return [chart for chart in made if chart is not None]


def name_with_unit(name: str, unit: str | None) -> str:
    """Return a name with its unit in brackets, if it has one."""
    return f"{name} ({unit})" if unit else name


def _quantity(field: str, title: str | None = None, domain: Sequence[float] | None = None, **axis: Any) -> JSON:
    """Return the encoding of a number.

    Args:
        field: Field of the data.
        title: Title of the axis.
        domain: Ends of the axis; None: those of the data.
        axis: Further options of the axis.
    """
    scale: JSON = {"zero": False} if domain is None else {"domain": list(domain), "nice": False}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": {"title": title, **axis}}


def _category(field: str, title: str | None = None, **axis: Any) -> JSON:
    """Return the encoding of a category, in the order of the data, with options of the axis."""
    return {"field": field, "type": "ordinal", "sort": None, "axis": {"title": title, "grid": False, **axis}}


def _layer(rows: Iterable[Mapping[str, Any]], mark: str | JSON, **channels: JSON) -> JSON:
    """Rows of data, drawn by a mark; a channel is an encoding."""
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": channels}


def _style(layers: Sequence[JSON], width: float | JSON = 340, height: float | JSON = 340) -> JSON:
    """Return a whole chart of layers, with font, colours and padding; sizes are pixels, or ``{"step": pixels}``."""
    text = {"labelColor": INK, "titleColor": MUTED, "labelFontSize": 12, "titleFontSize": 12.5}
    axis = {"titleFontWeight": "normal", "gridColor": RULE, "domainColor": GREY, "tickColor": GREY, "labelLimit": 260}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": PAPER,
        "padding": 8,
        "width": width,
        "height": height,
        "layer": list(layers),
        "config": {
            "font": "DejaVu Sans, Verdana, sans-serif",
            "view": {"stroke": None},
            "bar": {"color": BLUE, "opacity": 0.85},
            "circle": {"color": BLUE, "opacity": 0.9, "size": 60},
            "rule": {"color": INK},
            "axis": {**text, **axis, "titlePadding": 8, "labelFlush": False},
            "legend": {**text, "orient": "top", "symbolSize": 90},
        },
    }


def _chance_error(share: float, rows: float) -> dict[str, float]:
    """Return what chance allows in 95 % of cases: two standard errors about a share of so many independent rows."""
    error = TWO_SIGMA * (share * (1.0 - share) / max(1.0, rows)) ** 0.5
    return {"lower": max(0.0, share - error), "upper": min(1.0, share + error)}


def _diagonal(domain: Sequence[float], x: JSON, y: JSON) -> JSON:
    ends = [{x["field"]: end, y["field"]: end} for end in domain]
    return _layer(ends, REFERENCE | {"type": "line"}, x=x, y=y)


def _predicted_chart(target: Target, held_out: Mapping[str, Any]) -> Chart:
    """Predicted mean against the observed target in parts of the rows, with the mean 90 % band."""
    bins = held_out["agreement"]
    shown = [part[name] for part in bins for name in ("predicted", "lower", "upper", "low", "high")]
    margin = 0.03 * (max(shown) - min(shown))
    domain = (min(shown) - margin, max(shown) + margin)
    title = name_with_unit(target.name, target.unit)
    x = _quantity("predicted", f"predicted mean of {title}", domain, tickCount=8)
    y = _quantity("observed", f"observed {title}", domain)
    area = bins if len(bins) > 1 else [bins[0] | {"predicted": end} for end in domain]
    layers = [
        _layer(
            area, {"type": "area", "color": BAND, "opacity": 0.8}, x=x, y=y | {"field": "lower"}, y2={"field": "upper"}
        ),
        _diagonal(domain, x, y),
        _layer(bins, {"type": "rule", "color": BLUE}, x=x, y=y | {"field": "low"}, y2={"field": "high"}),
        _layer(bins, "circle", x=x, y=y),
    ]
    return Chart(
        "predicted",
        "Predicted and observed",
        "The light area is the mean 90 % band. A blue dot is the median of what was observed in a part of the rows, "
        "and its line covers 90 % of them. Good dots lie along the dashed diagonal, and good lines are as long as the "
        "area is high.",
        _style(layers),
    )


def _confusion(held_out: Mapping[str, Any]) -> Chart | None:
    """Rows by their class and the class that was predicted; the colour is the share within the class."""
    classes, confusion = list(held_out["by_class"]), held_out["confusion"]
    if len(classes) > MOST_PARTS:
        return None
    cells = [
        {"class": name, "predicted": other, "rows": count, "share": count / max(1.0, sum(counts))}
        for name, counts in zip(classes, confusion, strict=True)
        for other, count in zip(classes, counts, strict=True)
    ]
    place = {"x": _category("predicted", "predicted class", orient="top"), "y": _category("class", "class")}
    shade = {"field": "share", "type": "quantitative", "scale": {"domain": UNIT, "range": [0.03, 1]}, "legend": None}
    count = {"field": "rows", "type": "quantitative", "format": ",.4~g"}
    ink = {"condition": {"test": "datum.share > 0.5", "value": PAPER}, "value": INK}
    layers = [
        _layer(cells, {"type": "rect", "color": BLUE}, **place, opacity=shade),
        _layer((cell for cell in cells if cell["rows"]), "text", **place, text=count, color=ink),
    ]
    return Chart(
        "confusion",
        "Predicted and observed classes",
        "Rows by their class (down) and the class that was predicted (across); the colour is the share within the "
        "class. Good models have colour on the diagonal only.",
        _style(layers, {"step": 44}, {"step": 44}),
    )


def _reliability(held_out: Mapping[str, Any]) -> Chart:
    """Observed shares against promised ones: of central bands or, of classes, of the likeliest class."""
    if "by_class" in held_out:
        x_title, y_title = "probability of the likeliest class", "share of rows of this class"
        said = "How often the likeliest class was right, against its probability, in tenths of the rows."
        found = [(part["confidence"], part["accuracy"], part["rows"]) for part in held_out["by_confidence"]]
    else:
        x_title, y_title = "nominal level of the central band", "share of rows inside"
        said = "The share of rows inside the central band of each level."
        covered = held_out["calibrated" if held_out["calibrated"] else "raw"]["reliability"]["bands"]
        found = [(place / 20.0, share, held_out["independent"]) for place, share in enumerate(covered, 1)]
    x, y = _quantity("level", x_title, UNIT, format="%"), _quantity("observed", y_title, UNIT, format="%")
    rows = [{"level": level, "observed": share, **_chance_error(level, count)} for level, share, count in found]
    layers = [
        _layer(rows, CHANCE, x=x, y=y | {"field": "lower"}, y2={"field": "upper"}),
        _diagonal(UNIT, x, y),
        _layer(rows, {"type": "line", "color": BLUE, "point": {"color": BLUE}}, x=x, y=y),
    ]
    return Chart(
        "reliability",
        "Reliability",
        f"{said} Good curves follow the diagonal: below it the model is too sure, above it too cautious. The grey bars "
        "are what chance allows in 95 % of cases.",
        _style(layers),
    )


def _coverage(held_out: Mapping[str, Any]) -> Chart | None:
    """Coverage at 90 % in parts of the rows: by std or class, and by category; None where there are no parts."""
    of_classes, served = "by_class" in held_out, "calibrated" if held_out["calibrated"] else "raw"
    what, key = ("90 % prediction sets contain", "coverage") if of_classes else ("90 % bands cover", served)
    if of_classes:
        parts = sorted(held_out["by_class"].items(), key=lambda item: -item[1]["rows"])
    else:
        parts = [("std {:.3g} to {:.3g}".format(*part["std"]), part) for part in held_out["coverage_by_std"]]
    by_category = held_out["by_category" if of_classes else "coverage_by_category"]
    parts += [(f"{name}: {_part_name(part)}", part) for name, of in by_category.items() for part in of]
    independent = held_out["independent"] / held_out["n"]
    rows = [
        {"part": f"{name} ({part['rows']:,})", "coverage": part[key], **_chance_error(0.9, independent * part["rows"])}
        for name, part in parts
        if part["rows"]
    ][:MOST_PARTS]
    if not rows:
        return None
    x = _quantity(
        "coverage",
        f"rows whose {what} the truth",
        (max(0.0, min(0.7, *(row["coverage"] - 0.03 for row in rows))), 1.0),
        format="%",
        tickCount=6,
    )
    y = _category("part")
    alarm = {"condition": {"test": "datum.coverage < datum.lower", "value": ORANGE}, "value": BLUE}
    layers = [
        _layer(rows, CHANCE | {"strokeWidth": 16}, x=x | {"field": "lower"}, x2={"field": "upper"}, y=y),
        _layer([{"coverage": 0.9}], REFERENCE, x=x),
        _layer(rows, "circle", x=x, y=y, color=alarm),
    ]
    return Chart(
        "coverage",
        "Coverage of parts of the rows",
        f"How often {what} the truth, by {'class' if of_classes else 'predicted std'} and by category, with the number "
        "of rows in brackets. Orange dots, left of the grey range that chance allows in 95 % of cases, are parts where "
        "the model is too sure.",
        _style(layers, height={"step": 22}),
    )


def _part_name(part: Mapping[str, Any]) -> str:
    if "merged" in part:
        return f"{part['merged']} small ones"
    return {None: "missing", True: "yes", False: "no"}.get(part["category"], str(part["category"]))


def ordered_features(importance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the features, the most important first: by the score if there is one, else by the first measure."""
    measures = importance["measures"]
    first = next((measure for measure in measures if measure in ("crps", "log_loss")), measures[0])
    return sorted(importance["features"], key=lambda feature: -float(feature[first]["value"]))


def _importance(target: Target, importance: Mapping[str, Any]) -> Chart:
    """Return the importance of features for the predictions, with two standard errors each way."""
    judged, of_features, screened = len(importance["features"]), importance["of_features"], ""
    if judged < of_features:
        screened = (
            f" A quick screen chose these {judged} of {of_features} features. The command murho importance judges all."
        )
    measure, rows = importance["measures"][0], []
    for feature in ordered_features(importance)[:MOST_BARS]:
        value, error = feature[measure]["value"], 2.0 * feature[measure]["standard_error"]
        rows.append({"feature": feature["name"], "value": value, "low": value - error, "high": value + error})
    x, y = (
        _quantity("value", name_with_unit(MEASURES[measure], target.unit), tickCount=6),
        _category("feature", ticks=False, domain=False),
    )
    x["scale"] = {"zero": True}
    layers = [
        _layer(rows, {"type": "bar", "height": 12}, x=x, y=y),
        _layer(rows, "rule", x=x | {"field": "low"}, x2={"field": "high"}, y=y),
    ]
    return Chart(
        "importance",
        "What predictions depend on",
        f"How far the predictions for {importance['rows']} rows move when the cells of one feature are shuffled among "
        "the rows: the root mean square, with two standard errors each way. Features that you know to matter should "
        f"come first; those that carry the same information share their importance.{screened}",
        _style(layers, height={"step": 22}),
    )


def _curves(fits: Sequence[Mapping[str, Any]]) -> Chart:
    """Negative log likelihood over the epochs of the fits that were kept."""
    ends = list(itertools.accumulate((fit["epoch"][-1] for fit in fits), initial=0))
    palette = {"training": BLUE, "held-out rows": ORANGE}
    rows = [
        {"epoch": start + epoch, "fit": place, "curve": curve, "value": value}
        for place, (start, fit) in enumerate(zip(ends, fits, strict=False))
        for curve, values in zip(palette, (fit["nll"], fit["validation"]), strict=True)
        for epoch, value in zip(fit["epoch"], values, strict=True)
        if value is not None
    ]
    x = _quantity("epoch", "epoch", (0, ends[-1]), tickCount=6, grid=False)
    y = _quantity("value", "negative log likelihood (nats per row)")
    colour = {"field": "curve", "title": None, "scale": {"domain": list(palette), "range": list(palette.values())}}
    # No line from the end of a fit to the beginning of the next.
    lines = _layer(rows, "line", x=x, y=y, detail={"field": "fit"}, color=colour)
    joints = _layer(({"epoch": end} for end in ends[1:-1]), REFERENCE, x=x)
    joint = f" The dashed line is where the next fit begins: {fits[-1]['stage']}." if len(fits) > 1 else ""
    return Chart(
        "curves",
        "Training curves",
        "The fit to the rows of the training and to rows that it has not learned from. A held-out curve that falls and "
        "levels off is good; one that still falls asks for more epochs, and one that rises at the end means "
        f"overfitting.{joint}",
        _style([lines, joints], height=260),
    )
