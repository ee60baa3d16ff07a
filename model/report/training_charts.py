"""Charts of what the networks have learned and how: doubt, importance, weights, curves and candidates."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from murho.model.bbb.registry import CLASS_KINDS
from murho.model.report.chart_style import (
    BLUE,
    GREY,
    INK,
    MUTED,
    ORANGE,
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "MEASURES",
    "MOST_BARS",
    "PRUNING",
    "UPDATE",
    "candidate_chart",
    "candidate_name",
    "category_name",
    "curve_chart",
    "doubt_chart",
    "importance_chart",
    "importance_figure",
    "ordered_features",
    "pruning_chart",
    "pruning_figure",
    "weight_chart",
]

UPDATE, PRUNING = "update", "pruning"
"""Kinds of revisions."""
MOST_FEATURES = 12
MOST_BARS = 20
"""Bars of a chart of importance; a report judges no more features."""
STAGES = {"full": ("full fit", "circle"), "settling": ("settling fit", "diamond"), "trial": ("trial", "square")}
MEASURES = {
    "mean": "change of the mean",
    "crps": "increase of the CRPS",
    "epistemic_std": "change of epistemic_std",
    "probabilities": "change of the probabilities",
    "log_loss": "increase of the log loss",
    "epistemic_entropy": "change of epistemic_entropy",
}
"""Measure of importance → what a chart or table calls it."""
UNITS = {"probabilities": None, "log_loss": "nats", "epistemic_entropy": "nats"}
"""Unit of a measure where it is not that of the target."""


def category_name(place: Mapping[str, Any]) -> str:
    """The name of a group of rows by category, for people."""
    if "merged" in place:
        return f"{place['merged']} small ones"
    return {None: "missing", True: "yes", False: "no"}.get(place["category"], str(place["category"]))


def _bin_name(place: Mapping[str, Any]) -> str:
    if "category" in place:
        return category_name(place)
    # Of a date, year and month: a label has little room.
    low, high = (f"{end:.4g}" if isinstance(end, float) else str(end)[:7] for end in (place["from"], place["to"]))
    return low if low == high else f"{low} to {high}"


def _range(feature: Mapping[str, Any]) -> float:
    """How far the share differs along a feature, in bins of at least a few rows."""
    shares: list[float] = [place["share"] for place in feature["bins"] if place["rows"] >= 5] or [0.0]
    return max(shares) - min(shares)


def doubt_chart(facts: Mapping[str, Any]) -> Chart | None:
    """The epistemic share of the uncertainty along each feature; features in which it differs most come first."""
    doubt = facts["doubt"]
    if doubt is None:
        return None
    highest = max(part["share"] for feature in doubt["features"] for part in feature["bins"])
    share = quantity("share", "", (0.0, min(1.0, 1.12 * highest + 0.01)), format="%", tickCount=4)
    panels = []
    for feature in sorted(doubt["features"], key=_range, reverse=True)[:MOST_FEATURES]:
        rows = [{"bin": _bin_name(place), "share": place["share"]} for place in feature["bins"]]
        order = [row["bin"] for row in rows]
        x = category("bin", order, labelAngle=-45, labelLimit=110, labelFontSize=10.5, grid=False)
        layers = [
            layer(rows, mark("bar", BLUE, opacity=0.85), x=x, y=share),
            layer([{"share": doubt["share"]}], dashed("rule"), y=share),
        ]
        title = named(feature["name"], feature["unit"])
        panels.append({"title": title, "width": 175, "height": 120, "layer": layers})
    return Chart(
        "doubt",
        "doubt",
        "Where doubt comes from",
        f"The part of the predicted {doubt['of']} that is epistemic, in tenths of the rows along each feature; the "
        f"dashed line is its mean, {100.0 * doubt['share']:.0f} %. Where bars are high, more rows like these would "
        "make predictions sharper; where they are low, what is left is noise.",
        styled(concat=panels, columns=3, spacing={"row": 22, "column": 26}),
    )


def ordered_features(importance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The features, the most important first: by the score if there is one, else by the first measure."""
    measures = importance["measures"]
    first = measures[1] if len(measures) == 3 else measures[0]
    return sorted(importance["features"], key=lambda feature: -float(feature[first]["value"]))


