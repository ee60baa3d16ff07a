"""Rows go through the networks and are judged, pass by pass, so that a million rows fit into memory.

`evaluate_table` does so for labelled rows of a table, as `murho evaluate` reports them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch

from murho.model.arrays import Doubles, Ints, with_arrays
from murho.model.checkpoint.posterior import Posterior
from murho.model.encoding.encoder import Encoded
from murho.model.errors import OptionError, TableError, list_names
from murho.model.evaluation.class_scores import JudgedClasses
from murho.model.evaluation.judged_rows import JudgedRows, RowWeights
from murho.model.evaluation.number_scores import JudgedNumbers
from murho.model.predictive.plans import DrawnRows
from murho.model.predictive.prediction import DEFAULT_SAMPLES
from murho.model.progress import Advance, ignore_rows
from murho.model.tables.schema import Columns
from murho.model.tables.schema_inference import (
    UNKNOWN,
    class_codes,
    columns_from_table,
    labels_from_table,
    row_weights,
    target_from_table,
)

MOST_ROWS_PER_PASS = 256
VALUES_PER_PASS = 2**22
"""Values of rows, draws and classes at a time: 32 MiB."""

Made = TypeVar("Made")


@torch.inference_mode()
def in_passes(
    posterior: Posterior,
    encoded: Encoded,
    made: Callable[[DrawnRows, slice], Made],
    *,
    samples: int,
    members: Sequence[int] | None = None,
) -> Made:
    """Send rows through the networks, a few hundred of them at a time.

    Args:
        posterior: The posterior.
        encoded: The rows, at least one.
        made: Makes arrays of the rows of a pass under their draws (`with_arrays`); gets their places among the N.
        samples: S, at least 1.
        members: The S draws cycle through these members; None: through all.

    Raises:
        OptionError: S is 0: the mu-only network has no doubt to judge.
    """
    if samples < 1:
        raise OptionError("judging a posterior takes at least one draw")
    values = samples * len(posterior.schema.target.classes or "1")
    count, most = len(encoded), max(1, min(MOST_ROWS_PER_PASS, VALUES_PER_PASS // values))
    parts = []
    for start in range(0, count, most):
        rows = slice(start, min(start + most, count))
        parts.append(made(posterior.draw_rows(encoded[rows], samples, posterior.seed, members=members), rows))
    return with_arrays(np.concatenate, parts)


def judge_encoded(
    posterior: Posterior,
    encoded: Encoded,
    targets: Doubles,
    samples: int = DEFAULT_SAMPLES,
    rows: Ints | None = None,
) -> JudgedRows:
    """Judge the answers of a posterior for encoded rows.

    Args:
        posterior: The posterior.
        encoded: Encoded rows, see `in_passes`.
        targets: ``[N]``, the target's unit, or numbers of classes.
        samples: S, at least 1.
        rows: Numbers of the rows, ``[N]``; None: from 0 on.
    """
    numbers = np.arange(len(targets)) if rows is None else rows
    of_kind = JudgedNumbers if posterior.schema.target.classes is None else JudgedClasses
    calibration: Any = posterior.calibration  # of the target's kind, as `ModelSpec` checks

    def judge(drawn: DrawnRows, places: slice) -> JudgedRows:
        return of_kind.of(drawn, numbers[places], targets[places], calibration)

    return in_passes(posterior, encoded, judge, samples=samples)


def judge_columns(
    posterior: Posterior, columns: Columns, targets: Doubles, samples: int = DEFAULT_SAMPLES
) -> JudgedRows:
    """Judge the answers for labelled rows; those with missing cells that the training rows did not have are imputed.

    Args:
        posterior: The posterior.
        columns: Canonical columns of the schema's features, ``[N]`` each.
        targets: ``[N]``, the target's unit, or numbers of classes.
        samples: S, at least 1.
    """
    parts = []
    for rows, encoded in posterior.encoder.encode_pieces(columns):
        parts.append(judge_encoded(posterior, encoded, targets[rows], samples, rows))
    judged = parts[0].join(parts)
    return judged.of_rows(np.argsort(judged.rows))


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
        table: Labelled rows, as `model.tables.table_files.read_table` returns them;
            rows without a target are left out, and so are rows of weight 0.
        samples: S.
        weight: Column with the weights of the rows in all means (`model.tables.schema_inference`); None: all are equal.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        `model.evaluation.judged_rows.JudgedRows.in_full`, and ``left_out``, the number of rows without a target or of
        weight 0. A classifier's also has ``unknown``: None, or ``rows``, the number of rows of unknown ``classes``,
        with rows of each, and ``accuracy``, with these rows as misses.

    Raises:
        TableError: The target column is missing, no row has a target, or one that the model knows, or a cell can't be
            used.
        OptionError: S is 0.
    """
    target = posterior.schema.target
    classes, name = target.classes, target.name
    labels = None if classes is None else labels_from_table(table, name, target.words)
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
            f"{list_names(classes or ())}; give the column in the spelling of the training, or train "
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
    judged = replace(parts[0].join(parts), weights=RowWeights.of(len(rows), None if weight is None else weights[rows]))
    del parts
    report = judged.in_full(posterior.schema, columns)
    if labels is not None:
        right = float(report["accuracy"] * weights[known].sum() / weights[labelled].sum())
        facts = {"rows": unknown.total(), "classes": dict(unknown.most_common()), "accuracy": right}
        report["unknown"] = facts if unknown else None
    return report | {"left_out": len(targets) - int(labelled.sum())}
