"""`python -m benchmarks.idle`: made-up tables of few rows and many features, most of which tell nothing of the target.

Fits with ``--idle-features auto`` and ``keep`` are scored on fresh rows, beside an exact Gaussian process with a length
scale for each input (scikit-learn). The true function and the noise of each table are known.

- *Friedman*: Friedman's function of 5 of 10 numbers, 200 rows, noise 1.
- *categories*: a smooth function of 5 of 15 numbers and of 2 of 15 categories, 160 rows, noise 0.3.
- *hundred*: a smooth function of 4 of 100 numbers, 300 rows, noise 0.5.
- *nothing*: 40 numbers and a target of noise 1 alone, 120 rows.
- *all*: 20 numbers that go together, all with the same small effect, 150 rows, noise 1: none is idle.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.command_line import add_output, positive, shown, some_of
from benchmarks.distributions import crps_of_normals
from benchmarks.results import facts, table, write_json
from murho.model.evaluation.judging import evaluate_table
from murho.model.runtime import use_threads_for_fitting
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["TABLES", "MadeTable", "gaussian_process_crps", "main", "make", "measure", "render"]

FRESH = 2_000
COVERAGE = "90"
CHOICES = ("keep", "auto")


@dataclass(frozen=True, slots=True)
class MadeTable:
    """Rows of a made-up table.

    Attributes:
        columns: The features, ``[N]`` each: numbers, or categories as text.
        function: The true mean of the target, ``[N]``.
        target: The target, ``[N]``.
    """

    columns: Mapping[str, NDArray[Any]]
    function: NDArray[np.float64]
    target: NDArray[np.float64]

    @property
    def rows(self) -> pa.Table:
        """Features, and the target as ``y``."""
        return pa.table({**self.columns, "y": self.target})


def _numbers(values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    return {f"x{number}": column for number, column in enumerate(values.T)}


def _friedman(_: np.random.Generator, generator: np.random.Generator, rows: int) -> Any:
    x = generator.random((rows, 10))
    function = 10.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20.0 * (x[:, 2] - 0.5) ** 2 + 10.0 * x[:, 3] + 5.0 * x[:, 4]
    return _numbers(x), function, 1.0


def _categories(world: np.random.Generator, generator: np.random.Generator, rows: int) -> Any:
    levels = world.integers(3, 9, 15)
    x = generator.standard_normal((rows, 15))
    category = np.column_stack([generator.integers(0, count, rows) for count in levels])
    size, phase = world.standard_normal(3), 6.0 * world.random(3)
    effects = [world.standard_normal(count) for count in levels[:2]]
    function = (
        size[0] * np.sin(x[:, 0] + phase[0])
        + size[1] * np.tanh(x[:, 1] * x[:, 2])
        + size[2] * np.cos(1.3 * x[:, 3])
        + 0.7 * x[:, 4]
        + 0.6 * effects[0][category[:, 0]]
        + 0.6 * effects[1][category[:, 1]] * np.tanh(x[:, 0])
    )
    named = {f"c{number}": np.array([f"level {value}" for value in column]) for number, column in enumerate(category.T)}
    return _numbers(x) | named, function, 0.3


def _hundred(_: np.random.Generator, generator: np.random.Generator, rows: int) -> Any:
    x = generator.standard_normal((rows, 100))
    return _numbers(x), np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3], 0.5


def _nothing(_: np.random.Generator, generator: np.random.Generator, rows: int) -> Any:
    return _numbers(generator.standard_normal((rows, 40))), np.zeros(rows), 1.0


def _all(_: np.random.Generator, generator: np.random.Generator, rows: int) -> Any:
    x = 0.6 * generator.standard_normal((rows, 1)) + 0.8 * generator.standard_normal((rows, 20))
    return _numbers(x), x.sum(axis=1) / np.sqrt(20.0), 1.0


TABLES: Mapping[str, tuple[Callable[[np.random.Generator, np.random.Generator, int], Any], int]] = {
    "Friedman": (_friedman, 200),
    "categories": (_categories, 160),
    "hundred": (_hundred, 300),
    "nothing": (_nothing, 120),
    "all": (_all, 150),
}
"""Name → maker of the table, and its rows."""


def make(name: str, seed: int) -> tuple[MadeTable, MadeTable]:
    """The training rows and `FRESH` further rows of a table."""
    maker, count = TABLES[name]
    made = []
    for part, rows in enumerate((count, FRESH)):
        key = (seed, list(TABLES).index(name))
        generator = np.random.default_rng((*key, 1 + part))
        columns, function, noise = maker(np.random.default_rng((*key, 0)), generator, rows)
        made.append(MadeTable(columns, function, function + noise * generator.standard_normal(rows)))
    return made[0], made[1]


def measure(name: str, seed: int, choice: str) -> dict[str, Any]:
    """Train on a table.

    Args:
        name: Name of the table.
        seed: Seed of table and training.
        choice: Value of ``--idle-features``.

    Returns:
        The CRPS that the training prints, the true one, the coverage of calibrated 90 % bands on fresh rows, and how
        many features each member does without: the least and the most of any member.
    """
    rows, fresh = make(name, seed)
    with use_threads_for_fitting("cpu"):
        trained = train(rows.rows, "y", make_options({"seed": seed, "idle_features": choice}), reporter=Reporter())
    report = evaluate_table(trained.posterior, fresh.rows)
    unread = [len(names) for names in trained.evidence.chosen.candidate.unread] or [0]
    return {
        "printed": trained.spec.metrics["crps"],
        "crps": report["crps"],
        "coverage": (report["calibrated"] or report["raw"])["coverage"][COVERAGE],
        "fewest_unread": min(unread),
        "most_unread": max(unread),
    }


def gaussian_process_crps(name: str, seed: int) -> float:
    """CRPS on fresh rows of a Gaussian process with a length scale for each input and learned noise."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    rows, fresh = make(name, seed)
    inputs, asked = _one_hot(rows, rows), _one_hot(fresh, rows)
    mean, scale = inputs.mean(axis=0), inputs.std(axis=0) + 1e-9
    middle, spread = rows.target.mean(), rows.target.std()
    kernel = ConstantKernel() * RBF(np.full(inputs.shape[1], 3.0), (0.1, 1e4)) + WhiteKernel(0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        process = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=0)
        process.fit((inputs - mean) / scale, (rows.target - middle) / spread)
    found, std = process.predict((asked - mean) / scale, return_std=True)
    return crps_of_normals(found * spread + middle, std * spread, fresh.target)


