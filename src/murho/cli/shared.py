"""What several commands share: options, the opening of checkpoints and tables, printers of results.

Imports of numpy and torch wait until a command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from murho.model.errors import OptionError, TableError, format_count, printable
from murho.model.predictive.prediction import DEFAULT_PERCENTILES, PredictOptions
from murho.model.tables.overrides import AS_IT_IS, FileForm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.stores import CheckpointStore, WrittenVersion

CheckpointsOption = Annotated[
    str, typer.Option(help="Directory of checkpoints, or the URL of a storage: s3://BUCKET/PREFIX.")
]
CsvOption = Annotated[Path | None, typer.Option(help="CSV file; by default stdout.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
EngineOption = Annotated[str, typer.Option(help="local, or ray: with workers on many processors and machines.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
PercentilesOption = Annotated[
    str | None, typer.Option(help="Levels of the percentile columns, of numbers.  [default: 5,50,95]")
]
RawOption = Annotated[bool, typer.Option("--raw", help="Skip calibration.")]
ReportOption = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html beside the checkpoint.")]
ReportRowsOption = Annotated[
    bool, typer.Option("--report-rows/--no-report-rows", help="Show rows of the table in the report.")
]
SamplesOption = Annotated[
    int, typer.Option(min=0, help="Draws behind each prediction; 0: the mean, or the probabilities, only.")
]
SeedOption = Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of the draws.")]
ThresholdsOption = Annotated[
    str | None,
    typer.Option(help="Values such as 20,30: columns exceedance_20, … with the probability of more than that."),
]
VersionOption = Annotated[str | None, typer.Option(help="Version; by default the latest.")]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Workers of --engine ray; by default as many as there are processors."),
]


def check_engine(engine: str) -> None:
    """Check ``--engine``.

    Raises:
        OptionError: It is neither ``local`` nor ``ray``.
    """
    if engine not in ("local", "ray"):
        raise OptionError(f"--engine must be local or ray, not {engine!r}")


def find_version(
    checkpoints: str, name: str | None, version: str | None, device: str = "cpu"
) -> tuple[CheckpointStore, Path]:
    """Return the place of checkpoints, and the directory of a version in it; fetched files stay as long as the place.

    Args:
        checkpoints: ``--checkpoints``.
        name: Name of the checkpoint; None: the only one, which is said on stderr.
        version: Its version; None: the latest.
        device: ``--device``, which is checked first.

    Raises:
        OptionError: The device is unknown, or no name is given and there is not one checkpoint; they are listed.
        CheckpointError: There is no such version; the message says what there is.
    """
    from murho.model.checkpoint.stores import store_at
    from murho.model.runtime import check_device

    check_device(device)
    store = store_at(checkpoints)
    if name is None:
        names = sorted({reference.name for reference in store.list() if reference.problem is None})
        if not names:
            raise OptionError(
                f"{store.place} has no checkpoint: train one with `murho train`, or say --checkpoints DIR"
            )
        if len(names) > 1:
            raise OptionError(
                f"{store.place} has {len(names)} checkpoints ({', '.join(names)}): choose one with --model NAME"
            )
        (name,) = names
        say(f"note: --model {name}, the only checkpoint in {store.place}")
    return store, store.find(name, version)


def require_name(name: str | None) -> str:
    """Return the name of a model that only a store or a service knows.

    Raises:
        OptionError: There is none.
    """
    if name is None:
        raise OptionError("name the model: NAME, or --model NAME")
    return name


def open_rows(data: Path, directory: Path | None, form: FileForm = AS_IT_IS, *, labelled: bool) -> pa.Table:
    """Return the table in a file, after a check of its columns and first rows.

    Args:
        data: The file.
        directory: The version that it must fit; None: any does.
        form: How the file is to be read.
        labelled: Whether the table needs the target, too.

    Raises:
        TableError: The file can't be read as a table, lacks a column, or has a cell that does not fit.
    """
    from murho.model.python.table_scoring import check_first_rows, stored_schema
    from murho.model.tables.table_files import read_table

    table = read_table(data, form)
    if directory is not None:
        with naming(data):
            check_first_rows(table, stored_schema(directory), labelled=labelled)
    return table


def load_posterior(directory: Path, device: str, engine: str = "auto") -> Posterior:
    """Return a version, loaded to answer with all processors."""
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.runtime import resolve_device, use_threads_for_answering

    use_threads_for_answering()
    return Posterior.load(directory, resolve_device(device), engine=engine)


@contextmanager
def naming(data: Path) -> Iterator[None]:
    """Prefix the message of a `TableError` with the name of the file."""
    try:
        yield
    except TableError as error:
        raise TableError(f"{name_of(data)}: {error}") from error


def name_of(data: Path) -> str:
    """Return the path of a file, for people."""
    return "stdin" if str(data) == "-" else str(data)


Number = TypeVar("Number", int, float)


def numbers_of(option: str, text: str, kind: Callable[[str], Number], example: str) -> tuple[Number, ...]:
    """Parse a list such as ``50,50``; raises an OptionError that names the option if an item is none of the kind."""
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise OptionError(f"{option}: expected {what} parted by commas, such as {example}, not {text!r}") from None


def prediction_options(percentiles: str | None, thresholds: str | None, *, raw: bool, **more: Any) -> PredictOptions:
    """Return the options of predictions and totals, checked.

    Args:
        percentiles: ``--percentiles``.
        thresholds: ``--thresholds``.
        raw: ``--raw``.
        more: Further fields of `PredictOptions`.

    Raises:
        OptionError: One can't be used.
    """
    from murho.model.python.table_scoring import check_options

    levels: tuple[float, ...] = DEFAULT_PERCENTILES
    if percentiles is not None:
        levels = numbers_of("--percentiles", percentiles, float, "5,50,95")
    beyond = () if thresholds is None else numbers_of("--thresholds", thresholds, float, "20,30")
    options = PredictOptions(percentiles=levels, thresholds=beyond, calibrated=not raw, **more)
    check_options(options)
    return options


def say(message: str) -> None:
    """Print a line for people on stderr."""
    sys.stderr.write(f"{printable(message)}\n")


def say_left_out(rows: int, posterior: Posterior, reason: str = "") -> None:
    """Say how many rows were left out without a target, if any were.

    Args:
        rows: Their number.
        posterior: The posterior, whose target it is.
        reason: What else they may lack.
    """
    if rows:
        say(f"left out {format_count(rows, 'row')} without a value of {posterior.schema.target.name!r}{reason}")


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on stdout."""
    import orjson

    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode() + "\n")


def print_lines(lines: Sequence[str]) -> None:
    """Print lines for people on stdout."""
    sys.stdout.write(printable("\n".join(lines)) + "\n")


def print_written(made: WrittenVersion, **facts: Any) -> None:
    """Print a version that was written as one JSON object, with what else is known of it."""
    print_json({"checkpoint": made.address, "name": made.name, "version": made.version, **facts})


def report_or_warning(make: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
    """Return the files of a report; none, with a warning, where it can't be made: it must never cost the checkpoint."""
    try:
        return make()
    except Exception as error:
        say(f"warning: the report could not be made: {type(error).__name__}: {error}")
        return {}


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns: to the right if a cell below the title has a digit, else to the left."""
    count = max(len(row) for row in rows)
    columns = [[row[place] if place < len(row) else "" for row in rows] for place in range(count)]
    aligned = []
    for place, cells in enumerate(columns):
        width = max(map(len, cells))
        numbers = place > 0 and any(map(str.isdigit, "".join(cells[1:])))
        aligned.append([cell.rjust(width) if numbers else cell.ljust(width) for cell in cells])
    return ["   ".join(cells).rstrip() for cells in zip(*aligned, strict=True)]
