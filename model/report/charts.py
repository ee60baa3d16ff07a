"""The charts of a report in their order, as Vega-Lite, each with a caption that says what is good.

Specifications are plain dictionaries, without altair: the page of the service draws the same ones. `model.report.files`
replaces each colour by a variable of the page's style, so that one picture fits a light and a dark page. In PNG files
they stay as they are.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from murho.model.files import JSON

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
KINDS = {"calibrated": BLUE, "raw": ORANGE}
"""Kind of answers → its colour, in the order of legends."""
MOST_GROUPS = 25
MOST_FEATURES = 12
MOST_BARS = 20
"""Bars of a chart of importance; a report judges no more features."""
TWO_SIGMA = 1.96
UNIT = (0.0, 1.0)
GREY_AREA = "The grey area is what chance alone allows in 95 % of cases."
MEASURES = {
    "mean": "change of the mean",
    "crps": "increase of the CRPS",
    "epistemic_std": "change of epistemic_std",
    "probabilities": "change of the probabilities",
    "log_loss": "increase of the log loss",
    "epistemic_entropy": "change of epistemic_entropy",
}
"""Measure of importance → what a chart or table calls it."""
SHARED = {
    "mean": "of the mean",
    "epistemic_variance": "of epistemic_std²",
    "aleatoric_variance": "of aleatoric_std²",
    "probability": "of the likeliest class's probability",
    "entropy": "of the entropy",
    "epistemic_entropy": "of epistemic_entropy",
}
"""What is shared out → what a chart calls its shares."""
UNITS = {
    **dict.fromkeys(("probabilities", "probability", "epistemic_variance", "aleatoric_variance"), None),
    **dict.fromkeys(("log_loss", "entropy", "epistemic_entropy"), "nats"),
}
"""Unit of a measure where it is not that of the target; variances have its square, which charts leave out."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of a report.

    Attributes:
        name: Name of its PNG file, without the extension.
        section: Section of the report: ``first``, ``predictions``, ``doubt`` or ``training``.
        title: What it shows.
        caption: What to look for and what is good, in one to three sentences.
        specification: The Vega-Lite specification, with its data.
    """

    name: str
    section: str
    title: str
    caption: str
    specification: JSON


def charts(facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> list[Chart]:
    """The charts that the facts allow.

    Args:
        facts: The facts of a report, `model.report.facts`.
        rows: Rows to show, `model.report.facts.shown_rows`; None: the chart of predictions has bins in place of points.
    """
    held_out, made = facts["held_out"], list[Chart | None]()
    if held_out is not None:
        if "by_class" in held_out:
            made += [_class_reliability(held_out), _confusion(held_out)]
        else:
            made += [_predicted(facts, [] if rows is None else rows["points"]), _reliability(held_out)]
        made.append(_coverage(held_out))
    made += [_doubt(facts["doubt"]), _importance(facts), _shares(facts), _curves(facts["training"])]
    return [chart for chart in made if chart is not None]


def named(name: str, unit: str | None) -> str:
    """A name with its unit in brackets, if it has one."""
    return f"{name} ({unit})" if unit else name


def _quantity(field: str, title: str | None = None, domain: Sequence[float] | None = None, **axis: Any) -> JSON:
    """The encoding of a number.

    Args:
        field: Field of the data.
        title: Title of the axis; None: another layer gives it.
        domain: Ends of the axis; None: those of the data.
        axis: Further options of the axis.
    """
    scale: JSON = {"zero": False} if domain is None else {"domain": list(domain), "nice": False}
    made: JSON = {"field": field, "type": "quantitative", "scale": scale}
    return made if title is None else made | {"axis": {"title": title, **axis}}


def _category(field: str, title: str | None = None, **axis: Any) -> JSON:
    """The encoding of a category, in the order of the data, with options of the axis."""
    return {"field": field, "type": "ordinal", "sort": None, "axis": {"title": title, "grid": False, **axis}}


def _colours(field: str, palette: Mapping[str, str], **legend: Any) -> JSON:
    """The encoding of a category by colour, with options of the legend."""
    scale = {"domain": list(palette), "range": list(palette.values())}
    return {"field": field, "type": "nominal", "scale": scale, "legend": {"title": None, **legend}}


def _layer(rows: Iterable[Mapping[str, Any]], mark: str | JSON, **channels: Any) -> JSON:
    """Rows of data, drawn by a mark; a channel is an encoding or the name of a field."""
    encoding = {name: {"field": made} if isinstance(made, str) else made for name, made in channels.items()}
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": encoding}


REFERENCE = {"type": "rule", "color": MUTED, "strokeDash": [5, 4], "strokeWidth": 1.2}
"""The mark of a line to compare with."""


def _styled(**chart: Any) -> JSON:
    """A whole chart, with font, colours and padding, and the looks of marks that are not said otherwise."""
    text = {"labelColor": INK, "titleColor": MUTED, "labelFontSize": 12, "titleFontSize": 12.5}
    axis = {"titleFontWeight": "normal", "gridColor": RULE, "domainColor": GREY, "tickColor": GREY, "labelLimit": 260}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": PAPER,
        "padding": 8,
        **chart,
        "config": {
            "font": "DejaVu Sans, Verdana, sans-serif",
            "view": {"stroke": None},
            "area": {"color": GREY, "opacity": 0.3},
            "bar": {"color": BLUE, "opacity": 0.85},
            "circle": {"color": BLUE, "opacity": 0.9, "size": 60},
            "line": {"strokeWidth": 2},
            "rule": {"color": INK},
            "axis": {**text, **axis, "titlePadding": 8, "labelFlush": False},
            "legend": {**text, "orient": "top", "title": None, "symbolSize": 90, "labelLimit": 400},
            "title": {"color": INK, "fontSize": 13, "fontWeight": "normal", "anchor": "start"},
        },
    }


def _allowed(share: float, rows: float) -> dict[str, float]:
    """What chance allows in 95 % of cases: two standard errors about a share of so many independent rows."""
    error = TWO_SIGMA * (share * (1.0 - share) / max(1.0, rows)) ** 0.5
    return {"lower": max(0.0, share - error), "upper": min(1.0, share + error)}


def _diagonal(domain: Sequence[float], x: JSON, y: JSON) -> JSON:
    ends = [{x["field"]: end, y["field"]: end} for end in domain]
    return _layer(ends, REFERENCE | {"type": "line"}, x=x, y=y)


def _kinds(found: Mapping[str, Any]) -> dict[str, str]:
    """The colours of the kinds of answers that there are."""
    return {kind: colour for kind, colour in KINDS.items() if found.get(kind) is not None}


def _predicted(facts: Mapping[str, Any], points: Sequence[Mapping[str, float]]) -> Chart:
    """Predicted mean against the observed target, with the mean 90 % band; as points, else in bins."""
    bins = facts["held_out"]["agreement"]
    shown = [part[name] for part in bins for name in ("predicted", "lower", "upper", "low", "high")]
    shown += [point[name] for point in points for name in ("predicted", "observed")]
    margin = 0.03 * (max(shown) - min(shown))
    domain = (min(shown) - margin, max(shown) + margin)
    title = named(facts["target"]["name"], facts["target"]["unit"])
    x = _quantity("predicted", f"predicted mean of {title}", domain)
    y = _quantity("observed", f"observed {title}", domain)
    area = bins if len(bins) > 1 else [bins[0] | {"predicted": end} for end in domain]
    band = {"type": "area", "color": BAND, "opacity": 0.8}
    layers = [_layer(area, band, x=x, y=_quantity("lower", domain=domain), y2="upper"), _diagonal(domain, x, y)]
    dots = [
        {**dot, "where": "inside" if dot["lower"] <= dot["observed"] <= dot["upper"] else "outside"}
        for dot in points or bins
    ]
    where = _colours("where", {"inside": BLUE, "outside": ORANGE}, labelExpr="datum.label + ' its own 90 % band'")
    size, said = 20, "Each dot is a row."
    if not points:
        spread = {"type": "rule", "color": BLUE, "strokeWidth": 1.6}
        layers.append(_layer(bins, spread, x=x, y=_quantity("low", domain=domain), y2="high"))
        size, said = (
            60,
            "In bins of the prediction, a dot is the median of what was observed, its line holds 90 % of it.",
        )
    layers.append(_layer(dots, {"type": "circle", "size": size, "opacity": 0.7}, x=x, y=y, color=where))
    return Chart(
        "predicted",
        "predictions",
        "Predicted and observed",
        f"{said} Good predictions lie along the dashed diagonal, and about one row in ten outside its 90 % band; "
        "the light area is the mean band.",
        _styled(width=420, height=420, layer=layers),
    )


def _reliability(held_out: Mapping[str, Any]) -> Chart:
    """Observed share of the rows against the nominal level, of percentiles and of central bands."""
    levels = [place / 20.0 for place in range(21)]
    x = _quantity("level", "nominal level", UNIT, format="%")
    y = _quantity("observed", "observed share of rows", UNIT, format="%")
    chance = [{"level": level, **_allowed(level, held_out["independent"])} for level in levels]
    kinds, panels = _kinds(held_out), []
    for name, title in (("quantiles", "below the percentile"), ("bands", "inside the central band")):
        rows = [
            {"level": level, "observed": seen, "kind": kind}
            for kind in kinds
            for level, seen in zip(levels, [0.0, *held_out[kind]["reliability"][name], 1.0], strict=True)
        ]
        layers = [
            _layer(chance, "area", x=x, y=_quantity("lower", domain=UNIT), y2="upper"),
            _layer(rows, "line", x=x, y=y, color=_colours("kind", kinds)),
        ]
        panels.append({"width": 290, "height": 290, "title": f"rows {title}", "layer": layers})
    return Chart(
        "reliability",
        "predictions",
        "Reliability",
        "The share of rows below each percentile, and inside each central band, against the share that was "
        f"promised. Good curves follow the diagonal: above it, bands (right) are too wide. {GREY_AREA}",
        _styled(hconcat=panels, spacing=30),
    )


def _class_reliability(held_out: Mapping[str, Any]) -> Chart:
    """How often the likeliest class was right, against its probability, in tenths of the rows."""
    rows = [part | _allowed(part["confidence"], part["rows"]) for part in held_out["by_confidence"]]
    x = _quantity("confidence", "probability of the likeliest class", UNIT, format="%")
    y = _quantity("accuracy", "share of rows that are of it", UNIT, format="%")
    chance = {"type": "rule", "color": GREY, "strokeWidth": 7, "opacity": 0.35}
    layers = [
        _diagonal(UNIT, x, y),
        _layer(rows, chance, x=x, y=_quantity("lower", domain=UNIT), y2="upper"),
        _layer(rows, "circle", x=x, y=y),
    ]
    return Chart(
        "reliability",
        "predictions",
        "Reliability",
        "How often the likeliest class was right in each tenth of the rows, against the probability that it was given. "
        "Good dots lie along the diagonal; below it the model is too sure. The grey bars are what chance alone allows "
        "in 95 % of cases.",
        _styled(width=380, height=380, layer=layers),
    )


def _coverage(held_out: Mapping[str, Any]) -> Chart | None:
    """Coverage at 90 % in parts of the rows: by std or class, and by category; None where there are no parts."""
    if "by_class" in held_out:
        what, parts = "90 % prediction sets", _class_parts(held_out)
    else:
        what = "90 % bands"
        parts = [
            {"part": f"std {low:.3g} to {high:.3g}", **part}
            for part in held_out["coverage_by_std"]
            for low, high in [part["std"]]
        ]
        by_category = held_out["coverage_by_category"]
        parts += [{"part": f"{name}: {_part_name(part)}", **part} for name in by_category for part in by_category[name]]
    if not parts:
        return None
    rows, kinds = parts[:MOST_GROUPS], _kinds(parts[0])
    worth = held_out["independent"] / held_out["n"]
    chance = [{"part": _counted(row), **_allowed(0.9, worth * row["rows"])} for row in rows]
    dots = [{"part": _counted(row), "kind": kind, "coverage": row[kind]} for row in rows for kind in kinds]
    domain = (max(0.0, min(0.7, *(dot["coverage"] - 0.03 for dot in dots))), 1.0)
    x = _quantity("coverage", f"rows whose {what} hold the truth", domain, format="%", tickCount=6)
    y = _category("part")
    allowed = {"type": "bar", "color": GREY, "opacity": 0.3, "size": 16}
    layers = [
        _layer(chance, allowed, x=x | {"field": "lower"}, x2="upper", y=y),
        _layer([{"coverage": 0.9}], REFERENCE, x=x),
        _layer(dots, "circle", x=x, y=y, color=_colours("kind", kinds)),
    ]
    return Chart(
        "coverage",
        "predictions",
        "Coverage of parts of the rows",
        f"How often the {what} hold the truth, with the number of rows in brackets: where the model is sure and where "
        "it is not, and by category. Look for dots left of the grey range, which is what chance alone allows in 95 % "
        "of cases: there the model is too sure.",
        _styled(width=420, height={"step": 22}, layer=layers),
    )


def _class_parts(held_out: Mapping[str, Any]) -> list[JSON]:
    """The classes, the most frequent first, and the categories, with the coverage of their 90 % sets."""
    kind, by_category = "calibrated" if held_out["calibrated"] else "raw", held_out["by_category"]
    parts = sorted(held_out["by_class"].items(), key=lambda item: -item[1]["rows"])
    parts += [(f"{name}: {_part_name(part)}", part) for name in by_category for part in by_category[name]]
    return [{"part": name, "rows": part["rows"], kind: part["coverage"]} for name, part in parts if part["rows"]]


def _counted(part: Mapping[str, Any]) -> str:
    return f"{part['part']} ({part['rows']:,})"


def _part_name(part: Mapping[str, Any]) -> str:
    """The name of a part of the rows, for people: of a category, or of a range of a feature."""
    if "merged" in part:
        return f"{part['merged']} small ones"
    if "category" in part:
        return {None: "missing", True: "yes", False: "no"}.get(part["category"], str(part["category"]))
    # Of a date, year and month: a label has little room.
    low, high = (f"{end:.4g}" if isinstance(end, float) else str(end)[:7] for end in (part["from"], part["to"]))
    return low if low == high else f"{low} to {high}"


def _confusion(held_out: Mapping[str, Any]) -> Chart | None:
    """Rows by their class and the class that was predicted; the colour is the share within the class."""
    classes, confusion = list(held_out["by_class"]), held_out["confusion"]
    if len(classes) > MOST_GROUPS:
        return None
    cells = [
        {"class": name, "predicted": other, "rows": count, "share": count / max(1.0, sum(counts))}
        for name, counts in zip(classes, confusion, strict=True)
        for other, count in zip(classes, counts, strict=True)
    ]
    place = {
        "x": _category("predicted", "predicted class", orient="top", labelAngle=-45),
        "y": _category("class", "class"),
    }
    shade = {"field": "share", "type": "quantitative", "scale": {"domain": UNIT, "range": [0.03, 1]}, "legend": None}
    ink = {"condition": {"test": "datum.share > 0.5", "value": PAPER}, "value": INK}
    layers = [
        _layer(cells, {"type": "rect", "color": BLUE, "stroke": PAPER}, **place, opacity=shade),
        _layer(
            [cell for cell in cells if cell["rows"]],
            {"type": "text", "fontSize": 12},
            **place,
            text={"field": "rows", "type": "quantitative", "format": ",.4~g"},
            color=ink,
        ),
    ]
    return Chart(
        "confusion",
        "predictions",
        "Confusion",
        "Rows by their class (down) and the class that was predicted (across); the colour is the share within the "
        "class. Good models have colour on the diagonal alone.",
        _styled(width={"step": 40}, height={"step": 40}, layer=layers),
    )


def _doubt(doubt: Mapping[str, Any] | None) -> Chart | None:
    """The epistemic share of the uncertainty along each feature; features in which it differs most come first."""
    if doubt is None:
        return None

    def difference(feature: Mapping[str, Any]) -> float:
        shares = [part["share"] for part in feature["bins"]]
        return float(max(shares) - min(shares))

    highest = max(part["share"] for feature in doubt["features"] for part in feature["bins"])
    share = _quantity("share", "", (0.0, min(1.0, 1.12 * highest + 0.01)), format="%", tickCount=4)
    x = _category("bin", labelAngle=-45, labelLimit=110, labelFontSize=10.5)
    panels = []
    for feature in sorted(doubt["features"], key=difference, reverse=True)[:MOST_FEATURES]:
        rows = [{"bin": _part_name(part), "share": part["share"]} for part in feature["bins"]]
        layers = [_layer(rows, "bar", x=x, y=share), _layer([{"share": doubt["share"]}], REFERENCE, y=share)]
        title = named(feature["name"], feature["unit"])
        panels.append({"title": title, "width": 175, "height": 120, "layer": layers})
    return Chart(
        "doubt",
        "doubt",
        "Where doubt comes from",
        f"The part of the predicted {doubt['of']} that is epistemic, in tenths of the rows along each feature; the "
        f"dashed line is its mean, {100.0 * doubt['share']:.0f} %. Where bars are high, more rows like these would "
        "make predictions sharper; where they are low, what is left is noise.",
        _styled(concat=panels, columns=3, spacing={"row": 22, "column": 26}),
    )


def ordered_features(importance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The features, the most important first: by the score if there is one, else by the first measure."""
    measures = importance["measures"]
    first = next((measure for measure in measures if measure in ("crps", "log_loss")), measures[0])
    return sorted(importance["features"], key=lambda feature: -float(feature[first]["value"]))


