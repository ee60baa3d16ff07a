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

import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from benchmarks.results import Report, add_counts, add_names, command
from benchmarks.runner import Task, add_fits, fit_job, fits_of, geometric, grouped, mean
from benchmarks.scores import crps_of_normals
from benchmarks.spread_parts import friedman

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from murho.model.training.train import Trained

    Generator: TypeAlias = np.random.Generator
    Maker: TypeAlias = Callable[[Generator, Generator, int], tuple[dict[str, NDArray[Any]], NDArray[np.float64], float]]
    """From generators of the world and of the rows, and a number of rows, to features, function and noise."""

__all__ = ["TABLES", "gaussian_process_crps", "main", "make", "task"]

FRESH = 2_000
COLUMNS = {
    "CRPS keep": mean("keep.crps"),
    "auto": mean("crps"),
    "GP": mean("gp"),
    "auto / GP": geometric("crps", "gp"),
}


def _numbers(values: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    return {f"x{number}": column for number, column in enumerate(values.T)}


def _friedman(_: Generator, generator: Generator, rows: int) -> Any:
    x = generator.random((rows, 10))
    return _numbers(x), friedman(x), 1.0


def _categories(world: Generator, generator: Generator, rows: int) -> Any:
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


def _hundred(_: Generator, generator: Generator, rows: int) -> Any:
    x = generator.standard_normal((rows, 100))
    return _numbers(x), np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3], 0.5


def _nothing(_: Generator, generator: Generator, rows: int) -> Any:
    return _numbers(generator.standard_normal((rows, 40))), np.zeros(rows), 1.0


def _all(_: Generator, generator: Generator, rows: int) -> Any:
    x = 0.6 * generator.standard_normal((rows, 1)) + 0.8 * generator.standard_normal((rows, 20))
    return _numbers(x), x.sum(axis=1) / np.sqrt(20.0), 1.0


TABLES: Mapping[str, tuple[Maker, int]] = {
    "Friedman": (_friedman, 200),
    "categories": (_categories, 160),
    "hundred": (_hundred, 300),
    "nothing": (_nothing, 120),
    "all": (_all, 150),
}
"""Name → maker of the table, and its rows."""


def make(name: str, seed: int) -> tuple[pa.Table, pa.Table]:
    """The training rows and `FRESH` further rows of a table: the features, and the target as ``y``."""
    maker, count = TABLES[name]
    key, made = (seed, list(TABLES).index(name)), []
    for part, rows in enumerate((count, FRESH)):
        generator = np.random.default_rng((*key, 1 + part))
        columns, function, noise = maker(np.random.default_rng((*key, 0)), generator, rows)
        made.append(pa.table({**columns, "y": function + noise * generator.standard_normal(rows)}))
    return made[0], made[1]


def task(name: str, seed: int, choice: str, budget: float | None = None) -> Task:
    """A table; ``choice`` is the value of ``--idle-features``.

    The report of ``keep`` gets the CRPS of the Gaussian process.
    """
    rows, fresh = make(name, seed)

    def also(_: Trained) -> Report:
        return {"gp": gaussian_process_crps(rows, fresh)} if choice == "keep" else {}

    return Task(rows, fresh, "y", {"seed": seed, "idle_features": choice, "budget": budget}, also)


def gaussian_process_crps(rows: pa.Table, fresh: pa.Table) -> float:
    """CRPS on fresh rows of a Gaussian process with a length scale for each input and learned noise."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    known, asked = (part.to_pandas() for part in (rows, fresh))
    one_hot = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    texts = make_column_selector(dtype_exclude="number")
    encoder = make_pipeline(make_column_transformer((one_hot, texts), remainder="passthrough"), StandardScaler())
    inputs = encoder.fit_transform(known.drop(columns="y"))
    kernel = ConstantKernel() * RBF(np.full(inputs.shape[1], 3.0), (0.1, 1e4)) + WhiteKernel(0.3)
    process = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, normalize_y=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(inputs, known["y"])
    mean, std = process.predict(encoder.transform(asked.drop(columns="y")), return_std=True)
    return crps_of_normals(mean, std, asked["y"].to_numpy())


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_fits(parser)
    add_counts(parser, seeds=(3, "seeds 0 to N - 1"))
    add_names(parser, tables=TABLES)


def run(options: argparse.Namespace) -> Report:
    """Fits and prints."""
    jobs = [
        fit_job(
            f"idle-{name}-{seed}-{choice}-{options.budget}",
            f"{name} {choice}",
            task,
            name,
            seed,
            choice,
            options.budget,
        )
        for name in options.tables
        for seed in range(options.seeds)
        for choice in ("keep", "auto")
    ]
    lines = fits_of(jobs, options)
    beside = {
        name: [
            auto | {"keep": keep, "gp": keep["gp"]}
            for auto, keep in zip(lines[f"{name} auto"], lines[f"{name} keep"], strict=True)
        ]
        for name in options.tables
    }
    print(grouped("table", COLUMNS, beside))
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
