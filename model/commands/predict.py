"""The command `murho predict`: predictions with error bars, or class probabilities, for the rows of a file.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from murho.model.commands.shared_options import CheckpointsOption, DeviceOption, VersionOption, naming
from murho.model.engines.prediction import DEFAULT_COVERAGE, DEFAULT_SAMPLES, PredictOptions

__all__ = ["predict"]


def predict(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, JSON or Excel file; .gz and .zip, too.")],
    model: Annotated[str, typer.Option(help="Name of the checkpoint.")],
    checkpoints: CheckpointsOption = Path("checkpoints"),
    url: Annotated[str | None, typer.Option(help="Address of a running service, instead of a checkpoint.")] = None,
    version: VersionOption = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Draws behind each answer; 0: the mean, or the probabilities, alone.")
    ] = DEFAULT_SAMPLES,
    percentiles: Annotated[
        str | None, typer.Option(help="Levels of the percentile columns, for a number.  [default: 5,50,95]")
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="How often the prediction set holds the class, as a share.  [default: 0.9]"),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of the draws.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Leave std, percentiles, probabilities as they are before calibration.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help=".csv or .parquet; by default CSV on stdout.")] = None,
    keep_inputs: Annotated[bool, typer.Option("--keep-inputs", help="Put the input columns first.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Score a file, offline or through a running service."""
    from murho.model.data.file_checks import require_file
    from murho.model.errors import OptionError
    from murho.model.posterior.checkpoint_directories import find_checkpoint
    from murho.model.runtime.devices import check_device, resolve_device, use_threads_for_answering

    # First what can be said at once; then the imports that take seconds.
    options = PredictOptions(
        samples=samples,
        percentiles=_levels("5,50,95" if percentiles is None else percentiles),
        seed=seed,
        calibrated=not raw,
        coverage=DEFAULT_COVERAGE if coverage is None else _share(coverage),
    )
    if output is not None and output.suffix.lower() not in (".csv", ".parquet"):
        raise OptionError(f"--output: {output} must end in .csv or .parquet")
    check_device(device)
    directory = find_checkpoint(checkpoints, model, version) if url is None else None
    require_file(data)
    from murho.model.commands.early_checks import check_first_rows
    from murho.model.data.tables import read_table, write_table

    table = read_table(data)
    if directory is not None:
        with naming(data):
            check_first_rows(table, directory, labelled=False)
    from murho.model.commands.batch_prediction import (
        LocalScorer,
        Scorer,
        ServiceScorer,
        connect,
        require_options,
        score_table,
    )
    from murho.model.engines.selection import engine_worth
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.row_progress import advancing

    scorer: Scorer
    with ExitStack() as clients:
        if directory is None:
            scorer = ServiceScorer(clients.enter_context(connect(str(url))), model, version)
        else:
            use_threads_for_answering()
            engine = engine_worth(table.num_rows, samples)
            scorer = LocalScorer(Posterior.load(directory, resolve_device(device), engine=engine))
        require_options(scorer.schema, percentiles=percentiles is not None, coverage=coverage is not None)
        with naming(data), advancing("scoring", table.num_rows) as advance:
            scored, unlike, imputed = score_table(table, scorer, options, advance)
    if unlike:
        rows = "1 row is" if unlike == 1 else f"{unlike} rows are"
        sys.stderr.write(f"note: {rows} unlike the training rows (far from them, or with an unseen category)\n")
    if imputed:
        rows = "1 row lacks" if imputed == 1 else f"{imputed} rows lack"
        sys.stderr.write(
            f"note: {rows} a cell that no training row lacked: the answer averages over what it may have been\n"
        )
    columns: dict[str, Any] = {}
    if keep_inputs:
        clash = sorted(set(scored) & set(table.column_names))
        if clash:
            raise OptionError(f"--keep-inputs: the input already has a column {clash[0]!r}; rename it")
        columns |= {name: table.column(name) for name in table.column_names}
    as_csv = output is None or output.suffix.lower() == ".csv"
    write_table(output, columns | _cells(scored, as_csv=as_csv))


def _levels(text: str) -> tuple[float, ...]:
    """Parse ``--percentiles``: distinct levels, strictly between 0 and 100."""
    from murho.model.errors import OptionError

    try:
        levels = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise OptionError(f"--percentiles: expected numbers parted by commas, such as 5,50,95, not {text!r}") from None
    for level in levels:
        if not 0.0 < level < 100.0:
            raise OptionError(f"--percentiles: levels lie strictly between 0 and 100, not {level:g}")
    if len(set(levels)) < len(levels):
        raise OptionError(f"--percentiles: each level once, not {text!r}")
    return levels


def _share(coverage: float) -> float:
    """Check ``--coverage``."""
    from murho.model.errors import OptionError

    if 1.0 < coverage < 100.0:
        raise OptionError(f"--coverage is a share: give {coverage / 100.0:g} for {coverage:g} %")
    if not 0.0 < coverage < 1.0:
        raise OptionError(f"--coverage lies strictly between 0 and 1, not {coverage:g}")
    return coverage


def _cells(scored: dict[str, Any], *, as_csv: bool) -> dict[str, Any]:
    """The cells to write: NaN as a missing value and, in CSV, which has no lists, lists as text."""
    import pyarrow as pa

    from murho.model.commands.class_columns import lists_as_text

    return {
        name: pa.array(lists_as_text(values) if as_csv else values, from_pandas=True) for name, values in scored.items()
    }
