"""The problems of one request: collected, put in the order of the request, cut to a readable number.

A request can be wrong in a million places; listing them all would cost more than its answer.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from murho.model.errors import Problem
from murho.service.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MAX_LISTED", "Problems", "pointer", "shorten"]

MAX_LISTED = 50
MAX_NAME = 100


def shorten(text: str, limit: int = MAX_NAME) -> str:
    """Returns the text, cut to `limit` characters; a request can hold names of any length."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def pointer(*parts: str | int) -> str:
    """Returns the RFC 6901 JSON pointer to a place; very long names are cut.

    Example:
        >>> pointer("inputs", 3, "km/h")
        '/inputs/3/km~1h'
    """
    escaped = (
        str(part) if isinstance(part, int) else shorten(part).replace("~", "~0").replace("/", "~1") for part in parts
    )
    return "".join(f"/{part}" for part in escaped)


class Problems:
    """Collects the problems in the rows of one request.

    Each problem has a place, (row, position within the row). Problems are listed in the order of their places.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Problem]] = []
        self.total = 0

    @property
    def listed(self) -> int:
        """Number of problems with a message so far."""
        return len(self._entries)

    def add(self, row: int, position: int, where: str, message: str) -> None:
        """Adds one problem."""
        self._entries.append((row, position, Problem(where, message)))
        self.total += 1

    def add_rows(
        self, rows: Sequence[int], position: int, where: Callable[[int], str], explain: Callable[[int], str]
    ) -> None:
        """Adds a problem for each of the ascending rows, with a message only for those that can be listed."""
        for row in islice(rows, MAX_LISTED):
            self._entries.append((row, position, Problem(where(row), explain(row))))
        self.total += len(rows)

    def raise_any(self) -> None:
        """Raises the collected problems, if there are any.

        Raises:
            BadInputError: There is at least one problem.
        """
        if self._entries:
            self._entries.sort(key=lambda entry: entry[:2])
            raise BadInputError((problem for _, _, problem in self._entries[:MAX_LISTED]), self.total)
