"""The command `murho evaluate`: scores of a checkpoint on labelled rows.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

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

__all__ = ["evaluate"]


def evaluate(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow or JSON file with the target column.")],
    model: Annotated[str, typer.Option(help="Name of the checkpoint.")],
    checkpoints: CheckpointsOption = Path("checkpoints"),
    version: VersionOption = None,
    weight: Annotated[
        str | None, typer.Option(help="Column with the weights of the rows; rows of weight 0 are left out.")
    ] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Judge a checkpoint on labelled rows."""
    from murho.model.commands.class_evaluation_report import class_report_lines
    from murho.model.commands.evaluation_report import report_lines
    from murho.model.data.tables import read_table
    from murho.model.evaluation.evaluate import evaluate_table
    from murho.model.posterior.checkpoint import find_checkpoint
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.devices import resolve_device, use_threads_for_answering
    from murho.model.runtime.row_progress import advancing

    use_threads_for_answering()
    posterior = Posterior.load(find_checkpoint(checkpoints, model, version), resolve_device(device))
    table = read_table(data)
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
    target = posterior.schema.target
    lines = report_lines(report, target.unit) if target.classes is None else class_report_lines(report)
    print_lines([title, *lines])
