"""The command `murho prune`: the next version of a checkpoint, without the weights of the lowest signal-to-noise ratio.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murho.model.commands.shared_options import (
    CheckpointsOption,
    JsonOption,
    NameArgument,
    VersionOption,
    labelled_rows_of,
    print_lines,
    print_revision,
    read_rows_for,
)

__all__ = ["prune"]


def prune(
    name: NameArgument,
    fraction: Annotated[float, typer.Option(help="Share of the weights to remove, between 0 and 1.")],
    checkpoints: CheckpointsOption = Path("checkpoints"),
    version: VersionOption = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Labelled rows that it has not learned from, for scores and a new calibration."),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="PNG file for the histogram; needs the extra 'charts'.")] = None,
    json: JsonOption = False,
) -> None:
    """Remove the weights with the lowest signal-to-noise ratio; writes the next version."""
    from murho.model.data.file_checks import require_file
    from murho.model.posterior.checkpoint import check_writable, find_checkpoint, write_checkpoint

    # First what can be said at once; then the imports that take seconds.
    directory = find_checkpoint(checkpoints, name, version)
    if data is not None:
        require_file(data)
    check_writable(checkpoints, name)
    from murho.model.commands.pruning_figure import check_figure, draw

    if figure is not None:
        check_figure(figure)
    table = None if data is None else read_rows_for(directory, data)
    from murho.model.commands.revision_report import pruned_lines
    from murho.model.revision.pruning import prune as prune_revision
    from murho.model.revision.revisions import Revision

    revision = Revision.read(directory)
    rows = None if data is None else labelled_rows_of(table, data, revision.posterior)
    pruned = prune_revision(revision, fraction, rows)
    written = pruned.revision
    directory = write_checkpoint(checkpoints, name, written.spec, written.tensors)
    if figure is not None:
        draw(pruned.cut, f"{name}, version {revision.posterior.version}", figure)
    if json:
        print_revision(directory, written, "pruning")
        return
    lines = pruned_lines(pruned, written.posterior.schema.target.unit)
    print_lines([*lines, f"saved {directory}", *([] if figure is None else [f"drew {figure}"])])
