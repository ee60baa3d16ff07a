"""The command `murho prune`: the next version of a checkpoint, without the weights of the lowest signal-to-noise ratio.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murho.cli.shared import (
    CheckpointsOption,
    JsonOption,
    ReportOption,
    ReportRowsOption,
    VersionOption,
    find_version,
    naming,
    open_rows,
    say_left_out,
)
from murho.model.tables.overrides import AS_IT_IS, FileForm


def prune(
    name: str | None,
    fraction: Annotated[float, typer.Option(help="Share of the weights to remove, between 0 and 1.")],
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Labelled rows that it has not learned from, for scores and a new calibration."),
    ] = None,
    report: ReportOption = True,
    report_rows: ReportRowsOption = True,
    json: JsonOption = False,
    form: FileForm = AS_IT_IS,
) -> None:
    """Remove the weights with the lowest signal-to-noise ratio; writes the next version."""
    # First what can be said at once; then the imports that take seconds.
    store, source = find_version(checkpoints, name, version)
    store.check_writable(source.parent.name)
    table = None if data is None else open_rows(data, source, form, labelled=True)
    from murho.cli.revision import finish_revision
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.training.pruning import prune as prune_posterior
    from murho.model.training.revisions import labelled_rows

    old = Posterior.load(source)
    rows = None
    if data is not None and table is not None:
        with naming(data):
            rows = labelled_rows(table, old)
        say_left_out(rows.left_out, old)
    pruned = prune_posterior(old, fraction, rows)
    finish_revision(store, source, pruned, rows, report=report, report_rows=report_rows, json=json)
