"""Checks that come before PyTorch is imported, which takes seconds: mistakes in files are answered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.errors import CheckpointError
from murho.model.runtime.checkpoint_files import parse_json, read_bounded

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

__all__ = ["check_first_rows"]

FIRST_ROWS = 1_000


def check_first_rows(table: pa.Table, directory: Path, *, labelled: bool) -> None:
    """Check that a table has the columns of a checkpoint, and that the cells of its first rows fit them.

    Args:
        table: The table.
        directory: Directory of the version. A damaged one passes: loading it says what is wrong.
        labelled: Whether the table needs the target, too.

    Raises:
        TableError: A column is missing, or a cell does not fit; the message names column and row.
    """
    from murho.model.data.class_targets import labels_from_table
    from murho.model.data.schema import Schema
    from murho.model.data.schema_inference import columns_from_table, target_from_table

    try:
        schema = Schema.from_json(parse_json(read_bounded(directory / "model.json"))["schema"])
    except (OSError, ValueError, KeyError, TypeError, CheckpointError):
        return
    first = table.slice(0, FIRST_ROWS)
    if labelled:
        if schema.target.classes is None:
            target_from_table(first, schema.target)
        else:  # a class that the model does not know may be meant
            labels_from_table(first, schema.target.name)
        return  # rows without a target may have any cells
    columns_from_table(first, schema)
