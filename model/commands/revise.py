"""The commands `prune` and `update`: each makes the next version of a checkpoint from one that is there.

Imports of numpy and torch wait until a command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from murho.model.commands.shared_options import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    VersionOption,
    naming,
    print_json,
    print_lines,
)

if TYPE_CHECKING:
    from murho.model.posterior.posterior import Posterior
    from murho.model.revision.revisions import LabelledRows, Revision

__all__ = ["prune", "update"]

NameArgument = Annotated[str, typer.Argument(help="Name of the checkpoint.")]


def prune(
    name: NameArgument,
    fraction: Annotated[float, typer.Option(help="Share of the weights to remove, between 0 and 1.")],
    checkpoints: CheckpointsOption = Path("checkpoints"),
    version: VersionOption = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Labelled rows that it has not learned from: judges by them, and calibrates anew."),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="PNG file for the histogram; needs the extra 'charts'.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Remove the weights with the lowest signal-to-noise ratio; writes the next version."""
    from murho.model.commands.pruning_figure import check_figure, draw
    from murho.model.commands.revision_report import pruned_lines
    from murho.model.posterior.checkpoint import check_writable, find_checkpoint, write_checkpoint
    from murho.model.revision.pruning import prune as prune_revision
    from murho.model.revision.revisions import Revision

    if figure is not None:
        check_figure(figure)
    revision = Revision.read(find_checkpoint(checkpoints, name, version))
    check_writable(checkpoints, name)
    rows = None if data is None else _read_rows(data, revision.posterior)
    pruned = prune_revision(revision, fraction, rows)
    written = pruned.revision
    directory = write_checkpoint(checkpoints, name, written.spec, written.tensors)
    if figure is not None:
        draw(pruned.cut, f"{name}, version {revision.posterior.version}", figure)
    if json:
        _print_facts(directory, written, "pruning")
        return
    lines = pruned_lines(pruned, written.posterior.schema.target.unit)
    print_lines([*lines, f"saved {directory}", *([] if figure is None else [f"drew {figure}"])])


def update(
    name: NameArgument,
    data: Annotated[Path, typer.Argument(help="New labelled rows: CSV, Parquet, Arrow or JSON file.")],
    checkpoints: CheckpointsOption = Path("checkpoints"),
    version: VersionOption = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs; by default as many as 2000 steps.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="First learning rate.  [default: 0.005]")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the update.  [default: the checkpoint's own]")
    ] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Learn from new rows with the posterior as the prior; writes the next version."""
    from murho.model.commands.revision_report import updated_lines
    from murho.model.commands.training_progress import TerminalReporter
    from murho.model.posterior.checkpoint import check_writable, find_checkpoint, write_checkpoint
    from murho.model.revision.revisions import Revision
    from murho.model.revision.update_fit import LEARNING_RATE, UpdateOptions
    from murho.model.revision.updating import update as update_revision
    from murho.model.runtime.devices import resolve_device, use_threads_for_fitting

    options = UpdateOptions(epochs, LEARNING_RATE if learning_rate is None else learning_rate, seed)
    resolved = resolve_device(device)
    revision = Revision.read(find_checkpoint(checkpoints, name, version))
    check_writable(checkpoints, name)
    rows = _read_rows(data, revision.posterior)
    _say_outside(rows)
    with use_threads_for_fitting(resolved):
        updated = update_revision(revision, rows, options, reporter=TerminalReporter(), device=resolved)
    written = updated.revision
    directory = write_checkpoint(checkpoints, name, written.spec, written.tensors)
    if json:
        _print_facts(directory, written, "update")
        return
    interrupted = " (interrupted)" if written.spec.records["update"]["interrupted"] else ""
    lines = updated_lines(updated, written.posterior.schema.target.unit)
    print_lines([*lines, f"saved {directory}{interrupted}"])


def _read_rows(data: Path, posterior: Posterior) -> LabelledRows:
    from murho.model.data.tables import read_table
    from murho.model.revision.revisions import labelled_rows

    table = read_table(data)
    with naming(data):
        rows = labelled_rows(table, posterior)
    if rows.left_out:
        sys.stderr.write(
            f"left out {rows.left_out} rows without a value of {posterior.schema.target.name!r}\n"
        )
    return rows


def _say_outside(rows: LabelledRows) -> None:
    for feature, count in rows.outside.items():
        sys.stderr.write(
            f"note: {feature!r} is unlike the training rows (beyond their range, in a gap, or unseen) in {count} of "
            f"{len(rows)} rows: they teach it what to expect there, and its doubt shrinks\n"
        )


def _print_facts(directory: Path, written: Revision, which: str) -> None:
    print_json(
        {
            "checkpoint": str(directory),
            "name": directory.parent.name,
            "version": directory.name,
            which: written.spec.records[which],
            "metrics": written.spec.metrics,
        }
    )
