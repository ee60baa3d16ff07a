"""`python -m benchmarks.missing --data DIR`: coverage with blanked cells, and the rate of false alarms.

Of each table, one split. *test*: the network learns from complete rows, and a share of the cells of the test rows is
blanked at random (seed 1). *all*: the same share of the training cells is blanked, too (seed 0). The aim is a coverage
of 87 to 93 % of the 90 % bands. A false alarm is a row of the complete test rows that is called unlike the training
rows: at most 1 %.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.datasets import SETS, TABULAR, Split, add_data, read_set, splits
from benchmarks.results import Report, command
from benchmarks.runner import Task, add_fits, fit_job, fits_of, grouped, mean
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from murho.model.training.train import Trained

__all__ = ["blanked", "main", "task"]

DEFAULT_SETS = ("yacht", "autompg", "energy", "abalone", "california")
MOST_ROWS = {"abalone": 2_000, "california": 3_000}
MOST_TEST_ROWS = 1_500
SHARES = (0, 10, 20)
TRAINING_SEED, TEST_SEED = 0, 1
COLUMNS = {
    "raw 90 %": mean("raw.coverage.90", 100.0),
    "calibrated 90 %": mean("calibrated.coverage.90", 100.0),
    "width": mean("calibrated.width.90"),
    "CRPS": mean("crps"),
    "called unlike, %": mean("alarms", 100.0),
}


def blanked(rows: pa.Table, target: str, per_cent: int, seed: int) -> pa.Table:
    """The table with a share of its cells missing, at random, except those of the target."""
    generator, columns = np.random.default_rng(seed), {}
    for name in rows.column_names:
        column = rows.column(name)
        gone = pa.array(generator.random(rows.num_rows) < per_cent / 100.0)
        columns[name] = column if name == target else pc.if_else(gone, pa.scalar(None, column.type), column)
    return pa.table(columns)


def task(data: Path, name: str, split: Split, learned: int, asked: int, budget: float) -> Task:
    """A split with so many per cent of the training and of the test cells blanked.

    The report gets ``alarms``, the share of rows called unlike the training rows.
    """
    table, target = read_set(SETS[name], data), SETS[name].target
    training = blanked(table.take(split.training), target, learned, TRAINING_SEED)
    test = blanked(table.take(split.test), target, asked, TEST_SEED)

    def alarms(trained: Trained) -> Report:
        warnings = trained.posterior.input_warnings(columns_from_table(test, trained.posterior.schema))
        rows = {warning.row for warning in warnings if "is missing" not in warning.message}
        return {"alarms": len(rows) / test.num_rows}

    return Task(training, test, target, {"budget": budget}, alarms)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_data(parser, TABULAR, DEFAULT_SETS)
    add_fits(parser)
    parser.set_defaults(budget=20.0)


def run(options: argparse.Namespace) -> Report:
    """Fits and prints."""
    jobs = []
    for name in options.sets:
        (split,) = splits(SETS[name], read_set(SETS[name], options.data).num_rows, 1)
        split = Split(split.training[: MOST_ROWS.get(name)], split.test[:MOST_TEST_ROWS])
        for learned, asked in [(0, share) for share in SHARES] + [(share, share) for share in SHARES if share]:
            line = f"{name}, {'all' if learned else 'test'}, {asked} % blanked"
            given = (options.data, name, split, learned, asked, options.budget)
            jobs.append(fit_job(f"missing {line}, {options.budget:g} s", line, task, *given))
    lines = fits_of(jobs, options)
    print(grouped("set, rows", COLUMNS, lines))
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
