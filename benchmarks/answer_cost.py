"""What answers cost by `model.checkpoint.posterior`, beside the processor time that they take.

Run it as ``python -m benchmarks.answer_cost CHECKPOINT``, with a directory ``NAME/VERSION``. Both columns are in units
of a row and draw of the plain answer of many rows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from murho.model.tables.schema import Columns

__all__ = ["CASES", "measured", "rows_of"]

ROWS = 200
NEW_SEED = 10**6
"""Seeds from here on are new at every call."""
MANY = tuple(float(level) for level in np.linspace(0.5, 99.5, 100))
LOW = tuple(float(level) for level in np.geomspace(1e-11, 1e-6, 50))
EXTREME = (*LOW, *(100.0 - 1e3 * level for level in LOW))
PLAIN = PredictOptions()
CASES: dict[str, tuple[int, PredictOptions]] = {
    "plain": (ROWS, PLAIN),
    "one row": (1, PLAIN),
    "S = 1": (ROWS, replace(PLAIN, samples=1)),
    "S = 4096": (ROWS, replace(PLAIN, samples=4096)),
    "100 levels": (ROWS, replace(PLAIN, percentiles=MANY)),
    "100 levels far out": (ROWS, replace(PLAIN, percentiles=EXTREME)),
    "100 thresholds": (ROWS, replace(PLAIN, thresholds=MANY)),
    "the function, 100 levels and thresholds": (
        ROWS,
        replace(PLAIN, noise=False, percentiles=MANY, thresholds=MANY),
    ),
    "draws": (ROWS, replace(PLAIN, draws=True)),
    "standard errors": (ROWS, replace(PLAIN, mc_error=True)),
    "standard errors of 100 levels": (ROWS, replace(PLAIN, mc_error=True, percentiles=MANY)),
    "a new seed, one row": (1, replace(PLAIN, seed=NEW_SEED)),
    "a new seed, one row, S = 4096": (1, replace(PLAIN, seed=NEW_SEED, samples=4096)),
}
"""Name → rows and options."""


def rows_of(posterior: Posterior, rows: int) -> Columns:
    """Rows within the training range."""
    generator = np.random.default_rng(0)
    columns: dict[str, NDArray[Any]] = {}
    for feature in posterior.schema.features:
        column: NDArray[Any]
        if feature.kind is FeatureKind.CATEGORICAL:
            column = np.array([feature.categories[row % len(feature.categories)] for row in range(rows)], dtype=object)
        else:
            column = generator.uniform(feature.minimum or 0.0, feature.maximum or 1.0, rows)
        columns[feature.name] = column
    return columns


def measured(posterior: Posterior, *, repetitions: int = 5) -> Iterator[tuple[str, float, float]]:
    """The cases, with the cost of each and the median of its processor time in seconds."""
    seeds = count(NEW_SEED)
    posterior.warm_up()
    for name, (rows, options) in CASES.items():
        columns = rows_of(posterior, rows)
        times, costs = [], []
        for number in range(repetitions + 1):
            asked = replace(options, seed=next(seeds)) if options.seed == NEW_SEED else options
            cost = posterior.cost(rows, asked)
            start = time.process_time()
            posterior.predict(columns, asked)
            if number:  # the first call makes the draws that later ones have
                times.append(time.process_time() - start)
                costs.append(cost)
        yield name, costs[-1], statistics.median(times)


def main() -> None:
    """Print costs and times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="directory NAME/VERSION")
    parser.add_argument("--engine", default="auto")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    unit = 0.0
    for name, cost, seconds in measured(Posterior.load(arguments.checkpoint, engine=arguments.engine)):
        unit = unit or seconds / cost
        print(f"{name:42} cost {cost:14,.0f}  time {seconds / unit:14,.0f}  ratio {cost * unit / seconds:5.2f}")


if __name__ == "__main__":
    main()
