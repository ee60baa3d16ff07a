"""`python -m benchmarks.dependent`: error bars on made-up tables whose rows depend on each other.

The true distribution of each table is known, so fresh rows show what the 90 % bands cover and what the CRPS is. Each
table is trained on without an option, and with the one that says how its rows belong together. Without options the
numbers that `murho train` prints are those of shuffled, independent rows.

- *four times*: every row stands four times in the table.
- *a quarter twice*: a quarter of the rows stand twice.
- *groups*: 80 groups of 15 rows with an effect of the group; asked for new groups.
- *patients*: 60 patients with 10 visits and features that are constant for a patient; asked for other patients.
- *AR(1)*: noise that is correlated from day to day, with a column of dates; asked for the days after.
- *drift*: a coefficient that drifts, without a column of dates; asked for the rows after.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.results import Report, add_names, command
from benchmarks.runner import Task, add_fits, fit_job, fits_of, geometric, grouped, mean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from murho.model.arrays import Doubles, Ints

FRESH = 2_000
PAST, AHEAD, FUTURES = 1_000, 100, 20
"""Rows of a table in time, rows to come, and futures: a single one would say little, since its rows go together."""
COLUMNS = {
    "90 % bands cover": mean("calibrated.coverage.90", 100.0),
    "printed / true": geometric("printed.crps", "served_crps"),
}


@dataclass(frozen=True, slots=True)
class Made:
    """A made-up table, fresh rows as they will be asked for, and options that say how rows belong together.

    ``ignored`` are the columns that are no features without these options.
    """

    rows: pa.Table
    fresh: pa.Table
    options: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def _friedman(features: Doubles) -> Doubles:
    """Return a smooth function of four features in [0, 1] with interactions; its standard deviation is about 2."""
    x = features.T
    return np.asarray(4.0 * np.sin(np.pi * x[0] * x[1]) + 8.0 * (x[2] - 0.5) ** 2 + 4.0 * x[3])


def _table(features: Doubles, target: Doubles, **columns: Any) -> pa.Table:
    named = {f"x{number}": column for number, column in enumerate(features.T)}
    return pa.table({**named, **columns, "y": target})


def _independent(generator: np.random.Generator, count: int) -> pa.Table:
    features = generator.random((count, 4))
    return _table(features, _friedman(features) + 0.5 * generator.standard_normal(count))


def _four_times(generator: np.random.Generator) -> Made:
    rows = _independent(generator, 300)
    return Made(rows.take(generator.permutation(np.repeat(np.arange(300), 4))), _independent(generator, FRESH))


def _a_quarter_twice(generator: np.random.Generator) -> Made:
    rows = _independent(generator, 800)
    copies = generator.permutation(np.concatenate((np.arange(800), np.arange(200))))
    return Made(rows.take(copies), _independent(generator, FRESH))


def _units(
    generator: np.random.Generator,
    column: str,
    counts: tuple[int, int],
    visits: int,
    effect: float,
    noise: float,
    features: Callable[[Ints], Doubles],
) -> Made:
    """Return groups of rows, each of which adds ``N(0, effect^2)`` to the target; asked for new groups."""

    def rows(count: int, name: str) -> pa.Table:
        unit = np.repeat(np.arange(count), visits)
        x = features(unit)
        target = (
            _friedman(x) + effect * generator.standard_normal(count)[unit] + noise * generator.standard_normal(len(x))
        )
        return _table(x, target, **{column: np.array([f"{name}{number}" for number in unit])})

    known = rows(counts[0], "a")
    return Made(
        known.take(generator.permutation(known.num_rows)), rows(counts[1], "b"), {"group": (column,)}, (column,)
    )


def _groups(generator: np.random.Generator) -> Made:
    """Return a group shifts its features too, so that they tell of it."""

    def features(unit: Ints) -> Doubles:
        centre = generator.random((unit.max() + 1, 4))[unit]
        return np.asarray(0.8 * centre + 0.2 * generator.random((len(unit), 4)))

    return _units(generator, "plot", (80, 200), 15, 1.5, 0.3, features)


def _patients(generator: np.random.Generator) -> Made:
    """Three features are the patient's own, one is the visit's."""

    def features(unit: Ints) -> Doubles:
        return np.column_stack((generator.random((unit.max() + 1, 3))[unit], generator.random(len(unit))))

    return _units(generator, "patient", (60, 300), 10, 1.0, 0.4, features)


def _autoregressive(generator: np.random.Generator) -> Made:
    """1,000 days with AR(1) noise of correlation 0.98; asked for the next 100 days, in 20 futures."""
    correlation, days = 0.98, np.datetime64("2015-01-01") + np.arange(PAST + AHEAD)

    def rows(noise: Doubles, when: NDArray[np.datetime64]) -> pa.Table:
        features = generator.random((len(noise), 4))
        white = 0.3 * generator.standard_normal(len(noise))
        return _table(features, _friedman(features) + 1.5 * noise + white, day=pa.array(when))

    def path(first: float, count: int) -> Doubles:
        noise = np.empty(count + 1)
        noise[0] = first
        for day, shock in enumerate(generator.standard_normal(count)):
            noise[day + 1] = correlation * noise[day] + np.sqrt(1.0 - correlation**2) * shock
        return noise[1:]

    past = path(float(generator.standard_normal()), PAST)
    futures = [rows(path(float(past[-1]), AHEAD), days[PAST:]) for _ in range(FUTURES)]
    return Made(rows(past, days[:PAST]), pa.concat_tables(futures), {"time": "day"})


def _drift(generator: np.random.Generator) -> Made:
    """Return a coefficient rises and wanders; asked for the next 100 rows, in 20 futures."""

    def path(first: float, count: int) -> Doubles:
        return np.asarray(first + np.cumsum(0.006 + 0.05 * generator.standard_normal(count)))

    def rows(coefficient: Doubles) -> pa.Table:
        features = generator.random((len(coefficient), 4))
        noise = 0.5 * generator.standard_normal(len(coefficient))
        return _table(features, _friedman(features) + coefficient * features[:, 0] + noise)

    past = path(-2.0, PAST)
    futures = [rows(path(float(past[-1]), AHEAD)) for _ in range(FUTURES)]
    return Made(rows(past), pa.concat_tables(futures), {"time": "row-order"})


TABLES: Mapping[str, Callable[[np.random.Generator], Made]] = {
    "four times": _four_times,
    "a quarter twice": _a_quarter_twice,
    "groups": _groups,
    "patients": _patients,
    "AR(1)": _autoregressive,
    "drift": _drift,
}
"""Name → maker of the table."""
WITH = {"groups": "--group plot", "patients": "--group patient", "AR(1)": "--time day", "drift": "--time row-order"}


def task(name: str, seed: int, told: bool, budget: float | None = None) -> Task:
    """Return a table; ``told`` says whether the options are given that say how its rows belong together."""
    made = TABLES[name](np.random.default_rng((seed, list(TABLES).index(name))))
    said: dict[str, Any] = dict(made.options) if told else {"ignore": made.ignored}
    return Task(made.rows, made.fresh, "y", {"seed": seed, "budget": budget, **said})


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_fits(parser)
    parser.add_argument("--seeds", default="0", help="seeds of tables and fits, such as 0,1,2 (default 0)")
    add_names(parser, tables=TABLES)


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    jobs = []
    for name in options.tables:
        for told in (False, True) if name in WITH else (False,):
            line = f"{name}, {WITH[name] if told else 'no option'}"
            for seed in map(int, options.seeds.split(",")):
                parts = f"dependent-{line}-{seed}-{options.budget}"
                jobs.append(fit_job(parts, line, task, name, seed, told, options.budget))
    lines = fits_of(jobs, options)
    print(grouped("table", COLUMNS, lines))
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
