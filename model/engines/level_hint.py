"""A hint about percentile levels that look like shares: 0.05 where 5 is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["level_hint"]


def level_hint(levels: Sequence[float]) -> str | None:
    """What to say where all levels are below 1: they are answered as they are, for 0.5 % is a level, too.

    Args:
        levels: Percentile levels, strictly between 0 and 100.

    Returns:
        A sentence for people, or None.
    """
    if not levels or max(levels) >= 1.0:
        return None
    meant = ", ".join(f"{100.0 * level:g}" for level in levels)
    given = ", ".join(f"{level:g}" for level in levels)
    return f"Levels are per cent, and {given} are all below 1 %. If they are meant as shares, ask for {meant}."
