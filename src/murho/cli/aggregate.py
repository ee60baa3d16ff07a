"""The command `murho aggregate`: sums, means and counts over the rows of a file, with error bars.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.cli.shared import (
    CheckpointsOption,
    CsvOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    PercentilesOption,
    RawOption,
    SamplesOption,
    SeedOption,
    ThresholdsOption,
    VersionOption,
    WorkersOption,
    check_engine,
    find_version,
    load_posterior,
    naming,
    open_rows,
    prediction_options,
    print_json,
    say,
)
from murho.model.predictive.prediction import DEFAULT_SAMPLES, PredictOptions
from murho.model.tables.overrides import AS_IT_IS, FileForm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from murho.model.predictive.totals import TotalsAnswer


def aggregate(
    data: Path,
    model: str | None = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Column whose cells say which rows belong together; again for several.", metavar="COLUMN"),
    ] = None,
    statistic: Annotated[
        str | None, typer.Option(help="sum, mean or count_above; of classes count.  [default: sum, or count]")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Of count_above, in the target's unit.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="Column of numbers that rows are multiplied by: quantities.", metavar="COLUMN")
    ] = None,
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    output: CsvOption = None,
    samples: SamplesOption = DEFAULT_SAMPLES,
    percentiles: PercentilesOption = None,
    thresholds: ThresholdsOption = None,
    seed: SeedOption = None,
    raw: RawOption = False,
    device: DeviceOption = "auto",
    form: FileForm = AS_IT_IS,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    json: JsonOption = False,
) -> None:
    """Add up predictions: a sum, a mean or a count for each group of rows, with error bars."""
    from murho.model.python.table_scoring import stored_schema

    of = prediction_options(percentiles, thresholds, raw=raw, samples=samples, seed=seed)
    check_engine(engine)
    _store, directory = find_version(checkpoints, model, version, device)
    schema = stored_schema(directory)
    table = open_rows(data, directory, form, labelled=False)

    from murho.model.predictive.compiled_engine import engine_worth
    from murho.model.predictive.totals import Totals, TotalsOptions, default_statistic
    from murho.model.progress import advancing
    from murho.model.python.table_scoring import score_blocks
    from murho.model.python.table_totals import add_up_table, answer_of

    options = TotalsOptions(statistic or default_statistic(schema), threshold, of)
    totals = Totals.of(options, schema)
    posterior = load_posterior(directory, device, engine_worth(table.num_rows, samples))
    asked = (options, tuple(by or ()), weights)
    with ExitStack() as stack:
        answers: Any = partial(map, lambda block: add_up_table(posterior, block, *asked))
        if engine == "ray":
            from murho.ray.datasets import answers_of_workers

            answers = partial(answers_of_workers, add_up_table, asked, (directory.absolute(), device, "auto"), workers)
        advance = stack.enter_context(advancing("adding up", table.num_rows))
        stack.enter_context(naming(data))
        for part in score_blocks(table, answers):
            totals.merge(part)
            advance(part.rows)
        answer = answer_of(totals, posterior)
    facts = {"model": {"name": posterior.name, "version": posterior.version}, "target": schema.target.name}
    if json:
        print_json(facts | {"statistic": options.statistic, "by": list(by or ())} | answer.document(options.of))
    else:
        _write_csv(answer, by or [], schema.target.classes, options.of, output)
    if unlike := int(answer.unlike.sum()):
        say(f"note: {unlike} of {int(answer.rows.sum())} rows are unlike the training rows")


def _write_csv(
    answer: TotalsAnswer, by: Sequence[str], classes: Sequence[str] | None, of: PredictOptions, output: Path | None
) -> None:
    """One line a group, or a group and class."""
    import numpy as np
    import pyarrow as pa

    from murho.cli.output_files import csv_writer

    kinds = 1 if classes is None else len(classes)
    columns: dict[str, Any] = {
        name: [label[place] for label in answer.groups for _ in range(kinds)] for place, name in enumerate(by)
    }
    if classes is not None:
        columns[answer_column("class", columns)] = list(classes) * len(answer.groups)
    numbers: dict[str, Any] = {"rows": np.repeat(answer.rows, kinds), "mean": answer.mean}
    for name in ("std", "epistemic_std", "aleatoric_std"):
        numbers[name] = getattr(answer, name)
    for name, pattern, values in (
        ("percentiles", "p", of.percentiles),
        ("exceedance", "exceedance_", of.thresholds),
    ):
        array = getattr(answer, name)
        for place, value in enumerate(values if array is not None else ()):
            numbers[f"{pattern}{value:g}"] = array[..., place]
    columns |= {answer_column(name, columns): np.ravel(part) for name, part in numbers.items() if part is not None}
    with csv_writer(output) as write:
        write(pa.table(columns))


def answer_column(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name of a column of the answer, where a column of the file may have the same."""
    return f"total_{name}" if name in taken else name
