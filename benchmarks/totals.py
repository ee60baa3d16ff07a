"""`python -m benchmarks.totals --data DIR`: how often bands of totals of held-out rows hold the truth.

Totals of 10, 50 and 200 held-out rows: random ones, rows alike in their prediction, rows alike in one feature. Each is
judged as answered, without the calibration of totals, and with variances of rows added in quadrature.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.datasets import SETS, TABULAR, UCI, add_data, read_set, split_task, splits
from benchmarks.results import Report, add_counts, command
from benchmarks.runner import Task, add_fits, fit_job, fits_of, grouped, mean
from murho.model.calibration.totals import TotalsCalibration
from murho.model.predictive.prediction import PredictOptions
from murho.model.predictive.totals import Totals, TotalsOptions
from murho.model.tables.schema_inference import columns_from_table, target_from_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.datasets import Split
    from murho.model.tables.schema import Columns
    from murho.model.training.train import Trained

__all__ = ["main", "task"]

SIZES = (10, 50, 200)
KINDS = ("random", "decile", "region")
MOST_FEATURES = 5
LEVELS = (5.0, 95.0)
SCORE = 1.6448536269514722
DEFAULT = "bike,power,abalone,california,diamonds,wine"


def _blocks(columns: Columns, predicted: NDArray[np.float64], seed: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Kind and rows of each block."""
    rng, count = np.random.default_rng(seed), len(predicted)
    orders = [("random", rng.permutation(count)), ("decile", np.argsort(predicted, kind="stable"))]
    for column in list(columns.values())[:MOST_FEATURES]:
        values = np.unique([str(cell) for cell in column], return_inverse=True)[1] if column.dtype == object else column
        orders.append(("region", np.lexsort((rng.random(count), values))))
    for kind, order in orders:
        for size in SIZES:
            if 2 * size <= count:
                for block in np.array_split(order, count // size):
                    yield f"{size} {kind}", block


def _judged(trained: Trained, test: Task) -> Report:
    """Coverage and mean width of the 90 % bands of totals, for each size and kind of block."""
    posterior = trained.posterior
    columns = columns_from_table(test.test, posterior.schema)
    targets = target_from_table(test.test, posterior.schema.target)
    answer = posterior.predict(columns, PredictOptions(percentiles=()))
    variances = np.square(np.asarray(answer.std))
    found: dict[str, dict[str, list[float]]] = {}
    for name, block in _blocks(columns, answer.mean, 0):
        totals = Totals(TotalsOptions(of=PredictOptions(percentiles=LEVELS)))
        cells = {each: column[block] for each, column in columns.items()}
        totals.add(posterior.predict(cells, totals.asked), cells, [()] * len(block))
        truth, kept = float(targets[block].sum()), found.setdefault(name, {})
        bands = {
            how: totals.answer(None, calibration).percentiles
            for how, calibration in (("answered", posterior.spec.totals), ("plain", TotalsCalibration()))
        }
        half = SCORE * float(np.sqrt(variances[block].sum()))
        centre = float(answer.mean[block].sum())
        bands["quadrature"] = np.array([[centre - half, centre + half]])
        for how, band in bands.items():
            lower, upper = np.asarray(band)[0].tolist()
            kept.setdefault(how, []).append(float(lower <= truth <= upper))
            kept.setdefault(f"{how} width", []).append(upper - lower)
    return {name: {how: float(np.mean(of)) for how, of in kept.items()} for name, kept in found.items()}


def task(data: Path, name: str, split: Split, options: Mapping[str, object]) -> Task:
    """A split of a set whose report has totals."""
    plain = split_task(data, name, split, options)
    return replace(plain, also=lambda trained: {"totals": _judged(trained, plain)})


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_data(parser, UCI | TABULAR, {name: SETS[name] for name in DEFAULT.split(",")})
    add_fits(parser)
    add_counts(parser, splits=(5, "splits of each set"))


def run(options: argparse.Namespace) -> Report:
    """Fits and prints."""
    own = {"budget": options.budget} if options.budget else {"quick": True}
    jobs = [
        fit_job(f"totals-{name}-{number}-{options.budget}", name, task, options.data, name, split, own)
        for name in options.sets
        for number, split in enumerate(splits(SETS[name], read_set(SETS[name], options.data).num_rows, options.splits))
    ]
    lines = fits_of(jobs, options)
    for kind in KINDS:
        for size in SIZES:
            place = f"totals.{size} {kind}"
            cells = {how: mean(f"{place}.{how}", 100.0) for how in ("answered", "plain", "quadrature")}
            known = {name: [each for each in of if f"{size} {kind}" in each["totals"]] for name, of in lines.items()}
            print(f"\n90 % bands of totals of {size} rows, {kind}: per cent that hold the truth")
            print(grouped("table", cells, known))
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