def importance_chart(importance: Mapping[str, Any], unit: str | None) -> dict[str, Any]:
    """The importance of each feature by each measure, with two standard errors each way, as Vega-Lite.

    Args:
        importance: What `model.evaluation.importance` returns.
        unit: The unit of the target; None: it has none.
    """
    shown = ordered_features(importance)[:MOST_BARS]
    names = [feature["name"] for feature in shown]
    panels = []
    for place, measure in enumerate(importance["measures"]):
        rows = []
        for feature in shown:
            value, error = feature[measure]["value"], 2.0 * feature[measure]["standard_error"]
            rows.append({"feature": feature["name"], "value": value, "low": value - error, "high": value + error})
        y = category("feature", names, labels=place == 0, ticks=False, domain=False)
        x = quantity("value", named(MEASURES[measure], UNITS.get(measure, unit)), tickCount=4) | {
            "scale": {"zero": True}
        }
        layers = [
            layer(rows, mark("bar", BLUE, opacity=0.85, height=12), x=x, y=y),
            layer(rows, mark("rule", INK), x=x | {"field": "low"}, x2="high", y=y),
        ]
        panels.append({"width": 185, "height": {"step": 22}, "layer": layers})
    return styled(hconcat=panels, spacing=18)


def importance_figure(facts: Mapping[str, Any]) -> Chart | None:
    """The importance of features for the answers; None where it was not judged."""
    importance = facts["importance"]
    if importance is None:
        return None
    judged, of_features, screened = len(importance["features"]), importance["of_features"], ""
    if judged < of_features:
        screened = (
            f" Judged are {judged} of {of_features} features, those that move the mean networks most in a quick "
            "screen; `murho importance NAME DATA` judges all."
        )
    return Chart(
        "importance",
        "predictions",
        "What predictions depend on",
        f"How far answers for {importance['rows']} rows move when the cells of one feature are shuffled among "
        "them, as a root mean square, with two standard errors each way. Features that tell the same share "
        f"their importance.{screened}",
        importance_chart(importance, facts["target"]["unit"]),
    )


def _ratios(edges: Sequence[float], parts: Mapping[str, tuple[str, Sequence[int]]]) -> dict[str, Any]:
    """Histogram of the signal-to-noise ratios of weights: label → colour and counts of a part, stacked in this order.

    Args:
        edges: Edges of the bins, ratios.
        parts: Label → colour, and counts in the bins.
    """
    powers = [math.log10(edge) for edge in edges]
    counts = [count for _, count in parts.values()]
    bars = []
    for (low, high), *stack in zip(itertools.pairwise(powers), *counts, strict=True):
        tops = list(itertools.accumulate(stack, initial=0))
        bars += [
            {"from": low, "to": high, "base": base, "top": top, "part": part}
            for part, (base, top) in zip(parts, itertools.pairwise(tops), strict=True)
            if top > base
        ]
    label = (
        f"datum.value <= {powers[0]} ? '≤ {edges[0]:g}' : datum.value >= {powers[-1]} ? '≥ {edges[-1]:g}' : "
        "format(pow(10, datum.value), '~g')"
    )
    ticks = list(range(math.ceil(powers[0]), math.floor(powers[-1]) + 1))
    title, domain = "signal-to-noise ratio |mu| / sigma of a weight", (powers[0], powers[-1])
    highest = max(bar["top"] for bar in bars)
    return layer(
        bars,
        mark("rect"),
        x=quantity("from", title, domain, values=ticks, labelExpr=label, grid=False),
        x2="to",
        y=quantity("base", "weights", (0, 1.08 * highest), tickCount=5, format=",d"),
        y2="top",
        color=colours("part", {part: colour for part, (colour, _) in parts.items()}),
    )


def weight_chart(facts: Mapping[str, Any]) -> Chart | None:
    """Histogram of the signal-to-noise ratios; None where they are not known."""
    weights = facts["weights"]
    if weights is None:
        return None
    edges, counts = weights["edges"], weights["counts"]
    below = [count if edge <= 1.0 else 0 for edge, count in zip(edges[1:], counts, strict=True)]
    above = [count - low for low, count in zip(below, counts, strict=True)]
    histogram = _ratios(edges, {"ratio below 1": (GREY, below), "ratio above 1": (BLUE, above)})
    return Chart(
        "weights",
        "doubt",
        "What the weights know",
        f"{100.0 * sum(below) / max(1, sum(counts)):.0f} % of the weights have a mean below their standard deviation: "
        "the rows leave their sign open. Many such weights are normal; murho prune removes those that matter least.",
        styled(width=560, height=200, **histogram),
    )


