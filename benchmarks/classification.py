"""`python -m benchmarks.classification --data DIR`: Murho with its defaults beside other classifiers of tables.

All systems have the same splits. The score is the log loss, nats a row.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.comparison import MURHO, Comparison, known_rows
from benchmarks.datasets import CLASSES, Split, read_set
from benchmarks.runner import Task, mean, values

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from benchmarks.comparison import Runs

ROWS_FOR_ECE = 2_000
"""Least test rows with which a calibration error is more than noise."""


def task(data: Path, name: str, split: Split, options: Mapping[str, Any]) -> Task:
    """Return a split of a set, for `benchmarks.runner.fit_job`."""
    return class_task(read_set(CLASSES[name], data), CLASSES[name].target, split, options)


def class_task(table: pa.Table, target: str, split: Split, options: Mapping[str, Any]) -> Task:
    """Return a split, without test rows of a class that no training row has."""
    split = known_rows(table, target, split)
    training = table.take(split.training)
    test = filled_in(table.take(split.test), training)
    return Task(training, test, target, {"task": "classification", **options})


def filled_in(test: pa.Table, training: pa.Table) -> pa.Table:
    """Return the test rows with the most frequent training cell where one is missing in a column complete in training.

    Murho refuses such cells: it asks the user to fill them in. Peers take them as they are.
    """
    for place, name in enumerate(test.column_names):
        if test[name].null_count and not training[name].null_count:
            usual = Counter(training[name].to_pylist()).most_common(1)[0][0]
            test = test.set_column(place, name, test[name].fill_null(usual))
    return test


def calibration_errors(runs: Mapping[str, Runs]) -> str:
    """Return the calibration errors of Murho where there are rows enough."""
    errors = {
        name: np.mean(values(of_set[MURHO], "calibrated.ece"))
        for name, of_set in runs.items()
        if MURHO in of_set and min(values(of_set[MURHO], "rows")) >= ROWS_FOR_ECE
    }
    said = ", ".join(f"{name} {error:.3f}" for name, error in errors.items())
    return f"Its calibration error where there are {ROWS_FOR_ECE:,} test rows (aim 0.02): {said}." if said else ""


COMPARISON = Comparison(
    about=__doc__,
    benchmark="classes",
    datasets=CLASSES,
    score="log_loss",
    columns={
        "Brier": mean("scores.brier"),
        "ECE": mean("scores.ece"),
        "AUC": mean("scores.auc"),
        "accuracy": mean("scores.accuracy"),
        "seconds": mean("seconds"),
    },
    remarks=calibration_errors,
    make=task,
    kind="classes-",
)
main = COMPARISON.main

if __name__ == "__main__":
    sys.exit(main())
