"""What the checkpoints of a directory are, in short: from ``model.json`` alone, without reading a tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from murho.model.errors import CheckpointError, StorageError
from murho.model.posterior.checkpoint import FACTS_FILE
from murho.model.posterior.checkpoint_directories import list_checkpoints
from murho.model.posterior.seal import check_seal
from murho.model.runtime.checkpoint_files import parse_json, read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from murho.model.posterior.checkpoint_directories import CheckpointReference

__all__ = ["CheckpointSummary", "summaries", "summaries_of"]


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """One name of a directory of checkpoints; all but ``name``, ``versions`` and ``problem`` are of its latest version.

    Attributes:
        name: Name of the checkpoint.
        versions: Its versions, the latest last; empty if there is none.
        target: The predicted column; None, as the next ones, where the file does not tell.
        unit: Its unit.
        rows: Number of rows learned from.
        crps: CRPS on held-out rows, the target's unit; None for classes.
        created: When it was made.
        problem: Why the latest version can't be used, or None.
        task: ``regression`` or ``classification``.
        log_loss: Log loss on held-out rows, nats; None for numbers.
        accuracy: Share of the held-out rows whose class is the likeliest one; None for numbers.
    """

    name: str
    versions: tuple[str, ...]
    target: str | None = None
    unit: str | None = None
    rows: int | None = None
    crps: float | None = None
    created: datetime | None = None
    problem: str | None = None
    task: str | None = None
    log_loss: float | None = None
    accuracy: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON data."""
        return {
            "name": self.name,
            "versions": list(self.versions),
            "task": self.task,
            "target": self.target,
            "unit": self.unit,
            "rows": self.rows,
            "crps": self.crps,
            "log_loss": self.log_loss,
            "accuracy": self.accuracy,
            "created": None if self.created is None else self.created.isoformat(),
            "problem": self.problem,
        }


def summaries(root: Path) -> list[CheckpointSummary]:
    """The checkpoints of a directory, by name.

    Raises:
        CheckpointError: The directory can't be read.
    """
    return summaries_of(list_checkpoints(root), lambda reference: read_bounded(reference.path / FACTS_FILE))


def summaries_of(
    references: Iterable[CheckpointReference], read_facts: Callable[[CheckpointReference], bytes]
) -> list[CheckpointSummary]:
    """The checkpoints of any place, by name.

    Args:
        references: Every version, by name, then by rising version.
        read_facts: Returns the content of ``model.json`` of a version.
    """
    by_name: dict[str, list[CheckpointReference]] = {}
    for reference in references:
        by_name.setdefault(reference.name, []).append(reference)
    return [_summary(name, versions, read_facts) for name, versions in by_name.items()]


def _summary(
    name: str, references: list[CheckpointReference], read_facts: Callable[[CheckpointReference], bytes]
) -> CheckpointSummary:
    versions = tuple(reference.version for reference in references if reference.problem is None)
    if not versions:
        return CheckpointSummary(name, (), problem=references[-1].problem)
    latest = next(reference for reference in reversed(references) if reference.problem is None)
    try:
        facts = parse_json(read_facts(latest))
        check_seal(facts)
        return CheckpointSummary(name, versions, **_fields(facts))
    except StorageError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{FACTS_FILE} can't be read: {error.strerror or error}"
    except (CheckpointError, AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"{FACTS_FILE} is damaged: {error}"
    return CheckpointSummary(name, versions, problem=problem)


def _fields(facts: dict[str, Any]) -> dict[str, Any]:
    target, training = facts["schema"]["target"], facts.get("training", {})
    rows = facts.get("update", {}).get("total_rows") or training.get("rows")
    metrics = facts.get("metrics", {})
    created = facts.get("created")
    when = None if created is None else datetime.fromisoformat(created)
    return {
        "task": "regression" if target.get("classes") is None else "classification",
        "target": str(target["name"]),
        "unit": target["unit"],
        "rows": None if rows is None else int(rows),
        **{name: _finite(metrics.get(name)) for name in ("crps", "log_loss", "accuracy")},
        "created": when if when is None or when.tzinfo else when.replace(tzinfo=UTC),
    }


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
