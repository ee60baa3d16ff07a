"""``murho train --by COLUMN``: one model a group, and a table of what each is worth."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from murho.model.commands.shared_options import naming, print_json, print_lines
from murho.model.commands.text_table import table_lines
from murho.model.errors import CheckpointError
from murho.model.runtime.durable_files import replace_durably
from murho.model.runtime.row_progress import advancing
from murho.model.training.group_models import LEFT_OUT, TRAINED, GroupTask, decided_for_all, train_group
from murho.model.training.groups import groups_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from murho.model.training.group_models import GroupOutcome
    from murho.model.training.options import TrainOptions

__all__ = ["Runner", "one_after_the_other", "train_groups"]

Runner: TypeAlias = "Callable[[Iterable[GroupTask]], Iterator[GroupOutcome]]"
"""Runs trainings, in any order; takes the next task only when there is room for it."""
SHOWN = 40
"""Groups of the printed table; the file has all of them."""


def one_after_the_other(tasks: Iterable[GroupTask]) -> Iterator[GroupOutcome]:
    """A `Runner` in this process."""
    return map(train_group, tasks)


def train_groups(
    data: Path,
    target: str,
    by: str,
    name: str,
    checkpoints: Path,
    options: TrainOptions,
    *,
    least_rows: int,
    device: str,
    as_json: bool,
    run: Runner = one_after_the_other,
) -> None:
    """Train a model for each value of a column, and print what each is worth.

    A group whose checkpoint was written from the same rows with the same options keeps it, so that an interrupted run
    goes on where it ended. The table is also written to ``CHECKPOINTS/NAME.groups.csv``, when a run ends or is
    interrupted.

    Args:
        data: The file.
        target: The predicted column.
        by: The column that names the groups.
        name: The beginning of the names of the checkpoints.
        checkpoints: Directory of checkpoints.
        options: Validated options.
        least_rows: The fewest rows with a target that are trained on.
        device: A resolved device.
        as_json: Whether to print one JSON object.
        run: Runs the trainings.

    Raises:
        TableError: The table or a column can't be used; the groups have what is wrong with their own rows as a reason.
    """
    from murho.model.data.tables import read_table

    table = read_table(data)
    with naming(data):
        groups, missing = groups_of(table, by, name)
        decided = decided_for_all(table, target, options)
    if missing:
        sys.stderr.write(f"left out {missing} of {table.num_rows} rows: {by!r} is missing\n")
    root = checkpoints.absolute()
    tasks = (
        GroupTask(group.value, group.name, by, target, table.take(group.rows), decided, least_rows, root, device)
        for group in groups
    )
    outcomes: dict[str, GroupOutcome] = {}
    place = checkpoints / f"{name}.groups.csv"
    try:
        with advancing("training", len(groups), of="groups") as advance:
            for outcome in run(tasks):
                outcomes[outcome.group] = outcome
                advance(1)
    finally:
        ordered = [outcomes[group.value] for group in groups if group.value in outcomes]
        _write(place, ordered)
    if as_json:
        print_json({"by": by, "table": str(place), "groups": [outcome.to_row() for outcome in ordered]})
        return
    print_lines([*_lines(ordered), _summary(ordered), f"table: {place}"])


def _write(place: Path, outcomes: Sequence[GroupOutcome]) -> None:
    rows = [outcome.to_row() for outcome in outcomes]
    names = list(dict.fromkeys(key for row in rows for key in row if key != "reason"))
    text = io.StringIO()
    writer = csv.DictWriter(text, [*names, "reason"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(place, text.getvalue().encode())
    except OSError as error:
        raise CheckpointError(f"{place} can't be written: {error.strerror or error}") from error


def _lines(outcomes: Sequence[GroupOutcome]) -> list[str]:
    scores = list(dict.fromkeys(key for outcome in outcomes for key in outcome.metrics or {}))
    rows = [["group", "checkpoint", "", "rows", *scores]]
    for outcome in outcomes[:SHOWN]:
        if outcome.outcome == LEFT_OUT:
            rows.append([outcome.group, "-", f"{LEFT_OUT}: {outcome.reason}", str(outcome.rows)])
        else:
            values = [_short((outcome.metrics or {}).get(key)) for key in scores]
            rows.append(
                [outcome.group, f"{outcome.name}/{outcome.version}", outcome.outcome, str(outcome.rows), *values]
            )
    more = len(outcomes) - SHOWN
    return [*table_lines(rows), *([f"… and {more} more groups, in the file"] if more > 0 else [])]


def _short(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"


def _summary(outcomes: Sequence[GroupOutcome]) -> str:
    counts = Counter(outcome.outcome for outcome in outcomes)
    parts = [f"{count} {what}" for what, count in sorted(counts.items(), key=lambda item: item[0] != TRAINED)]
    return f"{len(outcomes)} groups: {', '.join(parts)}"
