"""`python -m benchmarks.cars`: coverage on held-out cars, and epistemic uncertainty about cars unlike any in the table.

For each of ten seeds, a fifth of the example's cars is held out, a checkpoint is trained on the others with the
defaults, and its bands are scored on the held-out cars. Then each of these cars is made three times as heavy.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.results import ROOT, Report, add_counts, command
from benchmarks.runner import Task, add_fits, fit_job, fits_of, grouped, mean
from murho.cli.train import read_config
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table, target_from_table
from murho.model.tables.table_files import read_table

if TYPE_CHECKING:
    import argparse

    from murho.model.training.train import Trained

HELD_OUT = 80
COLUMNS = {
    "CRPS": mean("crps"),
    "raw 90 %": mean("raw.coverage.90", 100.0),
    "calibrated 90 %": mean("calibrated.coverage.90", 100.0),
    "far ratio": mean("far_ratio"),
}


def task(seed: int, budget: float | None = None) -> Task:
    """All but 80 cars, and the 80; the report gets ``far_ratio``.

    That is the median epistemic_std of the held-out cars at three times their weight over that at their own weight.
    """
    config: dict[str, Any] = dict(read_config(ROOT / "examples" / "cars.toml"))
    target = str(config.pop("target"))
    cars = read_table(ROOT / "examples" / "cars.csv")
    cars = cars.take(np.flatnonzero(~np.isnan(target_from_table(cars, target))))
    order = np.random.default_rng(seed).permutation(cars.num_rows)
    held_out = cars.take(order[:HELD_OUT])

    def far_ratio(trained: Trained) -> Report:
        columns = dict(columns_from_table(held_out, trained.posterior.schema))
        heavy = columns | {"Weight_in_lbs": 3.0 * columns["Weight_in_lbs"]}
        near, far = (trained.posterior.predict(rows, PredictOptions()).epistemic_std for rows in (columns, heavy))
        return {"far_ratio": float(np.median(np.asarray(far)) / np.median(np.asarray(near)))}

    options = config | {"seed": seed, "budget": budget}
    return Task(cars.take(order[HELD_OUT:]), held_out, target, options, far_ratio)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_fits(parser)
    add_counts(parser, seeds=(10, "seeds 0 to N - 1"))


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    jobs = [fit_job(f"cars-{seed}", f"seed {seed}", task, seed, options.budget) for seed in range(options.seeds)]
    lines = fits_of(jobs, options)
    every = [report for reports in lines.values() for report in reports]
    print(grouped("cars", COLUMNS, lines | {"all": every}))
    least = min(report["far_ratio"] for report in every)
    print(f"\nleast far ratio of a seed: {least:.1f}")
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
