"""The command `murho predict --engine ray`: scores data sets larger than memory, into a directory of Parquet files.

Imports of numpy, torch and Ray wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import Annotated

import typer

from murho.model.commands.shared_options import (
    CheckpointsOption,
    DeviceOption,
    ModelOption,
    VersionOption,
    only_checkpoint,
)
from murho.model.engines.prediction import DEFAULT_COVERAGE, DEFAULT_PERCENTILES, DEFAULT_SAMPLES, PredictOptions

__all__ = ["predict"]


def predict(
    data: Annotated[list[Path], typer.Argument(help="CSV or Parquet files, or directories of them.")],
    output: Annotated[
        Path, typer.Option(help="Directory for the Parquet files: new, or of the same job, interrupted before.")
    ],
    model: ModelOption = None,
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Draws behind each answer; 0: the mean, or the probabilities, alone.")
    ] = DEFAULT_SAMPLES,
    percentiles: Annotated[
        str | None, typer.Option(help="Levels of the percentile columns, for a number.  [default: 5,50,95]")
    ] = None,
    thresholds: Annotated[
        str | None,
        typer.Option(help="Values such as 20,30: columns exceedance_20, … with the probability of more than that."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="How often the prediction set holds the class, as a share.  [default: 0.9]"),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of the draws.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Leave std, percentiles, probabilities as they are before calibration.")
    ] = False,
    noise: Annotated[
        bool, typer.Option("--noise/--no-noise", help="Describe a new observation, or the function alone.")
    ] = True,
    draws: Annotated[
        bool, typer.Option("--draws", help="Add a column draws: a list of the function values of all draws.")
    ] = False,
    mc_error: Annotated[
        bool, typer.Option("--mc-error", help="Add standard errors that come from the finite number of draws.")
    ] = False,
    warnings: Annotated[
        bool, typer.Option("--warnings", help="Add a column warnings: which features of a row are unusual, and why.")
    ] = False,
    keep_inputs: Annotated[bool, typer.Option("--keep-inputs", help="Put the input columns first.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers, each with one processor; by default as many as there are.")
    ] = None,
    rows_per_part: Annotated[int, typer.Option(min=1, help="Rows of each Parquet file, at most.")] = 2**17,
    device: DeviceOption = "cpu",
    engine: Annotated[str, typer.Option("--engine", hidden=True)] = "ray",  # noqa: ARG001 - has chosen this function
) -> None:
    """Score data sets larger than memory with Ray, into a directory of Parquet files."""
    from murho.model.commands.answer_options import read_coverage, read_levels, read_thresholds, require_options
    from murho.model.commands.predict import say_notes
    from murho.model.runtime.devices import check_device
    from murho.model.runtime.row_progress import advancing
    from murho.model.storage.stores import store_at
    from murho.ray.library import ray_running, require_ray
    from murho.ray.scoring import Scoring
    from murho.ray.scoring_job import prepare_job, schema_of_checkpoint

    options = PredictOptions(
        samples=samples,
        percentiles=DEFAULT_PERCENTILES if percentiles is None else read_levels(percentiles),
        seed=seed,
        noise=noise,
        thresholds=() if thresholds is None else read_thresholds(thresholds),
        draws=draws,
        calibrated=not raw,
        mc_error=mc_error,
        coverage=DEFAULT_COVERAGE if coverage is None else read_coverage(coverage),
    )
    check_device(device)
    store = store_at(checkpoints)
    directory = store.find(model or only_checkpoint(store), version)
    require_options(
        schema_of_checkpoint(directory),
        percentiles=percentiles is not None,
        coverage=coverage is not None,
        thresholds=thresholds is not None,
        no_noise=not noise,
    )
    require_ray()
    scoring = Scoring(directory, options, device=device, warnings=warnings, keep_inputs=keep_inputs)
    # The tables are checked before Ray is started: a mistake is answered at once.
    job = prepare_job(data, output, scoring, rows_per_piece=rows_per_part)
    with ray_running(workers), advancing("scoring", job.rows) as advance:
        outcome = job.run(workers, advance)
    rows = f"{outcome.rows:,} rows in {outcome.parts} files: {output}\n"
    sys.stderr.write(rows)
    say_notes(outcome.unlike, outcome.imputed, warnings=warnings)
