"""`python -m benchmarks.beyond`: how wrong and how sure predictions are beyond the training range of known functions.

Made-up tables: uniform features on [-1, 1], of which one or two matter, and noise of 2 to 10 % of the function's
standard deviation. Each kind of function is drawn anew for every number: polynomials of degree 1 to 5, exponentials,
sines, kinks, products, plateaus. A cell is a distance and a side of a table: 20 rows whose first feature lies there;
of a product and a sum of two functions also both features, outside together. A cell's number is the root mean square of
|true function - mean| / std. The aims: at 1.1 to 1.5 times the range at most 3 in 95 % of the cells and 6 in all, at
twice the range 10; std at 1.5 times at most half of that of the targets where the function is a line; never less than
at the edge.

Beside it an exact Gaussian process with a squared exponential kernel of a length scale per feature (scikit-learn), on
the tables of up to 400 rows.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from benchmarks.results import Report, add_counts, add_names, command
from benchmarks.runner import Task, add_fits, fit_job, fits_of, grouped
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from numpy.random import Generator

    from benchmarks.runner import Cell
    from murho.model.arrays import Doubles
    from murho.model.training.train import Trained

    Function = Callable[[Doubles], Doubles]

KINDS = (*(f"degree {degree}" for degree in range(1, 6)), "exponential", "sine", "kink", "product", "plateau", "sum")
DISTANCES = (1.1, 1.25, 1.5, 2.0)
"""Where rows are asked for, in units of the true range's end."""
ROWS_OF_A_CELL = 20
ROWS, FEATURES, NOISES = (60, 120, 200, 400, 1000, 2000), (1, 2, 3, 5, 10), (0.02, 0.05, 0.1)
MOST_OF_THE_PROCESS = 400
"""Most training rows of the Gaussian process."""
TOGETHER = ("product", "sum")
"""Kinds of two features."""


