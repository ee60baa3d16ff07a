"""Fingerprints of rows, by which a table's rows are recognised later without being kept.

A fingerprint is 64 bits of a hash of all features and the target. Of a large table the smallest 20,000 are kept: a
sample of its different rows that is the same whatever their order. Whether a row whose fingerprint is not above the
largest one kept was in the table is then known, and the share of such rows stands for all (bottom-k sketch: Cohen and
Kaplan 2007, "Summarizing data using bottom-k sketches").
"""

from __future__ import annotations

import hashlib
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns

__all__ = ["Recognised", "RowFingerprints", "fingerprints_of"]

MOST_KEPT = 20_000
RECORD = np.dtype([("row", "<u8"), ("count", "<u4")])
MISSING = np.uint64(0x9E3779B97F4A7C15)
SIGNIFICANT = 3.0
"""Standard deviations above what chance explains from which equal rows are worth a word."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """How many rows of a table are equal to rows of another one.

    Attributes:
        checked: Rows that could be recognised: all, or a sample if the other table is large.
        equal: Of these, the rows that are equal to one of the other table in every column.
        by_chance: Share of rows that would be equal if they were new, since the other table's own rows repeat.
    """

    checked: int
    equal: int
    by_chance: float

    @property
    def is_notable(self) -> bool:
        """Whether more rows are equal than chance explains."""
        expected = self.checked * self.by_chance
        return self.equal > expected + SIGNIFICANT * math.sqrt(expected * (1.0 - self.by_chance))


@dataclass(frozen=True, slots=True, eq=False)
class RowFingerprints:
    """The fingerprints of a table.

    Attributes:
        rows: Different fingerprints, rising, ``[n]``, uint64; at most `MOST_KEPT`.
        counts: How many rows of the table have each, ``[n]``.
    """

    rows: NDArray[np.uint64]
    counts: NDArray[np.uint32]

    @classmethod
    def of(cls, rows: NDArray[np.uint64]) -> Self:
        """Those of a table, from the fingerprints of all its rows, ``[N]``."""
        different, counts = np.unique(rows, return_counts=True)
        return cls(different[:MOST_KEPT], counts[:MOST_KEPT].astype(np.uint32))

    @property
    def is_sample(self) -> bool:
        """Whether some of the table's fingerprints are not kept."""
        return len(self.rows) >= MOST_KEPT

    def joined(self, other: Self) -> Self:
        """Those of the rows of either table; a row that is in both is counted where it is more frequent."""
        last = min((part.rows[-1] for part in (self, other) if part.is_sample), default=None)
        rows, places = np.unique(np.concatenate([self.rows, other.rows]), return_inverse=True)
        counts = np.zeros(len(rows), np.uint32)
        np.maximum.at(counts, places, np.concatenate([self.counts, other.counts]))
        kept = slice(MOST_KEPT) if last is None else slice(min(MOST_KEPT, int(np.searchsorted(rows, last, "right"))))
        return type(self)(rows[kept], counts[kept])

    def recognise(self, rows: NDArray[np.uint64]) -> Recognised:
        """How many rows, by their fingerprints ``[N]``, are rows of the table.

        The share by chance is that of Good and Turing: a new row is as likely to be an unseen one as rows of the table
        are to be there once.
        """
        checked = rows[rows <= self.rows[-1]] if self.is_sample else rows
        total = int(self.counts.sum())
        repeated = 1.0 - int((self.counts == 1).sum()) / total if total else 0.0
        return Recognised(len(checked), int(np.isin(checked, self.rows).sum()), repeated)

    def to_bytes(self) -> bytes:
        """The content of a ``.npy`` file; `from_bytes` reads it."""
        records = np.empty(len(self.rows), RECORD)
        records["row"], records["count"] = self.rows, self.counts
        file = io.BytesIO()
        np.save(file, records, allow_pickle=False)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The fingerprints in the content of a file.

        Raises:
            ValueError: It holds something else.
        """
        records: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
        if records.dtype != RECORD or records.ndim != 1 or len(records) > MOST_KEPT:
            raise ValueError("the file holds no fingerprints of rows")
        rows = np.ascontiguousarray(records["row"])
        if (rows[1:] <= rows[:-1]).any():
            raise ValueError("the fingerprints of rows don't rise")
        return cls(rows, np.ascontiguousarray(records["count"]))


def fingerprints_of(columns: Columns, names: Sequence[str], targets: NDArray[np.float64]) -> NDArray[np.uint64]:
    """The fingerprint of each row, ``[N]``.

    Numbers count in float32, so that the way they were read or written makes no difference.

    Args:
        columns: Canonical columns, ``[N]`` each.
        names: The columns that count, in a fixed order.
        targets: ``[N]``: numbers, or indices of classes.
    """
    rows = _of_numbers(targets)
    for name in names:
        column = columns[name]
        cells = _of_texts(column) if column.dtype == object else _of_numbers(column)
        rows = _mixed(rows * np.uint64(0x100000001B3) ^ cells)
    return rows


def _of_numbers(column: NDArray[Any]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        cells = column.astype(np.float32) + np.float32(0.0)  # -0 becomes 0
    bits = np.ascontiguousarray(cells).view(np.uint32).astype(np.uint64)
    return _mixed(np.where(np.isnan(cells), MISSING, bits))


def _of_texts(column: NDArray[Any]) -> NDArray[np.uint64]:
    known: dict[Any, int] = {None: int(MISSING)}
    for cell in set(column.tolist()) - {None}:
        known[cell] = int.from_bytes(hashlib.blake2b(str(cell).encode("utf-8", "replace"), digest_size=8).digest())
    return _mixed(np.fromiter((known[cell] for cell in column.tolist()), dtype=np.uint64, count=len(column)))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit of the result depends on all bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
