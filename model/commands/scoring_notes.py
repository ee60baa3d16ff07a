"""What `murho predict` says on stderr about the rows that it scored."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.data.schema import Schema

__all__ = ["say_cut_warnings", "say_extra_columns", "say_unusual_rows"]

MOST_NAMED = 5
"""Columns named in a note; of more the first ones."""


def say_unusual_rows(unlike: int, imputed: int, *, warnings: bool) -> None:
    """Say what is unusual about rows that were scored.

    Args:
        unlike: Number of rows unlike the training rows.
        imputed: Number of rows that lack a cell that no training row lacked.
        warnings: Whether there is a column of warnings.
    """
    if unlike:
        rows = "1 row is" if unlike == 1 else f"{unlike} rows are"
        more = "" if warnings else "; --warnings says which and why"
        sys.stderr.write(f"note: {rows} unlike the training rows (far from them, or with an unseen category){more}\n")
    if imputed:
        rows = "1 row lacks" if imputed == 1 else f"{imputed} rows lack"
        sys.stderr.write(
            f"note: {rows} a cell that no training row lacked: the answer averages over what it may have been\n"
        )


def say_cut_warnings() -> None:
    """Say that a service has listed some of the warnings only."""
    sys.stderr.write(
        "note: a service lists the first 100 warnings of a request, so the column warnings is not complete; "
        "without --url it is\n"
    )


def say_extra_columns(names: Sequence[str], schema: Schema) -> None:
    """Name the columns that the training did not see; those that it left out, and the target, were said then."""
    known = {feature.name for feature in schema.features} | {schema.target.name} | set(schema.left_out)
    extra = [name for name in names if name not in known]
    if extra:
        named = ", ".join(map(repr, extra[:MOST_NAMED])) + (", …" if len(extra) > MOST_NAMED else "")
        what = "1 column that is no feature is" if len(extra) == 1 else f"{len(extra)} columns that are no features are"
        sys.stderr.write(f"note: {what} not used: {named}\n")
