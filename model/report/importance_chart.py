"""The chart of permutation importance: a bar for each feature and measure, with two standard errors each way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.report.chart_style import BLUE, INK, axis, named, number

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MOST_FEATURES", "TITLES", "importance_chart", "ordered_features"]

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
MOST_FEATURES = 20
"""Bars of a chart; a report judges no more features."""


def ordered_features(importance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The features, the most important first: by the score if there is one, else by the first measure."""
    measures = importance["measures"]
    first = measures[1] if len(measures) == 3 else measures[0]
    return sorted(importance["features"], key=lambda feature: -float(feature[first]["value"]))


def importance_chart(importance: Mapping[str, Any], unit: str | None) -> dict[str, Any]:
    """The chart, as a Vega-Lite specification with its data.

    Args:
        importance: What `model.evaluation.permutation_importance` returns.
        unit: The unit of the target; None: it has none.
    """
    shown = ordered_features(importance)[:MOST_FEATURES]
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
