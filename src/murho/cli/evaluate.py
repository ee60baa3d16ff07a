"""The command `murho evaluate`: scores of a checkpoint on labelled rows.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    ModelOption,
    VersionOption,
    naming,
    only_checkpoint,
    print_json,
    print_lines,
)

__all__ = ["evaluate"]


def evaluate(
    data: Annotated[Path, typer.Argument(help="File with the target column: CSV, Parquet, Arrow, JSON or Excel.")],
    model: ModelOption = None,
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    weight: Annotated[
        str | None, typer.Option(help="Column with the weights of the rows; rows of weight 0 are left out.")
    ] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Judge a checkpoint on labelled rows."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.runtime import check_device, resolve_device, use_threads_for_answering
    from murho.model.tables.files import require_file

    # First what can be said at once; then the imports that take seconds.
    check_device(device)
    store = store_at(checkpoints)
    directory = store.find(model or only_checkpoint(store), version)
    require_file(data)
    from murho.cli.shared import check_first_rows
    from murho.model.tables.files import open_table

    table = open_table(data)
    with naming(data):
        check_first_rows(table, directory, labelled=True)
    from murho.cli.evaluation_report import report_lines
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.evaluate import evaluate_table
    from murho.model.progress import advancing

    use_threads_for_answering()
    posterior = Posterior.load(directory, resolve_device(device))
    with naming(data), advancing("judging", table.num_rows) as advance:
        report = evaluate_table(posterior, table, weight=weight, advance=advance)
    left_out = report.pop("left_out")
    if left_out:
        or_weight = "" if weight is None else f" or of {weight!r} 0"
        sys.stderr.write(f"left out {left_out} rows without a value of {posterior.schema.target.name!r}{or_weight}\n")
    if json:
        print_json(report)
        return
    title = f"{posterior.name} version {posterior.version} on {report['n']} rows"
    print_lines([title, *report_lines(report, posterior.schema.target.unit)])
