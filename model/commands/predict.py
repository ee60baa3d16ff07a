"""The command `murho predict`: predictions with error bars, or class probabilities, for the rows of a file.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.model.commands.predict_options import read_asked, with_predict_options
from murho.model.commands.scoring_notes import say_cut_warnings, say_extra_columns, say_unusual_rows
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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from murho.model.commands.batch_prediction import Scored
    from murho.model.runtime.row_progress import Advance

__all__ = ["predict"]


@with_predict_options
def predict(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, JSON or Excel file; .gz and .zip, too.")],
    model: ModelOption = None,
    checkpoints: CheckpointsOption = "checkpoints",
    url: Annotated[str | None, typer.Option(help="Address of a running service, instead of a checkpoint.")] = None,
    version: VersionOption = None,
    output: Annotated[Path | None, typer.Option(help=".csv or .parquet; by default CSV on stdout.")] = None,
    device: DeviceOption = "auto",
    engine: EngineOption = "local",
    **given: Any,
) -> None:
    """Score a file, offline or through a running service."""
    from murho.model.data.file_checks import require_file
    from murho.model.errors import OptionError
    from murho.model.runtime.devices import check_device, resolve_device, use_threads_for_answering
    from murho.model.storage.stores import store_at

    # First what can be said at once; then the imports that take seconds.
    require_local(engine)
    asked = read_asked(**given)
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

    scorer: Scorer
    with ExitStack() as clients:
        if directory is None:
            client = clients.enter_context(connect(str(url)))
            scorer = ServiceScorer(client, model or only_model(client, str(url)), version, warnings=asked.warnings)
        else:
            use_threads_for_answering()
            engine = engine_worth(table.num_rows, asked.options.samples)
            posterior = Posterior.load(directory, resolve_device(device), engine=engine)
            scorer = LocalScorer(posterior, warnings=asked.warnings)
        asked.require_fitting(scorer.schema)
        unlike, imputed, cut = 0, 0, False
        with (
            scored_output(output, keep_inputs=asked.keep_inputs) as sink,
            _progress(table.num_rows, among_rows=output is None and sys.stdout.isatty()) as advance,
        ):
            for rows, scored in _naming_each(data, score_chunks(table, scorer, asked.options, advance)):
                sink.append(rows, scored.columns)
                unlike, imputed = unlike + int(scored.unlike.sum()), imputed + int(scored.imputed.sum())
                cut = cut or scored.cut
    hint = level_hint(asked.options.percentiles)
    if hint is not None:
        sys.stderr.write(f"note: --percentiles: {hint}\n")
    say_unusual_rows(unlike, imputed, warnings=asked.warnings)
    if asked.warnings and cut:
        say_cut_warnings()
    say_extra_columns(table.column_names, scorer.schema)


def _progress(rows: int, *, among_rows: bool) -> AbstractContextManager[Advance]:
    """Progress on stderr; none where it would be drawn among the rows on the same terminal."""
    from murho.model.runtime.row_progress import advancing, ignore_rows

    return nullcontext(ignore_rows) if among_rows else advancing("scoring", rows)


def _naming_each(data: Path, chunks: Iterator[tuple[pa.Table, Scored]]) -> Iterator[tuple[pa.Table, Scored]]:
    """The chunks; what is wrong with them, and not what becomes of them, is said with the name of the file."""
    with naming(data):
        yield from chunks
