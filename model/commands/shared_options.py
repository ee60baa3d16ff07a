"""What the commands beside the model share: options of the same meaning, and how they read and print.

Imports of numpy and torch wait until a command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from murho.model.posterior.posterior import Posterior
    from murho.model.revision.revisions import LabelledRows, Revision

__all__ = [
    "CheckpointsOption",
    "DeviceOption",
    "JsonOption",
    "NameArgument",
    "VersionOption",
    "naming",
    "print_json",
    "print_lines",
    "print_revision",
    "read_labelled_rows",
]

CheckpointsOption = Annotated[Path, typer.Option("--checkpoints", help="Directory of checkpoints.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
NameArgument = Annotated[str, typer.Argument(help="Name of the checkpoint.")]
VersionOption = Annotated[str | None, typer.Option("--version", help="Version; by default the latest.")]


@contextmanager
def naming(data: Path) -> Iterator[None]:
    """Puts the file's name before what is wrong with its table."""
    from murho.model.errors import TableError

    try:
        yield
    except TableError as error:
        raise TableError(f"{data}: {error}") from error


def print_json(value: dict[str, Any]) -> None:
    """Prints one JSON object on stdout."""
    import orjson

    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")


def print_lines(lines: list[str]) -> None:
    """Prints lines for people on stdout."""
    sys.stdout.write("\n".join(lines) + "\n")


def print_revision(directory: Path, written: Revision, which: str) -> None:
    """Prints the new version of a checkpoint as one JSON object.

    Args:
        directory: The version's own.
        written: What was written there.
        which: The key of the facts that tells what was done, ``pruning`` or ``update``.
    """
    print_json(
        {
            "checkpoint": str(directory),
            "name": directory.parent.name,
            "version": directory.name,
            which: written.facts[which],
            "metrics": written.facts["metrics"],
        }
    )


def read_labelled_rows(data: Path, posterior: Posterior) -> LabelledRows:
    """Reads rows with a target to judge a checkpoint by or to learn from; says on stderr how many have none.

    Raises:
        TableError: The file is no table, or the table doesn't fit the checkpoint.
    """
    from murho.model.data.tables import read_table
    from murho.model.revision.revisions import labelled_rows

    table = read_table(data)
    with naming(data):
        rows = labelled_rows(table, posterior)
    if rows.left_out:
        sys.stderr.write(
            f"left out {rows.left_out} rows without a value of {posterior.schema.target.name!r}\n"
        )
    return rows
