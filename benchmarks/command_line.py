"""Options that benchmarks share, parsers of lists for argparse, and the form of a mean over splits."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.environments import DEFAULT_CACHE
from benchmarks.results import DEFAULT_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = [
    "add_cache",
    "add_options",
    "add_output",
    "add_rounds",
    "add_systems",
    "mean_and_error",
    "numbers",
    "pairs",
    "positive",
    "shown",
    "some_of",
]


def add_options(
    parser: argparse.ArgumentParser,
    known: Collection[str],
    folders: str = "uci, tabular and co2",
    default: str = "all",
) -> None:
    """Adds the options of the accuracy benchmarks.

    Args:
        parser: Gets ``--data``, ``--sets``, ``--jobs``, ``--fresh`` and ``--output``.
        known: Names that ``--sets`` takes; if empty, the option is omitted.
        folders: Folders of the data directory, for the help.
        default: What ``--sets`` is by default, for the help.
    """
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help=f"with the folders {folders}")
    if known:
        parser.add_argument("--sets", metavar="NAMES", help=f"some of {','.join(known)} (default {default})")
    parser.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="fits at a time (default: cores)",
    )
    parser.add_argument("--fresh", action="store_true", help="ignore finished fits on disk")
    add_output(parser)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Adds ``--output``, the directory of the results."""
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, metavar="DIR", help="default benchmarks/results")


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Adds ``--cache``, the directory of the peers' environments."""
    parser.add_argument(
        "--cache",
        type=Path,
        default=DEFAULT_CACHE,
        metavar="DIR",
        help=f"for the peers' environments (default {DEFAULT_CACHE})",
    )


def add_systems(parser: argparse.ArgumentParser, known: Collection[str]) -> None:
    """Adds ``--systems``, the peers that are measured besides Murho."""
    parser.add_argument(
        "--systems",
        type=some_of(known, "system"),
        default=list(known),
        metavar="NAMES",
        help=f"some of {','.join(known)}, besides Murho (default all; '' none)",
    )


def add_rounds(parser: argparse.ArgumentParser, default: int, what: str = "turns of each system") -> None:
    """Adds ``--rounds``, the number of repetitions."""
    parser.add_argument("--rounds", type=positive, default=default, metavar="N", help=f"{what} (default {default})")


def positive(text: str) -> int:
    """Parses an integer of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {value}")
    return value


def numbers(text: str) -> list[int]:
    """Parses integers of at least 1, such as ``32,1``, sorted and without repeats, for argparse."""
    return sorted({positive(number) for number in text.split(",")})


def some_of(known: Collection[str], what: str) -> Callable[[str], list[str]]:
    """A parser of names, such as ``a,b``, for argparse; the empty text gives none.

    Args:
        known: The valid names.
        what: The kind of thing that is named, for the error message.
    """

    def read(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {what} is called {name!r}: choose from {', '.join(known)}")
        return names

    return read


def pairs(what: str, form: str) -> Callable[[str], list[tuple[int, int]]]:
    """A parser of pairs of integers of at least 1, such as ``2x64,3x128``, for argparse.

    Args:
        what: The kind of thing that a pair stands for, for the error message.
        form: The form of a pair, with an example, for the error message.
    """

    def read(text: str) -> list[tuple[int, int]]:
        values = []
        for name in text.split(","):
            match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", name.strip())
            if match is None:
                raise argparse.ArgumentTypeError(f"{name!r} is no {what}: write {form}")
            values.append((int(match[1]), int(match[2])))
        return values

    return read


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error; the error of a single value is NaN."""
    array = np.asarray(values, dtype=np.float64)
    error = float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else float("nan")
    return float(array.mean()), error


def shown(values: Sequence[float]) -> str:
    """Mean ± standard error as text, with four significant digits of the mean."""
    mean, error = mean_and_error(values)
    return f"{mean:.4g}" if np.isnan(error) else f"{mean:.4g} ± {error:.2g}"
