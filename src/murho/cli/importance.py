"""The command `murho importance`: which features the answers depend on, by shuffling the cells of each.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    NameArgument,
    VersionOption,
    naming,
    print_json,
    print_lines,
)
from murho.model.errors import OptionError, TableError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "importance",
]


def importance(
    name: NameArgument,
    data: Annotated[Path, typer.Argument(help="Labelled rows, best those that it has not learned from.")],
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    repeats: Annotated[int, typer.Option(help="Shuffles of each feature.")] = 5,
    rows: Annotated[int, typer.Option(help="Most rows to use; of more, some are taken by chance.")] = 1_000,
    seed: Annotated[int, typer.Option(help="Seed of the rows and of the shuffles.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="PNG file for the chart; needs the extra 'charts'.")] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Show which features matter for the mean, for the score and for the doubt."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.runtime import check_device, resolve_device, use_threads_for_answering
    from murho.model.tables.files import require_file

    # First what can be said at once; then the imports that take seconds.
    check_device(device)
    for option, value, least in (("--repeats", repeats, 1), ("--rows", rows, 2)):
        if value < least:
            raise OptionError(f"{option} must be at least {least}, not {value}")
    store = store_at(checkpoints)
    directory = store.find(name, version)
    require_file(data)
    if figure is not None:
        from murho.cli.figures import check_figure

        check_figure(figure)
    import numpy as np

    from murho.cli.shared import check_first_rows
    from murho.model.tables.columns import rows_of
    from murho.model.tables.files import open_table
    from murho.model.tables.schema_inference import columns_from_table, read_targets

    table = open_table(data)
    with naming(data):
        check_first_rows(table, directory, labelled=True)
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.importance import choose_rows, permutation_importance
    from murho.model.progress import advancing

    use_threads_for_answering()
    posterior = Posterior.load(directory, resolve_device(device))
    schema = posterior.schema
    with naming(data):
        targets = read_targets(table, schema.target)
        labelled = np.flatnonzero(~np.isnan(targets))
        if len(labelled) < 2:
            raise TableError(f"importance needs at least 2 rows with a value of {schema.target.name!r}")
        generator = np.random.default_rng(seed)
        chosen = labelled[choose_rows(len(labelled), rows, generator)]  # of the others no cell is looked at
        columns = columns_from_table(rows_of(table, chosen), schema)
    work = len(chosen) * repeats * len(schema.features)
    with advancing("shuffling", work) as advance:
        found = permutation_importance(
            posterior, columns, targets[chosen], repeats=repeats, most_rows=rows, seed=generator, advance=advance
        )
    if len(labelled) < len(targets):
        sys.stderr.write(f"left out {len(targets) - len(labelled)} rows without a value of {schema.target.name!r}\n")
    if figure is not None:
        from murho.cli.figures import draw_figure
        from murho.model.report.charts import importance_chart

        draw_figure(importance_chart(found, schema.target.unit), figure)
    if json:
        print_json({"model": posterior.name, "version": posterior.version, **found})
        return
    title = f"{posterior.name} version {posterior.version}: {found['rows']} rows, each feature shuffled {repeats} times"
    drawn = [] if figure is None else [f"drew {figure}"]
    print_lines([title, "", *_lines(found, schema.target.unit), "", "± is one standard error.", *drawn])


def _lines(found: Mapping[str, Any], unit: str | None) -> list[str]:
    from murho.cli.shared import table_lines
    from murho.model.evaluation.summary import plus_minus
    from murho.model.report.charts import MEASURES, ordered_features

    measures = found["measures"]
    rows = [["feature", *(MEASURES[measure] for measure in measures)]]
    for feature in ordered_features(found):
        cells = [plus_minus(feature[name]["value"], feature[name]["standard_error"]) for name in measures]
        rows.append([feature["name"], *cells])
    of_unit = [] if unit is None else [f"In {unit}."]
    return [*table_lines(rows), *of_unit]
