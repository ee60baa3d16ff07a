"""The files of a report: the page, its charts as PNG, and the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from murho.model.fitting.training_data import select_rows
from murho.model.report import PAGE_FILE
from murho.model.report.facts import FACTS_PATH, facts_of_training
from murho.model.report.html_page import html_page
from murho.model.report.rendering import draw
from murho.model.report.shown_rows import shown_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.training.train import Trained

__all__ = ["PAGE_FILE", "report_files", "training_report"]

PICTURES = "report"


def report_files(
    name: str, facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None, *, source: str | None = None
) -> dict[str, bytes]:
    """The page and its charts as PNG, by path; without charts where the extra ``charts`` is missing.

    Args:
        name: Name of the checkpoint, and its version if it is known.
        facts: The facts of the report.
        rows: Rows to show; None: no rows.
        source: The file of the rows, where they are not the held-out rows of the training.
    """
    drawn = draw(facts, rows)
    page = html_page(name, facts, drawn, rows, source=source)
    return {PAGE_FILE: page.encode(), **{f"{PICTURES}/{drawing.chart.name}.png": drawing.png() for drawing in drawn}}


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
    return {**report_files(name, facts, rows), str(FACTS_PATH): orjson.dumps(facts)}
