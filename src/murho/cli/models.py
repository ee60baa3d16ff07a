"""The command `murho models`: lists the checkpoints of a directory. It reads no tensor, so it answers at once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from murho.cli.shared import CheckpointsOption, JsonOption, print_json, print_lines, table_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.checkpoint.summaries import CheckpointSummary

SPANS = ((31_536_000, "year"), (2_592_000, "month"), (86_400, "day"), (3_600, "hour"), (60, "minute"))


def models(
    checkpoints: CheckpointsOption = "checkpoints",
    json: JsonOption = False,
) -> None:
    """List the checkpoints of a directory: target, rows, score on held-out rows, and age of the latest version."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.checkpoint.summaries import summaries

    store = store_at(checkpoints)
    found = summaries(store)
    if json:
        print_json({"checkpoints": store.place, "models": [summary.to_json() for summary in found]})
    elif found:
        print_lines(model_lines(found, datetime.now(UTC)))
    else:
        print_lines([f"no checkpoint in {store.place}; train one: murho train FILE --target COLUMN"])


def model_lines(found: Sequence[CheckpointSummary], now: datetime) -> list[str]:
    """Return a table for people, a line for each checkpoint; what is wrong with one stands below.

    Args:
        found: The checkpoints.
        now: The present time, for their age.
    """
    rows = [("NAME", "VERSIONS", "TASK", "TARGET", "ROWS", "HELD-OUT SCORE", "AGE")]
    rows += [
        (
            each.name,
            _versions(each.versions),
            each.task or "",
            each.target or "",
            "" if each.rows is None else f"{each.rows:,}",
            _score(each),
            "" if each.created is None else age_of(each.created, now),
        )
        for each in found
        if each.problem is None
    ]
    return [*table_lines(rows), *(f"{each.name}: {each.problem}" for each in found if each.problem is not None)]


def _score(each: CheckpointSummary) -> str:
    """``CRPS 1.49 mpg``, or ``log loss 0.0323, 98.8 % right`` for classes."""
    from murho.model.evaluation.summary import significant

    seen = "" if each.held_out else " (on its own training rows)"
    if each.crps is not None:
        return f"CRPS {significant(each.crps)}{f' {each.unit}' if each.unit else ''}{seen}"
    if each.log_loss is None:
        return ""
    right = "" if each.accuracy is None else f", {100.0 * each.accuracy:.1f} % right"
    return f"log loss {significant(each.log_loss)}{right}{seen}"


def _versions(versions: Sequence[str]) -> str:
    """``2``, ``1, 2``, or the first, the last and the number of many: ``1 to 12 (9)``."""
    if len(versions) > 3:
        return f"{versions[0]} to {versions[-1]} ({len(versions)})"
    return ", ".join(versions) or "none"


def age_of(created: datetime, now: datetime) -> str:
    """``3 days``: how long ago, in the largest unit of which there is at least one."""
    seconds = (now - created).total_seconds()
    for length, name in SPANS:
        count = int(seconds // length)
        if count >= 1:
            return f"{count} {name}{'' if count == 1 else 's'}"
    return "just now"
