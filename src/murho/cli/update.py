"""The command `murho update`: the next version of a checkpoint, after learning from new rows.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    ReportOption,
    ReportRowsOption,
    VersionOption,
    find_version,
    naming,
    open_rows,
    say,
    say_left_out,
)
from murho.model.tables.overrides import AS_IT_IS, FileForm

if TYPE_CHECKING:
    from collections.abc import Collection

    from murho.model.training.revisions import LabelledRows


def update(
    name: str | None,
    data: Annotated[Path, typer.Argument(help="New labelled rows")],
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs; by default as many as 2000 steps.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="First learning rate.  [default: 0.005]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the update.  [default: the checkpoint's own]")] = None,
    report: ReportOption = True,
    report_rows: ReportRowsOption = True,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    form: FileForm = AS_IT_IS,
) -> None:
    """Learn from new rows with the posterior as the prior; writes the next version."""
    from murho.model.training.options import UpdateOptions, validate_options

    # First what can be said at once; then the imports that take seconds.
    given = {"epochs": epochs, "learning_rate": learning_rate, "seed": seed}
    options = validate_options(UpdateOptions, {name: value for name, value in given.items() if value is not None})
    store, source = find_version(checkpoints, name, version, device)
    store.check_writable(source.parent.name)
    table = open_rows(data, source, form, labelled=True)
    from murho.cli.revision import finish_revision
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.python.terminal_reporter import TerminalReporter
    from murho.model.runtime import resolve_device
    from murho.model.training.revisions import labelled_rows
    from murho.model.training.updating import update as update_posterior

    resolved = resolve_device(device)
    old = Posterior.load(source)
    with naming(data):
        rows = labelled_rows(table, old)
    say_left_out(rows.left_out, old)
    _say_outside(rows, old.encoder.unread)
    with TerminalReporter() as reporter:
        updated = update_posterior(old, rows, options, reporter=reporter, device=resolved)
    finish_revision(store, source, updated, rows, report=report, report_rows=report_rows, json=json)


def _say_outside(rows: LabelledRows, unread: Collection[str]) -> None:
    for feature, count in rows.outside.items():
        learned = (
            "the checkpoint does not read this feature, so the update learns nothing of it"
            if feature in unread
            else "the update learns from them, and the epistemic uncertainty there shrinks"
        )
        say(
            f"note: {feature!r} is unlike the training rows (beyond their range, or unseen) in {count} of "
            f"{len(rows)} rows: {learned}"
        )
