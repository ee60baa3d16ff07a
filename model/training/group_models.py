"""One model a group: train the model of a group, or keep the one that is there, and say what it is worth."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from murho.model.data.reading_inference import hints_of_table
from murho.model.data.schema_inference import require_column
from murho.model.errors import CheckpointError, FitError, OptionError, TableError
from murho.model.posterior.checkpoint import FACTS_FILE, write_checkpoint
from murho.model.posterior.checkpoint_directories import find_checkpoint
from murho.model.runtime.devices import use_threads_for_fitting
from murho.model.training.silence import Silence
from murho.model.training.target_classes import choose_classes

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.training.options import TrainOptions

__all__ = ["KEPT", "LEFT_OUT", "TRAINED", "GroupOutcome", "GroupTask", "decided_for_all", "train_group"]

TRAINED, KEPT, LEFT_OUT = "trained", "kept", "left out"
GROUP_FILE = "group.json"
"""File of a checkpoint that says of which group it is, and of which rows and options."""


@dataclass(frozen=True, slots=True)
class GroupTask:
    """The training of one group's model.

    Attributes:
        value: The value that the group has in the column.
        name: Name of the checkpoint.
        by: The column that names the groups.
        target: The predicted column.
        table: The rows of the group.
        options: Options of the training, those that `decided_for_all` returned.
        least_rows: The fewest rows with a target that are trained on.
        root: Directory of checkpoints.
        device: Device of the fit.
    """

    value: str
    name: str
    by: str
    target: str
    table: pa.Table
    options: TrainOptions
    least_rows: int
    root: Path
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What became of a group.

    Attributes:
        group: The value of the group.
        name: Name of the checkpoint.
        outcome: ``trained``, ``kept`` (it was there already) or ``left out``.
        rows: Rows with a target.
        version: Version of the checkpoint; None without one.
        seconds: Seconds of the training.
        metrics: Scores on held-out rows: ``rmse, r2, crps, coverage_90`` for numbers (calibrated; the target's unit),
            ``accuracy, log_loss`` for classes.
        reason: Why it was left out.
    """

    group: str
    name: str
    outcome: str
    rows: int
    version: str | None = None
    seconds: float | None = None
    metrics: dict[str, float | None] | None = None
    reason: str = ""

    def to_row(self) -> dict[str, Any]:
        """The outcome as one row of a table."""
        row = asdict(self)
        return {**{key: row[key] for key in row if key not in ("metrics", "reason")}, **(self.metrics or {})} | {
            "reason": self.reason
        }


def decided_for_all(table: pa.Table, target: str, options: TrainOptions) -> TrainOptions:
    """The options with what the whole table decides, so that every group is read alike.

    A small group may leave open what the table shows: whether the target is a number or a class, which is the decimal
    mark, whether the day comes first.

    Args:
        table: All groups.
        target: The predicted column.
        options: Validated options.

    Raises:
        TableError: The target can't be used.
    """
    require_column(table, target, "the target")
    hints = hints_of_table(table, decimal=options.decimal, day_first=options.day_first, skip=options.ignore)
    classes = choose_classes(table, target, options, lambda _: None, hints)
    decided = {
        "task": "regression" if classes is None else "classification",
        "decimal": hints.decimal,
        "day_first": hints.day_first,
    }
    return options.model_copy(update=decided)


def train_group(task: GroupTask) -> GroupOutcome:
    """Train the model of a group and write its checkpoint, or keep the one of the same rows and options.

    A table that can't be trained on is a reason to leave the group out, no error.

    Args:
        task: The training.

    Raises:
        CheckpointError: The checkpoint can't be written.
        KeyboardInterrupt: Interrupted; nothing is written.
    """
    column = task.table.column(task.target)
    rows = len(column) - column.null_count
    stamp = _stamp(task)
    there = _there(task, stamp)
    if there is not None:
        return _outcome(task, KEPT, there, rows)
    if rows < task.least_rows:
        few = "1 row has" if rows == 1 else f"{rows} rows have"
        return GroupOutcome(
            task.value, task.name, LEFT_OUT, rows, reason=f"only {few} a target: {task.least_rows} are needed"
        )
    from murho.model.training.train import train

    try:
        with use_threads_for_fitting(task.device):
            trained = train(task.table, task.target, task.options, reporter=Silence(), device=task.device)
    except (TableError, FitError, OptionError) as error:
        return GroupOutcome(task.value, task.name, LEFT_OUT, rows, reason=str(error))
    if trained.spec.training["interrupted"]:
        raise KeyboardInterrupt
    facts = {"by": task.by, "value": task.value, "rows_and_options": stamp}
    extras = {GROUP_FILE: json.dumps(facts, ensure_ascii=False, indent=2).encode()}
    directory = write_checkpoint(task.root, task.name, trained.spec, trained.tensors, extras=extras)
    return _outcome(task, TRAINED, directory, rows)


def _stamp(task: GroupTask) -> str:
    """A hash of all that the model depends on."""
    sink = pa.BufferOutputStream()
    table = task.table.combine_chunks().replace_schema_metadata(None)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    said = json.dumps([task.by, task.target, task.options.model_dump(mode="json")], sort_keys=True)
    return hashlib.sha256(said.encode() + b"\0" + memoryview(sink.getvalue())).hexdigest()


def _there(task: GroupTask, stamp: str) -> Path | None:
    """The latest version of the checkpoint, if it is of these rows and options."""
    try:
        latest = find_checkpoint(task.root, task.name)
        return latest if json.loads((latest / GROUP_FILE).read_bytes())["rows_and_options"] == stamp else None
    except (CheckpointError, OSError, ValueError, KeyError, TypeError):
        return None


def _outcome(task: GroupTask, outcome: str, directory: Path, rows: int) -> GroupOutcome:
    facts = json.loads((directory / FACTS_FILE).read_bytes())
    scores = facts["metrics"]
    if "log_loss" in scores:
        metrics = {key: scores[key] for key in ("accuracy", "log_loss")}
    else:
        metrics = {key: scores[key] for key in ("rmse", "r2", "crps")}
        metrics["coverage_90"] = (scores.get("calibrated") or scores["raw"])["coverage"]["90"]
    seconds = facts["training"]["seconds"] if outcome == TRAINED else None
    return GroupOutcome(task.value, task.name, outcome, rows, directory.name, seconds, metrics)
