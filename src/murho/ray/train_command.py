"""The command `murho train --by COLUMN --engine ray`: many small models as tasks of Ray.

Imports of numpy, torch and Ray wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it
from typing import Annotated, Any

import typer

from murho.model.commands.shared_options import CheckpointsOption, JsonOption, LeastRowsOption, local_directory
from murho.model.commands.train import train_settings
from murho.model.commands.train_options import with_train_options

__all__ = ["train"]


@with_train_options
def train(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, JSON or Excel file; .gz and .zip, too.")],
    *,
    by: Annotated[str, typer.Option(help="Column of groups, such as stores: a model for each, named NAME-GROUP.")],
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Beginning of the checkpoints' names; by default that of the file.")
    ] = None,
    checkpoints: CheckpointsOption = "checkpoints",
    config: Annotated[Path | None, typer.Option(help="TOML file with options, and kinds and units of columns.")] = None,
    least_rows: LeastRowsOption = 30,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time, each on one processor; by default as many as fit.")
    ] = None,
    json: JsonOption = False,
    engine: Annotated[str, typer.Option("--engine", hidden=True)] = "ray",  # noqa: ARG001 - has chosen this function
    **given: Any,
) -> None:
    """Fit a model for each group of a table, many at a time, with Ray."""
    from murho.model.data.file_checks import require_file
    from murho.ray.library import require_ray

    column, chosen_name, options = train_settings(data, target, name, config, given)
    require_file(data)
    require_ray()
    from murho.model.commands.train_groups import train_groups
    from murho.ray.group_tasks import as_tasks

    train_groups(
        *(data, column, by, chosen_name, local_directory(checkpoints), options),
        least_rows=least_rows,
        device="cpu",
        as_json=json,
        run=as_tasks(workers),
    )