def _one_hot(made: MadeTable, training: MadeTable) -> NDArray[np.float64]:
    parts = []
    for name, column in made.columns.items():
        known = training.columns[name]
        parts.append(
            column[:, None] if known.dtype.kind == "f" else (column[:, None] == np.unique(known)).astype(float)
        )
    return np.concatenate(parts, axis=1)


def render(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The table, one line for each made-up table.

    Args:
        runs: Name of the table → for each seed the returned values of `measure` by ``--idle-features``, and the CRPS of
            the Gaussian process.
    """
    headers = ["table", "seeds", "CRPS keep", "auto", "GP", "auto / keep", "auto / GP"]
    headers += ["90 % bands cover", "CRPS printed / true", "features left out"]
    lines = []
    for name, results in runs.items():
        auto, keep = [one["auto"] for one in results], [one["keep"] for one in results]
        processes = [one["gaussian process"] for one in results]
        crps = [one["crps"] for one in auto]
        left_out = [one[end] for one in auto for end in ("fewest_unread", "most_unread")]
        lines.append(
            [
                name,
                str(len(results)),
                f"{np.mean([one['crps'] for one in keep]):.3f}",
                f"{np.mean(crps):.3f}",
                f"{np.mean(processes):.3f}",
                f"{_ratio(crps, [one['crps'] for one in keep]):.2f}",
                f"{_ratio(crps, processes):.2f}",
                shown([100.0 * one["coverage"] for one in auto]),
                f"{_ratio([one['printed'] for one in auto], crps):.2f}",
                f"{min(left_out)} to {max(left_out)}",
            ]
        )
    return table(headers, lines)


def _ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Geometric mean of the ratios."""
    return float(np.exp(np.mean(np.log(np.divide(values, others)))))


def _measured(name: str, seed: int) -> dict[str, Any]:
    return {choice: measure(name, seed, choice) for choice in CHOICES} | {
        "gaussian process": gaussian_process_crps(name, seed),
        "seed": seed,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=str(__doc__).splitlines()[0])
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="seeds 0 to N - 1 (default 3)")
    parser.add_argument("--tables", type=some_of(TABLES, "table"), default=list(TABLES), help="default all")
    add_output(parser)
    options = parser.parse_args(arguments)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in options.tables}
    tasks = [(name, seed) for name in options.tables for seed in range(options.seeds)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for (name, seed), result in zip(tasks, pool.map(_measured, *zip(*tasks, strict=True)), strict=True):
            runs[name].append(result)
            print(f"{name}, seed {seed}: {result}", file=sys.stderr, flush=True)
    print(render(runs))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "idle.json"
    write_json(path, {"benchmark": "idle", **facts(), "runs": runs})
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
