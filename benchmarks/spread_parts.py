"""`python -m benchmarks.spread_parts`: what both parts of `std` are worth where function and noise are known.

Made-up tables whose target is a known function of the features plus Gaussian noise of standard deviation 1. So on fresh
rows `aleatoric_std` can be compared with the noise, and `epistemic_std` with the error of the mean. The aims: noise
within 15 %, and a root mean square `epistemic_std` of 0.8 to 1.25 times the root mean square error of the mean.

- *Friedman*: Friedman's function (1991) of five of ten uniform numbers.
- *sinusoids*: a sum of sines of five of six uniform numbers, one of them of a sum of two.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.command_line import add_output, numbers, positive, some_of
from benchmarks.results import facts, table, write_json
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import use_threads_for_fitting
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["FUNCTIONS", "friedman", "main", "measure", "render", "sinusoids"]

FRESH = 2_000
ROWS = [200, 400, 1600, 5000]


def friedman(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Friedman's function of the first five columns of ``[N, D]`` (Friedman 1991, "Multivariate adaptive regression").

    Returns:
        ``[N]``.
    """
    waves = 10.0 * np.sin(np.pi * x[:, 0] * x[:, 1])
    return np.asarray(waves + 20.0 * (x[:, 2] - 0.5) ** 2 + 10.0 * x[:, 3] + 5.0 * x[:, 4])


def sinusoids(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """A sum of sines of the first five columns of ``[N, D]``, ``[N]``."""
    slow = 4.0 * np.sin(np.pi * x[:, 0]) + 3.0 * np.sin(2.0 * np.pi * x[:, 1])
    return np.asarray(slow + 2.0 * np.sin(np.pi * (x[:, 2] + x[:, 3])) + np.sin(3.0 * np.pi * x[:, 4]))


FUNCTIONS: Mapping[str, tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], int]] = {
    "Friedman": (friedman, 10),
    "sinusoids": (sinusoids, 6),
}
"""Name → function, and number of features."""


def measure(name: str, rows: int, seed: int) -> dict[str, float]:
    """Train on a table of so many rows, and compare the answers to `FRESH` further rows with the truth.

    Returns:
        ``noise``, root mean square `aleatoric_std` over the noise; ``doubt``, root mean square `epistemic_std` over the
        root mean square error of the mean; ``raw noise`` and ``raw doubt`` of the answers that are not calibrated.
    """
    function, features = FUNCTIONS[name]
    generator = np.random.default_rng((seed, list(FUNCTIONS).index(name)))
    x = generator.random((rows + FRESH, features))
    truth = function(x)
    columns = {f"x{number}": column for number, column in enumerate(x.T, start=1)}
    made = pa.table({**columns, "y": truth + generator.standard_normal(len(x))})
    with use_threads_for_fitting("cpu"):
        posterior = train(made.slice(0, rows), "y", make_options({"seed": seed}), reporter=Reporter()).posterior
        asked = columns_from_table(made.slice(rows), posterior.schema)
        found: dict[str, float] = {}
        for prefix, calibrated in (("", True), ("raw ", False)):
            answer = posterior.predict(asked, PredictOptions(calibrated=calibrated))
            if answer.aleatoric_std is None or answer.epistemic_std is None:
                raise AssertionError("an answer from draws has both parts of std")
            found[f"{prefix}noise"] = _rms(answer.aleatoric_std)
            found[f"{prefix}doubt"] = _rms(answer.epistemic_std) / _rms(answer.mean - truth[rows:])
    return found


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def render(runs: Sequence[Mapping[str, Any]]) -> str:
    """The table: one line for each function and number of rows, means over seeds.

    Args:
        runs: What `measure` returned, with ``function``, ``rows`` and ``seed``.
    """
    lines = []
    for key in dict.fromkeys((run["function"], run["rows"]) for run in runs):
        same = [run for run in runs if (run["function"], run["rows"]) == key]
        kinds = ("noise", "doubt", "raw noise", "raw doubt")
        means = [f"{np.mean([run[kind] for run in same]):.2f}" for kind in kinds]
        lines.append([key[0], str(key[1]), str(len(same)), *means])
    headers = ["function", "rows", "seeds", "noise: aleatoric / true", "doubt: epistemic / error"]
    return table([*headers, "raw noise", "raw doubt"], lines)


def _measured(name: str, rows: int, seed: int) -> dict[str, Any]:
    return {"function": name, "rows": rows, "seed": seed, **measure(name, rows, seed)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spread_parts", description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--functions", type=some_of(FUNCTIONS, "function"), default=list(FUNCTIONS), help="default both"
    )
    parser.add_argument("--rows", type=numbers, default=ROWS, metavar="N,…", help="default 200,400,1600,5000")
    parser.add_argument("--seeds", type=positive, default=1, metavar="N", help="seeds 0 to N - 1 (default 1)")
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, metavar="N", help="fits at a time")
    add_output(parser)
    options = parser.parse_args(arguments)
    tasks = [
        (name, rows, seed)
        for name in options.functions
        for rows in sorted(options.rows)
        for seed in range(options.seeds)
    ]
    runs = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for result in pool.map(_measured, *zip(*tasks, strict=True)):
            runs.append(result)
            print(result, file=sys.stderr, flush=True)
    print(render(runs))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "spread_parts.json"
    write_json(path, {"benchmark": "spread_parts", **facts(), "runs": runs})
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
