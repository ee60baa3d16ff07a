"""The charts of a model's report, for the page: the same specifications that `murho report` draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from murho.model.report.charts import COLOURS, charts
from murho.model.report.facts import facts_of_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.service.engine.jobs import ModelLike

__all__ = ["report_charts"]


def report_charts(model: ModelLike, facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the charts that the facts of a report allow, without any row of the table.

    Args:
        model: The model.
        facts: The facts that it keeps for its report; None: it keeps none, and has the charts that `model.json` allows.

    Returns:
        ``colours``, from each colour of the specifications to the name of its role, and ``charts``, each with
        ``name``, ``section``, ``title``, ``caption`` and ``specification`` (Vega-Lite with its data). No checksum
        covers the facts: where they are not as a report needs them, there are no charts.
    """
    try:
        made = charts(facts_of_spec(model.spec) if facts is None else facts)
    except Exception as error:  # whatever is in that file
        structlog.get_logger("murho.report").warning("no charts of the report", model=model.name, reason=repr(error))
        made = []
    return {
        "name": model.name,
        "version": model.version,
        "colours": COLOURS,
        "charts": [
            {
                "name": chart.name,
                "section": chart.section,
                "title": chart.title,
                "caption": chart.caption,
                "specification": chart.specification,
            }
            for chart in made
        ],
    }
