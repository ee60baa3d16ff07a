"""`python -m benchmarks.training`: time and memory of `murho train` with its defaults.

The tables are synthetic: a smooth function of normal inputs, with heteroscedastic noise. Each is written to a CSV file,
and the real command is run on it in a process of its own. The held-out RMSE is shown to the noise, the error of a
perfect prediction, as a check that the training learned the function.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import csv

from benchmarks.processes import murho_command
from benchmarks.results import Report, add_counts, command, positive, table

if TYPE_CHECKING:
    import argparse


def made_up_table(rows: int, inputs: int, seed: int = 0) -> tuple[pa.Table, float]:
    """Return a non-linear regression problem with heteroscedastic noise.

    a to d are projections of the normal inputs on four random directions, each of unit variance. The target is
    sin(2a) + bc + d/2, the noise normal with standard deviation 0.3 exp(d/2).

    Args:
        rows: N.
        inputs: D.
        seed: Seed of inputs, directions and noise.

    Returns:
        Columns ``x0`` to ``x(D-1)`` and ``y``, and the root mean square of the noise's standard deviation.
    """
    generator = np.random.default_rng([seed, rows, inputs])
    directions, values = generator.normal(size=(inputs, 4)), generator.normal(size=(rows, inputs))
    a, b, c, d = (values @ (directions / np.linalg.norm(directions, axis=0))).T
    sigma = 0.3 * np.exp(0.5 * d)
    target = np.sin(2.0 * a) + b * c + 0.5 * d + sigma * generator.normal(size=rows)
    columns = {f"x{number}": column for number, column in enumerate(values.T)}
    return pa.table({**columns, "y": target}), float(np.sqrt(np.mean(sigma**2)))


def measure(rows: int, inputs: int, *, rounds: int = 1, budget: float | None = None) -> Report:
    """Measure `murho train` on a synthetic table.

    Returns:
        ``noise`` and held-out ``rmse``; and, one number per round, ``wall`` and ``processor`` seconds and ``peak``
        memory in bytes.
    """
    made, noise = made_up_table(rows, inputs)
    lists: dict[str, list[float]] = {name: [] for name in ("wall", "processor", "peak")}
    with tempfile.TemporaryDirectory() as folder:
        path, checkpoints = Path(folder) / "table.csv", Path(folder) / "checkpoints"
        csv.write_csv(made, path)
        words = ["train", str(path), "--target", "y", "--checkpoints", str(checkpoints)]
        words += [] if budget is None else ["--budget", f"{budget:g}"]
        for _ in range(rounds):
            began = time.perf_counter()
            taken = murho_command(*words)
            found = {"wall": time.perf_counter() - began, **taken}
            for name, values in lists.items():
                values.append(found[name])
        trained = orjson.loads((checkpoints / "table" / str(rounds) / "model.json").read_bytes())
    return {"rows": rows, "inputs": inputs, "noise": noise, "rmse": trained["metrics"]["rmse"], **lists}


def _pairs(text: str) -> list[tuple[int, int]]:
    return [(positive(rows), positive(inputs)) for rows, _, inputs in (name.partition("x") for name in text.split(","))]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    tables = "1000x8,50000x10"
    parser.add_argument(
        "--tables", type=_pairs, default=_pairs(tables), metavar="NxD", help=f"rows x inputs ({tables})"
    )
    parser.add_argument("--budget", type=float, metavar="S", help="seconds per training (default: that of murho train)")
    add_counts(parser, rounds=(1, "trainings on each table"))


def run(options: argparse.Namespace) -> Report:
    """Measure and print medians of the rounds."""
    lines, reports = [], []
    for rows, inputs in options.tables:
        print(f"training on {rows:,} x {inputs}", file=sys.stderr, flush=True)
        report = measure(rows, inputs, rounds=options.rounds, budget=options.budget)
        reports.append(report)
        seconds = [f"{statistics.median(report[name]):.1f}" for name in ("wall", "processor")]
        peak, error = statistics.median(report["peak"]) / 2**20, report["rmse"] / report["noise"]
        lines.append([f"{rows:,} x {inputs}", *seconds, f"{peak:.0f}", f"{error:.2f}"])
    headers = ["rows x inputs", "seconds", "CPU seconds", "peak, MiB", "RMSE to noise"]
    print(table(headers, lines))
    return {"tables": reports}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
