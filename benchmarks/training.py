"""`python -m benchmarks.training`: time and memory of `murho train` with its defaults.

The tables are synthetic: a smooth function of normal inputs, with heteroscedastic noise. Each is written to a CSV file,
and the real command is run on it in a process of its own. Its peak memory is shown beside that of a bare process, which
imports the same modules and does nothing; the difference is the table and the training. The held-out RMSE is shown
relative to the noise, the error of a perfect prediction, as a check that the training learned the function.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import csv

from benchmarks.command_line import add_output, add_rounds, pairs
from benchmarks.processes import run_script
from benchmarks.results import facts, table, write_json
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["MadeUp", "made_up_table", "main", "measure"]

TABLES = "1000x8,50000x10"
TARGET = "y"
NAME = "table"
SEED = 0


class MadeUp(NamedTuple):
    """A synthetic table with a known function and known noise.

    Attributes:
        table: Columns ``x0`` to ``x(D-1)`` and ``y``, N rows.
        function: The target without noise, ``[N]``.
        sigma: Standard deviation of the noise, ``[N]``.
    """

    table: pa.Table
    function: NDArray[np.float64]
    sigma: NDArray[np.float64]

    @property
    def noise(self) -> float:
        """Root mean square of ``sigma``: the RMSE of a perfect prediction."""
        return float(np.sqrt(np.mean(self.sigma**2)))


def made_up_table(rows: int, inputs: int, seed: int = SEED) -> MadeUp:
    """A non-linear regression problem with heteroscedastic noise.

    a to d are projections of the normal inputs on four random directions, each of unit variance. The target is
    sin(2a) + bc + d/2, the noise normal with standard deviation 0.3 exp(d/2).

    Args:
        rows: N.
        inputs: D.
        seed: Seed of inputs, directions and noise.
    """
    generator = np.random.default_rng([seed, rows, inputs])
    directions = generator.normal(size=(inputs, 4))
    values = generator.normal(size=(rows, inputs))
    a, b, c, d = (values @ (directions / np.linalg.norm(directions, axis=0))).T
    function, sigma = np.sin(2.0 * a) + b * c + 0.5 * d, 0.3 * np.exp(0.5 * d)
    target = function + sigma * generator.normal(size=rows)
    columns = {f"x{number}": column for number, column in enumerate(values.T)}
    return MadeUp(pa.table({**columns, TARGET: target}), function, sigma)


def measure(rows: int, inputs: int, *, rounds: int = 1, budget: float | None = None) -> dict[str, Any]:
    """Measures `murho train` on a synthetic table.

    Args:
        rows: N.
        inputs: D.
        rounds: Number of trainings.
        budget: The option ``--budget`` of `murho train`, seconds; by default it is not given.

    Returns:
        ``rows``, ``inputs`` and ``noise`` of the `MadeUp` table; held-out ``rmse``; and, one number per round, ``wall``
        and ``processor``, seconds, ``peak_memory_bytes`` and ``bare_memory_bytes``. ``not_imported``: modules that the
        bare process could not import on their own.

    Raises:
        ProcessError: A process failed.
    """
    synthetic = made_up_table(rows, inputs)
    report: dict[str, Any] = {"rows": rows, "inputs": inputs, "noise": synthetic.noise}
    lists: dict[str, list[float]] = {
        name: [] for name in ("wall", "processor", "peak_memory_bytes", "bare_memory_bytes")
    }
    with tempfile.TemporaryDirectory() as folder:
        path, checkpoints = Path(folder) / f"{NAME}.csv", Path(folder) / "checkpoints"
        csv.write_csv(synthetic.table, path)
        command = ["train", str(path), "--target", TARGET, "--checkpoints", str(checkpoints)]
        command += [] if budget is None else ["--budget", f"{budget:g}"]
        for version in range(1, rounds + 1):
            began = time.perf_counter()
            answer = run_script("murho_command", *command)
            lists["wall"].append(time.perf_counter() - began)
            lists["processor"].append(answer["processor"])
            lists["peak_memory_bytes"].append(answer["peak"])
            bare = run_script("bare_process", given=orjson.dumps(answer["modules"]))
            lists["bare_memory_bytes"].append(bare["peak"])
            trained = orjson.loads((checkpoints / NAME / str(version) / "model.json").read_bytes())
    return report | {"rmse": trained["metrics"]["rmse"], **lists, "not_imported": bare["missed"]}


def render(reports: Sequence[dict[str, Any]]) -> str:
    """The table: medians of the rounds."""
    rows = []
    for report in reports:
        peak, bare = ([value / 2**20 for value in report[name]] for name in ("peak_memory_bytes", "bare_memory_bytes"))
        rows.append(
            [
                f"{report['rows']:,} x {report['inputs']}",
                *(f"{statistics.median(report[name]):.1f}" for name in ("wall", "processor")),
                *(f"{statistics.median(values):.0f}" for values in (peak, bare)),
                f"{statistics.median(one - other for one, other in zip(peak, bare, strict=True)):.0f}",
                f"{report['rmse'] / report['noise']:.2f}",
            ]
        )
    headers = [
        "rows x inputs",
        "seconds",
        "CPU seconds",
        "peak, MiB",
        "bare, MiB",
        "above bare",
        "RMSE to noise",
    ]
    return table(headers, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=str(__doc__).splitlines()[0])
    read = pairs("table", "rows x inputs, such as 1000x8")
    parser.add_argument(
        "--tables", type=read, default=read(TABLES), metavar="NxD", help=f"rows x inputs (default {TABLES})"
    )
    parser.add_argument(
        "--budget", type=float, metavar="S", help="seconds per training (default: that of `murho train`)"
    )
    add_rounds(parser, 1, "trainings on each table")
    add_output(parser)
    options = parser.parse_args(arguments)
    reports: list[dict[str, Any]] = []
    kept = {
        "benchmark": "training",
        **facts(),
        "threads": 1,  # of `murho train` on a CPU
        "seed": SEED,
        "budget": options.budget,
        "tables": reports,
    }
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "training.json"
    for rows, inputs in options.tables:
        print(f"training on {rows:,} x {inputs}", file=sys.stderr, flush=True)
        try:
            reports.append(measure(rows, inputs, rounds=options.rounds, budget=options.budget))
        except MurhoError as error:
            print(error, file=sys.stderr)
            return 1
        write_json(path, kept)
    print(render(reports))
    print(f"\nwrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