def _importance(facts: Mapping[str, Any]) -> Chart | None:
    """The importance of features by each measure, with two standard errors each way; None where it was not judged."""
    importance = facts["importance"]
    if importance is None:
        return None
    judged, of_features, screened = len(importance["features"]), importance["of_features"], ""
    if judged < of_features:
        screened = (
            f" A quick screen chose these {judged} of {of_features} features; `murho importance NAME DATA` judges all."
        )
    return Chart(
        "importance",
        "first",
        "What predictions depend on",
        f"How far the answers for {importance['rows']} rows move when the cells of one feature are shuffled among the "
        "rows: the root mean square, with two standard errors each way. Features that carry the same information share "
        f"their importance.{screened}",
        _bars(importance, MEASURES, facts["target"]["unit"]),
    )


def _shares(facts: Mapping[str, Any]) -> Chart | None:
    """Mean |share| of each feature, in the form of importance; None where it was not asked for."""
    found = (facts["importance"] or {}).get("shares")
    if found is None:
        return None
    return Chart(
        "shares",
        "doubt",
        "What makes the number, and what the doubt",
        f"Mean size of the share that each feature has in the answers for {found['rows']} rows, with two standard "
        "errors each way: what knowing its cell changes, next to not knowing it. A feature may matter for the doubt "
        "and not for the mean. Shares describe the model: they are no causes.",
        _bars(found, SHARED, facts["target"]["unit"]),
    )


