"""The command `murho evaluate`: scores of a checkpoint on labelled rows.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    VersionOption,
    find_version,
    load_posterior,
    naming,
    open_rows,
    print_json,
    print_lines,
    say,
    say_left_out,
)
from murho.model.tables.overrides import AS_IT_IS, FileForm


def evaluate(
    data: Annotated[Path, typer.Argument(help="Rows with the target column")],
    model: str | None = None,
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    weight: Annotated[
        str | None, typer.Option(help="Column with the weights of the rows; rows of weight 0 are left out.")
    ] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    form: FileForm = AS_IT_IS,
) -> None:
    """Judge a checkpoint on labelled rows."""
    # First what can be said at once; then the imports that take seconds.
    _store, directory = find_version(checkpoints, model, version, device)
    table = open_rows(data, directory, form, labelled=True)
    from murho.cli.evaluation_report import report_lines
    from murho.model.evaluation.judging import evaluate_table
    from murho.model.evaluation.summary import verdict
    from murho.model.progress import advancing

    posterior = load_posterior(directory, device)
    with naming(data), advancing("judging", table.num_rows) as advance:
        report = evaluate_table(posterior, table, weight=weight, advance=advance)
    say_left_out(report.pop("left_out"), posterior, "" if weight is None else f" or of {weight!r} 0")
    if json:
        print_json(report)
        return
    title = f"{posterior.name} version {posterior.version} on {report['n']} rows"
    unit = posterior.schema.target.unit
    print_lines([title, f"verdict: {verdict(report, unit)}", *report_lines(report, unit)])
    if report["n"] == posterior.facts["training"]["rows"]:
        say("note: as many rows as in training; if they are the same, these scores are too good")
