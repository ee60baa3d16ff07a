"""The command `murho explain`: what each cell adds to the answer of its row, and which rows to label next.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from murho.cli.shared import (
    CheckpointsOption,
    CsvOption,
    DeviceOption,
    JsonOption,
    RawOption,
    SeedOption,
    VersionOption,
    find_version,
    load_posterior,
    name_of,
    naming,
    open_rows,
    print_json,
    say,
)
from murho.model.errors import TableError
from murho.model.predictive.prediction import DEFAULT_SAMPLES, AnyPrediction, PredictOptions
from murho.model.tables.overrides import AS_IT_IS, FileForm

if TYPE_CHECKING:
    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.why import Explained
    from murho.model.files import JSON

MOST_NUMBERS = 2**26
"""Of the draws of all rows that may be labelled next: half a GiB."""


def explain(
    data: Path,
    model: str | None = None,
    rows: Annotated[int, typer.Option(min=1, help="Most rows to explain, from the first on.")] = 100,
    label_next: Annotated[int | None, typer.Option(min=1, help="List the N rows most worth labelling.")] = None,
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    output: CsvOption = None,
    samples: Annotated[int, typer.Option(min=2, help="Draws behind each answer.")] = DEFAULT_SAMPLES,
    seed: SeedOption = None,
    raw: RawOption = False,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    form: FileForm = AS_IT_IS,
) -> None:
    """Say what each cell adds to the mean and the uncertainty of its row, or which rows to label."""
    _store, directory = find_version(checkpoints, model, version, device)
    table = open_rows(data, directory, form, labelled=False)
    if table.num_rows == 0:
        raise TableError(f"{name_of(data)}: the table has no rows to explain")

    import pyarrow as pa

    from murho.cli.output_files import csv_writer

    options = PredictOptions(samples, percentiles=(), seed=seed, calibrated=not raw and label_next is None)
    posterior = load_posterior(directory, device)
    facts: JSON = {"model": {"name": posterior.name, "version": posterior.version}}
    facts["target"] = posterior.schema.target.name
    with naming(data):
        if label_next is not None:
            columns, document = _to_label(posterior, table, options, label_next)
        else:
            columns, document = _explain(posterior, table.slice(0, rows), options)
    if json:
        print_json(facts | document)
        return
    with csv_writer(output) as write:
        write(pa.table(columns))
    if label_next is None:
        say("(baseline): the prediction without any inputs; below it what each input adds. Variances are squares of")
        say("epistemic_std and aleatoric_std; negative: knowing this input reduces the uncertainty")
    if label_next is None and table.num_rows > rows:
        say(f"note: the first {rows} of {table.num_rows} rows are explained; --rows N for more")


def _explain(posterior: Posterior, table: pa.Table, options: PredictOptions) -> tuple[JSON, JSON]:
    """Columns with a line for each row's baseline and each of its features, and the same as JSON data."""
    import numpy as np

    from murho.model.evaluation.why import explain
    from murho.model.progress import advancing
    from murho.model.tables.schema_inference import columns_from_table

    with advancing("explaining", table.num_rows) as advance:
        found: Explained = explain(posterior, columns_from_table(table, posterior.schema), options, advance)
    why, count = found.why, table.num_rows
    falls = [{cell["feature"]: cell["fall"] for cell in of_row} for of_row in found.worth_asking]
    columns: JSON = {
        "row": np.repeat(np.arange(1, count + 1), 1 + len(why.features)),
        "feature": ["(baseline)", *why.features] * count,
    }
    for name, shares in why.shares.items():
        columns[name] = np.concatenate([why.baseline[name][:, None], shares], axis=1).ravel()
    columns["worth_asking"] = [of_row.get(name) for of_row in falls for name in ("", *why.features)]
    overall = {name: np.abs(shares).mean(axis=0).tolist() for name, shares in why.shares.items()}
    document = {"rows": count, "why": why.document(), "worth_asking": found.worth_asking}
    return columns, document | {"mean_absolute_shares": overall}


def _to_label(posterior: Posterior, table: pa.Table, options: PredictOptions, count: int) -> tuple[JSON, JSON]:
    """Columns with a line for each row to label, the best one first, and the same as JSON data."""
    from dataclasses import replace

    import numpy as np

    from murho.model.evaluation.importance import choose_rows
    from murho.model.evaluation.why import draws_and_noise, rows_to_label
    from murho.model.tables.schema_inference import columns_from_table

    kinds = len(posterior.schema.target.classes or (None,))
    most = max(1, MOST_NUMBERS // (options.samples * kinds))
    chosen = choose_rows(table.num_rows, most, np.random.default_rng(options.seed or 0))
    if len(chosen) < table.num_rows:
        say(f"note: {len(chosen)} of {table.num_rows} rows, taken by chance, are compared")
    columns = columns_from_table(table, posterior.schema, rows=chosen)
    answer: AnyPrediction = posterior.predict(columns, replace(options, draws=True))
    best, left = rows_to_label(*draws_and_noise(answer), min(count, len(chosen)))
    found = {"row": (chosen[best] + 1).tolist(), "epistemic_variance_left": left}
    return found, {"rows": len(chosen), "label_next": found}
