"""The command `murho update`: the next version of a checkpoint, after learning from new rows.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    NameArgument,
    ReportOption,
    ReportRowsOption,
    VersionOption,
    labelled_rows_of,
    print_lines,
    print_revision,
    read_rows_for,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from murho.model.training.revisions import LabelledRows

__all__ = [
    "update",
]


def update(
    name: NameArgument,
    data: Annotated[Path, typer.Argument(help="New labelled rows: CSV, Parquet, Arrow, JSON or Excel file.")],
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs; by default as many as 2000 steps.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="First learning rate.  [default: 0.005]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the update.  [default: the checkpoint's own]")] = None,
    report: ReportOption = True,
    report_rows: ReportRowsOption = True,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Learn from new rows with the posterior as the prior; writes the next version."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.runtime import check_device, resolve_device, use_threads_for_fitting
    from murho.model.tables.files import require_file
    from murho.model.training.options import UPDATE_LEARNING_RATE, UpdateOptions

    # First what can be said at once; then the imports that take seconds.
    options = UpdateOptions(epochs, UPDATE_LEARNING_RATE if learning_rate is None else learning_rate, seed)
    check_device(device)
    store = store_at(checkpoints)
    source = store.find(name, version)
    require_file(data)
    store.check_writable(name)
    table = read_rows_for(source, data)
    from murho.cli.revision import report_line, updated_lines, write_revision
    from murho.model.python.progress import TerminalReporter
    from murho.model.report.facts import report_facts
    from murho.model.report.files import revision_report
    from murho.model.training.revisions import Revision
    from murho.model.training.updating import update as update_revision

    resolved = resolve_device(device)
    revision = Revision.read(source)
    rows = labelled_rows_of(table, data, revision.posterior)
    _say_outside(rows, revision.posterior.encoder.unread)
    with use_threads_for_fitting(resolved), TerminalReporter() as reporter:
        updated = update_revision(revision, rows, options, reporter=reporter, device=resolved)
    written = updated.revision

    def make_report() -> dict[str, bytes]:
        before, history = report_facts(source, revision.spec), updated.history
        return revision_report(name, "update", updated, rows, before, history=history, with_rows=report_rows)

    made = write_revision(store, name, written, make_report if report else None)
    if json:
        print_revision(made, written, "update")
        return
    interrupted = " (interrupted)" if written.spec.records["update"]["interrupted"] else ""
    lines = updated_lines(updated, written.posterior.schema.target.unit)
    print_lines([*lines, f"saved {made.address}{interrupted}", *report_line(made)])


def _say_outside(rows: LabelledRows, unread: Collection[str]) -> None:
    for feature, count in rows.outside.items():
        learned = (
            "the checkpoint does not read this feature, so the update learns nothing of it"
            if feature in unread
            else "the update learns from them, and the epistemic uncertainty there shrinks"
        )
        sys.stderr.write(
            f"note: {feature!r} is unlike the training rows (beyond their range, or unseen) in {count} of "
            f"{len(rows)} rows: {learned}\n"
        )
