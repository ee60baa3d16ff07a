"""`python -m benchmarks.cars`: coverage on held-out cars, and epistemic uncertainty about cars unlike any in the table.

For each of ten seeds, a fifth of the example's cars is held out, a checkpoint is trained on the others with the
defaults, and its bands are scored on the held-out cars. Then each of these cars is made three times as heavy.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.results import ROOT, facts, parse_options, table, write_json
from murho.cli.train import read_config
from murho.model.evaluation.judging import judge_encoded
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import use_threads_for_fitting
from murho.model.tables.files import read_table
from murho.model.tables.schema_inference import columns_from_table, target_from_table
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "measure", "measure_all"]

EXAMPLES = ROOT / "examples"
HELD_OUT = 80
SEEDS = 10


def measure(seed: int) -> dict[str, Any]:
    """Trains on all but 80 cars and scores the 80.

    Args:
        seed: Seed of the choice of held-out cars and of the fit.

    Returns:
        `model.evaluation.numbers.JudgedNumbers.report`, with ``far_ratio``, the median epistemic_std of the
        held-out cars at three times their weight over the median at their own weight; ``seconds`` of the training.
    """
    config = read_config(EXAMPLES / "cars.toml")
    target = str(config.pop("target"))
    cars = read_table(EXAMPLES / "cars.csv")
    cars = cars.take(np.flatnonzero(~np.isnan(target_from_table(cars, target))))
    order = np.random.default_rng(seed).permutation(cars.num_rows)
    began = time.monotonic()
    with use_threads_for_fitting("cpu"):
        posterior = train(
            cars.take(order[HELD_OUT:]), target, make_options(config | {"seed": seed}), reporter=Reporter()
        ).posterior
    seconds = time.monotonic() - began
    held_out = cars.take(order[:HELD_OUT])
    columns = columns_from_table(held_out, posterior.schema)
    heavy = dict(columns) | {"Weight_in_lbs": 3.0 * columns["Weight_in_lbs"]}
    near, far = (posterior.predict(rows, PredictOptions()).epistemic_std for rows in (columns, heavy))
    if near is None or far is None:
        raise AssertionError("256 samples have a spread")
    report = judge_encoded(posterior, posterior.encoder.encode(columns), target_from_table(held_out, target)).report()
    return report | {"far_ratio": float(np.median(far) / np.median(near)), "seconds": seconds}


def measure_all(first_seed: int = 0, count: int = SEEDS) -> list[dict[str, Any]]:
    """Runs `measure` for `count` seeds, one at a time per core."""
    seeds = range(first_seed, first_seed + count)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return list(pool.map(measure, seeds))


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table and writes the JSON."""
    options = parse_options("cars", str(__doc__).splitlines()[0], arguments)
    runs = measure_all(options.seed)
    rows = []
    for number, run in enumerate(runs):
        cells = [f"{run[key]:.3f}" for key in ("rmse", "nll", "crps")]
        cells += [f"{100.0 * run[kind]['coverage']['90']:.1f}" for kind in ("raw", "calibrated")]
        cells += [f"{run[kind]['width']['90']:.2f}" for kind in ("raw", "calibrated")]
        rows.append([str(options.seed + number), *cells, f"{run['far_ratio']:.1f}", f"{run['seconds']:.1f}"])
    numbers = np.array([[float(cell) for cell in row[1:]] for row in rows])
    rows.append(["mean", *(f"{value:.3g}" for value in numbers.mean(axis=0))])
    headers = ["seed", "RMSE", "NLL", "CRPS", "raw 90 %", "calibrated 90 %", "raw width", "calibrated width"]
    sys.stdout.write(table([*headers, "far ratio", "seconds"], rows) + "\n")
    options.output.mkdir(parents=True, exist_ok=True)
    path = Path(options.output) / "cars.json"
    write_json(path, {"benchmark": "cars", **facts(), "runs": runs})
    sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
