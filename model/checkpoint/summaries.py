"""What the checkpoints of a place are, a line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import groupby

from murho.model.checkpoint.checkpoint import FACTS_FILE, CheckpointReference, check_seal
from murho.model.checkpoint.stores import CheckpointStore
from murho.model.errors import CheckpointError
from murho.model.files import parse_json


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """One name of a place of checkpoints; all but ``name``, ``versions`` and ``problem`` are of its latest version.

    Attributes:
        name: Name of the checkpoint.
        versions: Its versions, the latest last; empty if there is none.
        target: The predicted column; None, as the next ones, where the file does not tell.
        unit: Its unit.
        rows: Number of rows learned from.
        crps: CRPS on held-out rows, the target's unit; None for classes.
        created: When it was made, with a time zone.
        problem: Why the latest version can't be used, or None.
        task: ``regression`` or ``classification``.
        log_loss: Log loss on held-out rows, nats; None for numbers.
        accuracy: Share of the held-out rows whose class is the likeliest one; None for numbers.
        held_out: Whether there are held-out rows: without any, the scores are of the training rows.
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
    held_out: bool = True

    def to_json(self) -> dict[str, object]:
        """Return the summary as JSON data."""
        return asdict(self) | {"created": None if self.created is None else self.created.isoformat()}


def summaries(store: CheckpointStore) -> list[CheckpointSummary]:
    """Return the checkpoints of a place, by name.

    Raises:
        CheckpointError: They can't be listed.
    """
    by_name = groupby(store.list(), key=lambda reference: reference.name)
    return [_summary(store, name, [*references]) for name, references in by_name]


def _summary(store: CheckpointStore, name: str, references: Sequence[CheckpointReference]) -> CheckpointSummary:
    good = [reference for reference in references if reference.problem is None]
    versions = tuple(reference.version for reference in good)
    if not good:
        return CheckpointSummary(name, (), problem=references[-1].problem)
    try:
        facts = parse_json(store.read(good[-1], FACTS_FILE))
        check_seal(facts)
        target, training, metrics = facts["schema"]["target"], facts["training"], facts["metrics"]
        return CheckpointSummary(
            name,
            versions,
            task="regression" if target["classes"] is None else "classification",
            target=target["name"],
            unit=target["unit"],
            rows=facts["records"].get("update", training).get("total_rows", training.get("rows")),
            **{score: metrics.get(score) for score in ("crps", "log_loss", "accuracy")},
            held_out=bool(metrics.get("held_out", True)),
            created=datetime.fromisoformat(facts["created"]),
        )
    except CheckpointError as error:
        problem = str(error)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"{FACTS_FILE} is damaged: {error}"
    return CheckpointSummary(name, versions, problem=problem)
