"""`python -m benchmarks.alarm`: how often the alarm of live quality is false, and how soon it is raised.

Held-out rows and outcomes have normal scores of one law under the raw predictive, whatever shape it has. The map of the
held-out rows calibrates, predictions are recorded as the store does it, and their outcomes come. "false" is the share
of streams without a change in which the alarm is ever raised; it is promised to be 0.5 % at most. The other columns are
numbers of outcomes until it is raised, medians of streams in which all outcomes shift by a standard deviation, or
spread by half as much again, after the first 500 of them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.results import Report, add_counts, command, table
from murho.model.calibration.conformal import fit_conformal_map
from murho.model.evaluation.martingale import PitMartingale
from murho.model.evaluation.recorded import SCORES, number_pits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Shape = Callable[[np.random.Generator, int], Doubles]

SHAPES: dict[str, Shape] = {
    "normal": lambda random, size: random.normal(size=size),
    "exponential": lambda random, size: random.exponential(size=size) - 1.0,
    "Student t3": lambda random, size: random.standard_t(3.0, size) / np.sqrt(3.0),
    "biased by half a std": lambda random, size: random.normal(0.5, 1.0, size),
    "bimodal": lambda random, size: random.normal(random.choice([-0.95, 0.95], size), 0.3),
}
"""Residuals, in units of the raw predictive's standard deviation."""
ROWS = (30, 60, 99, 400)
BEFORE = 500
"""Outcomes before a change."""


def alarm_at(
    shape: str, rows: int, outcomes: int, seed: int, *, shift: float = 0.0, spread: float = 1.0, after: int = 0
) -> int | None:
    """Return the number of outcomes of one stream after which the alarm is raised; None: it isn't.

    Args:
        shape: Of `SHAPES`.
        rows: Held-out rows, at least 10.
        outcomes: Length of the stream.
        seed: Of the stream.
        shift: What outcomes shift by from ``after`` on, in standard deviations.
        spread: What their spread is multiplied by.
        after: Outcomes before that.
    """
    random = np.random.default_rng([seed, rows, list(SHAPES).index(shape)])
    conformal = fit_conformal_map(SHAPES[shape](random, rows))
    assert conformal is not None  # noqa: S101 - there are rows enough
    values = SHAPES[shape](random, outcomes)
    values[after:] = shift + spread * values[after:]
    grid = conformal.calibrate(torch.from_numpy(SCORES)).numpy().astype(np.float32)
    test = PitMartingale.of(round(conformal.units), central=conformal.is_symmetric)
    test.update(number_pits(np.tile(grid, (outcomes, 1)), values, random.random(outcomes)))
    return None if test.alarm is None else test.alarm.outcomes


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_counts(parser, streams=(1000, "streams of a cell"), outcomes=(3000, "outcomes of a stream"))


def run(options: argparse.Namespace) -> Report:
    """Measure and print."""
    found: dict[str, dict[str, float]] = {}
    for shape in SHAPES:
        for rows in ROWS:
            seeds = range(options.streams)
            raised = [alarm_at(shape, rows, options.outcomes, seed) is not None for seed in seeds]
            line = {"false": float(np.mean(raised))}
            for name, change in (("shift", {"shift": 1.0}), ("spread", {"spread": 1.5})):
                delays = [
                    (alarm_at(shape, rows, 2 * BEFORE, seed, **change, after=BEFORE) or np.inf) - BEFORE
                    for seed in seeds[: options.streams // 10]
                ]
                line[name] = float(np.median(delays))
            found[f"{shape}, {rows} rows"] = line
    headers = ("residuals, held-out rows", "false, %", "shift found after", "spread found after")
    cells = [
        (name, f"{100.0 * line['false']:.1f}", *(f"{line[each]:.0f}" for each in ("shift", "spread")))
        for name, line in found.items()
    ]
    print(table(headers, cells))
    return {"cells": found}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
