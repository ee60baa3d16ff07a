"""The command `murho predict --engine ray`: scores data sets larger than memory, into a directory of Parquet files.

Imports of numpy, torch and Ray wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import Annotated, Any

import typer

from murho.cli.predict import read_asked, say_unusual_rows, with_predict_options
from murho.cli.shared import CheckpointsOption, DeviceOption, ModelOption, VersionOption, only_checkpoint

__all__ = ["predict"]


@with_predict_options
def predict(
    data: Annotated[list[Path], typer.Argument(help="CSV or Parquet files, or directories of them.")],
    output: Annotated[
        Path, typer.Option(help="Directory for the Parquet files: new, or of the same job, interrupted before.")
    ],
    model: ModelOption = None,
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers, each with one processor; by default as many as there are.")
    ] = None,
    rows_per_part: Annotated[int, typer.Option(min=1, help="Rows of each Parquet file, at most.")] = 2**17,
    device: DeviceOption = "cpu",
    engine: Annotated[str, typer.Option("--engine", hidden=True)] = "ray",  # noqa: ARG001 - has chosen this function
    **given: Any,
) -> None:
    """Score data sets larger than memory with Ray, into a directory of Parquet files."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.progress import advancing
    from murho.model.runtime import check_device
    from murho.ray.library import ray_running, require_ray
    from murho.ray.scoring import Scoring
    from murho.ray.scoring_job import prepare_job, schema_of_checkpoint

    asked = read_asked(**given)
    check_device(device)
    store = store_at(checkpoints)
    directory = store.find(model or only_checkpoint(store), version)
    asked.require_fitting(schema_of_checkpoint(directory))
    require_ray()
    scoring = Scoring(directory, asked.options, device=device, warnings=asked.warnings, keep_inputs=asked.keep_inputs)
    # The tables are checked before Ray is started: a mistake is answered at once.
    job = prepare_job(data, output, scoring, rows_per_piece=rows_per_part)
    with ray_running(workers), advancing("scoring", job.rows) as advance:
        outcome = job.run(workers, advance)
    rows = f"{outcome.rows:,} rows in {outcome.parts} files: {output}\n"
    sys.stderr.write(rows)
    say_unusual_rows(outcome.unlike, outcome.imputed, warnings=asked.warnings)
