"""What the reader of a file has to tell about it, such as a column that it dropped; kept with the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["notes_of", "with_notes"]

_KEY = b"murho.notes"


def with_notes(table: pa.Table, notes: Sequence[str]) -> pa.Table:
    """The table with further notes, one sentence each, in its metadata."""
    if not notes:
        return table
    metadata = dict(table.schema.metadata or {})
    metadata[_KEY] = json.dumps([*notes_of(table), *notes]).encode()
    return table.replace_schema_metadata(metadata)


def notes_of(table: pa.Table) -> list[str]:
    """The notes of a table, in the order in which they were made."""
    stored = (table.schema.metadata or {}).get(_KEY)
    return [] if stored is None else [str(note) for note in json.loads(stored)]
