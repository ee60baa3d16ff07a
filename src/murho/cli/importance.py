"""The command `murho importance`: which features the answers depend on, by shuffling the cells of each.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

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
    say_left_out,
    table_lines,
)
from murho.model.errors import TableError
from murho.model.tables.overrides import AS_IT_IS, FileForm


def importance(
    name: str | None,
    data: Annotated[Path, typer.Argument(help="Labelled rows, best those that it has not learned from")],
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    repeats: Annotated[int, typer.Option(min=1, help="Shuffles of each feature.")] = 5,
    rows: Annotated[int, typer.Option(min=2, help="Most rows to use; of more, some are taken by chance.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the rows and of the shuffles.")] = 0,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    form: FileForm = AS_IT_IS,
) -> None:
    """Show which features matter for the mean, for the score and for the doubt."""
    # First what can be said at once; then the imports that take seconds.
    _store, directory = find_version(checkpoints, name, version, device)
    table = open_rows(data, directory, form, labelled=True)
    import numpy as np

    from murho.model.evaluation.importance import choose_rows, permutation_importance
    from murho.model.progress import advancing
    from murho.model.tables.schema_inference import columns_from_table, read_targets

    posterior = load_posterior(directory, device)
    schema = posterior.schema
    with naming(data):
        targets = read_targets(table, schema.target)
        labelled = np.flatnonzero(~np.isnan(targets))
        if len(labelled) < 2:
            raise TableError(f"importance needs at least 2 rows with a value of {schema.target.name!r}")
        generator = np.random.default_rng(seed)
        chosen = labelled[choose_rows(len(labelled), rows, generator)]  # of the others no cell is looked at
        columns = columns_from_table(table, schema, rows=chosen)
    with advancing("shuffling", len(chosen) * repeats * len(schema.features)) as advance:
        found = permutation_importance(
            posterior, columns, targets[chosen], repeats=repeats, most_rows=rows, seed=generator, advance=advance
        )
    say_left_out(len(targets) - len(labelled), posterior)
    if json:
        print_json({"model": posterior.name, "version": posterior.version, **found})
        return
    title = f"{posterior.name} version {posterior.version}: {found['rows']} rows, each feature shuffled {repeats} times"
    print_lines([title, "", *_lines(found, schema.target.unit), "", "± is one standard error."])


def _lines(found: Mapping[str, Any], unit: str | None) -> list[str]:
    from murho.model.evaluation.summary import plus_minus
    from murho.model.report.charts import MEASURES, ordered_features

    measures = found["measures"]
    rows = [["feature", *(MEASURES[measure] for measure in measures)]]
    for feature in ordered_features(found):
        cells = [plus_minus(feature[name]["value"], feature[name]["standard_error"]) for name in measures]
        rows.append([feature["name"], *cells])
    return [*table_lines(rows), *([] if unit is None else [f"In {unit}."])]
