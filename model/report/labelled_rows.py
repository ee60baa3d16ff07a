"""A report for new labelled rows: predictions of a checkpoint for them, in the form of held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import TableError
from murho.model.evaluation.class_held_out import HeldOutClasses
from murho.model.evaluation.class_metrics import SET_COVERAGES
from murho.model.evaluation.evaluate import evaluate_in_full, score_columns
from murho.model.evaluation.evaluate_classes import evaluate_classes, judge_classes
from murho.model.evaluation.held_out import BAND, HeldOutRows
from murho.model.evaluation.metrics import RowWeights, pit_of
from murho.model.predictive.prediction import DEFAULT_SAMPLES, PredictOptions
from murho.model.report.facts import facts_of_data
from murho.model.report.held_out_facts import shown_rows
from murho.model.runtime import ignore_rows
from murho.model.tables.columns import rows_of
from murho.model.tables.schema_inference import columns_from_table, read_targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.tables.schema import Columns

__all__ = [
    "MOST_ROWS",
    "ReportOfRows",
    "report_of_rows",
]

MOST_ROWS = 20_000
"""Most rows that a report looks at; of more, it takes some by chance. A chart shows no difference."""


@dataclass(frozen=True, slots=True)
class ReportOfRows:
    """Facts and rows of a report on labelled rows.

    Attributes:
        facts: The facts, with the rows in place of the held-out ones.
        rows: Rows to show, `model.report.held_out_facts`.
        left_out: Rows without a target.
        chosen: How many rows were looked at.
    """

    facts: dict[str, Any]
    rows: dict[str, Any]
    left_out: int
    chosen: int


def report_of_rows(posterior: Posterior, stored: Mapping[str, Any], table: pa.Table, *, seed: int = 0) -> ReportOfRows:
    """Predict and judge the labelled rows of a table.

    Args:
        posterior: The posterior of the checkpoint.
        stored: Facts of the checkpoint.
        table: The table, as `model.tables.files.read_table` returns it.
        seed: Seed of the choice of rows where there are more than 20,000.

    Raises:
        TableError: The target column is missing, no row has a target, or a cell can't be used.
    """
    target = posterior.schema.target
    name = target.name
    targets = read_targets(table, target)
    labelled = np.flatnonzero(~np.isnan(targets))
    if not len(labelled):
        raise TableError(f"no row has a value in the target column {name!r}; there is nothing to judge by")
    chosen = labelled
    if len(labelled) > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(seed).choice(labelled, MOST_ROWS, replace=False))
    columns = columns_from_table(rows_of(table, chosen), posterior.schema)
    rows: HeldOutRows | HeldOutClasses
    if target.classes is not None:
        scores = evaluate_classes(posterior, columns, targets[chosen].astype(np.int64))
        rows = _predicted_classes(posterior, columns, targets[chosen])
    else:
        scores = evaluate_in_full(posterior, columns, targets[chosen])
        rows = _predicted(posterior, columns, targets[chosen])
    return ReportOfRows(
        facts_of_data(posterior, stored, columns, rows, scores),
        shown_rows(rows, posterior.schema, columns, chosen + 1),
        len(targets) - len(labelled),
        len(chosen),
    )


def _predicted_classes(posterior: Posterior, columns: Columns, targets: np.ndarray) -> HeldOutClasses:
    """The class probabilities of rows, by all members."""
    judged = judge_classes(posterior, columns, DEFAULT_SAMPLES, ignore_rows)
    return HeldOutClasses(
        rows=np.arange(len(targets)),
        targets=targets,
        raw=judged.raw,
        calibrated=judged.calibrated,
        epistemic_share=judged.epistemic_entropy / np.maximum(judged.entropy, 1e-12),
        outside=np.zeros(len(targets), dtype=np.bool_),
        sets={coverage / 100.0: found for coverage, found in judged.sets(SET_COVERAGES).items()},
        weights=RowWeights.of(len(targets)),
    )


def _predicted(posterior: Posterior, columns: Columns, targets: np.ndarray) -> HeldOutRows:
    """The predictions for rows, by all members."""
    scored = score_columns(posterior, columns, targets, DEFAULT_SAMPLES, None)
    levels = (50.0 - BAND / 2, 50.0 + BAND / 2)
    bands = {
        calibrated: posterior.predict(columns, PredictOptions(percentiles=levels, calibrated=calibrated)).percentiles
        for calibrated in ((False, True) if posterior.calibration is not None else (False,))
    }
    raw = bands[False]
    if raw is None:
        raise ValueError("an answer with draws has percentiles")
    calibrated = bands.get(True)
    return HeldOutRows(
        rows=np.arange(len(targets)),
        targets=targets,
        mean=targets + scored.errors,
        std=scored.raw_std,
        pit_raw=pit_of(scored.scores),
        band_raw=raw,
        pit_calibrated=None if calibrated is None else pit_of(scored.scores, posterior.calibration, scored.outside),
        band_calibrated=calibrated,
        weights=RowWeights.of(len(targets)),
    )
