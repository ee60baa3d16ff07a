"""`python -m benchmarks.abstain --data DIR`: how often the error of decisions that are taken stays below a limit.

Each table is fitted once, quickly, to half of its rows. The other half is answered, and split at random many times:
one part plays the held-out rows of a checkpoint, the other one is decided about. "broken" counts the splits in which
more than the limit of the decisions taken are wrong; "checkpoint" is the same of the rows that the fit itself held out,
with all of the other half.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

import murho
from benchmarks.datasets import CLASSES, add_data, read_set
from benchmarks.results import Report, add_counts, command
from benchmarks.runner import mean, one_each
from murho.model.calibration.abstention import least_confidence
from murho.model.calibration.classes import ClassCalibration
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["main", "measured"]

LIMITS = (0.01, 0.05, 0.1)
COLUMNS = {
    "wrong": mean("wrong"),
    "broken": mean("broken"),
    "taken": mean("taken"),
    "taken by its checkpoint": mean("own_taken"),
    "wrong of these": mean("own_wrong"),
}


def measured(data: Path, name: str, repeats: int) -> dict[str, dict[str, float | None]]:
    """What one table shows, by limit: shares broken, taken and wrong, and those of the checkpoint's own rows."""
    dataset, random = CLASSES[name], np.random.default_rng(0)
    rows = read_set(dataset, data)
    order = random.permutation(rows.num_rows)
    learned, others = np.array_split(order, 2)
    model = murho.train(rows.take(learned), dataset.target, quick=True, task="classification")
    answer = model.posterior.predict(*_asked(model, rows.take(others)))
    classes = {each: number for number, each in enumerate(model.classes or ())}
    truth = np.array([classes.get(str(each), -1) for each in rows[dataset.target].take(others).to_pylist()])
    confidence, wrong = answer.probabilities.max(axis=1), answer.prediction != truth
    alike = ~answer.unlike
    confidence, wrong = confidence[alike], wrong[alike]
    own = model.posterior.calibration
    kept = own.held_out if isinstance(own, ClassCalibration) else None
    found: dict[str, dict[str, float | None]] = {}
    for limit in LIMITS:
        broken, taken = 0, []
        for _ in range(repeats):
            places = random.permutation(len(wrong))
            known, new = np.array_split(places, 2)
            chosen = confidence[new] >= least_confidence(confidence[known], wrong[known], limit)
            broken += bool(chosen.any() and wrong[new][chosen].mean() > limit)
            taken.append(chosen.mean())
        least = np.inf
        if kept is not None and len(kept.labels):
            missed = kept.probabilities.argmax(axis=1) != kept.labels
            least = least_confidence(kept.probabilities.max(axis=1), missed, limit)
        sure = confidence >= least
        found[str(limit)] = {
            "broken": broken / repeats,
            "taken": float(np.mean(taken)),
            "wrong": float(wrong.mean()),
            "own_taken": float(sure.mean()),
            "own_wrong": float(wrong[sure].mean()) if sure.any() else None,
        }
    return found


def _asked(model: murho.TrainedModel, rows: pa.Table) -> tuple[dict[str, NDArray[Any]], PredictOptions]:
    return columns_from_table(rows, model.posterior.schema), PredictOptions(percentiles=())


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_data(parser, CLASSES)
    add_counts(parser, repeats=(100, "splits of a table"))


def run(options: argparse.Namespace) -> Report:
    """Measures and prints."""
    found = {name: measured(options.data, name, options.repeats) for name in options.sets}
    lines = {f"{name}, {limit}": of for name, limits in found.items() for limit, of in limits.items()}
    print(one_each("table, limit", COLUMNS, lines))
    return {"sets": found}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
