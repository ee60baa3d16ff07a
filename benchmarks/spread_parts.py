"""`python -m benchmarks.spread_parts`: what both parts of `std` are worth where function and noise are known.

Made-up tables whose target is a known function of the features plus Gaussian noise of standard deviation 1. So on fresh
rows `aleatoric_std` can be compared with the noise, and `epistemic_std` with the error of the mean. The aims: noise
within 15 %, and a root mean square `epistemic_std` of 0.85 to 1.2 times the root mean square error of the mean.

- *Friedman*: Friedman's function (1991) of five of ten uniform numbers.
- *sinusoids*: a sum of sines of five of six uniform numbers, one of them of a sum of two.
- *linear*: a linear function of five of eight.
- *pairs*: the sum of two products of two of six.
- *logistic*: a logistic function of a linear one of five of eight.
- *bump*: a Gaussian bump in three of five.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.results import Report, add_counts, add_names, command, numbers
from benchmarks.runner import Task, add_fits, fit_job, fits_of, grouped, mean
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike

    from murho.model.arrays import Doubles
    from murho.model.training.train import Trained

FRESH = 2_000
COLUMNS = {
    "noise: aleatoric / true": mean("noise"),
    "doubt: epistemic / error": mean("doubt"),
    "raw noise": mean("raw_noise"),
    "raw doubt": mean("raw_doubt"),
}


def friedman(x: Doubles) -> Doubles:
    """Friedman's function (1991, "Multivariate adaptive regression") of the first five columns of ``[N, D]``."""
    waves = 10.0 * np.sin(np.pi * x[:, 0] * x[:, 1])
    return np.asarray(waves + 20.0 * (x[:, 2] - 0.5) ** 2 + 10.0 * x[:, 3] + 5.0 * x[:, 4])


def sinusoids(x: Doubles) -> Doubles:
    """Return a sum of sines of the first five columns of ``[N, D]``, ``[N]``."""
    slow = 4.0 * np.sin(np.pi * x[:, 0]) + 3.0 * np.sin(2.0 * np.pi * x[:, 1])
    return np.asarray(slow + 2.0 * np.sin(np.pi * (x[:, 2] + x[:, 3])) + np.sin(3.0 * np.pi * x[:, 4]))


def linear(x: Doubles) -> Doubles:
    """Return a linear function of the first five columns of ``[N, D]``, ``[N]``."""
    return np.asarray(x[:, :5] @ (10.0, 8.0, 6.0, 4.0, 2.0))


def pairs(x: Doubles) -> Doubles:
    """Return the sum of two products of two of the first four columns of ``[N, D]``, ``[N]``."""
    middle = x - 0.5
    return np.asarray(32.0 * middle[:, 0] * middle[:, 1] + 16.0 * middle[:, 2] * middle[:, 3])


def logistic(x: Doubles) -> Doubles:
    """Return a logistic function of a linear one of the first five columns of ``[N, D]``, ``[N]``."""
    return np.asarray(10.0 / (1.0 + np.exp(-(x[:, :5] - 0.5) @ (8.0, -6.0, 4.0, -3.0, 2.0))))


def bump(x: Doubles) -> Doubles:
    """Return a Gaussian bump in the middle of the first three columns of ``[N, D]``, ``[N]``."""
    return np.asarray(10.0 * np.exp(-8.0 * np.square(x[:, :3] - 0.5).sum(axis=1)))


FUNCTIONS: Mapping[str, tuple[Callable[[Doubles], Doubles], int]] = {
    "Friedman": (friedman, 10),
    "sinusoids": (sinusoids, 6),
    "linear": (linear, 8),
    "pairs": (pairs, 6),
    "logistic": (logistic, 8),
    "bump": (bump, 5),
}
"""Name → function, and number of features."""


def task(name: str, rows: int, seed: int, budget: float | None = None) -> Task:
    """So many rows, and `FRESH` others.

    The report gets ``noise``, root mean square `aleatoric_std` over the noise, ``doubt``, root mean square
    `epistemic_std` over the root mean square error of the mean, and both of the raw answers.
    """
    function, features = FUNCTIONS[name]
    generator = np.random.default_rng((seed, list(FUNCTIONS).index(name)))
    x = generator.random((rows + FRESH, features))
    truth = function(x)
    columns = {f"x{number}": column for number, column in enumerate(x.T, start=1)}
    made = pa.table({**columns, "y": truth + generator.standard_normal(len(x))})
    fresh = made.slice(rows)

    def parts(trained: Trained) -> Report:
        asked, found = columns_from_table(fresh, trained.posterior.schema), {}
        for prefix, calibrated in (("", True), ("raw_", False)):
            answer = trained.posterior.predict(asked, PredictOptions(calibrated=calibrated))
            found[f"{prefix}noise"] = _rms(answer.aleatoric_std)
            found[f"{prefix}doubt"] = _rms(answer.epistemic_std) / _rms(answer.mean - truth[rows:])
        return found

    return Task(made.slice(0, rows), fresh, "y", {"seed": seed, "budget": budget}, parts)


def _rms(values: ArrayLike | None) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(values, dtype=np.float64)))))


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_fits(parser)
    add_names(parser, functions=FUNCTIONS)
    parser.add_argument("--rows", type=numbers, default=[200, 400, 1600, 5000], metavar="N,…", help="200,400,1600,5000")
    add_counts(parser, seeds=(1, "seeds 0 to N - 1"))


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    jobs = []
    for name in options.functions:
        for rows in options.rows:
            for seed in range(options.seeds):
                parts = f"spread-{name}-{rows}-{seed}-{options.budget}"
                jobs.append(fit_job(parts, f"{name}, {rows} rows", task, name, rows, seed, options.budget))
    lines = fits_of(jobs, options)
    print(grouped("table", COLUMNS, lines))
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
