"""Groups of a table, each of which gets a model of its own: their rows, and the names of their checkpoints."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.data.schema_inference import require_column
from murho.model.errors import OptionError, TableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Group", "checkpoint_name", "groups_of"]

MOST_LETTERS = 64
HASH_LETTERS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The rows of a table with one value in a column.

    Attributes:
        value: The value, as text.
        name: Name of the group's checkpoint.
        rows: Numbers of its rows, from 0, rising, ``[n]``.
    """

    value: str
    name: str
    rows: NDArray[np.int64]


def checkpoint_name(prefix: str, value: str) -> str:
    """The name of a group's checkpoint: ``PREFIX-VALUE``, with a hash where the value can't be part of a name.

    A value of letters, digits, ``_``, ``.`` and ``-`` stays as it is, if the name then has at most 64 characters. Of
    others each run of further characters becomes ``-``, accents go, and eight digits of the value's SHA-256 follow, so
    that different values have different names. A name depends on prefix and value alone.

    Args:
        prefix: The beginning, itself the name of a checkpoint.
        value: The value of the group.
    """
    plain = f"{prefix}-{value}"
    if re.fullmatch(r"[A-Za-z0-9._-]+", value) and len(plain) <= MOST_LETTERS:
        return plain
    digits = hashlib.sha256(value.encode()).hexdigest()[:HASH_LETTERS]
    letters = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode()
    safe = re.sub(r"[^A-Za-z0-9_.]+", "-", letters).strip("-")
    room = MOST_LETTERS - HASH_LETTERS - 1
    return f"{f'{prefix}-{safe}'[:room].rstrip('-')}-{digits}"


def groups_of(table: pa.Table, column: str, prefix: str) -> tuple[list[Group], int]:
    """The groups of a table, by falling number of rows, then by value; and the number of rows without a value.

    Args:
        table: N rows.
        column: The column whose values name the groups.
        prefix: The beginning of the names of their checkpoints.

    Raises:
        TableError: There is no such column, or no row has a value.
        OptionError: Two groups would have the same name.
    """
    require_column(table, column, "the column of groups")
    try:
        values = pc.cast(table.column(column), pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(f"column {column!r} can't name groups: {error}") from error
    encoded = values.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    texts = encoded.dictionary.to_pylist()
    order = np.argsort(codes, kind="stable")
    missing = int((codes < 0).sum())
    ends = np.searchsorted(codes[order], np.arange(len(texts) + 1))
    groups = [
        Group(text, checkpoint_name(prefix, text), order[ends[code] : ends[code + 1]])
        for code, text in enumerate(texts)
    ]
    if not groups:
        raise TableError(f"column {column!r} has no value in any row: it names no groups")
    names: dict[str, str] = {}
    for group in groups:
        if group.name in names:
            raise OptionError(
                f"the groups {names[group.name]!r} and {group.value!r} of {column!r} would both be called "
                f"{group.name!r}: rename one"
            )
        names[group.name] = group.value
    return sorted(groups, key=lambda group: (-len(group.rows), group.value)), missing