def _bars(found: Mapping[str, Any], titles: Mapping[str, str], unit: str | None) -> JSON:
    """A panel of bars for each measure, with two standard errors each way, the most important feature first."""
    panels = []
    for place, measure in enumerate(found["measures"]):
        rows = []
        for feature in ordered_features(found)[:MOST_BARS]:
            value, error = feature[measure]["value"], 2.0 * feature[measure]["standard_error"]
            rows.append({"feature": feature["name"], "value": value, "low": value - error, "high": value + error})
        y = _category("feature", labels=place == 0, ticks=False, domain=False)
        title = named(titles[measure], UNITS.get(measure, unit))
        x = _quantity("value", title, tickCount=4) | {"scale": {"zero": True}}
        layers = [
            _layer(rows, {"type": "bar", "height": 12}, x=x, y=y),
            _layer(rows, "rule", x=x | {"field": "low"}, x2="high", y=y),
        ]
        panels.append({"width": 185, "height": {"step": 22}, "layer": layers})
    return _styled(hconcat=panels, spacing=18)


def _curves(training: Mapping[str, Any]) -> Chart | None:
    """Negative log likelihood, KL and free energy over the epochs of the fits that were kept; None without curves."""
    fits, temperature = training["curves"], training["temperature"]
    if not fits:
        return None
    ends = list(itertools.accumulate((fit["epoch"][-1] for fit in fits), initial=0))
    names = {"nll": "training", "validation": "validation, rows not seen", "free_energy": "free energy", "kl": "KL"}
    rows = [
        {"epoch": start + epoch, "fit": place, **{label: fit[name][at] for name, label in names.items()}}
        for place, (start, fit) in enumerate(zip(ends, fits, strict=False))
        for at, epoch in enumerate(fit["epoch"])
    ]
    x = _quantity("epoch", "epoch", (0, ends[-1]), tickCount=6, grid=False)

    def panel(title: str, y: JSON, palette: Mapping[str, str]) -> JSON:
        # No line from the end of a fit to the begin of the next; and where two curves are the same, both are seen.
        dashes = {"domain": list(palette), "range": [[1, 0], [6, 4]]}
        colour = _colours("curve", palette)
        dash = colour | {"scale": dashes}
        lines = _layer(rows, {"type": "line", "clip": True}, x=x, y=y, detail="fit", color=colour, strokeDash=dash)
        lines["transform"] = [{"fold": list(palette), "as": ["curve", "value"]}]
        joints = _layer([{"epoch": end} for end in ends[1:-1]], REFERENCE, x=x)
        return {"width": 290, "height": 230, "title": title, "layer": [lines, joints]}

    factor = "" if temperature == 1.0 else f"; the fit counts the KL {temperature:.3g} times, its temperature"
    stages = [fit["stage"] for fit in fits[1:]]
    joint = f" A dashed line is where the next fit begins: {', then '.join(stages)}." if stages else ""
    if "update" in stages:
        joint += " The KL of an update is from the posterior before it."
    # The KL falls by powers of ten, and the free energy may be negative.
    energy = _quantity("value", "nats per row", values=[-100, -10, -1, 0, 1, 10, 100, 1000])
    panels = [
        panel(
            "negative log likelihood",
            _quantity("value", "nats per row, standardised"),
            {"training": BLUE, "validation, rows not seen": ORANGE},
        ),
        panel(
            "free energy and its KL",
            energy | {"scale": {"type": "symlog", "constant": 1}},
            {"free energy": INK, "KL": BLUE},
        ),
    ]
    return Chart(
        "curves",
        "training",
        "Training curves",
        "Left: the fit to the rows; validation that falls and levels off is good, a rise at the end means "
        f"overfitting. Right: the free energy, that likelihood plus the KL from the prior{factor}.{joint}",
        _styled(hconcat=panels, spacing=30, resolve={"scale": {"color": "independent", "strokeDash": "independent"}}),
    )