def function_of(kind: str, generator: Generator) -> Function:
    """Return a function of that kind of rows ``[N, D]``, drawn anew; it returns ``[N]``."""
    sign, a, b, c = generator.choice([-1.0, 1.0]), *generator.normal(size=3)
    if kind.startswith("degree"):
        weights = generator.normal(size=int(kind[-1]) + 1)
        weights[-1] = sign * (1.0 + abs(weights[-1]))
        return lambda x: np.asarray(np.polynomial.polynomial.polyval(x[:, 0], weights), dtype=np.float64)
    rate, phase, place = generator.uniform(0.5, 2.5), generator.uniform(0.0, 2.0 * np.pi), generator.uniform(-0.6, 0.6)
    functions: dict[str, Function] = {
        "exponential": lambda x: np.exp(sign * rate * x[:, 0]),
        "sine": lambda x: np.sin(2.0 * rate * x[:, 0] + phase),
        "kink": lambda x: 2.0 * a * np.abs(x[:, 0] - place) + b * x[:, 0],
        "product": lambda x: 2.0 * x[:, 0] * x[:, 1] + 0.5 * (a * x[:, 0] + b * x[:, 1]),
        "plateau": lambda x: sign * np.tanh((2.0 + 3.0 * rate) * (x[:, 0] - 0.7 * place)),
        "sum": lambda x: np.sin((1.0 + abs(c)) * x[:, 0]) + x[:, 1] ** 2,
    }
    return functions[kind]


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a table: rows beyond its range, n of them.

    Attributes:
        names: Distance and side of each row, such as ``1.1 above``, ``[n]``.
        rows: ``[n, D]``.
        edges: The same rows clipped to the training range, ``[n, D]``.
    """

    names: Sequence[str]
    rows: Doubles
    edges: Doubles


def cells(kind: str, table: Doubles, generator: Generator) -> Cells:
    """Return the cells of a table ``[N, D]``."""
    names: list[str] = []
    rows: list[Doubles] = []
    for distance in DISTANCES:
        for side, places in (("below", (0,)), ("above", (0,)), ("together", (0, 1))):
            if side == "together" and kind not in TOGETHER:
                continue
            made = generator.uniform(-1.0, 1.0, (ROWS_OF_A_CELL, table.shape[1]))
            signs = {"below": -1.0, "above": 1.0}.get(side) or generator.choice([-1.0, 1.0], (ROWS_OF_A_CELL, 2))
            made[:, places] = distance * signs
            names += [f"{distance:g} {side}"] * ROWS_OF_A_CELL
            rows.append(made)
    every = np.concatenate(rows)
    return Cells(names, every, every.clip(table.min(axis=0), table.max(axis=0)))


def task(kind: str, number: int, budget: float | None = None) -> Task:
    """Return a table of a function, and what `measured` finds beyond its range."""
    generator = np.random.default_rng([KINDS.index(kind), number])
    function = function_of(kind, generator)
    rows, noise = int(generator.choice(ROWS)), float(generator.choice(NOISES))
    features = max(int(generator.choice(FEATURES)), 2 if kind in TOGETHER else 1)
    x = generator.uniform(-1.0, 1.0, (rows + 100, features))
    truth = function(x)
    made = _table(x, truth + noise * truth.std() * generator.standard_normal(len(x)))
    asked = cells(kind, x[:rows], generator)
    also = partial(measured, made.slice(0, rows), asked, function(asked.rows))
    return Task(made.slice(0, rows), made.slice(rows), "y", {"seed": number, "budget": budget}, also)


def _table(x: Doubles, y: Doubles | None = None) -> pa.Table:
    columns = {f"x{number}": column for number, column in enumerate(x.T, start=1)}
    return pa.table(columns if y is None else columns | {"y": y})


def measured(training: pa.Table, asked: Cells, truth: Doubles, trained: Trained) -> Report:
    """Return what predictions and, for few rows, those of a Gaussian process are worth in each cell.

    Returns:
        ``cells``: name → root mean square of |error| / std, std as a share of that of the targets and of that at the
        edge, share of rows that are an extrapolation; ``process``: name → the first two of the process.
    """
    posterior, targets = trained.posterior, training["y"].to_numpy()
    answer, edge = (
        posterior.predict(columns_from_table(_table(rows), posterior.schema), PredictOptions(calibrated=False))
        for rows in (asked.rows, asked.edges)
    )
    std = np.asarray(answer.std)
    ours = (np.abs(truth - answer.mean) / std, std / targets.std(), std / np.asarray(edge.std), answer.extrapolation)
    found: Report = {"cells": dict(_by_cell(asked, *ours)), "process": {}}
    if training.num_rows <= MOST_OF_THE_PROCESS:
        inputs = np.stack([column.to_numpy() for column in training.drop_columns("y").columns], axis=1)
        mean, spread = _process(inputs, targets, asked.rows)
        found["process"] = dict(_by_cell(asked, np.abs(truth - mean) / spread, spread / targets.std()))
    return found


def _process(inputs: Doubles, targets: Doubles, rows: Doubles) -> tuple[Doubles, Doubles]:
    width = inputs.shape[1]
    kernel = ConstantKernel(10.0, (1e-2, 1e5)) * RBF(np.full(width, 3.0), (1e-2, 1e4)) + WhiteKernel(0.1, (1e-8, 1e1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hyperparameters at their bounds
        process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0)
        mean, std = process.fit(inputs, targets).predict(rows, return_std=True)
    return np.asarray(mean), np.asarray(std)


def _by_cell(asked: Cells, *numbers: object) -> Iterator[tuple[str, list[float]]]:
    """Return the root mean square of each kind of number in each cell."""
    names = np.array(asked.names)
    for name in dict.fromkeys(asked.names):
        squares = (np.square(np.asarray(each, dtype=np.float64)[names == name]) for each in numbers)
        yield name, [float(np.sqrt(each.mean())) for each in squares]


def _numbers(reports: Sequence[Report], of: str, distances: Sequence[float], place: int) -> Doubles:
    """Return a number of all cells at some distances."""
    known = tuple(f"{distance:g} " for distance in distances)
    return np.array([cell[place] for each in reports for name, cell in each[of].items() if name.startswith(known)])


def _worst(of: str, distance: float) -> Cell:
    """Return the middle and the largest |error| / std at a distance."""

    def cell(reports: Sequence[Report]) -> str:
        found = _numbers(reports, of, (distance,), 0)
        return f"{np.median(found):.1f}, {found.max():.1f}" if found.size else "-"

    return cell


def _width(reports: Sequence[Report]) -> str:
    """Return the middle std at 1.5 times the range, as a share of the targets'."""
    return f"{np.median(_numbers(reports, 'cells', (1.5,), 1)):.2f}"


COLUMNS: dict[str, Cell] = {
    **{f"{distance:g} x": _worst("cells", distance) for distance in DISTANCES},
    "std at 1.5 x": _width,
    **{f"process {distance:g} x": _worst("process", distance) for distance in DISTANCES[2:]},
}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_fits(parser)
    add_names(parser, kinds=KINDS)
    add_counts(parser, functions=(3, "of each kind"))


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    jobs = [
        fit_job(f"beyond-{kind}-{number}-{options.budget}", kind, task, kind, number, options.budget)
        for number in range(options.functions)
        for kind in options.kinds
    ]
    lines = fits_of(jobs, options)
    print("|error| / std, middle and largest; std as a share of the targets'\n")
    print(grouped("function", COLUMNS, lines))
    every = [report for reports in lines.values() for report in reports]
    for of in ("cells", "process"):
        near, far = (_numbers(every, of, distances, 0) for distances in (DISTANCES[:3], DISTANCES[3:]))
        print(
            f"\n{of}: of {near.size} cells at 1.1 to 1.5 x {100 * (near <= 3).mean():.0f} % are at most 3, the largest "
            f"is {near.max():.1f}; of {far.size} at 2 x {100 * (far <= 10).mean():.0f} % at most 10, {far.max():.1f}"
        )
    narrow, flags = (_numbers(every, "cells", DISTANCES, place) for place in (2, 3))
    print(
        f"\nstd less than at the edge in {(narrow < 0.99).sum()} cells of {narrow.size}; "
        f"{100 * np.mean(np.square(flags)):.0f} % of the rows are said to be an extrapolation"
    )
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
