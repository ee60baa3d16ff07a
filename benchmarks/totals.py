"""`python -m benchmarks.totals --data DIR`: how often bands of totals of held-out rows hold the truth.

Totals of 10, 50 and 200 held-out rows: random ones, rows alike in their prediction, rows alike in one feature. Each is
judged as answered, without the calibration of totals, and beside four rivals: variances of rows added in quadrature,
their standard deviations added (comonotone), bootstrapped boosted trees, and split conformal bands of totals of these
trees. ``--known`` judges tables whose truth is known: the mean of new patients, of days to come, and a linear function
with a known posterior. ``--speed`` shows what a total costs beside the predictions that it adds up.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks.datasets import TABULAR, UCI, Split, add_data, split_jobs, split_task
from benchmarks.dependent import AHEAD, WITH
from benchmarks.dependent import task as dependent_task
from benchmarks.results import Report, add_counts, command
from benchmarks.runner import Task, add_fits, fit_job, fits_of, grouped, mean
from benchmarks.training import made_up_table
from murho.model.calibration.totals_calibration import TotalsCalibration
from murho.model.predictive.prediction import PredictOptions, rows_of
from murho.model.predictive.totals import Totals, TotalsOptions
from murho.model.python.table_totals import add_up_table
from murho.model.tables.schema_inference import columns_from_table, target_from_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from murho.model.arrays import Doubles, Places
    from murho.model.tables.schema import Columns
    from murho.model.training.train import Trained

SIZES = (10, 50, 200)
KINDS = ("random", "decile", "region")
MOST_FEATURES = 5
LEVELS = (5.0, 95.0)
SCORE = 1.6448536269514722
HOWS = ("answered", "plain", "quadrature", "comonotone", "bootstrap", "conformal")
BOOTSTRAPS = 20
DEFAULT = ("bike", "power", "abalone", "california", "diamonds", "wine")
KNOWN = {"patients": "patient", "groups": "plot", "AR(1)": None}
"""Made-up table → the column whose rows are added up; None: futures of 100 days."""


def _blocks(columns: Columns, predicted: Doubles, seed: int) -> Iterator[tuple[str, Places]]:
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


class _Trees:
    """Boosted trees of all training rows, of bootstrapped ones, and of four fifths with the errors on the rest."""

    def __init__(self, training: Columns, targets: Doubles, test: Columns) -> None:
        x, new = (_numbers(columns, training) for columns in (training, test))
        rng, count = np.random.default_rng(0), len(targets)
        order = rng.permutation(count)
        learned, kept = order[count // 5 :], order[: count // 5]
        model = HistGradientBoostingRegressor(random_state=0).fit(x[learned], targets[learned])
        self._rng, self.errors, self.mean = rng, targets[kept] - model.predict(x[kept]), model.predict(new)
        drawn = []
        for number in range(BOOTSTRAPS):
            again = rng.integers(0, count, count)
            drawn.append(HistGradientBoostingRegressor(random_state=number).fit(x[again], targets[again]).predict(new))
        self.drawn = np.array(drawn)

    def bands(self, block: Places) -> dict[str, tuple[float, float]]:
        """Return the bands of a total: from bootstraps and independent noise; from errors of random held-out totals."""
        drawn, size = self.drawn[:, block].sum(axis=1), len(block)
        half = SCORE * float(np.sqrt(drawn.var(ddof=1) + size * np.mean(self.errors**2)))
        held_out = np.abs(self._rng.choice(self.errors, (400, size)).sum(axis=1))
        centre, middle = float(self.mean[block].sum()), float(drawn.mean())
        wide = float(np.quantile(held_out, 0.9))
        return {"bootstrap": (middle - half, middle + half), "conformal": (centre - wide, centre + wide)}


def _numbers(columns: Columns, known: Columns) -> Doubles:
    """Columns as numbers, ``[B, D]``; a category is its place among those known."""
    found = []
    for name, column in columns.items():
        if column.dtype == object:
            places = {cell: place for place, cell in enumerate(sorted({str(cell) for cell in known[name]}))}
            found.append(np.array([places.get(str(cell), -1) for cell in column], dtype=np.float64))
        else:
            found.append(column.astype(np.float64))
    return np.column_stack(found)


def _judged(trained: Trained, test: Task, blocks: list[tuple[str, Places]] | None = None) -> Report:
    """Coverage and mean width of the 90 % bands of totals, for each size and kind of block."""
    posterior = trained.posterior
    columns = columns_from_table(test.test, posterior.schema)
    targets = target_from_table(test.test, posterior.schema.target)
    answer = posterior.predict(columns, PredictOptions(percentiles=()))
    std, units, trees = np.asarray(answer.std), None, None
    if blocks is None:
        learned = columns_from_table(test.training, posterior.schema)
        trees = _Trees(learned, target_from_table(test.training, posterior.schema.target), columns)
    elif unit := next((name for name in KNOWN.values() if name in test.test.column_names), None):
        units = test.test.column(unit).to_pylist()
    asked = TotalsOptions(of=PredictOptions(percentiles=LEVELS))
    of_rows = posterior.predict(columns, Totals(asked).asked)
    found: dict[str, dict[str, list[float]]] = {}
    for name, block in blocks or _blocks(columns, answer.mean, 0):
        totals = Totals(asked)
        cells = {each: column[block] for each, column in columns.items()}
        of_units = None if units is None else [units[row] for row in block]
        totals.add(rows_of(of_rows, block), cells, [()] * len(block), units=of_units)
        truth, kept = float(targets[block].sum()), found.setdefault(name, {})
        bands = {} if trees is None else trees.bands(block)
        for how, calibration in (("answered", posterior.spec.totals), ("plain", TotalsCalibration())):
            lower, upper = np.asarray(totals.answer(None, calibration).percentiles)[0].tolist()
            bands[how] = lower, upper
        centre = float(answer.mean[block].sum())
        for how, half in (("quadrature", float(np.sqrt((std[block] ** 2).sum()))), ("comonotone", std[block].sum())):
            bands[how] = centre - SCORE * half, centre + SCORE * half
        for how, (lower, upper) in bands.items():
            kept.setdefault(how, []).append(float(lower <= truth <= upper))
            kept.setdefault(f"{how} width", []).append(upper - lower)
    return {name: {how: float(np.mean(of)) for how, of in kept.items()} for name, kept in found.items()}


def task(data: Path, name: str, split: Split, options: Mapping[str, object]) -> Task:
    """Return a split of a set whose report has totals."""
    plain = split_task(data, name, split, options)
    return replace(plain, also=lambda trained: {"totals": _judged(trained, plain)})


def known_task(name: str, seed: int) -> Task:
    """Make a table of `benchmarks.dependent`: totals of new patients, of new groups, of the 100 days to come."""
    plain = dependent_task(name, seed, told=True)
    plain = replace(plain, options={**plain.options, "quick": True, "budget": None})
    count, column = plain.test.num_rows, KNOWN[name]
    of_rows = np.arange(count) // AHEAD
    if column is not None:
        of_rows = np.unique(plain.test.column(column).to_pylist(), return_inverse=True)[1]
    blocks = [("known", np.flatnonzero(of_rows == block)) for block in range(of_rows.max() + 1)]
    return replace(plain, also=lambda trained: {"totals": _judged(trained, plain, blocks)})


def linear_task(seed: int) -> Task:
    """Make a linear function, whose exact posterior gives the std of a sum of 1,000 rows (noise known, wide prior)."""
    rng, sigma = np.random.default_rng(seed), 1.0

    def rows(count: int) -> pa.Table:
        x = rng.normal(size=(count, 4))
        columns = {f"x{number}": column for number, column in enumerate(x.T)}
        return pa.table({**columns, "y": x @ np.array([1.0, -2.0, 0.5, 0.0]) + sigma * rng.normal(size=count)})

    training, test = rows(400), rows(1_000)

    def design(table: pa.Table) -> Doubles:
        return np.column_stack([np.ones(len(table)), *(table.column(f"x{number}").to_numpy() for number in range(4))])

    def judged(trained: Trained) -> Report:
        answer = add_up_table(
            trained.posterior, test, TotalsOptions(of=PredictOptions(samples=4_096, calibrated=False))
        )
        x, total = design(training), design(test).sum(axis=0)
        noise, found = sigma**2, answer.answer()
        learned = float(str(trained.posterior.spec.training["rows"])) / len(x)  # of rows like these
        exact = total @ np.linalg.solve(x.T @ x * learned, total) * noise
        parts = np.asarray(found.epistemic_std)[0], np.asarray(found.std)[0]
        return {"epistemic": parts[0] / exact**0.5, "std": parts[1] / (exact + 1_000 * noise) ** 0.5}

    options = {"hidden": (), "members": 1, "temperature": 1.0, "noise": "homoscedastic", "encoding": "standard"}
    options |= {"transform": "none", "prior": "gaussian", "prior_sigma": 10.0, "epochs": 400, "seed": seed}
    return Task(training, test, "y", options, judged)


def speed_task(rows: int) -> Task:
    """Return a table of 16 features; predicting many rows without percentiles, and adding them up, in turns."""
    made, _ = made_up_table(2_000, 16)

    def timed(trained: Trained) -> Report:
        posterior, many = trained.posterior, made_up_table(rows, 16, seed=1)[0]
        columns, times = columns_from_table(many, posterior.schema), {"predict": [], "total": []}  # type: ignore[var-annotated]
        for _ in range(3):
            for how in times:
                began = time.perf_counter()
                if how == "predict":
                    for start in range(0, rows, 16_384):
                        cells = {name: column[start : start + 16_384] for name, column in columns.items()}
                        posterior.predict(cells, PredictOptions(percentiles=()))
                else:
                    add_up_table(posterior, many, TotalsOptions()).answer()
                times[how].append(time.perf_counter() - began)
        return {how: statistics.median(of) for how, of in times.items()}

    return Task(made, made.slice(0, 100), "y", {"quick": True}, timed)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_data(parser, UCI | TABULAR, DEFAULT)
    add_fits(parser)
    add_counts(parser, splits=(5, "splits of each set, and seeds of each known table"))
    parser.add_argument("--known", action="store_true", help="tables whose truth is known, instead of sets")
    parser.add_argument("--speed", action="store_true", help="what a total of 100,000 rows costs, instead of sets")


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    if options.known or options.speed:
        return _of_known(options) if options.known else _of_speed(options)
    lines = fits_of(split_jobs(options, task, "totals-", quick=not options.budget), options)
    for kind in KINDS:
        for size in SIZES:
            known = {name: [each for each in of if f"{size} {kind}" in each["totals"]] for name, of in lines.items()}
            print(f"\n90 % bands of totals of {size} rows, {kind}: per cent that hold the truth, and mean widths")
            print(_covered(f"{size} {kind}", known, HOWS))
    return {"runs": lines}


def _covered(place: str, lines: Mapping[str, list[Report]], hows: tuple[str, ...]) -> str:
    cells = {how: mean(f"totals.{place}.{how}", 100.0) for how in hows}
    return grouped("table", cells | {f"width {how}": mean(f"totals.{place}.{how} width") for how in hows}, lines)


def _of_known(options: argparse.Namespace) -> Report:
    seeds, jobs = range(options.splits), []
    for seed in seeds:
        jobs += [fit_job(f"totals-{of}-{seed}", f"{of}, {WITH[of]}", known_task, of, seed) for of in KNOWN]
    lines = fits_of(jobs, options)
    print(_covered("known", lines, HOWS[:4]))
    linear = fits_of([fit_job(f"totals-linear-{seed}", "linear", linear_task, seed) for seed in seeds], options)
    print("\nStd of the sum of 1,000 rows to that of the exact posterior")
    print(grouped("table", {"epistemic_std": mean("epistemic"), "std": mean("std")}, linear))
    return {"runs": lines | linear}


def _of_speed(options: argparse.Namespace) -> Report:
    lines = fits_of([fit_job("totals-speed", "100,000 x 16", speed_task, 100_000)], options)
    print(grouped("table", {"predict, s": mean("predict"), "total, s": mean("total")}, lines))
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