def pruning_chart(record: Mapping[str, Any], title: str | None = None) -> dict[str, Any]:
    """Histogram of the removed and the kept weights, with a rule at the highest ratio that was removed, as Vega-Lite.

    Args:
        record: What `model.training.pruning.Cut.to_json` says.
        title: Name and version of the checkpoint, where the chart is to stand alone.
    """
    histogram = record["histogram"]
    edges = histogram["edges"]
    bars = _ratios(edges, {"removed": (GREY, histogram["removed"]), "kept": (BLUE, histogram["kept"])})
    at = math.log10(min(max(record["threshold"], edges[0]), edges[-1]))
    left = 2.0 * at > math.log10(edges[0] * edges[-1])
    x = bars["encoding"]["x"] | {"field": "at"}
    words = f"removed up to {record['threshold']:.2g}"
    side = {"align": "right", "dx": -7} if left else {"align": "left", "dx": 7}
    layers = [
        bars,
        layer([{"at": at}], mark("rule", ORANGE, strokeWidth=1.6), x=x),
        layer([{"at": at}], mark("text", ORANGE, y=10, fontSize=12, text=words, **side), x=x),
    ]
    if title is None:
        return styled(width=560, height=200, layer=layers)
    removed, held = record["removed"], record["held"]
    told = [f"{removed:,} of {record['weights'] - held:,} weights removed, those of the lowest ratio"]
    if held:
        told.append(f"not shown: {held:,} weights that set the uncertainty beyond the training range, all kept")
    heading = {"text": f"Signal-to-noise ratio of the weights: {title}", "subtitle": told, "fontSize": 16}
    return styled(width=720, height=320, layer=layers, title=heading | {"subtitleColor": MUTED, "offset": 10})


def pruning_figure(facts: Mapping[str, Any]) -> Chart | None:
    """The weights that a pruning removed; None unless it was one."""
    revision = facts["revision"]
    if revision is None or revision["kind"] != PRUNING:
        return None
    return Chart(
        "pruning",
        "changes",
        "Weights that were removed",
        "A weight whose mean is small against its standard deviation is mostly noise. Good prunings end well left "
        "of 1; what lies to the right carries what the network knows.",
        pruning_chart(revision),
    )


def curve_chart(facts: Mapping[str, Any]) -> Chart | None:
    """Negative log likelihood, KL and free energy over the epochs of the fits that were kept; None without curves."""
    fits, temperature = facts["training"]["curves"], facts["training"]["temperature"]
    if not fits:
        return None
    ends = list(itertools.accumulate((fit["epoch"][-1] for fit in fits), initial=0))

    def panel(title: str, unit: str, curves: Mapping[str, tuple[str, str]], *, symlog: bool = False) -> dict[str, Any]:
        rows = [
            {"epoch": start + epoch, "value": value, "curve": label, "fit": place}
            for place, (start, fit) in enumerate(zip(ends, fits, strict=False))
            for name, (label, _) in curves.items()
            for epoch, value in zip(fit["epoch"], fit[name], strict=True)
            if value is not None
        ]
        x = quantity("epoch", "epoch", (0, ends[-1]), tickCount=6, grid=False)
        y = quantity("value", unit)
        if symlog:  # the KL falls by powers of ten, and the free energy may be negative
            y["scale"] = {"type": "symlog", "constant": 1}
            y["axis"]["values"] = [-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100, 300, 1000, 3000]
        labels = [label for label, _ in curves.values()]
        # Where two curves are the same, both are seen.
        dashes = {"domain": labels, "range": [[1, 0], [6, 4] if symlog else [1, 0]]}
        lines = layer(
            rows,
            mark("line", strokeWidth=1.8, clip=True),
            x=x,
            y=y,
            detail="fit",  # no line from the end of a fit to the begin of the next
            color=colours("curve", dict(curves.values())),
            strokeDash={"field": "curve", "type": "nominal", "scale": dashes, "legend": None},
        )
        joints = layer([{"epoch": end} for end in ends[1:-1]], mark("rule", MUTED, strokeDash=[3, 3]), x=x)
        return {"width": 290, "height": 230, "title": title, "layer": [lines, joints] if ends[1:-1] else [lines]}

    factor = "" if temperature == 1.0 else f"; the fit counts the KL {temperature:.3g} times, its temperature"
    begins = ", then ".join(fit["stage"] for fit in fits[1:])
    joint = f" A dotted line is where the next fit begins: {begins}." if begins else ""
    if any(fit["stage"] == UPDATE for fit in fits):
        joint += " The KL of an update is from the posterior before it."
    seen = {"nll": ("training", BLUE), "validation": ("validation, rows not seen", ORANGE)}
    parts = {"free_energy": ("free energy", INK), "kl": ("KL", BLUE)}
    panels = [
        panel("negative log likelihood", "nats per row, standardised", seen),
        panel("free energy and its KL", "nats per row", parts, symlog=True),
    ]
    return Chart(
        "curves",
        "training",
        "Training curves",
        "Left: the fit to the rows; validation that falls and levels off is good, a rise at the end means "
        f"overfitting. Right: the free energy, that likelihood plus the KL from the prior{factor}.{joint}",
        styled(hconcat=panels, spacing=30, resolve={"scale": {"color": "independent", "strokeDash": "independent"}}),
    )


