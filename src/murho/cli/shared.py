"""What several commands share: options, early checks, readers of tables, printers of results, tables of text.

Imports of numpy and torch wait until a command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.model.errors import CheckpointError
from murho.model.files import parse_json, read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.stores import CheckpointStore, WrittenVersion
    from murho.model.training.revisions import LabelledRows, Revision

__all__ = [
    "CheckpointsOption",
    "DeviceOption",
    "EngineOption",
    "JsonOption",
    "ModelOption",
    "NameArgument",
    "ReportOption",
    "ReportRowsOption",
    "VersionOption",
    "check_first_rows",
    "labelled_rows_of",
    "naming",
    "only_checkpoint",
    "print_json",
    "print_lines",
    "print_revision",
    "read_rows_for",
    "require_local",
    "table_lines",
]


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


FIRST_ROWS = 1_000


def check_first_rows(table: pa.Table, directory: Path, *, labelled: bool) -> None:
    """Check that a table has the columns of a checkpoint, and that the cells of its first rows fit them.

    Args:
        table: The table.
        directory: Directory of the version. A damaged one passes: loading it says what is wrong.
        labelled: Whether the table needs the target, too.

    Raises:
        TableError: A column is missing, or a cell does not fit; the message names column and row.
    """
    from murho.model.tables.schema import Schema
    from murho.model.tables.schema_inference import columns_from_table, labels_from_table, target_from_table

    try:
        schema = Schema.from_json(parse_json(read_bounded(directory / "model.json"))["schema"], "schema")
    except (OSError, ValueError, KeyError, TypeError, CheckpointError):
        return
    first = table.slice(0, FIRST_ROWS)
    if labelled:
        if schema.target.classes is None:
            target_from_table(first, schema.target)
        else:  # a class that the model does not know may be meant
            labels_from_table(first, schema.target.name)
        return  # rows without a target may have any cells
    columns_from_table(first, schema)


CheckpointsOption = Annotated[
    str, typer.Option("--checkpoints", help="Directory of checkpoints, or the URL of a storage: s3://BUCKET/PREFIX.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
EngineOption = Annotated[
    str,
    typer.Option("--engine", help="local, or ray: many processes and machines; --engine ray --help has its options."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ReportOption = Annotated[
    bool, typer.Option("--report/--no-report", help="Write report.html and its charts beside the checkpoint.")
]
ReportRowsOption = Annotated[
    bool, typer.Option("--report-rows/--no-report-rows", help="Show rows of the table in the report.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Name of the checkpoint; may be left out where there is only one.")
]
NameArgument = Annotated[str, typer.Argument(help="Name of the checkpoint.")]
VersionOption = Annotated[str | None, typer.Option("--version", help="Version; by default the latest.")]


def only_checkpoint(store: CheckpointStore) -> str:
    """The name of the only checkpoint in a place, for commands without ``--model``; it is said on stderr.

    Raises:
        OptionError: There are several, or there is none; the message lists them.
    """
    from murho.model.errors import OptionError

    root = store.place
    names = sorted({reference.name for reference in store.list() if reference.problem is None})
    if not names:
        raise OptionError(f"{root} has no checkpoint: train one with `murho train`, or say --checkpoints DIR")
    if len(names) > 1:
        raise OptionError(f"{root} has {len(names)} checkpoints ({', '.join(names)}): choose one with --model NAME")
    sys.stderr.write(f"note: --model {names[0]}, the only checkpoint in {root}\n")
    return names[0]


def require_local(engine: str) -> None:
    """Check that ``--engine`` is local: the command of another engine is another function.

    Raises:
        OptionError: It is not.
    """
    from murho.model.errors import OptionError

    if engine != "local":
        raise OptionError(f"--engine must be local or ray, not {engine!r}")


@contextmanager
def naming(data: Path) -> Iterator[None]:
    """Prefix the message of a `TableError` with the name of the file."""
    from murho.model.errors import TableError

    try:
        yield
    except TableError as error:
        raise TableError(f"{data}: {error}") from error


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on stdout."""
    import orjson

    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")


def print_lines(lines: list[str]) -> None:
    """Print lines for people on stdout."""
    sys.stdout.write("\n".join(lines) + "\n")


def print_revision(made: WrittenVersion, written: Revision, which: str) -> None:
    """Print the new version of a checkpoint as one JSON object.

    Args:
        made: The version.
        written: The revision in it.
        which: Key of the facts about the revision: ``pruning`` or ``update``.
    """
    print_json(
        {
            "checkpoint": made.address,
            "name": made.name,
            "version": made.version,
            which: written.spec.records[which],
            "metrics": written.spec.metrics,
        }
    )


def read_rows_for(directory: Path, data: Path) -> pa.Table:
    """Read a file of labelled rows, and check its columns against a checkpoint; neither takes PyTorch.

    Raises:
        TableError: The file can't be read as a table, or lacks the target.
    """
    from murho.model.tables.files import read_table

    table = read_table(data)
    with naming(data):
        check_first_rows(table, directory, labelled=True)
    return table


def labelled_rows_of(table: pa.Table, data: Path, posterior: Posterior) -> LabelledRows:
    """The labelled rows of a table for a checkpoint; reports on stderr how many rows were left out without a target.

    Args:
        table: The rows.
        data: The file that they are from.
        posterior: The posterior of the checkpoint.

    Raises:
        TableError: The table doesn't fit the checkpoint.
    """
    from murho.model.training.revisions import labelled_rows

    with naming(data):
        rows = labelled_rows(table, posterior)
    if rows.left_out:
        sys.stderr.write(f"left out {rows.left_out} rows without a value of {posterior.schema.target.name!r}\n")
    return rows
