"""The reports: the page, its charts as PNG and the facts, of a training, an update, a pruning and labelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from murho.model.bbb.rows import select_rows
from murho.model.errors import TableError
from murho.model.evaluation.class_held_out import HeldOutClasses
from murho.model.evaluation.class_metrics import SET_COVERAGES
from murho.model.evaluation.evaluate import evaluate_in_full
from murho.model.evaluation.held_out import BAND, HeldOutRows
from murho.model.evaluation.metrics import RowWeights, pit_of
from murho.model.evaluation.row_scores import score_columns
from murho.model.predictive.prediction import DEFAULT_SAMPLES, PredictOptions
from murho.model.report import PAGE_FILE
from murho.model.report.facts import FACTS_PATH, facts_of_data, facts_of_pruning, facts_of_training, facts_of_update
from murho.model.report.held_out_facts import shown_rows
from murho.model.report.page import draw, html_page
from murho.model.tables.columns import rows_of
from murho.model.tables.schema_inference import columns_from_table, read_targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.tables.schema import Columns
    from murho.model.training.pruning import Pruned
    from murho.model.training.revisions import LabelledRows
    from murho.model.training.train import Trained
    from murho.model.training.updating import Updated

__all__ = [
    "MOST_ROWS",
    "PAGE_FILE",
    "ReportOfRows",
    "pruning_report",
    "report_files",
    "report_of_rows",
    "training_report",
    "update_report",
]

PICTURES = "report"
MOST_ROWS = 20_000
"""Most labelled rows that a report looks at; of more, it takes some by chance. A chart shows no difference."""


def report_files(name: str, facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> dict[str, bytes]:
    """The page and its charts as PNG, by path; without charts where the extra ``charts`` is missing.

    Args:
        name: Name of the checkpoint, and its version if it is known.
        facts: The facts of the report.
        rows: Rows to show; None: no rows.
    """
    drawn = draw(facts, rows)
    page = html_page(name, facts, drawn, rows)
    return {PAGE_FILE: page.encode(), **{f"{PICTURES}/{drawing.chart.name}.png": drawing.png() for drawing in drawn}}


def training_report(name: str, trained: Trained, *, with_rows: bool = True) -> dict[str, bytes]:
    """The files of the report of a training, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        trained: The training.
        with_rows: Whether to show rows of the table: points, and the most surprising rows.
    """
    evidence = trained.evidence
    judged = evidence.held_out if with_rows else None
    facts = facts_of_training(trained)
    return _stored(name, facts, trained.posterior, judged, evidence.columns, evidence.row_numbers)


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
    facts = facts_of_update(updated, rows, before)
    return _stored(name, facts, updated.revision.posterior, judged, rows.columns, rows.numbers)


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
    facts, posterior = facts_of_pruning(pruned, rows, before), pruned.revision.posterior
    if rows is None:
        return _stored(name, facts, posterior)
    return _stored(name, facts, posterior, pruned.judged if with_rows else None, rows.columns, rows.numbers)


def _stored(
    name: str,
    facts: Mapping[str, Any],
    posterior: Posterior,
    judged: HeldOutRows | HeldOutClasses | None = None,
    columns: Columns | None = None,
    numbers: NDArray[np.int64] | None = None,
) -> dict[str, bytes]:
    """The files of a report with its facts; it shows the rows that were judged."""
    shown = None
    if judged is not None and columns is not None and numbers is not None:
        shown = shown_rows(judged, posterior.schema, select_rows(columns, judged.rows), numbers[judged.rows])
    return {**report_files(name, facts, shown), str(FACTS_PATH): orjson.dumps(facts)}


@dataclass(frozen=True, slots=True)
class ReportOfRows:
    """Facts and rows of a report on labelled rows.

    Attributes:
        facts: The facts, with the rows in place of the held-out ones.
        rows: Rows to show, `model.report.held_out_facts`.
        left_out: Rows without a target.
    """

    facts: dict[str, Any]
    rows: dict[str, Any]
    left_out: int


def report_of_rows(
    posterior: Posterior, stored: Mapping[str, Any], table: pa.Table, source: str, *, seed: int = 0
) -> ReportOfRows:
    """Predict and judge the labelled rows of a table.

    Args:
        posterior: The posterior of the checkpoint.
        stored: Facts of the checkpoint.
        table: The table, as `model.tables.files.read_table` returns it.
        source: Name of its file.
        seed: Seed of the choice of rows where there are more than 20,000.

    Raises:
        TableError: The target column is missing, no row has a target, or a cell can't be used.
    """
    target = posterior.schema.target
    targets = read_targets(table, target)
    labelled = np.flatnonzero(~np.isnan(targets))
    if not len(labelled):
        raise TableError(f"no row has a value in the target column {target.name!r}; there is nothing to judge by")
    chosen = labelled
    if len(labelled) > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(seed).choice(labelled, MOST_ROWS, replace=False))
    columns = columns_from_table(rows_of(table, chosen), posterior.schema)
    judge = _predicted if target.classes is None else _predicted_classes
    rows, scores = judge(posterior, columns, targets[chosen])
    return ReportOfRows(
        facts_of_data(posterior, stored, columns, rows, scores, source),
        shown_rows(rows, posterior.schema, columns, chosen + 1),
        len(targets) - len(labelled),
    )


def _predicted(
    posterior: Posterior, columns: Columns, targets: NDArray[np.float64]
) -> tuple[HeldOutRows | HeldOutClasses, dict[str, Any]]:
    """The predictions for rows, by all members, and their scores."""
    scored = score_columns(posterior, columns, targets, DEFAULT_SAMPLES, None)
    levels = (50.0 - BAND / 2, 50.0 + BAND / 2)
    raw, calibrated = (
        posterior.predict(columns, PredictOptions(percentiles=levels, calibrated=calibrated)).percentiles
        for calibrated in (False, True)
    )
    has_map = posterior.calibration is not None
    rows = HeldOutRows(
        rows=np.arange(len(targets)),
        targets=targets,
        mean=targets + scored.errors,
        std=scored.raw_std,
        pit_raw=pit_of(scored.scores),
        band_raw=raw,
        pit_calibrated=pit_of(scored.scores, posterior.calibration, scored.outside) if has_map else None,
        band_calibrated=calibrated if has_map else None,
        weights=RowWeights.of(len(targets)),
    )
    return rows, scored.report()


def _predicted_classes(
    posterior: Posterior, columns: Columns, targets: NDArray[np.float64]
) -> tuple[HeldOutRows | HeldOutClasses, dict[str, Any]]:
    """The class probabilities of rows, by all members, and their scores."""
    judged = score_columns(posterior, columns, targets, DEFAULT_SAMPLES)
    rows = HeldOutClasses(
        rows=np.arange(len(targets)),
        targets=targets,
        raw=judged.raw,
        calibrated=judged.calibrated,
        sets={coverage / 100.0: found for coverage, found in judged.sets(SET_COVERAGES).items()},
        weights=RowWeights.of(len(targets)),
    )
    return rows, evaluate_in_full(posterior, columns, targets)
