"""Trains on a part of the example's cars and looks at the others: what the README promises of its bands."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from murho.cli.train import read_config
from murho.model.evaluation.judging import evaluate_table
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table, target_from_table
from murho.model.tables.table_files import read_table
from murho.model.training.options import make_options
from murho.model.training.train import train
from tests.model.conftest import Notes, present
from tests.support import ROOT

HELD_OUT = 80


def coverages_and_far_ratios(seeds: int) -> tuple[list[float], list[float]]:
    """For each seed what calibrated 90 % bands cover, and how much wider epistemic_std is at three times the weight."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        coverages, ratios = zip(*pool.map(_coverage_and_far_ratio, range(seeds)), strict=True)
    return list(coverages), list(ratios)


def _coverage_and_far_ratio(seed: int) -> tuple[float, float]:
    config = read_config(ROOT / "examples" / "cars.toml")
    target = str(config.pop("target"))
    cars = read_table(ROOT / "examples" / "cars.csv")
    cars = cars.take(np.flatnonzero(~np.isnan(target_from_table(cars, target))))
    order = np.random.default_rng(seed).permutation(cars.num_rows)
    options = make_options(config | {"seed": seed})
    posterior = train(cars.take(order[HELD_OUT:]), target, options, reporter=Notes()).posterior
    held_out = cars.take(order[:HELD_OUT])
    columns = columns_from_table(held_out, posterior.schema)
    heavy = dict(columns) | {"Weight_in_lbs": 3.0 * columns["Weight_in_lbs"]}
    near, far = (
        float(np.median(present(posterior.predict(rows, PredictOptions()).epistemic_std))) for rows in (columns, heavy)
    )
    return evaluate_table(posterior, held_out)["calibrated"]["coverage"]["90"], far / near
