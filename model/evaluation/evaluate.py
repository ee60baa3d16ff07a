"""Evaluation of a posterior on labelled rows: in short, for benchmarks, and in full, for `murho evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.checkpoint.row_answers import in_pieces
from murho.model.encoding.imputation import rows_to_impute
from murho.model.errors import TableError
from murho.model.evaluation.evaluate_classes import evaluate_class_table
from murho.model.evaluation.metrics import PERCENTILES, band_levels, pit_of, reliability
from murho.model.evaluation.row_scores import CollectedCategories, CollectedScores, RowScores, score_rows
from murho.model.evaluation.subgroups import coverage_by_category, coverage_by_std, spearman
from murho.model.predictive.prediction import DEFAULT_SAMPLES
from murho.model.progress import ignore_rows
from murho.model.tables.files import check_rows, column_blocks
from murho.model.tables.schema_inference import row_weights, target_from_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.progress import Advance
    from murho.model.tables.schema import Columns

__all__ = [
    "evaluate_in_full",
    "evaluate_rows",
    "evaluate_table",
    "score_columns",
]

ROWS_PER_CHUNK = 4_096
"""Rows encoded at a time; encoded rows can be many times as wide as the table."""


def evaluate_table(
    posterior: Posterior,
    table: pa.Table,
    *,
    samples: int = DEFAULT_SAMPLES,
    weight: str | None = None,
    advance: Advance = ignore_rows,
) -> dict[str, Any]:
    """Evaluate a posterior on a table, in full: a block of rows after the other, of which only scores are kept.

    Args:
        posterior: The posterior.
        table: Labelled rows, as `model.tables.files.read_table` or `model.tables.files.open_table` returns them;
            rows without a target are left out, and so are rows of weight 0.
        samples: S.
        weight: Column with the weights of the rows in all means (`model.tables.schema_inference`); None: all are equal.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        The report of `evaluate_in_full`, and ``left_out``, the number of rows without a target or of weight 0. Of a
        classifier, the report of `model.evaluation.evaluate_classes.evaluate_class_table`.

    Raises:
        TableError: The target column is missing, no row has a target, or a cell can't be used.
        OptionError: S is 0.
    """
    if posterior.schema.target.classes is not None:
        return evaluate_class_table(posterior, table, samples=samples, weight=weight, advance=advance)
    name = posterior.schema.target.name
    targets = target_from_table(table, posterior.schema.target)
    posterior.likelihood.require_targets(targets, name)
    weights = None if weight is None else row_weights(table, weight, target=name)
    labelled = np.flatnonzero(~np.isnan(targets) & (True if weights is None else weights > 0.0))
    if not len(labelled):
        raise TableError(f"no row has a value in the target column {name!r}; there is nothing to judge by")
    check_rows(table, posterior.schema, labelled)
    report = _report(
        posterior,
        column_blocks(table, posterior.schema, labelled),
        targets[labelled],
        samples=samples,
        weights=None if weights is None else weights[labelled],
        advance=advance,
    )
    return {**report, "left_out": len(targets) - len(labelled)}


def evaluate_rows(
    posterior: Posterior, rows: np.ndarray, targets: np.ndarray, *, samples: int = DEFAULT_SAMPLES
) -> dict[str, Any]:
    """Scores of the predictions, and coverage, width and interval score of the bands.

    Args:
        posterior: The posterior.
        rows: Encoded rows, ``[N, D]``.
        targets: ``[N]``, the target's unit.
        samples: S.

    Returns:
        ``n, rmse, mae, r2, nll, crps, raw, calibrated``, in the target's unit (``nll`` in nats per row; ``r2`` is None
        if all targets are the same). ``raw`` and ``calibrated`` have ``coverage``, ``width``, ``interval_score`` and
        ``rms_std_ratio``; ``calibrated`` is None if the checkpoint is not calibrated.

    Raises:
        OptionError: S is 0.
    """
    return score_rows(posterior, rows, targets, samples=samples, calibration=posterior.calibration).report()


def evaluate_in_full(
    posterior: Posterior,
    columns: Columns,
    targets: np.ndarray,
    *,
    samples: int = DEFAULT_SAMPLES,
    weights: np.ndarray | None = None,
    advance: Advance = ignore_rows,
) -> dict[str, Any]:
    """The scores of `evaluate_rows`, with calibration errors and coverage in subgroups of the rows.

    Args:
        posterior: The posterior.
        columns: Canonical columns of the schema's features, ``[N]`` each.
        targets: ``[N]``, the target's unit.
        samples: S.
        weights: Weight of each row in all means, ``[N]``, positive; None: all are equal.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        The report of `evaluate_rows`, with more keys: ``sharpness``, the root mean square of ``std``;
        ``epistemic_share``, the epistemic share of that mean square; ``spearman``, the rank correlation of ``std`` and
        the absolute error of the mean, without weights; ``coverage_by_std`` and ``coverage_by_category`` of
        `model.evaluation.subgroups`. ``raw`` and ``calibrated`` also have ``pinball``
        (`model.evaluation.metrics.BandScores.pinball_report`), ``calibration_error`` and ``pit``
        (`model.evaluation.metrics.reliability`).

    Raises:
        OptionError: S is 0.
    """
    blocks = [(slice(0, len(targets)), columns)]
    return _report(posterior, blocks, targets, samples=samples, weights=weights, advance=advance)


def _report(
    posterior: Posterior,
    blocks: Iterable[tuple[slice, Columns]],
    targets: np.ndarray,
    *,
    samples: int,
    weights: np.ndarray | None,
    advance: Advance,
) -> dict[str, Any]:
    """The report of `evaluate_in_full`, of rows that come in blocks, each with its place among the N rows."""
    collected = CollectedScores(len(targets), weights)
    categories = CollectedCategories(posterior.schema, len(targets))
    for block, columns in categories.of(blocks):
        for start in range(block.start, block.stop, ROWS_PER_CHUNK):
            chunk = slice(start, min(start + ROWS_PER_CHUNK, block.stop))
            of_chunk = {
                name: column[chunk.start - block.start : chunk.stop - block.start] for name, column in columns.items()
            }
            of_weights = None if weights is None else weights[chunk]
            collected.add(chunk, score_columns(posterior, of_chunk, targets[chunk], samples, of_weights))
            advance(len(targets[chunk]))
    row_scores = collected.joined()
    report = row_scores.report()
    report["raw"] |= {"pinball": row_scores.raw.pinball_report(), **reliability(pit_of(row_scores.scores), weights)}
    if row_scores.calibrated is not None:
        pit = pit_of(row_scores.scores, posterior.calibration, row_scores.outside)
        report["calibrated"] |= {"pinball": row_scores.calibrated.pinball_report(), **reliability(pit, weights)}
    square = row_scores.std**2
    share = (row_scores.epistemic / row_scores.raw_std) ** 2
    return report | {
        "sharpness": row_scores.mean(square) ** 0.5,
        "epistemic_share": row_scores.mean(share * square) / row_scores.mean(square),
        "spearman": spearman(row_scores.std, np.abs(row_scores.errors)),
        "coverage_by_std": coverage_by_std(row_scores),
        "coverage_by_category": coverage_by_category(row_scores, posterior.schema, categories.columns),
    }


def score_columns(
    posterior: Posterior, columns: Columns, targets: np.ndarray, samples: int, weights: np.ndarray | None
) -> RowScores:
    """Score labelled rows; those with missing cells that the training rows did not have are imputed."""
    parts, numbers = [], []
    for rows, part, imputed in in_pieces(columns, rows_to_impute(posterior.schema, columns), posterior.encoder.width):
        encoded = posterior.encoder.encode_copies(part) if imputed else posterior.encoder.encode(part)
        parts.append(
            score_rows(
                posterior,
                encoded,
                targets[rows],
                samples=samples,
                calibration=posterior.calibration,
                levels=sorted({*band_levels(), *PERCENTILES}),
                weights=None if weights is None else weights[rows],
            )
        )
        numbers.append(rows)
    return RowScores.joined(parts).ordered(np.argsort(np.concatenate(numbers)))
