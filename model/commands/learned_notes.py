"""What commands say of rows that a checkpoint has been trained or updated with before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murho.model.data.row_fingerprints import Recognised

__all__ = ["JUDGED", "LEARNED_TWICE", "note_of_learned", "recognised_json"]

JUDGED = (
    "their scores are too good. Judge by rows that were kept back; those that `murho train` printed are such scores"
)
LEARNED_TWICE = "learning from them again makes error bars too narrow. Give rows that are new"


def note_of_learned(found: Recognised | None, consequence: str) -> str | None:
    """A line for stderr, or None if no more rows are known than chance explains.

    Args:
        found: How many rows are known; None: not known.
        consequence: What it means: `JUDGED` or `LEARNED_TWICE`.
    """
    if found is None or not found.is_notable:
        return None
    chance = ""
    if found.checked * found.by_chance >= 1.0:
        chance = f" (about {found.checked * found.by_chance:.0f} would be by chance, since its rows repeat)"
    rows = "row is" if found.checked == 1 else "rows are"
    return (
        f"note: {found.equal} of {found.checked} {rows} equal, in every column, to rows of the model's training"
        f"{chance}: {consequence}\n"
    )


def recognised_json(found: Recognised | None) -> dict[str, Any] | None:
    """The same for ``--json``."""
    return None if found is None else {"checked": found.checked, "equal": found.equal, "by_chance": found.by_chance}
