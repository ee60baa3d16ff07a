"""The fingerprints of the rows that a checkpoint has learned from, in a file beside ``model.json``.

No reader of checkpoints needs the file; checkpoints without it, or with a damaged one, recognise nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.class_targets import labels_from_table
from murho.model.data.row_blocks import column_blocks
from murho.model.data.row_fingerprints import RowFingerprints, fingerprints_of
from murho.model.data.schema_inference import target_from_table
from murho.model.runtime.checkpoint_files import read_bounded

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.row_fingerprints import Recognised
    from murho.model.data.schema import Columns, Schema

__all__ = ["LEARNED_ROWS_FILE", "learned_rows_file", "read_learned_rows", "recognise", "recognise_table"]

LEARNED_ROWS_FILE = "learned_rows.npy"
MOST_BYTES = 2**20
"""Four times the largest file."""


def learned_rows_file(
    schema: Schema, columns: Columns, targets: NDArray[np.float64], before: RowFingerprints | None = None
) -> dict[str, bytes]:
    """The file of a version, by its name, for `model.posterior.checkpoint.write_checkpoint`.

    Args:
        schema: The schema of the version.
        columns: Canonical columns of the rows that it has learned from, ``[N]`` each.
        targets: Their targets, ``[N]``: in the target's unit, or indices of classes.
        before: Rows that the version which this one goes on from has learned from.
    """
    made = RowFingerprints.of(_fingerprints(schema, columns, targets))
    return {LEARNED_ROWS_FILE: (made if before is None else before.joined(made)).to_bytes()}


def read_learned_rows(directory: Path) -> RowFingerprints | None:
    """The rows that a version has learned from; None if it does not tell."""
    try:
        return RowFingerprints.from_bytes(read_bounded(directory / LEARNED_ROWS_FILE, MOST_BYTES))
    except Exception:  # NumPy raises half a dozen others for damaged files
        return None


def recognise(learned: RowFingerprints, schema: Schema, columns: Columns, targets: NDArray[np.float64]) -> Recognised:
    """How many rows are ones that a version has learned from; takes what `learned_rows_file` takes."""
    return learned.recognise(_fingerprints(schema, columns, targets))


def recognise_table(learned: RowFingerprints, schema: Schema, table: pa.Table) -> Recognised:
    """How many rows with a target of a table are ones that a version has learned from."""
    targets = _targets(table, schema)
    labelled = np.flatnonzero(~np.isnan(targets))
    targets = targets[labelled]
    parts = [_fingerprints(schema, columns, targets[rows]) for rows, columns in column_blocks(table, schema, labelled)]
    return learned.recognise(np.concatenate(parts))


def _targets(table: pa.Table, schema: Schema) -> NDArray[np.float64]:
    """Targets as `learned_rows_file` takes them; -1 for a class that the model does not know."""
    target = schema.target
    if target.classes is None:
        return target_from_table(table, target)
    codes: dict[object, float] = {name: float(code) for code, name in enumerate(target.classes)}
    labels = labels_from_table(table, target.name).tolist()
    return np.array([np.nan if label is None else codes.get(label, -1.0) for label in labels])


def _fingerprints(schema: Schema, columns: Columns, targets: NDArray[np.float64]) -> NDArray[np.uint64]:
    return fingerprints_of(columns, [feature.name for feature in schema.features], np.asarray(targets, np.float64))
