"""The charts of a report in their order, each with a title and a caption that says what is good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murho.model.report.calibration_charts import (
    agreement_chart,
    category_chart,
    class_reliability_chart,
    confusion_chart,
    kept_chart,
    pit_chart,
    reliability_chart,
    sets_chart,
    spread_chart,
    std_chart,
)
from murho.model.report.changes import pruning_chart
from murho.model.report.chart_style import styled
from murho.model.report.facts import UPDATE
from murho.model.report.training_charts import candidate_chart, curve_chart, doubt_chart, importance_chart, weight_chart

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Chart",
    "charts",
]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of a report.

    Attributes:
        name: Name of its PNG file, without the extension.
        section: Section of the report: ``changes``, ``predictions``, ``doubt`` or ``training``.
        title: What it shows.
        caption: What to look for and what is good, in one or two sentences.
        specification: The Vega-Lite specification, with its data.
    """

    name: str
    section: str
    title: str
    caption: str
    specification: dict[str, Any]


def charts(facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> list[Chart]:
    """The charts that the facts allow.

    Args:
        facts: The facts of a report, `model.report.facts`.
        rows: Rows to show, `model.report.held_out_facts`; None: the chart of predictions has bins in place of points.
    """
    made: list[tuple[str, str, str, str, dict[str, Any] | None]] = [
        (
            "pruning",
            "changes",
            "Weights that were removed",
            "A weight whose mean is small against its standard deviation is mostly noise. Good prunings end well left "
            "of 1; what lies to the right carries what the network knows.",
            pruning_chart(facts),
        )
    ]
    if facts["held_out"] is not None:
        made += _of_classes(facts) if "classes" in facts["target"] else _of_held_out(facts, rows)
    if facts["doubt"] is not None:
        made.append(
            (
                "doubt",
                "doubt",
                "Where doubt comes from",
                f"The part of the predicted {facts['doubt'].get('of', 'variance')} that is epistemic, in tenths of the "
                "rows along each feature; the "
                f"dashed line is its mean, {_percent(facts['doubt']['share'])}. Where bars are high, more rows like "
                "these would make predictions sharper; where they are low, what is left is noise.",
                doubt_chart(facts),
            )
        )
    importance = facts["importance"]
    if importance is not None:
        made.append(
            (
                "importance",
                "predictions",
                "What predictions depend on",
                f"How far answers for {importance['rows']} rows move when the cells of one feature are shuffled among "
                "them, as a root mean square, with two standard errors each way. Features that tell the same share "
                f"their importance.{_judged(importance)}",
                importance_chart(importance, facts["target"]["unit"]),
            )
        )
    weights = facts["weights"]
    if weights is not None:
        made.append(
            (
                "weights",
                "doubt",
                "What the weights know",
                f"{_percent(weights['below_one'])} of the weights have a mean below their standard deviation: the rows "
                "leave their sign open. Many such weights are normal; murho prune removes those that matter least.",
                weight_chart(facts),
            )
        )
    made += _of_training(facts)
    return [
        Chart(name, section, title, caption, styled(chart))
        for name, section, title, caption, chart in made
        if chart is not None
    ]


def _of_held_out(
    facts: Mapping[str, Any], rows: Mapping[str, Any] | None
) -> list[tuple[str, str, str, str, dict[str, Any] | None]]:
    points = [] if rows is None else rows["points"]
    kind = "calibrated" if "calibrated" in facts["held_out"]["pit"] else "raw"
    dots = (
        "Each dot is a row."
        if points
        else "In bins of the prediction, a dot is the median of what was observed, and its line holds 90 % of it."
    )
    grey = "The grey area is what chance alone allows in 95 % of cases."
    return [
        (
            "predicted",
            "predictions",
            "Predicted and observed",
            f"{dots} Good predictions lie along the dashed diagonal, and about one row in ten outside its 90 % band; "
            f"the light area is the mean {kind} band.",
            agreement_chart(facts, points),
        ),
        (
            "reliability",
            "predictions",
            "Reliability",
            "The share of rows below each percentile, and inside each central band, against the share that was "
            f"promised. Good curves follow the diagonal: above it, bands (right) are too wide. {grey}",
            reliability_chart(facts),
        ),
        (
            "pit",
            "predictions",
            "Probability integral transform",
            "Where the observed values lie in their predicted distributions. Flat is good; a hill in the middle means "
            f"bands that are too wide, high ends too narrow ones, a slope a bias. {grey}",
            pit_chart(facts),
        ),
        (
            "coverage-by-std",
            "predictions",
            "Coverage where the model is sure, and where it is not",
            "Dots near 90 % from left to right are good: bands are then honest both for rows that the model calls easy "
            f"and for those that it calls hard. {grey}",
            std_chart(facts),
        ),
        (
            "spread",
            "predictions",
            "Does the predicted spread tell the error?",
            "Each dot is a tenth of the rows. Dots along the diagonal are good; a flat line would mean that the "
            "predicted standard deviation does not tell easy rows from hard ones.",
            spread_chart(facts),
        ),
        (
            "coverage-by-category",
            "predictions",
            "Coverage by category",
            "The number of rows is in brackets. Look for dots outside of the grey range: bands are then too narrow "
            "(left) or too wide (right) for this group.",
            category_chart(facts),
        ),
    ]


def _of_classes(facts: Mapping[str, Any]) -> list[tuple[str, str, str, str, dict[str, Any] | None]]:
    return [
        (
            "reliability",
            "predictions",
            "Reliability",
            "How often the likeliest class was right, against the probability that it was given. Good dots lie along "
            "the diagonal; below it the model is too sure. The larger a dot, the more rows it stands for. The grey "
            "bars are what chance alone allows in 95 % of cases.",
            class_reliability_chart(facts),
        ),
        (
            "confusion",
            "predictions",
            "Confusion",
            "Rows by their class (down) and the class that was predicted (across); the colour is the share within the "
            "class. Good models have colour on the diagonal alone.",
            confusion_chart(facts),
        ),
        (
            "kept",
            "predictions",
            "Does the model know when it does not know?",
            "The accuracy of the rows that are left when the least certain ones are set aside. A curve that rises to "
            "the left is good: where the model is sure, it is right.",
            kept_chart(facts),
        ),
        (
            "sets",
            "predictions",
            "Prediction sets by class",
            "How often the 90 % prediction set of a row holds its class; the number of rows is in brackets. Dots in "
            "the grey range or right of it are good.",
            sets_chart(facts),
        ),
    ]


def _of_training(facts: Mapping[str, Any]) -> list[tuple[str, str, str, str, dict[str, Any] | None]]:
    fits = facts["training"]["curves"] or []
    temperature = facts["training"]["temperature"]
    factor = "" if temperature == 1.0 else f"; the fit counts the KL {temperature:.3g} times, its temperature"
    joint = ""
    if len(fits) > 1:
        joint = f" A dotted line is where the next fit begins: {', then '.join(fit['stage'] for fit in fits[1:])}."
    if any(fit["stage"] == UPDATE for fit in fits):
        joint += " The KL of an update is from the posterior before it."
    return [
        (
            "curves",
            "training",
            "Training curves",
            "Left: the fit to the rows; validation that falls and levels off is good, a rise at the end means "
            f"overfitting. Right: the free energy, that likelihood plus the KL from the prior{factor}.{joint}",
            curve_chart(facts),
        ),
        (
            "candidates",
            "training",
            "Candidates tried",
            "The score of every fit on rows that it has not seen, in order, named by how it differs from the "
            "kept one; lower is better. Trials are short fits, so only fits of the same kind compare.",
            candidate_chart(facts),
        ),
    ]


def _judged(importance: Mapping[str, Any]) -> str:
    """A sentence about the features that were not judged; empty where all were."""
    judged, of_features = len(importance["features"]), importance["of_features"]
    if judged == of_features:
        return ""
    return (
        f" Judged are {judged} of {of_features} features, those that move the mean networks most in a quick screen; "
        "`murho importance NAME DATA` judges all."
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"
