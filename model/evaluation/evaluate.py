"""Evaluation of a posterior on labelled rows, as `murho evaluate` reports it.

The way is the same for both kinds of target: read the targets and features, judge the rows, report.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import TableError
from murho.model.evaluation.judging import judge_columns
from murho.model.evaluation.rows import RowWeights
from murho.model.predictive.prediction import DEFAULT_SAMPLES
from murho.model.progress import ignore_rows
from murho.model.tables.schema_inference import (
    UNKNOWN,
    class_codes,
    columns_from_table,
    labels_from_table,
    row_weights,
    target_from_table,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.progress import Advance

__all__ = ["evaluate_table"]

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
    """Evaluate a posterior on a table, in full: some rows after the others, of whose answers only scores are kept.

    Rows of classes that a classifier does not know have no probability, so they are in no score. The report counts
    them, and has the accuracy that counts every one as a miss.

    Args:
        posterior: The posterior.
        table: Labelled rows, as `model.tables.files.read_table` returns them;
            rows without a target are left out, and so are rows of weight 0.
        samples: S.
        weight: Column with the weights of the rows in all means (`model.tables.schema_inference`); None: all are equal.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        `model.evaluation.rows.JudgedRows.in_full`, and ``left_out``, the number of rows without a target or of
        weight 0. A classifier's also has ``unknown``: None, or ``rows``, the number of rows of unknown ``classes``,
        with rows of each, and ``accuracy``, with these rows as misses.

    Raises:
        TableError: The target column is missing, no row has a target, or one that the model knows, or a cell can't be
            used.
        OptionError: S is 0.
    """
    target = posterior.schema.target
    classes, name = target.classes, target.name
    labels = None if classes is None else labels_from_table(table, name)
    targets = target_from_table(table, target) if labels is None else class_codes(labels, classes or ())
    if labels is None:
        posterior.likelihood.require_targets(targets, name)
    weights = np.ones(len(targets)) if weight is None else row_weights(table, weight, target=name)
    labelled = ~np.isnan(targets) & (weights > 0.0)
    if not labelled.any():
        raise TableError(f"no row has a value in the target column {name!r}; there is nothing to judge by")
    known = labelled if labels is None else labelled & (targets != UNKNOWN)
    unknown = Counter[str]() if labels is None else Counter(labels[labelled & ~known].tolist())
    if not known.any():
        found = ", ".join(f"{label!r} ({count})" for label, count in unknown.most_common(5))
        raise TableError(
            f"no row of the target column {name!r} has a class that the model knows: found {found}, it knows "
            f"{', '.join(map(repr, (classes or ())[:10]))}; give the column in the spelling of the training, or train "
            "again with these classes"
        )
    rows = np.flatnonzero(known)
    columns = columns_from_table(table, posterior.schema, rows=rows)
    parts = []
    for start in range(0, len(rows), ROWS_PER_CHUNK):
        chunk = {feature: column[start : start + ROWS_PER_CHUNK] for feature, column in columns.items()}
        of_chunk = targets[rows[start : start + ROWS_PER_CHUNK]]
        parts.append(judge_columns(posterior, chunk, of_chunk, samples))
        advance(len(of_chunk))
    judged = replace(
        parts[0].joined(parts), weights=RowWeights.of(len(rows), None if weight is None else weights[rows])
    )
    del parts
    report = judged.in_full(posterior.schema, columns)
    if labels is not None:
        right = float(report["accuracy"] * weights[known].sum() / weights[labelled].sum())
        facts = {"rows": unknown.total(), "classes": dict(unknown.most_common()), "accuracy": right}
        report["unknown"] = facts if unknown else None
    return report | {"left_out": len(targets) - int(labelled.sum())}
