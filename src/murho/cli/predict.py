"""The command `murho predict`: predictions with error bars, or class probabilities, for the rows of a file.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    EngineOption,
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
    say,
)
from murho.model.errors import OptionError, list_names
from murho.model.predictive.prediction import DEFAULT_COVERAGE, DEFAULT_SAMPLES, level_hint
from murho.model.tables.overrides import AS_IT_IS, FileForm

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from murho.model.python.table_scoring import Scored
    from murho.model.tables.schema import Schema

OF_NUMBERS = {
    "--percentiles": "--coverage sets how often the prediction set holds the class; percentiles of probabilities come "
    "over HTTP and in Python",
    "--thresholds": "p_CLASS is the probability of a class",
    "--no-noise": "A class has no noise that could be left out",
}
"""Options for numbers alone, and what classes have instead."""
OF_CLASSES = {"--coverage": "--percentiles 5,95 are the ends of a 90 % band"}
"""Options for classes alone, and what numbers have instead."""


def require_fitting(schema: Schema, given: Collection[str]) -> None:
    """Check that no option is given that only the other kind of target has.

    Raises:
        OptionError: One is given.
    """
    target = schema.target
    found = "a number" if target.classes is None else f"one of {len(target.classes)} classes"
    for option, advice in (OF_CLASSES if target.classes is None else OF_NUMBERS).items():
        if option in given:
            raise OptionError(f"{option}: {target.name!r} is {found}: leave it out. {advice}")


def predict(
    data: Path,
    model: str | None = None,
    checkpoints: CheckpointsOption = "checkpoints",
    url: Annotated[str | None, typer.Option(help="Address of a running service, instead of a checkpoint.")] = None,
    version: VersionOption = None,
    output: Annotated[Path | None, typer.Option(help=".csv or .parquet; by default CSV on stdout.")] = None,
    samples: SamplesOption = DEFAULT_SAMPLES,
    percentiles: PercentilesOption = None,
    thresholds: ThresholdsOption = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="How often the prediction set holds the class, as a share.  [default: 0.9]"),
    ] = None,
    seed: SeedOption = None,
    raw: RawOption = False,
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
    device: DeviceOption = "auto",
    form: FileForm = AS_IT_IS,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
) -> None:
    """Score a file, offline, through a running service, or with Ray."""
    from murho.model.python.table_scoring import stored_schema

    # First what can be said at once; then the imports that take seconds.
    options = prediction_options(
        percentiles,
        thresholds,
        raw=raw,
        samples=samples,
        seed=seed,
        noise=noise,
        draws=draws,
        mc_error=mc_error,
        coverage=DEFAULT_COVERAGE if coverage is None else coverage,
    )
    asked = (percentiles is not None, thresholds is not None, not noise, coverage is not None)
    given = {option for option, is_asked in zip((*OF_NUMBERS, *OF_CLASSES), asked, strict=True) if is_asked}
    check_engine(engine)
    if output is not None and output.suffix.lower() not in (".csv", ".parquet"):
        raise OptionError(f"--output: {output} must end in .csv or .parquet")
    directory = None
    if url is None:
        _store, directory = find_version(checkpoints, model, version, device)
        schema = stored_schema(directory)
        require_fitting(schema, given)
    table = open_rows(data, directory, form, labelled=False)

    from murho.cli.output_files import csv_writer, parquet_writer
    from murho.model.predictive.compiled_engine import engine_worth
    from murho.model.progress import advancing, ignore_rows
    from murho.model.python.table_scoring import beside, lists_as_text, score_block, score_blocks

    worth = engine_worth(table.num_rows, samples)
    unlike, imputed, cut, done = 0, 0, False, 0
    with ExitStack() as stack:
        if directory is None:
            from murho.cli.service_scorer import ServiceScorer, connect

            client = stack.enter_context(connect(str(url)))
            service = ServiceScorer(client, model, version, options, warnings=warnings)
            answers: Any = partial(map, service.score)
            schema = service.schema
            require_fitting(schema, given)
        elif engine == "ray":
            from murho.ray.datasets import answers_of_workers

            checkpoint = (directory.absolute(), device, worth)
            answers = partial(answers_of_workers, score_block, (options, warnings), checkpoint, workers)
        else:
            score = partial(score_block, load_posterior(directory, device, worth), options=options, warnings=warnings)
            answers = partial(map, score)
        as_parquet = output is not None and output.suffix.lower() == ".parquet"
        write = stack.enter_context(parquet_writer(output) if output and as_parquet else csv_writer(output))
        # A bar would be drawn among the rows on the same terminal.
        among_rows = output is None and sys.stdout.isatty()
        advance = ignore_rows if among_rows else stack.enter_context(advancing("scoring", table.num_rows))
        for scored in _naming_each(data, score_blocks(table, answers)):
            rows = scored.answers.num_rows
            written = beside(table.slice(done, rows), scored.answers) if keep_inputs else scored.answers
            write(written if as_parquet else lists_as_text(written))
            advance(rows)
            unlike, imputed, done = unlike + scored.unlike, imputed + scored.imputed, done + rows
            cut = cut or scored.cut

    if hint := level_hint(options.percentiles):
        say(f"note: --percentiles: {hint}")
    if unlike:
        more = "" if warnings else "; --warnings says which and why"
        say(f"note: {_rows(unlike)} unlike the training rows (far from them, or with an unseen category){more}")
    if imputed:
        say(
            f"note: {_rows(imputed)} without a cell that no training row lacked: the answer averages over what it may "
            "have been"
        )
    if warnings and cut:
        say(
            "note: a service lists the first 100 warnings of a request, so the column warnings is not complete; "
            "without --url it is"
        )
    _say_unused(table.column_names, schema)


def _naming_each(data: Path, blocks: Iterator[Scored]) -> Iterator[Scored]:
    """Return the blocks; what is wrong with them, and not what becomes of them, is said with the name of the file."""
    with naming(data):
        yield from blocks


def _rows(count: int) -> str:
    return "1 row is" if count == 1 else f"{count} rows are"


MOST_NAMED = 5
"""Columns named in a note; of more the first ones."""


def _say_unused(names: Sequence[str], schema: Schema) -> None:
    """Name the columns that the training did not see; those that it left out, and the target, were said then."""
    known = {feature.name for feature in schema.features} | {schema.target.name} | {*schema.left_out}
    extra = [name for name in names if name not in known]
    if extra:
        say(f"note: not used, because no features of the model: {list_names(extra, MOST_NAMED)}")
