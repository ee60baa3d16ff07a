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

__all__ = [
    "CheckpointsOption",
    "DeviceOption",
    "JsonOption",
    "VersionOption",
    "levels",
    "naming",
    "print_json",
    "print_lines",
    "whole_numbers",
]

CheckpointsOption = Annotated[Path, typer.Option("--checkpoints", help="Directory of checkpoints.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
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


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Reads a list such as ``50,50``.

    Raises:
        OptionError: It holds anything else; the option is named.
    """
    from murho.model.errors import OptionError

    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise OptionError(
            f"{option}: expected whole numbers parted by commas, such as 50,50, not {text!r}"
        ) from None


def levels(text: str) -> tuple[float, ...]:
    """Reads the levels of ``--percentiles``.

    Raises:
        OptionError: One is no number strictly between 0 and 100, or is there twice.
    """
    from murho.model.errors import OptionError

    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise OptionError(
            f"--percentiles: expected numbers parted by commas, such as 5,50,95, not {text!r}"
        ) from None
    for level in found:
        if not 0.0 < level < 100.0:
            raise OptionError(f"--percentiles: levels lie strictly between 0 and 100, not {level:g}")
    if len(set(found)) < len(found):
        raise OptionError(f"--percentiles: each level once, not {text!r}")
    return found
