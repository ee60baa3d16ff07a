"""Outcomes: what came true of recorded predictions, as rows that are sent, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from murho_client._cells import json_cells
from murho_client._errors import InvalidInput, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from murho_client._data import Batch

__all__ = ["Outcomes", "outcome_requests"]

OUTCOMES_PER_REQUEST = 10_000


@dataclass(frozen=True)
class Outcomes:
    """What became of outcomes.

    Attributes:
        accepted: Those that the service keeps now; one that was there already counts, too.
        revised: Of these, those that replaced another value.
        unknown: Id → why it isn't kept.
    """

    accepted: int
    revised: int
    unknown: Mapping[str, str]

    @classmethod
    def of(cls, documents: Sequence[Mapping[str, Any]]) -> Self:
        """Adds up the JSON answers of a service."""
        unknown = {each["id"]: each["why"] for document in documents for each in document["unknown"]}
        accepted, revised = (sum(document[name] for document in documents) for name in ("accepted", "revised"))
        return cls(accepted, revised, unknown)


def outcome_requests(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yields the documents of requests for the columns ``id`` and ``value``.

    Raises:
        InvalidInput: There are other columns.
    """
    columns = dict(zip(batch.names or (), batch.columns, strict=True)) if batch.names else {}
    if sorted(columns) != ["id", "value"]:
        raise InvalidInput([Problem("Outcomes have the columns id and value, and no others.")])
    ids, values = (json_cells(columns[name]) for name in ("id", "value"))
    for start in range(0, batch.rows, OUTCOMES_PER_REQUEST):
        part = slice(start, start + OUTCOMES_PER_REQUEST)
        yield {"outcomes": [{"id": key, "value": value} for key, value in zip(ids[part], values[part], strict=True)]}
