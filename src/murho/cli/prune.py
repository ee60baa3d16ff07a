"""The command `murho prune`: the next version of a checkpoint, without the weights of the lowest signal-to-noise ratio.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from murho.cli.shared import (
    CheckpointsOption,
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

__all__ = [
    "prune",
]


def prune(
    name: NameArgument,
    fraction: Annotated[float, typer.Option(help="Share of the weights to remove, between 0 and 1.")],
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Labelled rows that it has not learned from, for scores and a new calibration."),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="PNG file for the histogram; needs the extra 'charts'.")] = None,
    report: ReportOption = True,
    report_rows: ReportRowsOption = True,
    json: JsonOption = False,
) -> None:
    """Remove the weights with the lowest signal-to-noise ratio; writes the next version."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.tables.files import require_file

    # First what can be said at once; then the imports that take seconds.
    store = store_at(checkpoints)
    source = store.find(name, version)
    if data is not None:
        require_file(data)
    store.check_writable(name)
    from murho.cli.figures import check_figure, draw_figure

    if figure is not None:
        check_figure(figure)
    table = None if data is None else read_rows_for(source, data)
    from murho.cli.revision import pruned_lines, report_line, write_revision
    from murho.model.report.facts import report_facts
    from murho.model.report.files import revision_report
    from murho.model.training.pruning import prune as prune_revision
    from murho.model.training.revisions import Revision

    revision = Revision.read(source)
    rows = None if data is None else labelled_rows_of(table, data, revision.posterior)
    pruned = prune_revision(revision, fraction, rows)
    written = pruned.revision

    def make_report() -> dict[str, bytes]:
        before = report_facts(source, revision.spec)
        return revision_report(name, "pruning", pruned, rows, before, with_rows=report_rows)

    made = write_revision(store, name, written, make_report if report else None)
    if figure is not None:
        from murho.model.report.charts import pruning_chart

        draw_figure(pruning_chart(pruned.cut.to_json(), f"{name}, version {revision.posterior.version}"), figure)
    if json:
        print_revision(made, written, "pruning")
        return
    lines = pruned_lines(pruned, written.posterior.schema.target.unit)
    drawn = [] if figure is None else [f"drew {figure}"]
    print_lines([*lines, f"saved {made.address}", *drawn, *report_line(made)])