def candidate_name(candidate: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> str:
    """The choices of a candidate in words.

    Args:
        candidate: One of the facts' ``candidates``.
        other: Another one; choices that are the same in both are left out.
    """
    widths = "x".join(str(width) for width in candidate["hidden"]) or "no"
    temperature, unread = candidate["temperature"], len(candidate.get("unread", ()))
    transform = candidate["transform"]
    of_number = {
        "noise": f"{candidate['noise']} noise",
        "transform": "no transform" if transform == "none" else f"{transform} transform",
    }
    words = {
        **({} if candidate["noise"] in CLASS_KINDS else of_number),
        "encoding": f"{candidate['encoding']} encoding",
        "whitened": "whitened" if candidate.get("whitened") else "not whitened",
        "unread": f"without {unread} idle features" if unread else "all features" if other else "",
        "hidden": f"hidden {widths}",
        "temperature": "" if temperature is None else f"temperature {temperature:.3g}",
    }
    return ", ".join(text for choice, text in words.items() if text and not (other and _same(candidate, other, choice)))


def _same(candidate: Mapping[str, Any], other: Mapping[str, Any], choice: str) -> bool:
    # A trial may leave the temperature to the fit, which then tells it to more digits than anyone reads.
    first, second = candidate.get(choice), other.get(choice)
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=0.01)
    return bool(first == second)


def candidate_chart(facts: Mapping[str, Any]) -> Chart | None:
    """CRPS, or log loss, of every candidate on rows that it has not seen; None with fewer than two."""
    candidates = facts["training"]["candidates"]
    if len(candidates) < 2:
        return None
    score, title = "crps", named("CRPS on validation rows", facts["target"]["unit"])
    if "classes" in facts["target"]:
        score, title = "nll", "log loss on validation rows (nats)"
    kept = next((candidate for candidate in candidates if candidate["chosen"]), None)
    rows = [
        {
            "name": f"{place}. {'kept' if each is kept else candidate_name(each, kept) or 'the same choices'}",
            "score": each[score],
            "stage": STAGES[each["stage"]][0],
            "kept": "kept" if each["chosen"] else "not kept",
        }
        for place, each in enumerate(candidates, start=1)
        if each[score] is not None
    ]
    shapes = {name: shape for name, shape in STAGES.values() if name in {row["stage"] for row in rows}}
    drawn = layer(
        rows,
        mark("point", filled=True, size=85, opacity=1),
        y=category("name", [row["name"] for row in rows], labelLimit=300, grid=True),
        x=quantity("score", title, tickCount=6),
        shape=colours("stage", shapes, symbolFillColor=GREY),
        color=colours("kept", {"kept": BLUE, "not kept": GREY}) | {"legend": None},
    )
    return Chart(
        "candidates",
        "training",
        "Candidates tried",
        "The score of every fit on rows that it has not seen, in order, named by how it differs from the "
        "kept one; lower is better. Trials are short fits, so only fits of the same kind compare.",
        styled(width=330, height={"step": 24}, **drawn),
    )
