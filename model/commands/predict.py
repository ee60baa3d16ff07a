"""The command `murho predict`: predictions with error bars, or class probabilities, for the rows of a file.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from murho.model.commands.shared_options import (
    CheckpointsOption,
    DeviceOption,
    EngineOption,
    ModelOption,
    VersionOption,
    naming,
    only_checkpoint,
    require_local,
)
from murho.model.engines.prediction import DEFAULT_COVERAGE, DEFAULT_PERCENTILES, DEFAULT_SAMPLES, PredictOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from murho.model.commands.batch_prediction import Scored
    from murho.model.data.schema import Schema

__all__ = ["predict", "say_notes"]

MOST_NAMED = 5
"""Columns named in a note; of more the first ones."""


def predict(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, JSON or Excel file; .gz and .zip, too.")],
    model: ModelOption = None,
    checkpoints: CheckpointsOption = "checkpoints",
    url: Annotated[str | None, typer.Option(help="Address of a running service, instead of a checkpoint.")] = None,
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
    output: Annotated[Path | None, typer.Option(help=".csv or .parquet; by default CSV on stdout.")] = None,
    keep_inputs: Annotated[bool, typer.Option("--keep-inputs", help="Put the input columns first.")] = False,
    device: DeviceOption = "auto",
    engine: EngineOption = "local",
) -> None:
    """Score a file, offline or through a running service."""
    from murho.model.commands.answer_options import read_coverage, read_levels, read_thresholds, require_options
    from murho.model.data.file_checks import require_file
    from murho.model.errors import OptionError
    from murho.model.runtime.devices import check_device, resolve_device, use_threads_for_answering
    from murho.model.storage.stores import store_at

    # First what can be said at once; then the imports that take seconds.
    require_local(engine)
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
    if output is not None and output.suffix.lower() not in (".csv", ".parquet"):
        raise OptionError(f"--output: {output} must end in .csv or .parquet")
    check_device(device)
    directory = None
    if url is None:
        store = store_at(checkpoints)
        directory = store.find(model or only_checkpoint(store), version)
    require_file(data)
    from murho.model.commands.early_checks import check_first_rows
    from murho.model.data.stored_tables import open_table

    table = open_table(data)
    if directory is not None:
        with naming(data):
            check_first_rows(table, directory, labelled=False)
    from murho.model.commands.batch_prediction import (
        LocalScorer,
        Scorer,
        ServiceScorer,
        connect,
        only_model,
        score_chunks,
    )
    from murho.model.commands.scored_output import scored_output
    from murho.model.engines.level_hint import level_hint
    from murho.model.engines.selection import engine_worth
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.row_progress import advancing

    scorer: Scorer
    with ExitStack() as clients:
        if directory is None:
            client = clients.enter_context(connect(str(url)))
            scorer = ServiceScorer(client, model or only_model(client, str(url)), version, warnings=warnings)
        else:
            use_threads_for_answering()
            engine = engine_worth(table.num_rows, samples)
            posterior = Posterior.load(directory, resolve_device(device), engine=engine)
            scorer = LocalScorer(posterior, warnings=warnings)
        require_options(
            scorer.schema,
            percentiles=percentiles is not None,
            coverage=coverage is not None,
            thresholds=thresholds is not None,
            no_noise=not noise,
        )
        unlike, imputed, cut = 0, 0, False
        with (
            scored_output(output, keep_inputs=keep_inputs) as sink,
            advancing("scoring", table.num_rows) as advance,
        ):
            for rows, scored in _naming_each(data, score_chunks(table, scorer, options, advance)):
                sink.append(rows, scored.columns)
                unlike, imputed = unlike + int(scored.unlike.sum()), imputed + int(scored.imputed.sum())
                cut = cut or scored.cut
    hint = level_hint(options.percentiles)
    if hint is not None:
        sys.stderr.write(f"note: --percentiles: {hint}\n")
    say_notes(unlike, imputed, warnings=warnings)
    if warnings and cut:
        sys.stderr.write(
            "note: a service lists the first 100 warnings of a request, so the column warnings is not complete; "
            "without --url it is\n"
        )
    _say_extra(table, scorer.schema)


def _naming_each(data: Path, chunks: Iterator[tuple[pa.Table, Scored]]) -> Iterator[tuple[pa.Table, Scored]]:
    """The chunks; what is wrong with them, and not what becomes of them, is said with the name of the file."""
    with naming(data):
        yield from chunks


def say_notes(unlike: int, imputed: int, *, warnings: bool) -> None:
    """Say on stderr what is unusual about rows that were scored.

    Args:
        unlike: Number of rows unlike the training rows.
        imputed: Number of rows that lack a cell that no training row lacked.
        warnings: Whether there is a column of warnings.
    """
    if unlike:
        rows = "1 row is" if unlike == 1 else f"{unlike} rows are"
        more = "" if warnings else "; --warnings says which and why"
        sys.stderr.write(f"note: {rows} unlike the training rows (far from them, or with an unseen category){more}\n")
    if imputed:
        rows = "1 row lacks" if imputed == 1 else f"{imputed} rows lack"
        sys.stderr.write(
            f"note: {rows} a cell that no training row lacked: the answer averages over what it may have been\n"
        )


def _say_extra(table: pa.Table, schema: Schema) -> None:
    """Name the columns that the training did not see; those that it left out, and the target, were said then."""
    known = {feature.name for feature in schema.features} | {schema.target.name} | set(schema.left_out)
    extra = [name for name in table.column_names if name not in known]
    if extra:
        named = ", ".join(map(repr, extra[:MOST_NAMED])) + (", …" if len(extra) > MOST_NAMED else "")
        what = "1 column that is no feature is" if len(extra) == 1 else f"{len(extra)} columns that are no features are"
        sys.stderr.write(f"note: {what} not used: {named}\n")
