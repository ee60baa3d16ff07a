"""The reports: the page, its charts as PNG and the facts, of a training, an update, a pruning and labelled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from murho.model.errors import TableError
from murho.model.evaluation.judging import judge_columns
from murho.model.report import PAGE_FILE
from murho.model.report.facts import FACTS_PATH, facts_of_data, facts_of_revision, facts_of_training, shown_rows
from murho.model.report.page import draw, html_page
from murho.model.tables.schema_inference import columns_from_table, read_targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.training.revisions import LabelledRows, Revised
    from murho.model.training.train import Trained


PICTURES = "report"
MOST_ROWS = 20_000
"""Most labelled rows that a report looks at; of more, it takes some by chance. A chart shows no difference."""


def report_files(
    name: str, facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None, *, stored: bool = False
) -> dict[str, bytes]:
    """The page and its charts as PNG, by path; without charts where the extra ``charts`` is missing.

    Args:
        name: Name of the checkpoint, and its version if it is known.
        facts: The facts of the report.
        rows: Rows to show; None: no rows.
        stored: Whether the facts are to be kept, too.
    """
    drawn = draw(facts, rows)
    files = {f"{PICTURES}/{drawing.chart.name}.png": drawing.png() for drawing in drawn}
    files[PAGE_FILE] = html_page(name, facts, drawn, rows).encode()
    return files | ({str(FACTS_PATH): orjson.dumps(facts)} if stored else {})


def training_report(name: str, trained: Trained, *, with_rows: bool = True) -> dict[str, bytes]:
    """The files of the report of a training, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        trained: The training.
        with_rows: Whether to show rows of the table: points, and the most surprising rows.
    """
    evidence = trained.evidence
    shown = shown_rows(evidence.held_out, trained.posterior, evidence.columns, evidence.row_numbers)
    return report_files(name, facts_of_training(trained), shown if with_rows else None, stored=True)


def revision_report(
    name: str,
    revised: Revised,
    rows: LabelledRows | None,
    before: Mapping[str, Any],
    *,
    with_rows: bool = True,
) -> dict[str, bytes]:
    """The files of the report of an update or a pruning, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        revised: The version.
        rows: The labelled rows that it was judged by; None: there were none.
        before: The facts of the version that it was made from.
        with_rows: Whether to show these rows.
    """
    facts, judged, shown = facts_of_revision(revised, rows, before), revised.judged, None
    if with_rows and rows is not None and judged is not None:
        shown = shown_rows(judged, revised.posterior, rows.columns, rows.numbers)
    return report_files(name, facts, shown, stored=True)


def report_of_rows(
    posterior: Posterior, stored: Mapping[str, Any], table: pa.Table, source: str, *, seed: int = 0
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Predict and judge the labelled rows of a table.

    Args:
        posterior: The posterior of the checkpoint.
        stored: Facts of the checkpoint.
        table: The table, as `model.tables.files.read_table` returns it.
        source: Name of its file.
        seed: Seed of the choice of rows where there are more than 20,000.

    Returns:
        The facts, with the rows in place of the held-out ones; the rows to show, `model.report.facts.shown_rows`; and
        the number of rows without a target.

    Raises:
        TableError: The target column is missing, no row has a target, or a cell can't be used.
    """
    target = posterior.schema.target
    targets = read_targets(table, target)
    labelled = np.flatnonzero(~np.isnan(targets))
    if not len(labelled):
        raise TableError(f"no row has a value in the target column {target.name!r}; there is nothing to judge by")
    most = min(len(labelled), MOST_ROWS)
    chosen = np.sort(np.random.default_rng(seed).choice(labelled, most, replace=False))
    columns = columns_from_table(table, posterior.schema, rows=chosen)
    judged = judge_columns(posterior, columns, targets[chosen])
    return (
        facts_of_data(posterior, stored, columns, judged, source),
        shown_rows(judged, posterior, columns, chosen + 1),
        len(targets) - len(labelled),
    )
