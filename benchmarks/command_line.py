"""What commands share: their options, readers of lists for argparse, and how a mean over splits is shown."""

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


def add_options(parser: argparse.ArgumentParser, known: Collection[str]) -> None:
    """Options of the accuracy benchmarks.

    Args:
        parser: Gets ``--data``, ``--sets``, ``--jobs``, ``--fresh`` and ``--output``.
        known: Names for ``--sets``; without any there is no such option.
    """
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="has the folders uci, tabular and co2"
    )
    if known:
        parser.add_argument("--sets", metavar="NAMES", help=f"some of {','.join(known)} (default all)")
    parser.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="fits at a time (default: cores)",
    )
    parser.add_argument("--fresh", action="store_true", help="fit anew what is on disk")
    add_output(parser)


def add_output(parser: argparse.ArgumentParser) -> None:
    """``--output``: where the numbers go."""
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, metavar="DIR", help="default benchmarks/results"
    )


def add_cache(parser: argparse.ArgumentParser) -> None:
    """``--cache``: where the environments of peers are."""
    parser.add_argument(
        "--cache",
        type=Path,
        default=DEFAULT_CACHE,
        metavar="DIR",
        help=f"of peers' environments (default {DEFAULT_CACHE})",
    )


def add_systems(parser: argparse.ArgumentParser, known: Collection[str]) -> None:
    """``--systems``: peers that are measured beside Murho."""
    parser.add_argument(
        "--systems",
        type=some_of(known, "system"),
        default=list(known),
        metavar="NAMES",
        help=f"some of {','.join(known)}, beside Murho (default all; '' none)",
    )


def add_rounds(parser: argparse.ArgumentParser, default: int, what: str = "turns of each system") -> None:
    """``--rounds``: how often each thing is measured."""
    parser.add_argument(
        "--rounds", type=positive, default=default, metavar="N", help=f"{what} (default {default})"
    )


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {value}")
    return value


def numbers(text: str) -> list[int]:
    """Whole numbers of at least 1, such as ``32,1``, sorted and each once; for argparse."""
    return sorted({positive(number) for number in text.split(",")})


def some_of(known: Collection[str], what: str) -> Callable[[str], list[str]]:
    """A reader of names, such as ``a,b``, for argparse; the empty text names none.

    Args:
        known: Names there are.
        what: One of them is, for the message about another.
    """

    def read(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"no {what} is called {name!r}: choose of {', '.join(known)}"
                )
        return names

    return read


def pairs(what: str, form: str) -> Callable[[str], list[tuple[int, int]]]:
    """A reader of pairs of whole numbers of at least 1, such as ``2x64,3x128``, for argparse.

    Args:
        what: A pair is.
        form: How one is written, with an example; for the message about what is none.
    """

    def read(text: str) -> list[tuple[int, int]]:
        found = []
        for name in text.split(","):
            match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", name.strip())
            if match is None:
                raise argparse.ArgumentTypeError(f"{name!r} is no {what}: write {form}")
            found.append((int(match[1]), int(match[2])))
        return found

    return read


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error; the error of a single value is NaN."""
    given = np.asarray(values, dtype=np.float64)
    error = float(given.std(ddof=1) / np.sqrt(len(given))) if len(given) > 1 else float("nan")
    return float(given.mean()), error


def shown(values: Sequence[float]) -> str:
    """Mean ± standard error, four significant digits of the mean."""
    mean, error = mean_and_error(values)
    return f"{mean:.4g}" if np.isnan(error) else f"{mean:.4g} ± {error:.2g}"
