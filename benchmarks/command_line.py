"""What the accuracy benchmarks share: their options, and how a mean over splits is shown."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.results import DEFAULT_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["add_options", "mean_and_error", "positive", "shown"]


def add_options(parser: argparse.ArgumentParser, known: Collection[str]) -> None:
    """Options that they share.

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
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, metavar="DIR", help="default benchmarks/results"
    )


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {value}")
    return value


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error; the error of a single value is NaN."""
    numbers = np.asarray(values, dtype=np.float64)
    error = float(numbers.std(ddof=1) / np.sqrt(len(numbers))) if len(numbers) > 1 else float("nan")
    return float(numbers.mean()), error


def shown(values: Sequence[float]) -> str:
    """Mean ± standard error, four significant digits of the mean."""
    mean, error = mean_and_error(values)
    return f"{mean:.4g}" if np.isnan(error) else f"{mean:.4g} ± {error:.2g}"
