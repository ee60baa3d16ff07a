"""The files of a report: the page, its charts as PNG, and the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from murho.model.fitting.training_data import select_rows
from murho.model.report.charts import charts
from murho.model.report.facts import FACTS_PATH, facts_of_training
from murho.model.report.html_page import html_page
from murho.model.report.rendering import can_draw, png, svg
from murho.model.report.shown_rows import shown_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.training.train import Trained

__all__ = ["PAGE_FILE", "page_of_facts", "pictures", "training_report"]

PAGE_FILE = "report.html"
PICTURES = "report"


def page_of_facts(
    name: str, facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None, *, source: str | None = None
) -> bytes:
    """The page with charts, or without where the extra ``charts`` is missing.

    Args:
        name: Name of the checkpoint, and its version if it is known.
        facts: The facts of the report.
        rows: Rows to show; None: no rows.
        source: The file of the rows, where they are not the held-out rows of the training.
    """
    drawable = can_draw()
    drawn = [(chart, svg(chart)) for chart in charts(facts, rows)] if drawable else []
    return html_page(name, facts, drawn, rows, drawable=drawable, source=source).encode()


def pictures(facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> dict[str, bytes]:
    """The charts as PNG files by path; empty where the extra ``charts`` is missing."""
    return {f"{PICTURES}/{chart.name}.png": png(chart) for chart in charts(facts, rows)} if can_draw() else {}


def training_report(name: str, trained: Trained, *, with_rows: bool = True) -> dict[str, bytes]:
    """The files of the report of a training, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        trained: The training.
        with_rows: Whether to show rows of the table: points, and the most surprising rows.
    """
    facts = facts_of_training(trained)
    rows, evidence = None, trained.evidence
    if with_rows:
        held_out = evidence.held_out
        columns = select_rows(evidence.columns, held_out.rows)
        numbers = evidence.row_numbers[held_out.rows]
        rows = shown_rows(held_out, trained.spec.schema, columns, numbers)
    return {
        PAGE_FILE: page_of_facts(name, facts, rows),
        **pictures(facts, rows),
        str(FACTS_PATH): orjson.dumps(facts),
    }
