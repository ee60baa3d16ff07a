"""Tables of reports as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["table_lines"]


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns: to the right if a cell below the title has a digit, else to the left."""
    count = max(len(row) for row in rows)
    columns = [[row[place] if place < len(row) else "" for row in rows] for place in range(count)]
    aligned = []
    for place, cells in enumerate(columns):
        width = max(map(len, cells))
        numbers = place > 0 and any(map(str.isdigit, "".join(cells[1:])))
        aligned.append([cell.rjust(width) if numbers else cell.ljust(width) for cell in cells])
    return ["   ".join(cells).rstrip() for cells in zip(*aligned, strict=True)]
