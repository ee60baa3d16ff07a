"""The files of a report: the page, its charts as PNG, and the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from murho.model.bbb.rows import select_rows
from murho.model.report import PAGE_FILE
from murho.model.report.facts import FACTS_PATH, facts_of_pruning, facts_of_training, facts_of_update
from murho.model.report.held_out_facts import shown_rows
from murho.model.report.page import draw, html_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.class_held_out import HeldOutClasses
    from murho.model.evaluation.held_out import HeldOutRows
    from murho.model.training.pruning import Pruned
    from murho.model.training.revisions import LabelledRows
    from murho.model.training.train import Trained
    from murho.model.training.updating import Updated

__all__ = [
    "PAGE_FILE",
    "pruning_report",
    "report_files",
    "training_report",
    "update_report",
]

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


def update_report(
    name: str, updated: Updated, rows: LabelledRows, before: Mapping[str, Any], *, with_rows: bool = True
) -> dict[str, bytes]:
    """The files of the report of an update, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        updated: The update.
        rows: The new rows.
        before: The facts of the version that it was made from.
        with_rows: Whether to show new rows.
    """
    judged = updated.judged if updated.held_out and with_rows else None
    return _revision_files(name, facts_of_update(updated, rows, before), updated.revision.posterior, rows, judged)


def pruning_report(
    name: str, pruned: Pruned, rows: LabelledRows | None, before: Mapping[str, Any], *, with_rows: bool = True
) -> dict[str, bytes]:
    """The files of the report of a pruning, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        pruned: The pruning.
        rows: The labelled rows that it was judged by; None: there were none.
        before: The facts of the version that it was made from.
        with_rows: Whether to show these rows.
    """
    judged = pruned.judged if with_rows else None
    return _revision_files(name, facts_of_pruning(pruned, rows, before), pruned.revision.posterior, rows, judged)


def _revision_files(
    name: str,
    facts: Mapping[str, Any],
    posterior: Posterior,
    rows: LabelledRows | None,
    judged: HeldOutRows | HeldOutClasses | None,
) -> dict[str, bytes]:
    shown = None
    if rows is not None and judged is not None:
        columns = select_rows(rows.columns, judged.rows)
        shown = shown_rows(judged, posterior.schema, columns, rows.numbers[judged.rows])
    return {**report_files(name, facts, shown), str(FACTS_PATH): orjson.dumps(facts)}
