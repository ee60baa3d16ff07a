"""The section of a report that says what an update or a pruning has changed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from murho.model.report.chart_style import BLUE, GREY, named
from murho.model.report.facts import UPDATE
from murho.model.report.training_charts import ratio_axis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Markup",
    "bars",
    "changes_section",
    "facts_list",
    "number",
    "percent",
    "pruning_chart",
    "revision_line",
    "table",
    "text",
]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> str:
    """A value as HTML; None is a dash."""
    if value is None:
        return "&ndash;"
    return value if isinstance(value, Markup) else escape(str(value))


def number(value: float | None, digits: int = 4) -> str | None:
    """A number with some significant digits; None stays None."""
    return None if value is None else f"{value:.{digits}g}"


def percent(share: float | None, decimals: int = 1) -> str | None:
    """A share in per cent; None stays None."""
    return None if share is None else f"{100.0 * share:.{decimals}f} %"


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, texts: int = 1) -> Markup:
    """A table that scrolls sideways where the page is narrow.

    Args:
        heads: Titles of the columns.
        rows: Cells.
        texts: How many columns, from the left, hold text; the others hold numbers, aligned to the right.
    """
    kinds = ["" if place < texts else ' class="number"' for place in range(len(heads))]
    head = "".join(f"<th{kind}>{text(cell)}</th>" for kind, cell in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{text(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>\n"
        for row in rows
    )
    return Markup(f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>')


def facts_list(facts: Mapping[str, object]) -> Markup:
    """A list of names and values; those that are None are left out."""
    items = "".join(
        f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in facts.items() if value is not None
    )
    return Markup(f"<dl>{items}</dl>")


def bars(counts: Sequence[float], label: str) -> Markup:
    """A small histogram.

    Args:
        counts: Heights of the bars.
        label: What it shows, for those who do not see it.
    """
    highest = max(counts, default=0) or 1
    width = 120.0 / max(1, len(counts))
    shapes: list[Any] = []
    for place, count in enumerate(counts):
        height = 22.0 * count / highest
        if count:
            height = max(height, 1.0)
        shapes.append(
            f'<rect x="{place * width:.1f}" y="{24 - height:.1f}" width="{width - 1:.1f}" height="{height:.1f}"/>'
        )
    return Markup(
        f'<svg class="bars" viewBox="0 0 120 24" role="img" aria-label="{escape(label)}">{"".join(shapes)}</svg>'
    )


def revision_line(facts: Mapping[str, Any]) -> str:
    """What was done, in one line; empty for the report of a training."""
    revision = facts.get("revision")
    if revision is None:
        return ""
    if revision["kind"] == UPDATE:
        return f"Version {revision['from_version']} was updated with {revision['learned_rows']:,} new rows."
    return f"Version {revision['from_version']} was pruned: {revision['removed']:,} of its weights were removed."


def changes_section(facts: Mapping[str, Any], figures: str) -> str:
    """The section as HTML; empty for the report of a training.

    Args:
        facts: The facts of the report.
        figures: Its charts as HTML.
    """
    revision = facts.get("revision")
    if revision is None:
        return ""
    shown = _update(revision) if revision["kind"] == UPDATE else _pruning(revision)
    scores = _scores(revision, facts["target"]["unit"])
    return "\n".join(["<h2 id='changes'>What has changed?</h2>", *shown[:1], *scores, figures, *shown[1:]])


def _update(revision: Mapping[str, Any]) -> list[str]:
    learned, total = revision["learned_rows"], revision["total_rows"]
    parts = [
        f"<p>{text(revision_line({'revision': revision}))} It had learned from {total - learned:,} rows before. Its "
        "posterior was the prior of the new rows, so what it knew was kept where the new rows do not tell otherwise. "
        f"It moved by {revision['kl']:,.1f} nats (KL from the one before, mean over the networks); "
        f"{percent(revision['moved'])} of the weights moved by more than one of their old standard deviations.</p>"
    ]
    if revision["interrupted"]:
        parts.append("<p class='note'>The update was interrupted: this is the best fit up to then.</p>")
    if revision["outside"]:
        rows = [
            [feature, f"{count:,}", f"{100 * count / revision['rows']:.0f} %"]
            for feature, count in sorted(revision["outside"].items(), key=lambda item: -item[1])
        ]
        parts += [
            "<h3>New rows unlike the training rows</h3>",
            "<p class='muted'>Beyond the range of a feature, or in a category that "
            "training had not seen. The update has learned from them, and doubt there is smaller now; warnings "
            "still name the range of the training.</p>",
            table(["feature", "rows", "of the new rows"], rows),
        ]
    layers = [[layer["name"], number(layer["shift"], 3), percent(layer["moved"])] for layer in revision["layers"]]
    return [
        *parts,
        "<h3>How far the weights moved</h3>",
        table(["layer", "mean shift, in old standard deviations", "beyond one of them"], layers),
        facts_list(
            {
                "calibration of the bands": _calibration(revision),
                "epochs": revision["epochs"],
                "temperature": number(revision["temperature"], 3),
                "learning rate": number(revision["learning_rate"]),
                "seed": revision["seed"],
                "update": f"{revision['seconds']:.0f} s",
            }
        ),
    ]


def _pruning(revision: Mapping[str, Any]) -> list[str]:
    free = revision["weights"] - revision["held"]
    held = ""
    if revision["held"]:
        held = (
            f" {revision['held']:,} more are never removed: those of inputs that are zero for every training row. They "
            "make the doubt beyond the training range."
        )
    layers = [
        [layer["name"], *(f"{layer[what]:,}" for what in ("weights", "held", "removed", "kept"))]
        for layer in revision["layers"]
    ]
    return [
        f"<p>{text(revision_line({'revision': revision}))} Those are {percent(revision['removed'] / free)} of "
        f"{free:,}, with the lowest signal-to-noise ratio |mu| / sigma: up to {revision['threshold']:.3g}.{held}</p>",
        "<h3>Weights by layer</h3>",
        table(["layer", "weights", "held", "removed", "kept"], layers),
        facts_list({"calibration of the bands": _calibration(revision)}),
    ]


def _calibration(revision: Mapping[str, Any]) -> str:
    version = revision["from_version"]
    kind: str = revision["calibration"]
    return {
        "pooled": f"pooled: the new rows, and those of version {version}",
        "made": "made from the new rows",
        "made anew": "made anew from the labelled rows",
        "kept": f"that of version {version}",
        "none": "there is none",
    }.get(kind, kind)


def _scores(revision: Mapping[str, Any], unit: str | None) -> list[str]:
    version, scores = revision["from_version"], revision["scores"]
    if scores is None:
        return [
            "<p class='note'>It was not judged: the scores of the whole network are not true of this one. "
            "murho prune --data FILE, or murho report NAME FILE, judges it by labelled rows.</p>"
        ]
    pairs = [(f"version {version}", scores["before"]), ("now", scores["after"])]
    of_classes = "log_loss" in scores["after"]
    table_of = _scores_of_classes if of_classes else _scores_of_numbers
    parts = [f"<h3>On the {scores['after']['n']:,} labelled rows</h3>", table_of(pairs, unit)]
    worse = ("log_loss", "brier") if of_classes else ("nll", "crps")
    names = "log loss and Brier score" if of_classes else "NLL and CRPS"
    if revision["kind"] == UPDATE and not revision["held_out"]:
        parts.append(
            "<p class='note'>There are too few new rows to hold any out: “now” is on rows just learned from, so better "
            f"than other rows would show. The scores at the top are those of version {version}.</p>"
        )
    elif all(scores["after"][key] > scores["before"][key] for key in worse):
        parts.append(f"<p class='note'>Both {names} are worse: version {version} may be the one to serve.</p>")
    return parts


def _scores_of_classes(pairs: Sequence[tuple[str, Mapping[str, Any]]], unit: str | None) -> Markup:  # noqa: ARG001 - classes have none
    keys = {"log_loss": "log loss (nats)", "accuracy": "accuracy", "brier": "Brier score"}
    rows = [[label, *(number(judged[key]) for key in keys)] for label, judged in pairs]
    return table(["", *keys.values()], rows)


def _scores_of_numbers(pairs: Sequence[tuple[str, Mapping[str, Any]]], unit: str | None) -> Markup:
    kinds = [kind for kind in ("raw", "calibrated") if any(judged.get(kind) for _, judged in pairs)]
    rows = [
        [
            label,
            number(judged["nll"]),
            number(judged["crps"]),
            number(judged["rmse"]),
            *(percent(judged[kind]["coverage"]["90"]) if judged.get(kind) else None for kind in kinds),
        ]
        for label, judged in pairs
    ]
    heads = [
        "",
        "NLL (nats)",
        named("CRPS", unit),
        named("RMSE", unit),
        *(f"90 % bands cover, {kind}" for kind in kinds),
    ]
    return table(heads, rows)


def pruning_chart(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Histogram of the signal-to-noise ratios of all weights, removed and kept; None unless it was a pruning."""
    revision = facts.get("revision")
    if revision is None or revision["kind"] == UPDATE:
        return None
    histogram = revision["histogram"]
    x, bins = ratio_axis(histogram["edges"])
    bars = [
        {"from": low, "to": high, "base": base, "top": top, "what": what}
        for (low, high), removed, kept in zip(bins, histogram["removed"], histogram["kept"], strict=True)
        for what, base, top in (("removed", 0, removed), ("kept", removed, removed + kept))
        if top > base
    ]
    return {
        "width": 560,
        "height": 200,
        "data": {"values": bars},
        "mark": {"type": "rect"},
        "encoding": {
            "x": x,
            "x2": {"field": "to"},
            "y": {
                "field": "base",
                "type": "quantitative",
                "axis": {"title": "weights", "tickCount": 5, "format": ",d"},
            },
            "y2": {"field": "top"},
            "color": {
                "field": "what",
                "type": "nominal",
                "scale": {"domain": ["removed", "kept"], "range": [GREY, BLUE]},
                "legend": {"title": None},
            },
        },
    }
